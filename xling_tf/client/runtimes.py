"""Models for LiteRT or ONNX Runtime, and for NumPy alone, in folders with `runtime.json`."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import as_user_error, library, require_known
from .backends import RuntimeFolder, read_settings
from .batches import BATCHES_AT_ONCE, available_cpus, compute_in_batches
from .farmhash import fingerprint
from .sessions import PerProcess, telemetry_off
from .settings import RUNTIME_SETTINGS, require_inside
from .word_averages import WordAverages
from .words import WordSplitter, first_bytes, ngrams_of, readable

MODEL_FILES = {"litert": "model.tflite", "onnx": "model.onnx"}
# Inputs and output of all models have the names that sentence-transformers gives them.
IDS, MASK, VECTORS = "input_ids", "attention_mask", "sentence_embedding"
# Maximum numbers of texts of a batch and of their tokens, padding included, which bound the memory.
_MAX_ROWS, _MAX_TOKENS = 64, 4096
# Number of words outside the vocabulary whose n-grams are cached.
_CACHED_WORDS = 100_000

Inputs = dict[str, NDArray[Any]]
Run = Callable[[Inputs], NDArray[np.float32]]


def open_folder(folder: str | os.PathLike[str]) -> RuntimeFolder:
    """Opens the model in a folder with `runtime.json`.

    Raises:
        UserError: The folder is damaged or of another version, or a package that it needs is
            missing.
    """
    runtime: Any = read_settings(Path(folder)).get("runtime")
    require_known(f"runtime in {Path(folder) / RUNTIME_SETTINGS}", runtime, ("numpy", *MODEL_FILES))
    return WordAverages(folder) if runtime == "numpy" else RuntimeModel(folder)


class RuntimeModel(RuntimeFolder):
    """A model for ONNX Runtime or LiteRT; threads may share it, and a process that was forked opens
    the file anew.
    """

    threads = BATCHES_AT_ONCE

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__(folder)
        with self.reading():
            runtime, settings = self.settings["runtime"], self.settings["text"]
            vocabulary = require_inside(self.folder, self.settings["vocabulary"])
            text: Any = _TEXTS[settings["kind"]](vocabulary, settings)
            text.inputs(text.tokenize(["xqzé"]))  # a word of no vocabulary uses every rule
        self._text = text
        path = self.folder / MODEL_FILES[runtime]
        self._run = PerProcess(lambda: _open(path, runtime))

    def open(self) -> None:
        """Opens the file in this process, which otherwise happens at the first use."""
        self._run()

    def embed(self, texts: list[str], role: str, *contexts: list[str]) -> NDArray[np.float32]:
        """Returns unit vectors."""
        if not texts:
            return np.zeros((0, self.dim), np.float32)
        return _encode(self._text, self._run(), texts)


def open_model(
    model: Path, tokenizer: Path
) -> tuple[Any, Callable[[Sequence[str]], NDArray[np.float32]]]:
    """Returns a tokenizer of `tokenizers`, and a function that encodes texts by an ONNX model."""
    text = TokenizerFile(tokenizer, {"max_bytes": sys.maxsize})
    run = PerProcess(lambda: _open(model, "onnx"))
    return text.tokenizer, lambda texts: _encode(text, run(), texts)


def _encode(text: Any, run: Run, texts: Sequence[str]) -> NDArray[np.float32]:
    return compute_in_batches(
        lambda tokens: {"vectors": run(text.inputs(tokens))},
        [text.tokenize(texts)],
        max_rows=_MAX_ROWS,
        max_length=_MAX_TOKENS,
    )["vectors"]


def _open(path: Path, runtime: str) -> Run:
    message = f"{path} must be an exported model, but cannot be loaded: {{error}}; export it again"
    with as_user_error(message, Exception):
        if runtime == "onnx":
            with telemetry_off():
                engine = library("onnxruntime", "onnxruntime", "runtime")
            session = engine.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            return lambda inputs: session.run([VECTORS], inputs)[0]
        engine = library("ai_edge_litert.interpreter", "ai-edge-litert", "litert")
        interpreter = engine.Interpreter(model_path=str(path), num_threads=available_cpus())
        runner, lock = interpreter.get_signature_runner(), Lock()
        types = {name: about["dtype"] for name, about in runner.get_input_details().items()}

    # An interpreter holds the inputs of a single call, and uses all cores: threads take turns.
    def run(inputs: Inputs) -> NDArray[np.float32]:
        with lock:
            return runner(**{name: inputs[name].astype(types[name]) for name in types})[VECTORS]

    return run


class Pieces:
    """Turns sentences into ids of pieces, as `xling_tf.tokenizers.sentencepiece` does in the graph.

    If two segmentations are equally likely, as for "XXXX", a different version of SentencePiece
    than the graph's may choose the other. `settings` are the tokenizer's `rules`, also in the
    classes below.
    """

    def __init__(self, vocabulary: Path, settings: Mapping[str, Any]) -> None:
        processor = library("sentencepiece", "sentencepiece", "runtime").SentencePieceProcessor
        # ONNX Runtime and LiteRT need protobuf, NumPy's word averages do not.
        from google.protobuf.message import DecodeError

        from .piece_models import model_proto, require_charsmaps

        message = (
            f"{vocabulary} must be a model of SentencePiece, but is not ({{error}}); export it "
            "again"
        )
        # SentencePiece reads beyond made-up rules for characters, which would end the process.
        with as_user_error(message, OSError, RuntimeError, DecodeError):
            serialized = vocabulary.read_bytes()
            require_charsmaps(model_proto(serialized))
            # The constructor would leave out an empty one.
            self._model = processor()
            self._model.LoadFromSerializedProto(serialized)
        self._settings = settings

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Splits texts into pieces, between sentence marks if the model has them; at least one."""
        begin, end, empty = (self._settings[name] for name in ("begin", "end", "empty"))
        limit = self._settings["max_tokens"] - len(begin) - len(end)
        nothing = [] if empty is None else [empty]
        return [[*begin, *(self._split(text) or nothing)[:limit], *end] for text in texts]

    def inputs(self, batch: Sequence[Sequence[int]]) -> Inputs:
        """Returns the model's inputs for tokenized sentences."""
        return _padded(batch)

    def _split(self, sentence: str) -> list[int]:
        text = readable(sentence, self._settings["max_bytes"])
        has_prefix = self._settings.get("fills_prefix") and text[1:]
        return self._model.encode(text.removeprefix(" ") if has_prefix else text)


