"""SentencePiece tokenizer (Kudo and Richardson 2018): pieces of words, learned from texts."""

import dataclasses
import hashlib
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any, Self

import numpy as np
import sentencepiece
import tensorflow as tf
from absl import logging
from google.protobuf import message
from numpy.typing import NDArray

from xling_tf.client.piece_models import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    model_proto,
    require_charsmaps,
)
from xling_tf.client.words import BYTES_PER_TOKEN
from xling_tf.config import SentencePieceConfig
from xling_tf.errors import UserError, as_user_error
from xling_tf.tokenizers.base import Frame, Tokenizer
from xling_tf.tokenizers.composition import readable

# Number of texts to learn from, 8 million in Yang et al. 2019, sec. 3.2. Time and memory grow with
# it: these take five minutes of a core and 3.6 GB. With half of them, texts have up to 1% more
# pieces (evaluation/results/experiments.json, pieces).
_SAMPLED_TEXTS = 2_000_000
# Share of a language's characters that have a piece; the rarest are unknown. This is the library's
# default, recommended for languages with many characters.
_CHARACTER_COVERAGE = 0.9995
# Fixed, because the learned pieces depend on it: another machine must learn the same.
_NUM_THREADS = 16


class SentencePieceTokenizer(Tokenizer):
    """Splits text into SentencePiece pieces, each of which has a row of the word table.

    Rows equal the ids of Hugging Face's `tokenizers`, except in six cases: of segmentations with
    the same score, as of "=====", another may be taken; Unicode is composed first, also the marks
    of U+0344 with their letter, while `tokenizers` may lose a mark after an accented character;
    U+0085 is not a space; a text that begins with "▁", or is a single space, gets another space,
    unless the model's rules make it one; "▁▁" in a text can be the piece of two spaces; and no
    text, such as "</s>", is read as a special token.

    Args:
        model: SentencePiece's serialized model, which also decides on lowercasing.
        config: Sizes and rules. `sentence_marks` puts the model's pieces for the beginning and the
            end of a sentence, or the one of them that it has, around the pieces of the text; they
            count towards `max_tokens`.
    """

    file_names = ("sentencepiece.model",)
    needs_text_ops = True
    config: SentencePieceConfig

    def __init__(self, model: bytes, config: SentencePieceConfig) -> None:
        super().__init__(config)
        import_module("tensorflow_text")  # registers the operations
        # Private: the generated operations of tensorflow-text. Its public `SentencepieceTokenizer`
        # replaces them once its model survives `tf.random.set_seed` (see `_ModelResource`).
        module = import_module("tensorflow_text.python.ops.sentencepiece_tokenizer")
        self._operations = module.gen_sentencepiece_tokenizer
        self._serialized = model
        fault = (
            f"the vocabulary must be a model of SentencePiece, but these {len(model)} bytes are "
            "not one, or were changed; use the original file, sentencepiece.model or *.model"
        )
        with as_user_error(fault, tf.errors.OpError, message.DecodeError):
            proto = model_proto(model)
            require_charsmaps(proto)
            self._model = _ModelResource(model, self._operations)
            size = self._operations.sentencepiece_vocab_size_op(self._model.resource_handle)
        self.num_words = int(size)
        pieces, trainer, spaces = proto.pieces, proto.trainer_spec, proto.normalizer_spec
        # If all spaces are kept, that before a text is the one which SentencePiece adds, as in
        # `tokenizers`.
        self._fills_prefix = spaces.add_dummy_prefix and not spaces.remove_extra_whitespaces
        marks = {piece.piece: (row,) for row, piece in enumerate(pieces) if piece.type == CONTROL}
        begin, end = (marks.get(name, ()) for name in (trainer.bos_piece, trainer.eos_piece))
        if config.sentence_marks and not begin + end:
            raise UserError(
                "tokenizer.sentence_marks=true expects a SentencePiece model with <s> or </s>, "
                "but this one has neither; set tokenizer.sentence_marks=false, or learn a model "
                "with them"
            )
        unknown = next(row for row, piece in enumerate(pieces) if piece.type == UNKNOWN)
        self._unknown = unknown
        # Without marks, the end of a sentence, which no text contains, stands for an empty
        # sentence. Between marks, it is the unknown piece in the published encoders, where that is
        # the first piece.
        self._frame = Frame((), (), next(iter(end), unknown))
        if config.sentence_marks:
            self._frame = Frame(begin, end, unknown if unknown == 0 else None)

    @classmethod
    def fit(
        cls, config: SentencePieceConfig, texts_by_language: Mapping[str, Iterable[str]]
    ) -> Self:
        """See `Tokenizer.fit`: learns a unigram model of at most `config.num_pieces` pieces."""
        drawn = draw_balanced(texts_by_language, _SAMPLED_TEXTS)
        texts = [text for language_texts in drawn.values() for text in language_texts]
        # All the rarest characters may be of one language, such as Chinese among European
        # languages: the whole allowance of unknown characters may then fall on that language.
        unknown = (1 - _CHARACTER_COVERAGE) / max(1, len(drawn))
        tokenizer = cls(_train_pieces(texts, config, character_coverage=1 - unknown), config)
        logging.info("learned %d pieces from %d texts", tokenizer.num_words, len(texts))
        if tokenizer.num_words < config.num_pieces:
            logging.warning(
                "tokenizer.num_pieces=%d asks for more pieces than the texts have; add more texts",
                config.num_pieces,
            )
        return tokenizer

    @classmethod
    def from_files(cls, config: SentencePieceConfig, files: Mapping[str, bytes]) -> Self:
        """See `Tokenizer.from_files`: SentencePiece's serialized model."""
        (name,) = cls.file_names
        return cls(files[name], config)

    def files(self) -> dict[str, bytes]:
        """See `Tokenizer.files`."""
        (name,) = self.file_names
        return {name: self._serialized}

    def only(
        self, wanted: Callable[[Sequence[str]], Iterable[bool]]
    ) -> tuple[Self, NDArray[np.int64]]:
        """See `Tokenizer.only`: single characters stay, so that no more text is unknown."""
        proto = model_proto(self._serialized)
        if proto.trainer_spec.model_type != UNIGRAM:
            return super().only(wanted)
        pieces = [*proto.pieces]
        # SentencePiece derives the score of unknown characters from the lowest one, and that of
        # user-defined pieces from the highest.
        scores = [piece.score for piece in pieces if piece.type == NORMAL]
        bounds = {min(scores, default=0), max(scores, default=0)}
        kept = [
            is_wanted or piece.type != NORMAL or len(piece.piece) == 1 or piece.score in bounds
            for piece, is_wanted in zip(
                pieces, wanted([piece.piece for piece in pieces]), strict=True
            )
        ]
        del proto.pieces[:]
        proto.pieces.extend(piece for piece, is_kept in zip(pieces, kept, strict=True) if is_kept)
        proto.ClearField("self_test_data")  # examples that may be split otherwise now
        config = dataclasses.replace(self.config, num_pieces=len(proto.pieces))
        return type(self)(proto.SerializeToString(), config), np.flatnonzero(kept)

    def is_unknown(self, tokens: tf.Tensor) -> tf.Tensor:
        """See `Tokenizer.is_unknown`."""
        return tf.equal(tokens, self._unknown)

    def rules(self) -> dict[str, Any]:
        """See `Tokenizer.rules`."""
        return {
            "kind": "pieces",
            "max_tokens": self.config.max_tokens,
            "max_bytes": BYTES_PER_TOKEN * self.config.max_tokens,
            **self._frame._asdict(),
            "fills_prefix": self._fills_prefix,
        }

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        """See `Tokenizer.tokenize`: int32 rows of the table."""
        max_tokens = max_tokens or self.config.max_tokens
        text = readable(sentences, max_tokens)
        if self._fills_prefix:
            text = tf.strings.regex_replace(text, "(?s)^ (.)", r"\1")
        ids, row_splits = self._operations.sentencepiece_tokenize_op(
            self._model.resource_handle,
            text,
            nbest_size=0,  # the best segmentation, not a sample of the n best
            alpha=1.0,
            add_bos=False,
            add_eos=False,
            reverse=False,
            out_type=tf.int32,
        )
        rows = tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)
        return self._frame.put_around(rows, max_tokens)


