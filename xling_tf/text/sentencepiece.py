"""SentencePiece (Kudo and Richardson 2018): pieces learnt from texts, and sentences to pieces."""

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from random import Random
from typing import Any

import sentencepiece
import tensorflow as tf
from absl import logging

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.tokenization import readable

# Of which pieces are learnt: some five minutes of a core and 2 GB (Yang et al. 2019, sec. 3.2: 8 million).
_SAMPLED_TEXTS = 1_000_000
# Share of a language's characters that have a piece; the rest, the rarest, are unknown (the library's
# default, which its page advises for languages with many characters).
_CHARACTER_COVERAGE = 0.9995
# Yang et al. 2019, sec. 3.2: "development set character coverage is higher than 99% for all languages,
# with less than 1% out-of-vocabulary tokens". Of each language so many texts are held out, of few a share.
_MOST_UNKNOWN, _HELD_OUT, _HELD_OUT_SHARE = 0.01, 2_000, 0.1
# The sums over texts, and so the pieces, depend on the number of threads: not on the machine's cores.
_NUM_THREADS = 16

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
    """

    def __init__(self, model: bytes, config: TextConfig) -> None:
        super().__init__(config)
        self.vocabulary = model
        import_module("tensorflow_text")  # registers the operations
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

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """See `TextPreprocessor.join`."""
        return self._operations.sentencepiece_detokenize_op(
            self._model.resource_handle,
            ids.values,
            ids.row_splits,
            add_bos=False,
            add_eos=False,
            reverse=False,
        )

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


def fit_pieces(
    config: TextConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, bytes]:
    """Learns a unigram model of at most `config.sentencepiece_size` pieces from texts.

    The texts are read once, in bounded memory. How well the pieces cover each language is logged, and
    warned of where it is below the paper's figures.
    """
    parts = {
        language: _hold_out(texts)
        for language, texts in draw_balanced(texts_by_language, _SAMPLED_TEXTS).items()
    }
    texts = [text for used, _ in parts.values() for text in used]
    # The rarest characters of all texts may be those of one language: Chinese beside European ones.
    unknown = (1 - _CHARACTER_COVERAGE) / max(1, len(parts))
    model = _train_pieces(texts, config, character_coverage=1 - unknown)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    logging.info("%d pieces of %d texts", processor.get_piece_size(), len(texts))
    if processor.get_piece_size() < config.sentencepiece_size:
        logging.warning(
            "text.sentencepiece_size=%d asks for more pieces than the texts have; give more texts",
            config.sentencepiece_size,
        )
    for language, (_, held_out) in parts.items():
        _report_coverage(language, processor, held_out)
    return config, model


def draw_balanced(texts_by_language: Mapping[str, Iterable[str]], count: int) -> dict[str, list[str]]:
    """Draws the same number of texts of each language, the same ones every time (Vitter 1985, alg. R).

    A language with fewer than its share gives all it has (Yang et al. 2019, sec. 3.2: "sampled from
    our training corpus and balanced across the 16 languages").
    """
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


def _hold_out(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts texts into those to learn from and those to try the pieces on."""
    count = min(_HELD_OUT, int(_HELD_OUT_SHARE * len(texts)))
    held_out = set(Random(1).sample(range(len(texts)), count))
    used = [text for place, text in enumerate(texts) if place not in held_out]
    return used, [texts[place] for place in sorted(held_out)]


def _train_pieces(texts: Sequence[str], config: TextConfig, *, character_coverage: float) -> bytes:
    """Learns the serialized model; few texts have fewer pieces than the config asks for."""
    model, size = io.BytesIO(), config.sentencepiece_size
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
        if needed := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise UserError(
                f"text.sentencepiece_size={size} expects more pieces than the characters of the texts "
                f"need, {needed[1]}; set text.sentencepiece_size to more than {needed[1]}"
            ) from error
        raise UserError(
            f"text.sentencepiece_size={size} expects texts to learn the pieces from, got {len(texts)} "
            f"with {len(set().union(*texts))} different characters; give more ({str(error).strip()})"
        ) from error
    return model.getvalue()


def _report_coverage(language: str, processor: Any, texts: Sequence[str]) -> None:
    """Logs how much of held-out texts has pieces, and warns where that is too little."""
    unknown_id = processor.unk_id()
    pieces = unknown = characters = unknown_characters = 0
    for text in texts:
        ids, spelt = processor.encode(text), processor.encode(text, out_type=str)
        lengths = [len(piece.removeprefix("▁")) for piece in spelt]
        pieces, characters = pieces + len(ids), characters + sum(lengths)
        # Unknown characters side by side are one piece.
        missing = [n for n, piece in zip(lengths, ids, strict=True) if piece == unknown_id]
        unknown, unknown_characters = unknown + len(missing), unknown_characters + sum(missing)
    covered, unknown_share = 1 - unknown_characters / max(1, characters), unknown / max(1, pieces)
    is_low = not texts or 1 - covered > _MOST_UNKNOWN or unknown_share > _MOST_UNKNOWN
    logging.log(
        logging.WARNING if is_low else logging.INFO,
        "%s: of %d held-out texts the pieces spell %.3f%% of the characters, and %.3f%% of the pieces are "
        "unknown%s",
        *(language, len(texts), 100 * covered, 100 * unknown_share),
        "; give more texts, or raise text.sentencepiece_size" if is_low else "",
    )
