"""What turns text into the encoder's input: the one interface of all tokenizers, which are named here."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.text.tokenization import lowercased, readable

# By `config.text.tokenizer`: what learns a vocabulary, and what makes a preprocessor of it.
TOKENIZERS = {
    "treebank": ("words.fit_words", "words.word_preprocessor"),
    "sentencepiece": ("sentencepiece.fit_pieces", "sentencepiece.SentencePiecePreprocessor"),
}

# What is learnt from the training texts: the words, or SentencePiece's serialized model.
Vocabulary = Sequence[str] | bytes

_WORDS = "vocabulary.txt"
_PIECES = "sentencepiece.model"


class WordFeatures(NamedTuple):
    """The distinct words, or pieces of words, of a batch.

    Attributes:
        ids: `[words]` int32 rows of the word table.
        ngram_ids: `[ngrams]` int32 rows of the n-gram table, word by word; none where words are not
            spelt.
        ngram_words: `[ngrams]` int32, the position in `ids` that each n-gram belongs to, ascending.
    """

    ids: tf.Tensor
    ngram_ids: tf.Tensor
    ngram_words: tf.Tensor

    @classmethod
    def unspelt(cls, ids: tf.Tensor) -> Self:
        """Makes the features of words without n-grams."""
        none = tf.zeros([0], tf.int32)
        return cls(ids, none, none)


class TokenFeatures(NamedTuple):
    """The tokens of a batch, with each distinct one represented once.

    Attributes:
        words: The distinct words of the batch.
        tokens: `[batch, length]` int32 positions in `words.ids`; padding points at 0.
        lengths: `[batch]` int32 number of tokens, at least 1.
    """

    words: WordFeatures
    tokens: tf.Tensor
    lengths: tf.Tensor


class TextPreprocessor(tf.Module, ABC):
    """Turns strings into `TokenFeatures`, in the input pipeline, the encoder and the SavedModel alike.

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
        """Maps strings, and contexts that follow them, cut at `max_context_tokens`, to their features."""
        tokens = self.tokenize(sentences)
        if contexts is not None:
            longer = self.tokenize(contexts, self.config.max_context_tokens)
            tokens = tf.concat([tokens, longer], axis=0)
        return self.features(tokens)

    def fingerprints(self, sentences: tf.Tensor) -> tf.Tensor:
        """Hashes `[batch]` strings to int64 of at least 0, equal where texts are the same to an encoder."""
        texts = readable(sentences, self.config.max_tokens)
        if self.config.lowercase:
            texts = lowercased(texts)
        return tf.strings.to_hash_bucket_fast(texts, 2**62)

    @abstractmethod
    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (tokens)]`: 1 to `max_tokens` (`config`'s) of each."""

    @abstractmethod
    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Maps `[words]` tokens, as `tokenize` gives them, to `[words]` int32 rows of the word table."""

    @abstractmethod
    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Maps `[batch, (tokens)]` int32 rows of the word table to `[batch]` strings."""

    def word_features(self, words: tf.Tensor) -> WordFeatures:
        """Maps `[words]` tokens, as `tokenize` gives them, to what encoders embed."""
        return WordFeatures.unspelt(self.word_ids(words))

    def features(self, tokens: tf.RaggedTensor) -> TokenFeatures:
        """Maps `[batch, (tokens)]` to their features."""
        words, positions = tf.unique(tokens.values)
        return TokenFeatures(
            words=self.word_features(words),
            tokens=tokens.with_values(positions).to_tensor(),
            lengths=tf.cast(tokens.row_lengths(), tf.int32),
        )


def fit_text(
    config: TextConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, Vocabulary]:
    """Learns words or pieces from texts, which are read once; `config` comes back with the sizes decided."""
    fitted: tuple[TextConfig, Vocabulary] = _imported(config, 0)(config, texts_by_language)
    return fitted


def build_preprocessor(config: TextConfig, vocabulary: Vocabulary) -> TextPreprocessor:
    """Makes what turns text into features, of what `fit_text` has learnt."""
    preprocessor: TextPreprocessor = _imported(config, 1)(vocabulary, config)
    return preprocessor


def _imported(config: TextConfig, which: int) -> Any:
    module, name = TOKENIZERS[config.tokenizer][which].split(".")
    return getattr(import_module(f"xling_tf.text.{module}"), name)


def vocabulary_file(vocabulary: Vocabulary) -> tuple[str, bytes]:
    """The name and content of the file that a vocabulary is kept in."""
    if isinstance(vocabulary, bytes):
        return _PIECES, vocabulary
    return _WORDS, "".join(f"{word}\n" for word in vocabulary).encode()


def read_vocabulary(folder: Path, tokenizer: str) -> Vocabulary:
    """Reads the file of a run's folder, or of `training` in an exported model."""
    if tokenizer == "sentencepiece":
        return (folder / _PIECES).read_bytes()
    return (folder / _WORDS).read_text(encoding="utf-8").split("\n")[:-1]
