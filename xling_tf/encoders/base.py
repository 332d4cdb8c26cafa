"""What every encoder is to the rest: words to vectors, and sentences of such words to one."""

from abc import ABC, abstractmethod

import keras
import numpy as np


class TokenEncoder(keras.Model, ABC):
    """Maps token features to sentence vectors in two steps, the first of which is done once a word.

    A subclass makes `embedding` (a layer with `tables`), and says what the two steps are.

    Args:
        hidden_dim: Width of the sentence vectors.
    """

    embedding: keras.layers.Layer

    def __init__(self, *, hidden_dim: int) -> None:
        super().__init__(name="encoder")
        self.hidden_dim = hidden_dim

    @abstractmethod
    def embed_words(
        self,
        word_ids: keras.KerasTensor,
        ngram_ids: keras.KerasTensor,
        ngram_words: keras.KerasTensor,
    ) -> keras.KerasTensor:
        """Represents each distinct word of a batch: `[words, any]`, whatever sentences it is in."""

    @abstractmethod
    def encode_tokens(
        self, inputs: keras.KerasTensor, lengths: keras.KerasTensor
    ) -> keras.KerasTensor:
        """Encodes `[batch, length, any]` word vectors of `[batch]` lengths: `[batch, hidden_dim]`."""

    def call(self, features: tuple[keras.KerasTensor, ...]) -> keras.KerasTensor:
        """Maps `TokenFeatures` to `[batch, hidden_dim]` float32, not normalised."""
        word_ids, ngram_ids, ngram_words, tokens, lengths = features
        words = self.embed_words(word_ids, ngram_ids, ngram_words)
        return self.encode_tokens(keras.ops.take(words, tokens, axis=0), lengths)

    @property
    def table_variables(self) -> list[keras.Variable]:
        """The embedding tables, which are updated row by row."""
        return self.embedding.tables

    @property
    def dense_variables(self) -> list[keras.Variable]:
        """Everything that is trained but the tables."""
        tables = {id(table) for table in self.table_variables}
        return [v for v in self.trainable_variables if id(v) not in tables]

    @property
    @abstractmethod
    def layer_groups(self) -> list[list[keras.Variable]]:
        """Everything that is trained, layer by layer, the tables' first and what gives the vector last."""

    def build_variables(self) -> None:
        """Creates every variable by encoding a sentence of two words."""
        one = np.zeros(1, np.int32)
        self((one, one, one, np.zeros((1, 2), np.int32), one + 2))
