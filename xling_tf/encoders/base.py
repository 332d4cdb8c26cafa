"""What every encoder is to the rest, words to vectors and sentences of them to one; encoders by kind."""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import EncoderConfig
from xling_tf.layers.base import arguments_of
from xling_tf.layers.embeddings import sum_groups
from xling_tf.text.preprocessor import TextPreprocessor, TokenFeatures, WordFeatures

# By `config.encoder.kind`.
ENCODERS = {
    "transformer": "transformer.TransformerEncoder",
    "cnn": "cnn.CnnEncoder",
    "static": "static.StaticEncoder",
    "lstm": "lstm.LstmEncoder",
    "p_mean": "p_mean.PowerMeanEncoder",
}


class TokenEncoder(keras.Model, ABC):
    """Maps token features to sentence vectors in two steps, the first of which is done once a word.

    A subclass has `embedding` (a layer with `tables`), and says what the two steps are. Its constructor names
    what it needs to know of the preprocessor: `num_words`, and perhaps `num_ngrams` and `max_tokens`.

    Args:
        config: Sizes.
        num_words: Rows of the word table.

    Attributes:
        hidden_dim: Width of the sentence vectors.
    """

    embedding: Any

    def __init__(self, config: EncoderConfig, *, num_words: int, **kwargs: Any) -> None:
        super().__init__(**{"name": "encoder", **kwargs})
        self.config = config
        self.num_words = num_words
        self.hidden_dim = config.hidden_dim

    @abstractmethod
    def embed_words(self, words: WordFeatures) -> keras.KerasTensor:
        """Represents each distinct word of a batch: `[words, any]`, whatever sentences it is in."""

    @abstractmethod
    def encode_tokens(self, inputs: keras.KerasTensor, lengths: keras.KerasTensor) -> keras.KerasTensor:
        """Encodes `[batch, length, any]` word vectors of `[batch]` lengths: `[batch, hidden_dim]`."""

    def encode(
        self, words: keras.KerasTensor, tokens: keras.KerasTensor, lengths: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Encodes sentences of `[words, any]` vectors, which are at `[batch, length]` positions of them."""
        return self.encode_tokens(keras.ops.take(words, tokens, axis=0), lengths)

    def call(self, features: TokenFeatures) -> keras.KerasTensor:
        """Maps token features to `[batch, hidden_dim]` float32, not normalised."""
        words, tokens, lengths = features
        return self.encode(self.embed_words(words), tokens, lengths)

    @property
    def static_part(self) -> Any:
        """The `StaticEncoder` in it, whose vectors its own begin as; None if there is none."""
        return None

    @property
    def table_variables(self) -> list[keras.Variable]:
        """The embedding tables, which are updated row by row."""
        return self.embedding.tables

    @property
    def dense_variables(self) -> list[keras.Variable]:
        """Everything that is trained but the tables."""
        tables = {id(table) for table in self.table_variables}
        return [v for v in self.trainable_variables if id(v) not in tables]

    def start_words(self, rows: NDArray[np.float32], is_known: NDArray[np.bool_]) -> None:
        """Gives the first words of the table the vectors that are known, of one space or several.

        Args:
            rows: `[words, any]`, what spaces have beside each other.
            is_known: `[words, spaces]`.
        """
        table = self.embedding.words.table
        begun = tf.convert_to_tensor(table.value).numpy().copy()
        begun[: len(rows)][is_known.all(axis=1)] = rows[is_known.all(axis=1)]
        table.assign(begun)

    def build(self, features_shape: Any) -> None:
        """Does nothing: the layers make their variables when they are called."""

    def build_variables(self) -> None:
        """Creates every variable by encoding a sentence of two words."""
        one = np.zeros(1, np.int32)
        self(TokenFeatures(WordFeatures(one, one, one), np.zeros((1, 2), np.int32), one + 2))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, with the sizes as a dictionary."""
        return {**super().get_config(), **arguments_of(self), "config": dataclasses.asdict(self.config)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Self:
        """Makes an encoder with random weights, of what `get_config` returns."""
        encoder = cls(**{**config, "config": EncoderConfig(**config["config"])})
        encoder.build_variables()
        return encoder


def build_encoder(config: EncoderConfig, preprocessor: TextPreprocessor) -> TokenEncoder:
    """Makes an encoder with random weights for what a preprocessor gives."""
    module, name = ENCODERS[config.kind].split(".")
    kind = getattr(import_module(f"xling_tf.encoders.{module}"), name)
    sizes = {
        "num_words": preprocessor.num_words,
        "num_ngrams": preprocessor.num_ngrams,
        "max_tokens": preprocessor.config.max_tokens,
    }
    taken = inspect.signature(kind).parameters
    encoder: TokenEncoder = kind(config, **{name: size for name, size in sizes.items() if name in taken})
    encoder.build_variables()
    return encoder


def average_words(words: tf.Tensor, positions: tf.RaggedTensor) -> tf.Tensor:
    """Averages the vectors of each text's words (Iyyer et al. 2015, "Deep Unordered Composition", eq. 2).

    No vector is copied to where it occurs: a batch of paragraphs takes the memory of its distinct
    words.

    Example:
        >>> words = tf.constant([[1.0, 0.0], [0.0, 4.0]])
        >>> average_words(words, tf.ragged.constant([[0, 0, 0, 1], [1]])).numpy().tolist()
        [[0.75, 1.0], [0.0, 4.0]]
    """
    words, count = tf.cast(words, tf.float32), positions.nrows()
    sums = sum_groups(words, positions.values, positions.value_rowids(), count)
    return sums / tf.cast(positions.row_lengths(), tf.float32)[:, None]
