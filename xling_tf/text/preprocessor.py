"""What turns text into the encoder's input: the one interface that all ways of doing so share."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from xling_tf.config import TextConfig

# What is learnt from the training texts: the words, or SentencePiece's serialized model.
Vocabulary = Sequence[str] | bytes


class TokenFeatures(NamedTuple):
    """The tokens of a batch, with each distinct one represented once.

    A token is a word or a piece of one; "word" stands for both below.

    Attributes:
        word_ids: `[words]` int32 rows of the word table, one a distinct word of the batch.
        ngram_ids: `[ngrams]` int32 rows of the n-gram table, word by word; none where words are not
            spelt.
        ngram_words: `[ngrams]` int32, the position in `word_ids` that each n-gram belongs to, ascending.
        tokens: `[batch, length]` int32 positions in `word_ids`; padding points at 0.
        lengths: `[batch]` int32 number of tokens, at least 1.
    """

    word_ids: tf.Tensor
    ngram_ids: tf.Tensor
    ngram_words: tf.Tensor
    tokens: tf.Tensor
    lengths: tf.Tensor


class TextPreprocessor(tf.Module, ABC):
    """Turns strings into `TokenFeatures`, in the input pipeline, the encoder and the SavedModel alike.

    Args:
        config: Sizes and rules.

    Attributes:
        num_words: Rows of the word table.
        num_ngrams: Rows of the n-gram table; 0 where words are not spelt.
        vocabulary: What was learnt from the training texts.
    """

    vocabulary: Vocabulary
    num_words: int
    num_ngrams: int = 0

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.config = config

    @tf.Module.with_name_scope
    def __call__(self, sentences: tf.Tensor, contexts: tf.Tensor | None = None) -> TokenFeatures:
        """Maps `[batch]` strings to their features.

        Args:
            sentences: `[batch]` strings.
            contexts: Strings that follow them in the batch, cut at `config.max_context_tokens`.
        """
        tokens = self.tokenize(sentences)
        if contexts is not None:
            longer = self.tokenize(contexts, self.config.max_context_tokens)
            tokens = tf.concat([tokens, longer], axis=0)
        return self.features(tokens)

    @abstractmethod
    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (tokens)]`: 1 to `max_tokens` of each.

        Args:
            sentences: `[batch]` strings.
            max_tokens: Kept at the start of each; None: `config.max_tokens`.
        """

    @abstractmethod
    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Maps `[words]` tokens, as `tokenize` gives them, to `[words]` int32 rows of the word table."""

    def word_features(self, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Maps `[words]` tokens to the first three of `TokenFeatures`."""
        none = tf.zeros([0], tf.int32)
        return self.word_ids(words), none, none

    def features(self, tokens: tf.RaggedTensor) -> TokenFeatures:
        """Maps `[batch, (tokens)]` to their features."""
        words, positions = tf.unique(tokens.values)
        word_ids, ngrams, ngram_words = self.word_features(words)
        return TokenFeatures(
            word_ids=word_ids,
            ngram_ids=ngrams,
            ngram_words=ngram_words,
            tokens=tokens.with_values(positions).to_tensor(),
            lengths=tf.cast(tokens.row_lengths(), tf.int32),
        )
