"""An encoder as it is exported: what a known word's n-grams become is looked up."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.encoders.base import TokenEncoder, average_words
from xling_tf.layers.base import float32_copy
from xling_tf.layers.embeddings import EmbeddingTable
from xling_tf.text.preprocessor import TextPreprocessor, vocabulary_file
from xling_tf.text.words import WordNgramPreprocessor

# Tokens encoded together, padding included: what a processor's caches hold, and a bound for memory.
_MICRO_BATCH = 2048
_WORDS_PER_CHUNK = 8192

# The rows of known words, in the folder of what training can start from.
WORDS = "words.npz"

# A Keras model out of TensorFlow's sight: it would add its own serving function to the export.
_Hidden = Callable[[], TokenEncoder]


class Rows(tf.Module):
    """Rows of a table, looked up as float32.

    Args:
        rows: `[rows, dim]` float32.
        kind: How they are stored: as "float32", or as "float16" or "int8" with a scale for each row, since
            neither holds large numbers.

    Example:
        >>> rows = Rows(np.array([[1.0, -0.5]], np.float32), "int8")  # 127 and -64 of 1 / 127
        >>> print(rows([0]).numpy().round(3))
        [[ 1.    -0.504]]
    """

    def __init__(self, rows: NDArray[np.float32], kind: str, name: str = "rows") -> None:
        super().__init__()
        is_trainable = kind == "float32"
        self._scales = None
        if not is_trainable:
            scales = np.abs(rows).max(axis=1, keepdims=True, initial=0) / (127 if kind == "int8" else 1)
            rows = (rows / np.where(scales > 0, scales, 1)).astype(np.float32)
            rows = np.rint(rows) if kind == "int8" else rows
            self._scales = tf.Variable(scales.astype(np.float32), trainable=False, name=f"{name}_scales")
        self._rows = tf.Variable(rows.astype(kind), trainable=is_trainable, name=name)
        variables = [self._rows] if self._scales is None else [self._rows, self._scales]
        self.weights, self.constants = (variables, []) if is_trainable else ([], variables)

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Maps `[n]` int32 ids to `[n, dim]`."""
        rows = tf.cast(tf.gather(self._rows, ids), tf.float32)
        return rows if self._scales is None else rows * tf.gather(self._scales, ids)


