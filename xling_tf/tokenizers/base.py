"""Base class of the tokenizers, and the token features that they return."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.tokenizers.composition import lowercased, readable

_MAX_CONTEXT_TOKENS = 256  # the paragraph around an answer is cut to this length


class SpelledWords(NamedTuple):
    """Distinct words with their character n-grams."""

    ids: tf.Tensor  # [words] int32 rows of the word table
    ngram_ids: tf.Tensor  # [ngrams] int32 rows of the n-gram table, word by word
    # [ngrams] int32 positions in `ids` of the words of the n-grams, ascending.
    ngram_words: tf.Tensor


class TokenFeatures(NamedTuple):
    """The tokens of a batch; each distinct token is represented once."""

    words: Any  # [words] int32 rows of the word table; `SpelledWords` if words have n-grams
    tokens: tf.Tensor  # [batch, length] int32 positions in `words`; padding points at 0
    lengths: tf.Tensor  # [batch] int32 numbers of tokens, at least 1


class Tokenizer(tf.Module, ABC):
    """Turns strings into `TokenFeatures`, in the input pipeline, the encoder and the SavedModel.

    A new kind of tokenizer is a subclass and a row of `xling_tf.config.TOKENIZERS`.
    """

    num_words: int  # number of rows of the word table
    # Words of the table's first rows, if tokens are words; hash buckets of others follow.
    known_words: tuple[str, ...] = ()
    num_ngrams: int = 0  # number of rows of the n-gram table; 0 if words have no n-grams
    # Row of each bucket of n-grams; None if words have no n-grams.
    ngram_rows: NDArray[np.int32] | None = None
    file_names: ClassVar[tuple[str, ...]]  # of the files in which a fitted tokenizer is saved
    # Whether loading a SavedModel of it needs tensorflow-text.
    needs_text_ops: ClassVar[bool] = False

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    @classmethod
    @abstractmethod
    def fit(cls, config: Any, texts_by_language: Mapping[str, Iterable[str]]) -> Self:
        """Learns a tokenizer from the texts of each language, by its code, which are read once."""

    @classmethod
    @abstractmethod
    def from_files(cls, config: Any, files: Mapping[str, bytes]) -> Self:
        """Makes a tokenizer from the contents of its files by name, as `files` returns them."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """Returns the contents of the tokenizer's files by name."""

    @abstractmethod
    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (tokens)]`, one to `max_tokens` each."""

    def tokenize_contexts(self, contexts: tf.Tensor) -> tf.RaggedTensor:
        """Tokenizes the paragraphs around answers, which may be longer than sentences."""
        return self.tokenize(contexts, _MAX_CONTEXT_TOKENS)

    def word_ids(self, tokens: tf.Tensor) -> tf.Tensor:
        """Maps `[n]` tokens to `[n]` int32 rows of the word table; by default, they are rows."""
        return tokens

    def is_unknown(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns `[n]` bool: which of `[n]` tokens stand for text that it cannot read."""
        return tf.zeros(tf.shape(tokens), tf.bool)

    @abstractmethod
    def rules(self) -> dict[str, Any]:
        """Returns the settings, as JSON values, from which other runtimes compute the same ids."""

    def only(
        self, wanted: Callable[[Sequence[str]], Iterable[bool]]
    ) -> tuple[Self, NDArray[np.int64]]:
        """Leaves out pieces; a text whose pieces are all kept is split as before.

        Args:
            wanted: Returns for each piece whether to keep it; some stay in any case. A piece is
                given as its text, with "▁" for a space before it.

        Returns:
            The tokenizer with the pieces that are kept, and their former rows, ascending.

        Raises:
            UserError: The tokenizer has no such pieces.
        """
        raise UserError(
            "`languages` needs a model of pieces that can be left out, those of SentencePiece's "
            "unigram models, but this model has none; export it without `languages`"
        )

    @tf.Module.with_name_scope
    def __call__(self, sentences: tf.Tensor, contexts: tf.Tensor | None = None) -> TokenFeatures:
        """Tokenizes `[batch]` sentences, then contexts (see `tokenize_contexts`)."""
        tokens = self.tokenize(sentences)
        if contexts is not None:
            tokens = tf.concat([tokens, self.tokenize_contexts(contexts)], axis=0)
        # As in `EmbeddingTable.sum_rows`.
        words, positions, _ = tf.unique_with_counts(tokens.values)
        return TokenFeatures(
            words=self.word_features(words),
            tokens=tokens.with_values(positions).to_tensor(),
            lengths=tf.cast(tokens.row_lengths(), tf.int32),
        )

    def word_features(self, tokens: tf.Tensor) -> Any:
        """Maps `[words]` distinct tokens, as `tokenize` returns them, to `TokenFeatures.words`."""
        return self.word_ids(tokens)

    def fingerprints(self, sentences: tf.Tensor) -> tf.Tensor:
        """Hashes `[batch]` strings to int64 of at least 0, equal for texts of equal tokens."""
        texts = readable(sentences, self.config.max_tokens)
        if self.config.lowercase:
            texts = lowercased(texts)
        return tf.strings.to_hash_bucket_fast(texts, 2**62)


class VocabularyTokenizer(Tokenizer):
    """A tokenizer with a list of words or pieces, which are saved in a file, one a line."""

    vocabulary: tuple[str, ...]

    def __init__(self, vocabulary: Sequence[str], config: Any) -> None:
        super().__init__(config)
        self.vocabulary = tuple(vocabulary)

    @classmethod
    def from_files(cls, config: Any, files: Mapping[str, bytes]) -> Self:
        """See `Tokenizer.from_files`."""
        (name,) = cls.file_names
        return cls(files[name].decode().split("\n")[:-1], config)

    def files(self) -> dict[str, bytes]:
        """See `Tokenizer.files`."""
        (name,) = self.file_names
        return {name: "".join(f"{word}\n" for word in self.vocabulary).encode()}


class Frame(NamedTuple):
    """What is put around sentences of pieces, as rows of the word table."""

    begin: tuple[int, ...]  # marks before each sentence
    end: tuple[int, ...]  # marks after each sentence
    empty: int | None  # stands for a sentence without tokens; None for marks alone

    def put_around(self, rows: tf.RaggedTensor, max_tokens: int) -> tf.RaggedTensor:
        """Cuts `[batch, (tokens)]` int32 rows to `max_tokens`, marks included, and adds marks."""
        if self.empty is not None:
            is_empty = tf.equal(rows.row_lengths(), 0)
            fill = tf.fill([tf.math.count_nonzero(is_empty)], self.empty)
            filled = tf.RaggedTensor.from_row_lengths(fill, tf.cast(is_empty, tf.int64))
            rows = tf.concat([rows, filled], axis=1)
        begin, end = (tf.tile(tf.constant([m], tf.int32), [rows.nrows(), 1]) for m in self[:2])
        return tf.concat(
            [begin, rows[:, : max_tokens - len(self.begin) - len(self.end)], end], axis=1
        )
