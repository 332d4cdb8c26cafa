"""Base class of the encoders, and the functions that make an encoder from its settings."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor as Tensor
from numpy.typing import NDArray

from xling_tf.config import ENCODERS
from xling_tf.layers.embeddings import sum_groups
from xling_tf.processes import require_not_forked
from xling_tf.tokenizers.base import TokenFeatures, Tokenizer

# Number of tokens encoded at once in an exported graph, padding included. It bounds the memory,
# fits a CPU's caches, and keeps a GPU busy (docs/results.md, "On a GPU").
_MICRO_BATCHES = {"CPU": 2048, "GPU": 65_536}


class WordVectors(NamedTuple):
    """The word vectors that training starts from (`initial.vectors`), all spaces concatenated."""

    words: list[str]  # the most frequent words of the translations first
    rows: NDArray[np.float32]  # [words, sum(dims)], zeros where a space lacks a word
    is_known: NDArray[np.bool_]  # [words, spaces], true if the space has the word
    dims: tuple[int, ...]  # width of each space


class TokenEncoder(keras.Model, ABC):
    """Maps token features to sentence vectors: embeds a batch's distinct words, encodes sentences.

    A new kind of encoder is a subclass and a row of `xling_tf.config.ENCODERS`. Its constructor
    takes the sizes and the fields of its settings by keyword, all of which become attributes. It
    sets `embedding`, and implements `encode_tokens`.
    """

    config_type: ClassVar[type[Any]]  # the dataclass of its settings
    # The constructor's other arguments: "num_words", "num_ngrams" and "max_tokens" of the
    # tokenizer, and "space_dims", the widths of the spaces of word vectors.
    sizes: ClassVar[tuple[str, ...]] = ("num_words",)
    num_ngrams = 0
    embedding: Any  # the layer of the embedding tables, with an attribute `tables`
    hidden_dim: int  # width of the sentence vectors
    # Number of groups of similar length in which a training step on a CPU encodes a batch's
    # sentences. More groups compute less on padding, but the graph has a copy of the encoder for
    # each.
    length_groups: ClassVar[int] = 1
    # Name of the same architecture in `importers.bert.FAMILIES`; "" if there is none.
    transformers_family: ClassVar[str] = ""
    # Formats of `exporters` that cannot express the encoder, and what they expect instead.
    unsupported: ClassVar[Mapping[str, str]] = {"model2vec": "an average of word vectors"}

    def __init__(self, **kwargs: Any) -> None:
        # JSON makes lists of tuples.
        kwargs = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in kwargs.items()
        }
        names = [field.name for field in dataclasses.fields(self.config_type)]
        settings = self.config_type(**{name: kwargs.pop(name) for name in names if name in kwargs})
        sizes = {name: kwargs.pop(name) for name in self.sizes if name in kwargs}
        super().__init__(**{"name": "encoder", **kwargs})
        for name, value in {**sizes, **dataclasses.asdict(settings)}.items():
            setattr(self, name, value)

    def embed_words(self, words: Any, training: bool = False) -> Tensor:
        """Maps `TokenFeatures.words` to `[words, any]`; by default float32 rows of the table."""
        return self.embedding(words)

    @abstractmethod
    def encode_tokens(self, inputs: Tensor, lengths: Tensor, training: bool = False) -> Tensor:
        """Encodes `[batch, length, any]` words as `[batch, hidden_dim]` float32, not normalised."""

    def encode(
        self, words: Tensor, tokens: Tensor, lengths: Tensor, training: bool = False
    ) -> Tensor:
        """Encodes sentences of words that are embedded once each; calls `encode_tokens` by default.

        Args:
            words: `[words, any]` result of `embed_words`.
            tokens: `[batch, length]` int32 positions in `words`.
            lengths: `[batch]` int32 number of tokens.
            training: True in a training step.

        Returns:
            `[batch, hidden_dim]` float32, not normalised.
        """
        return self.encode_tokens(tf.gather(words, tokens), lengths, training)

    def average(self, words: Tensor, positions: tf.RaggedTensor, training: bool = False) -> Tensor:
        """Averages texts' embedded words, for heads that take bags of words (`average_words`)."""
        return average_words(words, positions, training)

    def call(self, features: TokenFeatures, training: bool = False) -> Tensor:
        """Maps token features to `[batch, hidden_dim]` float32, not normalised."""
        require_not_forked()
        words, tokens, lengths = features
        return self.encode(self.embed_words(words, training), tokens, lengths, training)

    @property
    def static_part(self) -> Any:
        """The `StaticEncoder` whose average other layers start from; None if there is none."""
        return None

    @property
    def average_part(self) -> Any:
        """The part that averages words, which a stage of a training can train alone, or None.

        It has what a task uses of an encoder: `embed_words`, `encode`, `average`,
        `dense_variables`, `hidden_dim` and `length_groups`.
        """
        return self.static_part

    @property
    def table_variables(self) -> list[keras.Variable]:
        """The embedding tables, which are updated row by row."""
        return self.embedding.tables

    @property
    def dense_variables(self) -> list[keras.Variable]:
        """The trainable variables that are not embedding tables."""
        tables = {id(table) for table in self.table_variables}
        return [v for v in self.trainable_variables if id(v) not in tables]

    def assign_word_vectors(self, rows: NDArray[np.float32], is_known: NDArray[np.bool_]) -> None:
        """Initialises the table's first rows; words that a space lacks keep their random ones."""
        # `[words, any]` rows of all spaces, and `[words, spaces]`, true if the space has the word.
        table = self.embedding.words.table
        values = tf.convert_to_tensor(table.value).numpy().copy()
        values[: len(rows)][is_known.all(axis=1)] = rows[is_known.all(axis=1)]
        table.assign(values)

    def build(self, features_shape: Any) -> None:
        """Does nothing: the layers create their variables when they are first called."""

    def example_words(self) -> Any:
        """Returns `TokenFeatures.words` of a single word, for `build_variables`."""
        return np.zeros(1, np.int32)

    def build_variables(self) -> None:
        """Creates every variable by encoding a sentence of two words."""
        self(
            TokenFeatures(self.example_words(), np.zeros((1, 2), np.int32), np.full(1, 2, np.int32))
        )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor."""
        fields = dataclasses.fields(self.config_type)
        names = (*self.sizes, *(field.name for field in fields))
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Self:
        """Makes an encoder with random weights from the result of `get_config`."""
        encoder = cls(**config)
        encoder.build_variables()
        return encoder


def encoder_settings(
    config: Any, tokenizer: Tokenizer, space_dims: tuple[int, ...] = (), **decided: Any
) -> dict[str, Any]:
    """Returns an encoder's "kind" and the arguments of its constructor.

    `space_dims` are the widths of the spaces of its word vectors; `decided` overrides the settings.
    """
    kind = ENCODERS.name_of(config)
    known = {
        "num_words": tokenizer.num_words,
        "num_ngrams": tokenizer.num_ngrams,
        "max_tokens": tokenizer.config.max_tokens,
        "space_dims": space_dims,
    }
    sizes = {name: known[name] for name in ENCODERS.implementation(kind).sizes}
    return {"kind": kind, **dataclasses.asdict(config), **sizes, **decided}


def build_encoder(settings: Mapping[str, Any]) -> TokenEncoder:
    """Makes an encoder with random weights from the result of `encoder_settings`."""
    arguments = dict(settings)
    encoder: TokenEncoder = ENCODERS.implementation(arguments.pop("kind"))(**arguments)
    encoder.build_variables()
    return encoder


def average_words(
    words: tf.Tensor, positions: tf.RaggedTensor, training: bool = False
) -> tf.Tensor:
    """Averages each text's word vectors (Iyyer et al. 2015, "Deep Unordered Composition", eq. 2).

    Memory grows with the distinct words only: their vectors are not copied to each position.

    Args:
        words: `[words, dim]`.
        positions: `[batch, (tokens)]` int32 positions in `words`.
        training: True in a training step.

    Returns:
        `[batch, dim]` float32.

    Examples:
        >>> words = tf.constant([[1.0, 0.0], [0.0, 4.0]])
        >>> average_words(words, tf.ragged.constant([[0, 0, 0, 1], [1]])).numpy().tolist()
        [[0.75, 1.0], [0.0, 4.0]]
    """
    words, count = tf.cast(words, tf.float32), positions.nrows()
    sums = sum_groups(words, positions.values, positions.value_rowids(), count, training)
    return sums / tf.cast(positions.row_lengths(), tf.float32)[:, None]


def in_micro_batches(
    encode: Callable[[tf.RaggedTensor], tf.Tensor], tokens: tf.RaggedTensor, dim: int | None
) -> tf.Tensor:
    """Encodes `[batch, (tokens)]` as `[batch, dim]` in bounded memory, batched by length."""

    def in_chunks(tokens: tf.RaggedTensor, lengths: tf.Tensor) -> tf.Tensor:
        def add_chunk(
            chunk: tf.Tensor, begin: tf.Tensor, encodings: tf.TensorArray
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
            # The next k sentences, padded to the longest, have k times its tokens.
            ahead = lengths[begin : begin + limit]
            fits = ahead * tf.range(1, tf.size(ahead) + 1) <= limit
            end = begin + tf.maximum(1, tf.math.count_nonzero(fits, dtype=tf.int32))
            return chunk + 1, end, encodings.write(chunk, encode(tokens[begin:end]))

        # Of the device that runs the graph, which another one may have made.
        limit = tf.gather(
            [*_MICRO_BATCHES.values()], tf.raw_ops.DeviceIndex(device_names=[*_MICRO_BATCHES])
        )
        encodings = tf.TensorArray(
            tf.float32, size=0, dynamic_size=True, infer_shape=False, element_shape=[None, dim]
        )
        # By default TensorFlow runs ten iterations at once, in ten times the memory. An empty batch
        # is one chunk too, so that the result has its shape.
        _, _, encodings = tf.while_loop(
            lambda chunk, begin, _: (begin < tf.size(lengths)) | (chunk < 1),
            add_chunk,
            (0, 0, encodings),
            parallel_iterations=1,
        )
        return encodings.concat()

    return shortest_first(in_chunks, tokens, tf.cast(tokens.row_lengths(), tf.int32))


def shortest_first(
    encode: Callable[[Any, tf.Tensor], tf.Tensor], tokens: Any, lengths: tf.Tensor
) -> tf.Tensor:
    """Calls `encode` with sentences, sorted by length, and lengths; returns rows as given."""
    order = tf.argsort(lengths, stable=True)
    return tf.gather(encode(tf.gather(tokens, order), tf.gather(lengths, order)), tf.argsort(order))
