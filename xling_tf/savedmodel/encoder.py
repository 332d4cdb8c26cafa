"""The exported form of an encoder, which encodes strings in bounded memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.encoders.base import TokenEncoder, in_micro_batches
from xling_tf.layers.base import float32_copy
from xling_tf.layers.embeddings import EmbeddingTable
from xling_tf.tasks.signatures import untracked
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.weights import Weights, as_int8, assign_weights, named_weights

_WORDS_PER_CHUNK = 8192

# Names of weights that only exports have: one table of the known words combined with their n-grams,
# and one of the hash buckets of unknown words.
KNOWN_WORDS, BUCKET_WORDS = "encoder/embedding/known_words", "encoder/embedding/bucket_words"
# Name of the table of words or pieces, also in training.
WORD_TABLE = "encoder/embedding/words/table"
_SCALES = "/scales"

# Functions hide Keras models, so that TensorFlow adds no serving function of Keras to an export.
_EncoderGetter = Callable[[], TokenEncoder]


class QuantizedTable(tf.Module):
    """A table that is stored in few bytes, and returns its rows as float32.

    Args:
        rows: `[rows, dim]` float32.
        kind: "float32"; or "float16" or "int8", which have a scale for each row.
        name: Name of the variables.

    Examples:
        >>> table = QuantizedTable(np.array([[1.0, -0.5]], np.float32), "int8")
        >>> print(table([0]).numpy().round(3))  # 127 and -64 times 1 / 127
        [[ 1.    -0.504]]
    """

    def __init__(self, rows: NDArray[np.float32], kind: str, name: str = "rows") -> None:
        super().__init__()
        self._scales = None
        stored: NDArray[Any] = rows.astype(np.float32)
        if kind == "int8":
            stored, scales = as_int8(rows, 1)
        elif kind == "float16":
            scales = np.abs(rows).max(axis=1, keepdims=True, initial=0)
            stored = (rows / np.where(scales > 0, scales, 1)).astype(kind)
        if kind != "float32":
            self._scales = tf.Variable(scales, trainable=False, name=f"{name}_scales")
        self._rows = tf.Variable(stored, trainable=kind == "float32", name=name)

    def named(self, name: str) -> dict[str, tf.Variable]:
        """Returns the variables by names that begin with `name`."""
        return {name: self._rows} | ({} if self._scales is None else {name + _SCALES: self._scales})

    def __call__(self, ids: tf.Tensor) -> tf.Tensor:
        """Maps `[n]` int32 ids to `[n, dim]` float32 rows."""
        rows = tf.cast(tf.gather(self._rows, ids), tf.float32)
        return rows if self._scales is None else rows * tf.gather(self._scales, ids)


class ExportedEncoder(tf.Module):
    """Encodes strings in float32, with one table for known words in which n-grams are included.

    Args:
        tokenizer: The encoder's tokenizer.
        encoder: The trained encoder, which is copied.
        tables: How tables are stored, see `QuantizedTable`; only "float32" tables are trainable.
    """

    def __init__(
        self, tokenizer: Tokenizer, encoder: TokenEncoder, tables: str = "float32"
    ) -> None:
        super().__init__()
        self.tokenizer, self.hidden_dim = tokenizer, encoder.hidden_dim
        body = float32_copy(encoder)
        self._body: _EncoderGetter = untracked(body)
        self.words = _WordTables(tokenizer, self._body, tables) if tokenizer.num_ngrams else None
        stored = (
            self.words.named if self.words else _stored(body.embedding.words, tables, WORD_TABLE)
        )
        tables_ids = {id(table) for table in body.table_variables}
        dense = {n: v for n, v in named_weights(body, "encoder").items() if id(v) not in tables_ids}
        # Hidden in a function, because `ExportedModule` saves these variables itself.
        weights = stored | {name: variable.value for name, variable in dense.items()}
        self._named = untracked(weights)

    @property
    def named_weights(self) -> dict[str, tf.Variable]:
        """All variables by name: those of the encoder, except for tables that are combined."""
        return self._named()

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that a caller may train further."""
        return [variable for variable in self.named_weights.values() if variable.trainable]

    # A tf.function, so that all signatures of an export share one graph.
    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Encodes `[batch]` strings as `[batch, hidden_dim]` float32, not normalised."""
        tokens = self.tokenizer.tokenize(sentences)
        return in_micro_batches(self._encode, tokens, self.hidden_dim)

    def average(self, contexts: tf.Tensor) -> tf.Tensor:
        """Averages the words of `[batch]` contexts: `[batch, any]` float32."""
        tokens = self.tokenizer.tokenize_contexts(contexts)
        return in_micro_batches(lambda part: self._body().average(*self._embed(part)), tokens, None)

    def word_table(self) -> tf.Tensor:
        """Returns the `[num_words, embedding_dim]` table of an encoder without n-grams."""
        words = self._body().embedding.words
        return (
            words(tf.range(words.num_rows)) if words.stored else tf.convert_to_tensor(words.table)
        )

    def _encode(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        words, positions = self._embed(tokens)
        return self._body().encode(
            words, positions.to_tensor(), tf.cast(tokens.row_lengths(), tf.int32)
        )

    def _embed(self, tokens: tf.RaggedTensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """Returns the vectors of the distinct words, and the positions of the tokens among them."""
        # As in `EmbeddingTable.sum_rows`.
        words, positions, _ = tf.unique_with_counts(tokens.values)
        body, positions = self._body(), tokens.with_values(positions)
        if self.words:
            return self.words(words), positions
        return body.embed_words(self.tokenizer.word_features(words)), positions


class _WordTables(tf.Module):
    """Looks up known words in a table; computes only other words from n-grams at run time."""

    def __init__(self, tokenizer: Any, body: _EncoderGetter, tables: str) -> None:
        super().__init__()
        self._tokenizer = tokenizer
        self._body = body
        self._num_known = len(tokenizer.known_words)
        embedding = body().embedding
        known = _by_chunks(tokenizer, lambda words, _: body().embed_words(words))
        self._known = QuantizedTable(known, tables, "known_words")
        buckets = embedding.words.table.numpy()[self._num_known :]
        self._buckets = QuantizedTable(buckets, tables, "bucket_words")
        self.named = {
            **self._known.named(KNOWN_WORDS),
            **self._buckets.named(BUCKET_WORDS),
            **_stored(embedding.ngrams, tables, "encoder/embedding/ngrams/table"),
        }

    def __call__(self, tokens: tf.Tensor) -> tf.Tensor:
        """Embeds `[words]` strings: `[words, embedding_dim]`."""
        ids = self._tokenizer.word_ids(tokens)
        is_known = ids < self._num_known
        vectors = self._known(tf.where(is_known, ids, 0))
        unknown = tf.where(~is_known)
        ngrams = self._tokenizer.ngrams(tf.gather_nd(tokens, unknown))
        buckets = self._buckets(tf.gather_nd(ids, unknown) - self._num_known)
        ngram_words = tf.cast(ngrams.value_rowids(), tf.int32)
        spelled = self._body().embedding.combine(buckets, ngrams.values, ngram_words)
        return tf.tensor_scatter_nd_update(vectors, unknown, spelled)


def restored_tables(exported: Weights, tokenizer: Tokenizer, encoder: TokenEncoder) -> Weights:
    """Returns a model's weights, by the names of training, from those of an export."""
    # Quantized tables become float32 again. Word embeddings are separated from their n-grams by the
    # encoder, whose n-gram weights are overwritten for this.
    weights = dict(exported)
    for name in exported:
        if (scales := weights.pop(name + _SCALES, None)) is not None:
            weights[name] = weights[name].astype(np.float32) * scales
    if KNOWN_WORDS not in weights:
        return weights
    known, buckets = weights.pop(KNOWN_WORDS), weights.pop(BUCKET_WORDS)
    embedding = encoder.embedding
    ngrams = {
        name: variable
        for name, variable in named_weights(encoder, "encoder").items()
        if name.startswith("encoder/embedding/") and name != WORD_TABLE
    }
    assign_weights(
        ngrams, {name: weights[name] for name in ngrams if name in weights}, "the exported model"
    )

    def separate(words: Any, rows: slice) -> tf.Tensor:
        return embedding.separate(known[rows], words.ngram_ids, words.ngram_words)

    weights[WORD_TABLE] = np.concatenate([_by_chunks(tokenizer, separate), buckets])
    return weights


def _by_chunks(
    tokenizer: Tokenizer, compute: Callable[[Any, slice], tf.Tensor]
) -> NDArray[np.float32]:
    """Computes a row for each known word, in chunks: `compute` takes words' features and rows."""
    words = np.array(tokenizer.known_words, object)
    chunks = [slice(b, b + _WORDS_PER_CHUNK) for b in range(0, len(words), _WORDS_PER_CHUNK)]
    return np.concatenate(
        [compute(tokenizer.word_features(tf.constant(words[rows])), rows) for rows in chunks]
    )


def _stored(table: EmbeddingTable, kind: str, name: str) -> dict[str, tf.Variable]:
    """Quantizes an encoder's table as `kind`; returns its variables, named `name...`."""
    if kind == "float32":
        return {name: table.table.value}
    table.stored = quantized = QuantizedTable(table.table.numpy(), kind, table.name)
    return quantized.named(name)
