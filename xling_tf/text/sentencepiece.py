"""Sentences to SentencePiece's pieces (Kudo and Richardson 2018; Chidambaram et al. 2019, sec. 5.1)."""

import hashlib
from importlib import import_module
from typing import Any

import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.tokenization import readable

# Stands for a sentence without any piece: the unknown one between marks, as in the published encoders,
# and without marks the end of a sentence, which no text contains.
_EMPTY_MARKED, _EMPTY_PIECE = 0, 2


class SentencePiecePreprocessor(TextPreprocessor):
    """Represents a sentence by its pieces, each of which has a row.

    Args:
        model: SentencePiece's serialized model; it has its own rule for the case of letters.
        config: Sizes and rules. With `sentence_marks`, the model's pieces for the begin and the end of
            a sentence stand round those of the text, within `max_tokens`.

    Attributes:
        marks: The rows of the pieces before and after each sentence, or none.
        empty: The row of the piece that stands for a sentence without any.

    Raises:
        UserError: tensorflow-text is not installed, `model` is none of SentencePiece's, or has no such
            marks.
    """

    def __init__(self, model: bytes, config: TextConfig) -> None:
        super().__init__(config)
        self.vocabulary = model
        library("tensorflow_text")
        module = import_module("tensorflow_text.python.ops.sentencepiece_tokenizer")
        self._operations = module.gen_sentencepiece_tokenizer
        try:
            self._model = _ModelResource(model, self._operations)
            size = self._operations.sentencepiece_vocab_size_op(self._model.resource_handle)
        except tf.errors.OpError as error:
            raise UserError(
                f"a vocabulary of pieces must be a model as SentencePiece writes it, but these {len(model)} "
                "bytes are none, or were changed; give the file sentencepiece.model or *.model as it was"
            ) from error
        self.num_words = int(size)
        self.marks = self._marks_of_model() if config.sentence_marks else ()
        self.empty = _EMPTY_MARKED if self.marks else _EMPTY_PIECE

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """Splits `[batch]` strings into `[batch, (pieces)]` int32 rows of the table."""
        max_tokens = max_tokens or self.config.max_tokens
        pieces = self._pieces(readable(sentences, max_tokens))
        is_empty = tf.equal(pieces.row_lengths(), 0)
        fill = tf.fill([tf.math.count_nonzero(is_empty)], self.empty)
        filled = tf.RaggedTensor.from_row_lengths(fill, tf.cast(is_empty, tf.int64))
        kept = tf.concat([pieces, filled], axis=1)[:, : max_tokens - len(self.marks)]
        if not self.marks:
            return kept
        begin, end = (tf.fill([pieces.nrows(), 1], mark) for mark in self.marks)
        return tf.concat([begin, kept, end], axis=1)

    def word_ids(self, words: tf.Tensor) -> tf.Tensor:
        """Pieces are told by their rows already."""
        return words

    def _pieces(self, sentences: tf.Tensor, *, marked: bool = False) -> tf.RaggedTensor:
        ids, row_splits = self._operations.sentencepiece_tokenize_op(
            self._model.resource_handle,
            sentences,
            nbest_size=0,  # the best pieces, not one of the n best
            alpha=1.0,
            add_bos=marked,
            add_eos=marked,
            reverse=False,
            out_type=tf.int32,
        )
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def _marks_of_model(self) -> tuple[int, int]:
        """The rows of the pieces for the begin and the end of a sentence."""
        try:
            begin, end = self._pieces(tf.constant([""]), marked=True).values.numpy().tolist()
        except tf.errors.OpError as error:
            raise UserError(
                "text.sentence_marks=true expects a SentencePiece model with pieces for the begin and "
                "the end of a sentence, <s> and </s>, but this one lacks one of them; set "
                "text.sentence_marks=false, or learn a model with them"
            ) from error
        return begin, end


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


def library(name: str) -> Any:
    """Imports one of the two libraries that nothing else needs.

    Raises:
        UserError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(
            f"text.tokenizer=sentencepiece needs {name.replace('_', '-')}, which is not installed; "
            "install the extra with: pip install 'xling_tf[sentencepiece]' "
            "(in a checkout: pip install -e '.[sentencepiece]')"
        ) from error
