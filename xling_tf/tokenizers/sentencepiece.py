"""SentencePiece tokenizer (Kudo and Richardson 2018): pieces of words, learned from texts."""

import hashlib
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any, Self

import numpy as np
import sentencepiece
import tensorflow as tf
from absl import logging
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, text_format

from xling_tf.config import SentencePieceConfig
from xling_tf.errors import UserError, as_user_error
from xling_tf.tokenizers.base import Frame, Tokenizer
from xling_tf.tokenizers.treebank import BYTES_PER_TOKEN, readable

# Number of texts to learn from, 8 million in Yang et al. 2019, sec. 3.2. Time and memory grow with
# it: these take five minutes of a core and 3.6 GB. With half of them, texts have up to 1% more
# pieces (evaluation/results/experiments.json, pieces).
_SAMPLED_TEXTS = 2_000_000
# Share of a language's characters that have a piece; the rarest are unknown. This is the library's
# default, recommended for languages with many characters.
_CHARACTER_COVERAGE = 0.9995
# Fixed, because the learned pieces depend on it: another machine must learn the same.
_NUM_THREADS = 16

# Values in SentencePiece's sentencepiece_model.proto, and the fields of it that are used here.
UNIGRAM, BPE = 1, 2
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
# The module that sentencepiece ships for it needs a newer protobuf than TensorFlow allows.
_PROTO = """
name: "pieces.proto" package: "pieces" syntax: "proto2"
message_type {
  name: "Piece"
  field { name: "piece" number: 1 type: TYPE_STRING }
  field { name: "score" number: 2 type: TYPE_FLOAT }
  field { name: "type" number: 3 type: TYPE_INT32 default_value: "1" }
}
message_type {
  name: "Trainer"
  field { name: "model_type" number: 3 type: TYPE_INT32 default_value: "1" }
  field { name: "byte_fallback" number: 35 type: TYPE_BOOL }
  field { name: "bos_piece" number: 46 type: TYPE_STRING default_value: "<s>" }
  field { name: "eos_piece" number: 47 type: TYPE_STRING default_value: "</s>" }
}
message_type {
  name: "Normalizer"
  field { name: "precompiled_charsmap" number: 2 type: TYPE_BYTES }
  field { name: "add_dummy_prefix" number: 3 type: TYPE_BOOL default_value: "true" }
  field { name: "remove_extra_whitespaces" number: 4 type: TYPE_BOOL default_value: "true" }
}
message_type {
  name: "Model"
  field {
    name: "pieces" number: 1 type: TYPE_MESSAGE type_name: ".pieces.Piece" label: LABEL_REPEATED
  }
  field { name: "trainer_spec" number: 2 type: TYPE_MESSAGE type_name: ".pieces.Trainer" }
  field { name: "normalizer_spec" number: 3 type: TYPE_MESSAGE type_name: ".pieces.Normalizer" }
  field { name: "denormalizer_spec" number: 5 type: TYPE_MESSAGE type_name: ".pieces.Normalizer" }
}
"""
# SentencePiece keeps this many of the rules that match at one place of a text, without a check.
_RULES_AT_A_PLACE = 32
_RULE_BYTES = 255  # longest key and longest replacement; those of NFKC have at most 33 bytes
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto()))
_MODEL = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("pieces.Model"))


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
            for spec in (proto.normalizer_spec, proto.denormalizer_spec):
                require_charsmap(spec.precompiled_charsmap)
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


def model_proto(serialized: bytes = b"") -> Any:
    """Parses SentencePiece's model: a message with the fields above, which keeps all others."""
    return _MODEL.FromString(serialized)


def require_charsmap(charsmap: bytes) -> None:
    """Checks that SentencePiece can apply its rules for characters without leaving their bytes.

    SentencePiece does not check them: a made-up `precompiled_charsmap` would end the process.
    Without bytes, there are no rules. The first four bytes are the size of a double-array trie
    (Darts), whose replacements follow it, each with a zero byte at its end. From a state, a byte of
    a text leads to the unit at `state ^ byte`; if the unit has the byte as its label, it leads to
    the state `unit's place ^ its offset`.

    Raises:
        UserError: A text could lead out of the trie or of the replacements, or match without end.
    """
    if not charsmap:
        return
    size = int.from_bytes(charsmap[:4], "little")
    is_whole = size % 4 == 0 and size + 4 < len(charsmap)
    units = np.frombuffer(charsmap, "<u4", size // 4, 4) if is_whole else ()
    strings = charsmap[4 + size :]
    if not len(units) or not _stays_inside(np.asarray(units, np.int64), strings):
        raise UserError(
            "precompiled_charsmap must have the rules for characters that SentencePiece has "
            f"compiled, but its {len(charsmap)} bytes are damaged or made up; download the model "
            "again"
        )


def _stays_inside(units: Any, strings: bytes) -> bool:
    """True if no text leads out of the units of a trie, or out of the replacements."""
    if not strings.endswith(b"\0") or max(map(len, strings.split(b"\0"))) > _RULE_BYTES:
        return False
    places = np.arange(len(units))
    is_step = units >> 31 == 0  # the others hold values
    before = places ^ (units & 0xFF)
    after = places ^ (units >> 10 << ((units & 0x200) >> 6))
    ends_rule = (units >> 8) & 1
    # The root leads to its state whatever it is.
    states, rules = np.unique(after[:1]), np.zeros(1, np.int64)
    for _ in range(_RULE_BYTES):
        if (states | 0xFF).max() >= len(units):
            return False
        known = np.full(len(units), -1)
        known[states] = rules
        steps = np.flatnonzero(is_step & (before < len(units)))
        steps = steps[known[before[steps]] >= 0]
        if not len(steps):
            return True
        ends = steps[ends_rule[steps] == 1]
        if (after[steps] >= len(units)).any():
            return False
        if ((units[after[ends]] & 0x7FFFFFFF) >= len(strings)).any():
            return False
        most = np.full(len(units), -1)
        np.maximum.at(most, after[steps], known[before[steps]] + ends_rule[steps])
        states = np.flatnonzero(most >= 0)
        rules = most[states]
        if rules.max() > _RULES_AT_A_PLACE:
            return False
    return False  # longer than any key: the trie leads back to itself


def piece_pairs(piece: str, pieces: Collection[str]) -> list[tuple[str, str]]:
    """Returns the pairs of pieces that make a piece, in BPE; the longest first one comes first."""
    pairs = ((piece[:place], piece[place:]) for place in range(len(piece) - 1, 0, -1))
    return [pair for pair in pairs if pair[0] in pieces and pair[1] in pieces]


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
