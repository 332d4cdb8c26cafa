"""Conversion of exported models to LiteRT and ONNX Runtime."""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xling_tf.corpora.line_files import MAX_EXPANSION
from xling_tf.encoders.serving import BUCKET_WORDS, KNOWN_WORDS, ServingEncoder
from xling_tf.errors import UserError, library
from xling_tf.files import RUNTIME_SETTINGS, replacing_folder
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.runtimes import FORMAT, MODEL_FILES, load
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.tokenizers.words import WordTokenizer

# The newest that tf2onnx supports; its reductions and layer norms are what ONNX Runtime can fuse.
_OPSET = 18
# Texts for which the converted model must have the vectors of the exported one: known and unknown words,
# contractions, numbers, scripts without spaces, combining marks, symbols, and a blank text.
_PROBES = (
    "Don't go there, Ana: it's 10:30 already...",
    "¿Dónde está la biblioteca? «Allí», dijo.",
    "Grundstücksverkehrsgenehmigungszuständigkeit 1,234.5 U.S. 'quoted'",
    "我今天去公园散步。東京タワーへ行きました。",
    "สวัสดีครับ שלום مرحبا नमस्ते 😀👍🏽 x²≠½",
    " \t ",
)
_TOLERANCE = 1e-4
_CARD = """# A sentence encoder for {runtime}

Maps sentences to {dim}-dimensional vectors of unit length, like the SavedModel that was converted.
In Python, without TensorFlow:

    pip install 'xling_tf[runtimes]'

    from xling_tf.savedmodel.runtimes import load
    load(".").encode(["Hola", "Hello"])             # float32 [2, {dim}]

`{model}` maps `ids`, int32 `[batch, tokens]` padded with 0, and `lengths`, int32 `[batch]`, to `outputs`,
float32 `[batch, {dim}]`. `{vocabulary}` is the {vocabulary_is}. In other programming languages, compute ids
with the settings in `runtime.json`:

1. `max_bytes`: cut the text after {expansion} times as many bytes, normalise it to Unicode's NFC, and cut it
   after `max_bytes`. Replace bytes that are not UTF-8, such as half a character at a cut, by spaces.
{steps}"""
_PIECES = """2. Take the ids of SentencePiece's best segmentation, or `[empty]` if there are none.
3. `max_tokens`: cut the ids to this number, less those in `begin` and `end`, and put `begin` before and `end`
   after them.
"""
_WORDS = r"""2. `lowercase`: if true, lowercase the text, without rules of a specific language.
3. `rules`: for each pattern, in RE2's syntax and in this order, replace all matches. `classes` has the ranges
   of code points, first and last, for `\pL` and the other classes in the patterns.
4. Split the text at spaces, and cut it to `max_tokens` words. If there are none, the only word is `empty`.
5. The id of a word is its line number in the vocabulary, from 0.
"""
_HASHED = """   The id of any other word is the number of lines + FarmHash's Fingerprint64 of its UTF-8 %
   `num_buckets`.
"""
_SPELLED = """   The distinct other words of a batch have the following numbers.
6. For each of them, in this order, the input `buckets`, int32 `[words]`, is FarmHash's Fingerprint64 of its
   UTF-8 % `num_buckets`. The input `ngrams`, int32 `[words, ngrams]`, is the Fingerprint64 %
   `ngrams.num_buckets` of every run of `ngrams.sizes` characters in `<word>`, where the word is cut to
   `ngrams.max_characters`; pad it with `ngrams.num_buckets`. A batch without such words has one row, of
   padding, and bucket 0.
"""
_RUNTIMES = {"litert": "LiteRT", "onnx": "ONNX Runtime"}