class WordPieces(Pieces):
    """Turns sentences into ids of pieces, as `xling_tf.tokenizers.wordpiece` does in the graph."""

    def __init__(self, vocabulary: Path, settings: Mapping[str, Any]) -> None:
        self._model = wordpiece(vocabulary.read_bytes().decode().split("\n")[:-1], settings)
        self._settings = settings

    def _split(self, sentence: str) -> list[int]:
        return self._model.encode(first_bytes(sentence, self._settings["max_bytes"])).ids


def wordpiece(vocabulary: Sequence[str], settings: Mapping[str, Any]) -> Any:
    """Returns a WordPiece tokenizer of the `tokenizers` library, without special tokens."""
    tokenizers = library("tokenizers", "tokenizers", "runtime")
    rows = {piece: row for row, piece in enumerate(vocabulary)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(rows, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        handle_chinese_chars=settings["split_chinese"],
        strip_accents=settings["strip_accents"],
        lowercase=settings["lowercase"],
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    return tokenizer


class TokenizerFile(Pieces):
    """Turns sentences into ids of pieces, by the `tokenizer.json` of the library `tokenizers`."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        tokenizers = library("tokenizers", "tokenizers", "runtime")
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self.tokenizer.no_padding()
        self._settings = settings

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Splits texts into pieces, with the model's marks."""
        cut = [first_bytes(text, self._settings["max_bytes"]) for text in texts]
        return [encoding.ids for encoding in self.tokenizer.encode_batch(cut)]


class Words:
    """Turns sentences into ids of words, as `xling_tf.tokenizers.words` does in the graph."""

    def __init__(self, vocabulary: Path, settings: Mapping[str, Any]) -> None:
        words = vocabulary.read_text(encoding="utf-8").split("\n")[:-1]
        self._ids = {word: row for row, word in enumerate(words)}
        self.tokenize = WordSplitter(settings)
        self._settings = settings
        self._ngrams = settings["ngrams"]
        self._spell = lru_cache(_CACHED_WORDS)(self._spell_anew)

    def inputs(self, batch: Sequence[Sequence[str]]) -> Inputs:
        """Returns the model's inputs for tokenized sentences."""
        known, num_known = self._ids, len(self._ids)
        unknown = [*dict.fromkeys(w for words in batch for w in words if w not in known)]
        spelled = [self._spell(word) for word in unknown]
        # With n-grams, unknown words are numbered.
        rows = range(len(unknown)) if self._ngrams else [bucket for bucket, _ in spelled]
        ids = {word: num_known + row for word, row in zip(unknown, rows, strict=True)}
        inputs = _padded([[known[w] if w in known else ids[w] for w in words] for words in batch])
        if not self._ngrams:
            return inputs
        spelled = spelled or [(0, [])]
        longest = max(1, *(len(ngrams) for _, ngrams in spelled))
        fill = self._ngrams["num_buckets"]
        return inputs | {
            "buckets": np.array([bucket for bucket, _ in spelled], np.int32),
            "ngrams": np.array([n + [fill] * (longest - len(n)) for _, n in spelled], np.int32),
        }

    def _spell_anew(self, word: str) -> tuple[int, list[int]]:
        """Returns the bucket of a word and those of its n-grams."""
        ngrams = ngrams_of(word, self._ngrams) if self._ngrams else []
        buckets = [_bucket(ngram, self._ngrams["num_buckets"]) for ngram in ngrams]
        return _bucket(word, self._settings["num_buckets"]), buckets


def _bucket(text: str, num_buckets: int) -> int:
    """Computes `tf.strings.to_hash_bucket_fast`."""
    return fingerprint(text.encode()) % num_buckets


def _padded(ids: Sequence[Sequence[int]]) -> Inputs:
    """Returns the ids as `[batch, tokens]`, padded with 0, and a mask that is 1 for tokens."""
    lengths = np.array([len(row) for row in ids])
    padded = np.zeros((len(ids), max(lengths)), np.int64)
    for row, sentence in zip(padded, ids, strict=True):
        row[: len(sentence)] = sentence
    is_token = np.arange(padded.shape[1]) < lengths[:, None]
    return {IDS: padded, MASK: is_token.astype(np.int64)}


_TEXTS: Mapping[str, type[Pieces | Words]] = {
    "tokenizer": TokenizerFile,
    "words": Words,
    "pieces": Pieces,
    "wordpiece": WordPieces,
}
