"""Exported models for other runtimes than TensorFlow: LiteRT and ONNX Runtime."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import ExperimentConfig, from_json
from xling_tf.corpora.line_files import MAX_EXPANSION
from xling_tf.encoders.base import build_encoder
from xling_tf.errors import UserError, library
from xling_tf.files import RUNTIME_SETTINGS, replacing_folder
from xling_tf.hub.module import TRAINING, require_replaceable
from xling_tf.hub.runtimes import FORMAT, MODEL_FILES, load
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.layers.pooling import unit_length
from xling_tf.text.preprocessor import (
    TextPreprocessor,
    WordFeatures,
    build_preprocessor,
    read_vocabulary,
    vocabulary_file,
)
from xling_tf.text.sentencepiece import SentencePiecePreprocessor
from xling_tf.text.tokenization import BYTES_PER_TOKEN, EMPTY_TOKEN, RULES
from xling_tf.text.words import MAX_WORD_CHARACTERS, WordNgramPreprocessor

# What the exporting library has to offer: reductions and layer norms as ONNX Runtime fuses them.
_OPSET = 18
# Texts that the written model must encode as the exported one does: words known and unknown, contractions,
# numbers, scripts without spaces, marks, symbols, a blank one.
_PROBES = (
    "Don't go there, Ana: it's 10:30 already...",
    "¿Dónde está la biblioteca? «Allí», dijo.",
    "Grundstücksverkehrsgenehmigungszuständigkeit 1,234.5 U.S. 'quoted'",
    "我今天去公园散步。東京タワーへ行きました。",
    "สวัสดีครับ שלום مرحبا नमस्ते 😀👍🏽 x²≠½",
    " \t ",
)
_TOLERANCE = 1e-4
# In the rules: names of classes of characters, as RE2 knows them.
_CLASSES = (r"\pL", r"\pM", r"\pN", r"\pZ", r"\pC", r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}")

_CARD = """# A sentence encoder for {runtime}

Sentences to {dim}-dimensional vectors of unit length, those of the SavedModel that it was made of.
In Python, without TensorFlow:

    pip install 'xling_tf[runtimes]'

    from xling_tf.hub.runtimes import load
    load(".").encode(["Hola", "Hello"])             # float32 [2, {dim}]

`{model}` maps `ids`, int32 `[batch, tokens]` padded with 0, and `lengths`, int32 `[batch]`, to `outputs`,
float32 `[batch, {dim}]`. `{vocabulary}` has the {vocabulary_is}. In other languages, make ids by
what `runtime.json` calls:

1. `max_bytes`: a text is cut after {expansion} times as many bytes, brought to Unicode's NFC, and cut after
   `max_bytes`; bytes that are no UTF-8, such as half a character at a cut, become spaces.
{steps}"""
_PIECES = """2. SentencePiece gives the ids of the best segmentation; where there are none, take `[empty]`.
3. `max_tokens`: so many are kept, those in `begin` before them and in `end` after them included.
"""
_WORDS = r"""2. `lowercase`: if true, the text becomes lower case, by no language's own rules.
3. `rules`: patterns in RE2's syntax, each of whose matches is replaced, in this order. `classes` are the code
   points, first to last, that `\pL` and the like stand for in them.
4. The text is split at spaces, cut to `max_tokens`; where there is no word, it is the one in `empty`.
5. A word's id is the number of its line in the vocabulary, from 0.
"""
_HASHED = """   Others have the number of lines + FarmHash's Fingerprint64 of their UTF-8 % `num_buckets`.
"""
_SPELT = """   The distinct other words of a batch have the numbers that follow.
6. Of each of these, in that order, the input `buckets`, int32 `[words]`, has FarmHash's Fingerprint64 of its
   UTF-8 % `num_buckets`, and `ngrams`, int32 `[words, ngrams]`, the Fingerprint64 % `ngrams.num_buckets` of
   all runs of `ngrams.sizes` characters within `<word>`, cut to `ngrams.max_characters` between `<` and `>`.
   `ngrams.num_buckets` fills what is left, and a row of fill and bucket 0 a batch without such words.