class _ModelResource(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model in TensorFlow's memory, which is saved in a SavedModel.

    The resource of `tensorflow_text.SentencepieceTokenizer` has no name, so that it belongs to a
    kernel and is deleted when TensorFlow clears its kernel cache, as `tf.random.set_seed` does.
    """

    def __init__(self, model: bytes, operations: Any) -> None:
        super().__init__()
        self._model, self._operations = model, operations

    def _create_resource(self) -> tf.Tensor:
        name = hashlib.sha256(self._model).hexdigest()
        return self._operations.sentencepiece_op(model=self._model, shared_name=name)


def draw_balanced(
    texts_by_language: Mapping[str, Iterable[str]], count: int
) -> dict[str, list[str]]:
    """Samples equally many texts of each language (Vitter 1985, alg. R), with a fixed seed."""
    # Yang et al. 2019, sec. 3.2: "sampled from our training corpus and balanced across the 16
    # languages". All texts of a language with fewer than its share are taken.
    share = count // max(1, len(texts_by_language))
    drawn: dict[str, list[str]] = {}
    for language, texts in texts_by_language.items():
        random, sample = Random(1), drawn.setdefault(language, [])
        for number, text in enumerate(texts):
            if number < share:
                sample.append(text)
            elif (place := random.randrange(number + 1)) < share:
                sample[place] = text
    return drawn


def _train_pieces(
    texts: Sequence[str], config: SentencePieceConfig, *, character_coverage: float
) -> bytes:
    """Learns and serializes a model of `config.num_pieces` pieces, fewer if texts are few."""
    model, size = io.BytesIO(), config.num_pieces
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="unigram",
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if config.lowercase else "nmt_nfkc",
            num_threads=_NUM_THREADS,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(
            f"tokenizer.num_pieces={size} expects enough texts, and more pieces than they have "
            f"characters, got {len(texts)} with {len(set().union(*texts))} characters "
            f"({str(error).strip()})"
        ) from error
    return model.getvalue()