def convert(model: Path, output: Path, runtime: str) -> None:
    """Converts an exported model for another runtime.

    Args:
        model: Folder of an exported model.
        output: Folder to write, which must be new or an earlier conversion.
        runtime: "litert" (the former TensorFlow Lite, with its built-in operations only), or "onnx" for ONNX
            Runtime and other programs that read ONNX.

    Raises:
        UserError: `model` is not a model of xling_tf, or its vectors differ from those of the result;
            `output` holds something else, or a package is missing.
    """
    require_replaceable(output, f"--{runtime}", RUNTIME_SETTINGS)
    expected = load_saved_model(model)(tf.constant(_PROBES)).numpy()
    trained = Model.from_pretrained(model)
    graph, tokenizer = _Graph(trained), trained.tokenizer
    with replacing_folder(output) as temporary:
        (temporary / MODEL_FILES[runtime]).write_bytes(_CONVERTERS[runtime](graph))
        ((name, content),) = tokenizer.files().items()
        (temporary / name).write_bytes(content)
        settings = {
            "format": FORMAT,
            "runtime": runtime,
            "model": MODEL_FILES[runtime],
            "vocabulary": name,
            "dim": trained.encoder.hidden_dim,
            "text": tokenizer.rules(),
        }
        (temporary / RUNTIME_SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        (temporary / "README.md").write_text(_card(settings), encoding="utf-8")
        # Tried before the folder is moved into place: an older model may have other tokenization rules.
        difference = float(np.abs(load(temporary).encode(_PROBES) - expected).max())
        if not difference <= _TOLERANCE:
            raise UserError(
                f"the vectors differ from those of {model} by {difference:.2g}: it was exported with other "
                "rules for tokens; export it again"
            )


class _Graph(tf.Module):
    """The graph from ids to vectors.

    If words have n-grams, an id from the vocabulary's size on is the number of an unknown word, described by
    its element of `buckets`, `[words]`, and its row of `ngrams`, `[words, ngrams]`, which is padded with the
    number of n-gram buckets.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        body, tokenizer = model.encoder, model.tokenizer
        self._body = lambda: body  # hidden, so that TensorFlow does not save Keras' functions
        self.signature = [
            tf.TensorSpec([None, None], tf.int32, name="ids"),
            tf.TensorSpec([None], tf.int32, name="lengths"),
        ]
        self._ngram_rows = tokenizer.ngram_rows if isinstance(tokenizer, WordTokenizer) else None
        tables = [variable.numpy() for variable in body.table_variables]
        if self._ngram_rows is not None:
            served = ServingEncoder(tokenizer, body).named_weights
            # The last row, of zeros, is that of padding.
            ngrams = np.pad(tables[1], ((0, 1), (0, 0)))
            tables = [served[KNOWN_WORDS].numpy(), served[BUCKET_WORDS].numpy(), ngrams]
            self.signature += [
                tf.TensorSpec([None], tf.int32, name="buckets"),
                tf.TensorSpec([None, None], tf.int32, name="ngrams"),
            ]
        self.dense = [v.value for v in body.dense_variables]
        self.tables = [tf.Variable(table) for table in tables]

    def encode(self, tables: Sequence[tf.Tensor], *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Computes `outputs`, `[batch, dim]` float32 of unit length.

        Args:
            tables: The embedding tables.
            *inputs: Tensors as in `signature`.

        Returns:
            The outputs by name.
        """
        ids, lengths, *spelling = inputs
        embed = self._embed if self._ngram_rows is None else self._embed_spelled
        vectors = embed(tables, ids, *spelling)
        return {"outputs": unit_length(self._body().encode_tokens(vectors, lengths))}

    def _embed(self, tables: Sequence[tf.Tensor], ids: tf.Tensor) -> tf.Tensor:
        state = zip(self._body().table_variables, tables, strict=True)
        with keras.StatelessScope(state_mapping=list(state)):
            words = self._body().embed_words(tf.reshape(ids, [-1]))
        return tf.reshape(words, tf.concat([tf.shape(ids), [words.shape[-1]]], axis=0))

    def _embed_spelled(
        self, tables: Sequence[tf.Tensor], ids: tf.Tensor, buckets: tf.Tensor, ngrams: tf.Tensor
    ) -> tf.Tensor:
        known_rows, bucket_rows, ngram_rows = tables
        num_known = known_rows.shape[0]
        assert self._ngram_rows is not None
        ngrams = tf.gather(np.append(self._ngram_rows, ngram_rows.shape[0] - 1), ngrams)
        sums = tf.reduce_sum(tf.gather(ngram_rows, ngrams), axis=1)
        spelled = (tf.gather(bucket_rows, buckets) + self._body().embedding.ngram_part(sums)) / 2
        return tf.where(
            tf.expand_dims(ids < num_known, axis=-1),
            tf.gather(known_rows, tf.minimum(ids, num_known - 1)),
            tf.gather(spelled, tf.maximum(ids - num_known, 0)),
        )


def _to_litert(graph: _Graph) -> bytes:
    function = tf.function(
        lambda *inputs: graph.encode(graph.tables, *inputs), input_signature=graph.signature
    )
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(graph, folder, signatures=function.get_concrete_function())
        return tf.lite.TFLiteConverter.from_saved_model(folder).convert()


def _to_onnx(graph: _Graph) -> bytes:
    """Converts with tables as inputs, then makes them initializers: tf2onnx copies constants many times."""
    tables = {f"table_{index}": table for index, table in enumerate(graph.tables)}
    specs = [tf.TensorSpec(table.shape, name=name) for name, table in tables.items()]
    proto, _ = library("tf2onnx.convert", "tf2onnx", "runtimes").from_function(
        tf.function(lambda *inputs: graph.encode(inputs[: len(specs)], *inputs[len(specs) :])),
        input_signature=(*specs, *graph.signature),
        opset=_OPSET,
    )
    inputs = [value for value in proto.graph.input if value.name not in tables]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    from_array = library("onnx.numpy_helper", "onnx", "runtimes").from_array
    proto.graph.initializer.extend(from_array(t.numpy(), name) for name, t in tables.items())
    return proto.SerializeToString()


_CONVERTERS: Mapping[str, Callable[[_Graph], bytes]] = {"litert": _to_litert, "onnx": _to_onnx}


def _card(settings: Mapping[str, Any]) -> str:
    text = settings["text"]
    is_words = text["kind"] == "words"
    return _CARD.format(
        runtime=_RUNTIMES[settings["runtime"]],
        expansion=MAX_EXPANSION,
        dim=settings["dim"],
        model=settings["model"],
        vocabulary=settings["vocabulary"],
        vocabulary_is="vocabulary, a word per line" if is_words else "SentencePiece model",
        steps=_WORDS + (_SPELLED if text["ngrams"] else _HASHED) if is_words else _PIECES,
    )