"""
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}


def convert(model: Path, output: Path, runtime: str) -> None:
    """Writes an exported model for another runtime.

    Args:
        model: Folder of an exported model.
        output: Folder to write, new or of such an export, which it replaces.
        runtime: "litert" (the former TensorFlow Lite; of its built-in operations), or "onnx" for ONNX
            Runtime and whatever else reads ONNX.

    Raises:
        UserError: `model` is no export of xling_tf, `output` is something else, or a package is missing.
    """
    require_replaceable(output, f"--{runtime}", RUNTIME_SETTINGS)
    loaded = load_saved_model(model)
    config, preprocessor = _read_settings(model)
    graph = _Graph(config, preprocessor, [np.asarray(v) for v in loaded.trainable_variables])
    with replacing_folder(output) as temporary:
        (temporary / MODEL_FILES[runtime]).write_bytes(_CONVERTERS[runtime](graph))
        name, content = vocabulary_file(preprocessor.vocabulary)
        (temporary / name).write_bytes(content)
        settings = {
            "format": FORMAT,
            "runtime": runtime,
            "model": MODEL_FILES[runtime],
            "vocabulary": name,
            "dim": config.encoder.hidden_dim,
            "text": text_settings(preprocessor),
        }
        (temporary / RUNTIME_SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        (temporary / "README.md").write_text(_card(settings), encoding="utf-8")
        # Tried before it takes its place: an older model may have other rules for tokens.
        expected = loaded(tf.constant(_PROBES)).numpy()
        difference = float(np.abs(load(temporary).encode(_PROBES) - expected).max())
        if not difference <= _TOLERANCE:
            raise UserError(
                f"the vectors of {model} are expected from the converted model, but differ by "
                f"{difference:.2g}: it was exported with other rules for tokens; export it anew"
            )


def _read_settings(folder: Path) -> tuple[ExperimentConfig, TextPreprocessor]:
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
        config = from_json(ExperimentConfig, text)
        vocabulary = read_vocabulary(folder / TRAINING, config.text.tokenizer)
    except FileNotFoundError as error:
        raise UserError(
            f"a model exported by xling_tf is expected, with config.json and training/, but {error.filename} "
            "is not there; copy both from the export that the model was made of, or export it anew"
        ) from error
    return config, build_preprocessor(config.text, vocabulary)


class _Graph(tf.Module):
    """Maps ids, each a row of a table, to vectors.

    Where words are spelt, ids from the vocabulary's size on are numbers of words that `buckets`, `[words]`,
    and `ngrams`, `[words, ngrams]`, describe; the number of n-gram buckets stands in places left.

    Args:
        config: The model's.
        preprocessor: What gives the ids.
        weights: The model's variables, as `FoldedEncoder.weights` has them: tables, then the rest.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        preprocessor: TextPreprocessor,
        weights: Sequence[NDArray[np.float32]],
    ) -> None:
        super().__init__()
        body = build_encoder(config.encoder, preprocessor)
        self._body = lambda: body  # out of TensorFlow's sight, which would save Keras' own functions
        self.signature = [
            tf.TensorSpec([None, None], tf.int32, name="ids"),
            tf.TensorSpec([None], tf.int32, name="lengths"),
        ]
        shapes = [v.shape for v in body.table_variables]
        self._is_spelt = isinstance(preprocessor, WordNgramPreprocessor)
        if isinstance(preprocessor, WordNgramPreprocessor):
            self._ngram_rows = preprocessor.ngram_rows
            (words, dim), ngrams = shapes
            num_known, hidden = len(preprocessor.vocabulary), config.encoder.hidden_dim
            shapes = [(num_known, hidden), (words - num_known, dim), ngrams]
            self.signature += [
                tf.TensorSpec([None], tf.int32, name="buckets"),
                tf.TensorSpec([None, None], tf.int32, name="ngrams"),
            ]
        tables, rest = weights[: len(shapes)], weights[len(shapes) :]
        expected = [*shapes, *(v.shape for v in body.dense_variables)]
        if [array.shape for array in weights] != [tuple(shape) for shape in expected]:
            raise UserError(
                f"the model has {len(weights)} weights that are not of the sizes its config.json and its "
                f"vocabulary say ({len(expected)} weights): all must be of one model; export it anew"
            )
        for variable, value in zip(body.dense_variables, rest, strict=True):
            variable.assign(value)
        if self._is_spelt:  # a row for no n-gram
            tables = [*tables[:2], np.pad(tables[2], ((0, 1), (0, 0)))]
        self.dense = [v.value for v in body.dense_variables]
        self.tables = [tf.Variable(table) for table in tables]

    def encode(self, tables: Sequence[tf.Tensor], *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps inputs as in `signature` to `outputs`, `[batch, dim]` float32 of unit length."""
        ids, lengths, *spelling = inputs
        embed = self._embed_spelt if self._is_spelt else self._embed
        vectors = embed(tables, ids, *spelling)
        return {"outputs": unit_length(self._body().encode_tokens(vectors, lengths))}

    def _embed(self, tables: Sequence[tf.Tensor], ids: tf.Tensor) -> tf.Tensor:
        own = zip(self._body().table_variables, tables, strict=True)
        with keras.StatelessScope(state_mapping=list(own)):
            words = self._body().embed_words(WordFeatures.unspelt(tf.reshape(ids, [-1])))
        return tf.reshape(words, tf.concat([tf.shape(ids), [words.shape[-1]]], axis=0))

    def _embed_spelt(
        self, tables: Sequence[tf.Tensor], ids: tf.Tensor, buckets: tf.Tensor, ngrams: tf.Tensor
    ) -> tf.Tensor:
        known_rows, bucket_rows, ngram_rows = tables
        num_known = known_rows.shape[0]
        if self._ngram_rows is not None:  # the last row is that of no n-gram
            ngrams = tf.gather(np.append(self._ngram_rows, ngram_rows.shape[0] - 1), ngrams)
        sums = tf.reduce_sum(tf.gather(ngram_rows, ngrams), axis=1)
        words = tf.gather(bucket_rows, buckets)
        spelt = self._body().project(self._body().embedding.join(words, sums))
        return tf.where(
            tf.expand_dims(ids < num_known, axis=-1),
            tf.gather(known_rows, tf.minimum(ids, num_known - 1)),
            tf.gather(spelt, tf.maximum(ids - num_known, 0)),
        )


def _to_litert(graph: _Graph) -> bytes:
    function = tf.function(
        lambda *inputs: graph.encode(graph.tables, *inputs), input_signature=graph.signature
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(graph, folder, signatures=function.get_concrete_function())
        return tf.lite.TFLiteConverter.from_saved_model(folder).convert()


def _to_onnx(graph: _Graph) -> bytes:
    """Converts with the tables as inputs, which they are no longer then: constants are copied often."""
    tables = {f"table_{index}": table for index, table in enumerate(graph.tables)}
    specs = [tf.TensorSpec(table.shape, name=name) for name, table in tables.items()]
    proto, _ = library("tf2onnx.convert", "tf2onnx", "runtimes").from_function(
        tf.function(lambda *inputs: graph.encode(inputs[: len(specs)], *inputs[len(specs) :])),
        input_signature=(*specs, *graph.signature),
        opset=_OPSET,
    )
    kept = [value for value in proto.graph.input if value.name not in tables]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)
    from_array = library("onnx.numpy_helper", "onnx", "runtimes").from_array
    proto.graph.initializer.extend(from_array(t.numpy(), name) for name, t in tables.items())
    return proto.SerializeToString()


_CONVERTERS: Mapping[str, Callable[[_Graph], bytes]] = {"litert": _to_litert, "onnx": _to_onnx}


def text_settings(preprocessor: TextPreprocessor) -> Mapping[str, Any]:
    """What turns a text into the ids that a preprocessor gives it; the card describes it."""
    config = preprocessor.config
    size = {"max_tokens": config.max_tokens, "max_bytes": BYTES_PER_TOKEN * config.max_tokens}
    if isinstance(preprocessor, SentencePiecePreprocessor):
        begin, end = preprocessor.marks[:1], preprocessor.marks[1:]
        return {"kind": "pieces", **size, "begin": begin, "end": end, "empty": preprocessor.empty}
    ngrams = {
        "sizes": config.ngram_sizes,
        "num_buckets": config.num_ngram_buckets,
        "max_characters": MAX_WORD_CHARACTERS,
    }
    return {
        "kind": "words",
        **size,
        "lowercase": config.lowercase,
        "empty": EMPTY_TOKEN,
        "num_buckets": config.num_oov_buckets,
        "ngrams": ngrams if config.ngram_sizes else None,
        "rules": RULES,
        "classes": character_classes(),
    }


@cache
def character_classes() -> Mapping[str, Sequence[tuple[int, int]]]:
    """The code points of each class, first to last, in the version of Unicode that TensorFlow has."""
    points = np.array([*range(0xD800), *range(0xE000, 0x110000)], np.int32)
    characters = tf.strings.unicode_encode(points[:, None], "UTF-8")
    ranges = {}
    for name in _CLASSES:
        belongs = np.zeros(0x110001, np.int8)
        belongs[points] = tf.strings.regex_full_match(characters, f"(?s)[{name}]")
        # Where it begins and where it ends: 0 1 1 0 has the steps 1 0 -1.
        steps = np.diff(belongs, prepend=0)
        firsts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        ranges[name] = list(zip(firsts.tolist(), (ends - 1).tolist(), strict=True))
    return ranges


def _card(settings: Mapping[str, Any]) -> str:
    text = settings["text"]
    is_words = text["kind"] == "words"
    return _CARD.format(
        runtime=_RUNTIMES[settings["runtime"]],
        expansion=MAX_EXPANSION,
        dim=settings["dim"],
        model=settings["model"],
        vocabulary=settings["vocabulary"],
        vocabulary_is="known words, a line each" if is_words else "model of SentencePiece",
        steps=_WORDS + (_SPELT if text["ngrams"] else _HASHED) if is_words else _PIECES,
    )
