"""Sentences to SentencePiece's pieces (Kudo and Richardson 2018; Chidambaram et al. 2019, sec. 5.1)."""

import hashlib
import io
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from random import Random
from typing import Any

import tensorflow as tf
from absl import logging

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.tokenization import readable

# Texts that the pieces are learnt from, drawn evenly from all of them, the same ones every time.
_SAMPLED_TEXTS = 1_000_000
# Share of the characters that have a piece; the rest, the rarest, are unknown (the library's default,
# which its page advises for languages with many characters).
_CHARACTER_COVERAGE = 0.9995
# The end-of-sentence piece, which no text contains, stands for a sentence without any piece.
_EMPTY_PIECE = 2


class SentencePiecePreprocessor(TextPreprocessor):
    """Represents a sentence by its pieces, each of which has a row.

    Args:
        model: SentencePiece's serialized model; it has its own rule for the case of letters.
        config: Sizes and rules.

    Raises:
        UserError: tensorflow-text is not installed.
    """

    def __init__(self, model: bytes, config: TextConfig) -> None:
        super().__init__(config)
        _library("tensorflow_text")
        module = import_module("tensorflow_text.python.ops.sentencepiece_tokenizer")
        self._operations = module.gen_sentencepiece_tokenizer
        self._model = _ModelResource(model, self._operations)
        size = self._operations.sentencepiece_vocab_size_op(self._model.resource_handle)
        self.num_words = int(size)

    def tokenize(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (pieces)]` int32 rows of the table."""
        ids, row_splits = self._operations.sentencepiece_tokenize_op(
            self._model.resource_handle,
            readable(sentences, self.config.max_tokens),
            nbest_size=0,  # the best pieces, not one of the n best
            alpha=1.0,
            add_bos=False,
            add_eos=False,
            reverse=False,
            out_type=tf.int32,
        )
        pieces = tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)
        is_empty = tf.equal(pieces.row_lengths(), 0)
        fill = tf.fill([tf.math.count_nonzero(is_empty)], _EMPTY_PIECE)
        filled = tf.RaggedTensor.from_row_lengths(fill, tf.cast(is_empty, tf.int64))
        return tf.concat([pieces, filled], axis=1)[:, : self.config.max_tokens]

    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Pieces are told by their rows already."""
        return words


class _ModelResource(tf.saved_model.experimental.TrackableResource):
    """SentencePiece's model in TensorFlow's memory, and in a SavedModel.

    tensorflow_text.SentencepieceTokenizer has one too, but without a name it belongs to a kernel
    and goes when TensorFlow clears its caches, as `tf.random.set_seed` does.
    """

    def __init__(self, model: bytes, operations: Any) -> None:
        super().__init__()
        self._model, self._operations = model, operations

    def _create_resource(self) -> tf.Tensor:
        name = hashlib.sha256(self._model).hexdigest()
        return self._operations.sentencepiece_op(model=self._model, shared_name=name)


def fit_pieces(config: TextConfig, texts: Iterable[str]) -> tuple[TextConfig, bytes]:
    """Learns a unigram model of at most `config.sentencepiece_size` pieces from texts.

    Args:
        config: With `lowercase`, letters are case-folded after normalisation (rule nmt_nfkc_cf).
        texts: Read once, in bounded memory.

    Returns:
        `config` as it was, and the serialized model.

    Raises:
        UserError: A library is not installed, or no such model can be learnt from the texts.
    """
    _library("tensorflow_text")  # without it the model could not be used
    library, model = _library("sentencepiece"), io.BytesIO()
    sample = _draw(texts)
    characters: Counter[str] = Counter()
    for text in sample:
        characters.update(text)
    try:
        library.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            model_type="unigram",
            vocab_size=config.sentencepiece_size,
            hard_vocab_limit=False,  # few texts have few pieces
            character_coverage=_CHARACTER_COVERAGE,
            normalization_rule_name="nmt_nfkc_cf" if config.lowercase else "nmt_nfkc",
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(
            f"text.sentencepiece_size expects more than there are different characters in the texts, but "
            f"is {config.sentencepiece_size} for {characters.total()} characters, {len(characters)} of "
            f"them different; change it or give more texts ({error})"
        ) from error
    processor = library.SentencePieceProcessor(model_proto=model.getvalue())
    logging.info(
        "%d pieces, which spell %.3f%% of the characters of the texts",
        processor.get_piece_size(),
        100 * _coverage(processor, characters),
    )
    return config, model.getvalue()


def _draw(texts: Iterable[str]) -> list[str]:
    """Draws a bounded sample from texts of any number (Vitter 1985, algorithm R)."""
    random, sample = Random(1), list[str]()
    for number, text in enumerate(texts):
        if number < _SAMPLED_TEXTS:
            sample.append(text)
        elif (place := random.randrange(number + 1)) < _SAMPLED_TEXTS:
            sample[place] = text
    return sample


def _coverage(processor: Any, characters: Counter[str]) -> float:
    unknown = processor.unk_id()
    known = (c for c in characters if unknown not in processor.encode(c))
    return sum(characters[c] for c in known) / characters.total()


def _library(name: str) -> Any:
    """Imports one of the two libraries that nothing else needs."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"text.tokenizer=sentencepiece needs {name.replace('_', '-')}, which is not installed; "
            "install the extra with: pip install 'xling_tf[sentencepiece]' "
            "(in a checkout: pip install -e '.[sentencepiece]')"
        ) from error