class FoldedEncoder(tf.Module):
    """An encoder that computes in float32, with its spelt words tabulated.

    Args:
        preprocessor: The trained encoder's.
        encoder: The trained encoder.
        tables: How `Rows` keeps its tables; training can go on from "float32" alone.

    Attributes:
        weights: What can be trained.
        constants: What cannot.
    """

    def __init__(
        self, preprocessor: TextPreprocessor, encoder: TokenEncoder, tables: str = "float32"
    ) -> None:
        super().__init__()
        self._tables = tables
        self._preprocessor = preprocessor
        body = float32_copy(encoder)
        self._body: _Hidden = lambda: body
        self._words = (
            _SpellingTable(preprocessor, self._body, tables)
            if isinstance(preprocessor, WordNgramPreprocessor)
            else _WordTable(preprocessor, self._body, tables)
        )
        self.weights = [*self._words.weights, *(v.value for v in body.dense_variables)]
        self.constants = self._words.constants

    # One graph for all that an export does with it.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Encodes `[batch]` strings to `[batch, hidden_dim]`, not normalised, in bounded memory."""
        tokens = self._preprocessor.tokenize(sentences)
        return in_micro_batches(self._encode, tokens, self._body().hidden_dim)

    def average(self, contexts: tf.Tensor) -> tf.Tensor:
        """Averages the words of `[batch]` strings, cut at `max_context_tokens`: `[batch, any]`."""
        tokens = self._preprocessor.tokenize(contexts, self._preprocessor.config.max_context_tokens)
        return in_micro_batches(self._average, tokens, None)

    def translate(self, sentences: tf.Tensor, languages: tf.Tensor, decoder: Any) -> tf.Tensor:
        """Maps `[batch]` strings to what a decoder says of their vectors in `[batch]` int32 languages."""
        words = self._body().embedding.words
        table = words(tf.range(words.num_rows)) if words.stored else tf.convert_to_tensor(words.table)
        said = decoder.translate(self(sentences), table, languages, self._preprocessor.config.max_tokens)
        return self._preprocessor.join(said)

    def save_for_training(self, folder: Path) -> None:
        """Writes what a training that starts from the exported model needs besides its variables."""
        if self._tables != "float32":
            return
        name, content = vocabulary_file(self._preprocessor.vocabulary)
        (folder / name).write_bytes(content)
        self._words.save_for_training(folder)

    def _encode(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        words, positions = tf.unique(tokens.values)
        places = tokens.with_values(positions).to_tensor()
        return self._body().encode(self._words(words), places, tf.cast(tokens.row_lengths(), tf.int32))

    def _average(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        words, positions = tf.unique(tokens.values)
        return average_words(self._words(words), tokens.with_values(positions))


def in_micro_batches(
    encode: Callable[[tf.RaggedTensor], tf.Tensor], tokens: tf.RaggedTensor, dim: int | None
) -> tf.Tensor:
    """Maps `[batch, (tokens)]` to `[batch, dim]`, those of similar length together."""
    lengths = tf.cast(tokens.row_lengths(), tf.int32)
    order = tf.argsort(lengths)
    tokens, lengths = tf.gather(tokens, order), tf.gather(lengths, order)

    def add_chunk(
        chunk: tf.Tensor, begin: tf.Tensor, encodings: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        # The k shortest that are left, padded to the longest of them, are k times that many tokens.
        ahead = lengths[begin : begin + _MICRO_BATCH]
        fits = ahead * tf.range(1, tf.size(ahead) + 1) <= _MICRO_BATCH
        end = begin + tf.maximum(1, tf.math.count_nonzero(fits, dtype=tf.int32))
        return chunk + 1, end, encodings.write(chunk, encode(tokens[begin:end]))

    encodings = tf.TensorArray(
        tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, dim]
    )
    # One after another: TensorFlow would run ten at the same time, in the memory of ten. No sentences
    # are one chunk as well, for the shape of the result.
    _, _, encodings = tf.while_loop(
        lambda chunk, begin, _: (begin < tf.size(order)) | (chunk < 1),
        add_chunk,
        (0, 0, encodings),
        parallel_iterations=1,
    )
    return tf.gather(encodings.concat(), tf.argsort(order))


class _WordTable(tf.Module):
    """Represents words by their rows alone, as in training: a look-up is all that could be saved."""

    def __init__(self, preprocessor: TextPreprocessor, body: _Hidden, tables: str) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        self._body = body
        self.weights, self.constants = _stored(body().embedding.words, tables)

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Represents `[words]` tokens: `[words, any]`."""
        return self._body().embed_words(self._preprocessor.word_features(words))

    def save_for_training(self, folder: Path) -> None:
        """Writes nothing: the variables are those of training."""


class _SpellingTable(tf.Module):
    """Represents words by their rows and n-grams: a table of the vocabulary, n-grams and all.

    Only words outside of it are spelt into n-grams at run time.
    """

    def __init__(self, preprocessor: WordNgramPreprocessor, body: _Hidden, tables: str) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        self._body = body
        self._num_known = len(preprocessor.vocabulary)
        words = np.array(preprocessor.vocabulary, object)
        rows = [
            body().embed_words(preprocessor.word_features(tf.constant(chunk)))
            for chunk in np.split(words, range(_WORDS_PER_CHUNK, len(words), _WORDS_PER_CHUNK))
        ]
        self._rows = Rows(np.concatenate(rows), tables, "vocabulary")
        # The rows of known words are in the table now; only those of the hash buckets stay.
        embedding = body().embedding
        buckets = embedding.words.table.numpy()[self._num_known :]
        self._bucket_words = Rows(buckets, tables, "bucket_words")
        weights, constants = _stored(embedding.ngrams, tables)
        self.weights = [*self._rows.weights, *self._bucket_words.weights, *weights]
        self.constants = [*self._rows.constants, *self._bucket_words.constants, *constants]

    def __call__(self, words: tf.Tensor) -> tf.Tensor:
        """Represents `[words]` strings: `[words, hidden_dim]`."""
        ids = self._preprocessor.word_ids(words)
        is_known = ids < self._num_known
        vectors = self._rows(tf.where(is_known, ids, 0))
        unknown = tf.where(~is_known)
        spelt = self._spell(tf.gather_nd(words, unknown), tf.gather_nd(ids, unknown))
        return tf.tensor_scatter_nd_update(vectors, unknown, spelt)

    def save_for_training(self, folder: Path) -> None:
        """Writes the rows of known words, and what tells whether they still are those of the table."""
        words = self._body().embedding.words.table.numpy()[: self._num_known]
        (rows,) = self._rows.weights
        np.savez(folder / WORDS, words=words, digest=rows_digest(rows.numpy()))

    def _spell(self, words: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Represents words by their bucket and their n-grams."""
        ngrams = self._preprocessor.ngrams(words)
        embedding = self._body().embedding
        combined = embedding.combine(
            self._bucket_words(ids - self._num_known),
            ngrams.values,
            tf.cast(ngrams.value_rowids(), tf.int32),
        )
        return self._body().project(combined)


def _stored(table: EmbeddingTable, kind: str) -> tuple[list[tf.Variable], list[tf.Variable]]:
    """Keeps the rows of an encoder's table as `kind`; gives the variables that can be trained, and others."""
    if kind == "float32":
        return [table.table.value], []
    table.stored = rows = Rows(table.table.numpy(), kind, table.name)
    return rows.weights, rows.constants


def rows_digest(rows: NDArray[np.float32]) -> str:
    """Tells a table from another one."""
    return hashlib.blake2b(rows.tobytes(), digest_size=8).hexdigest()
