"""SentencePiece's pieces learnt from texts of several languages (Yang et al. 2019, sec. 3.2)."""

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from absl import logging

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.text.sampling import draw_balanced
from xling_tf.text.sentencepiece import library

# Texts that the pieces are learnt from. Yang, sec. 3.2, has 8 million; these take some five minutes of
# a core (128k pieces of half as many take 132 s) and 2 GB.
_SAMPLED_TEXTS = 1_000_000
# Texts of each language that the pieces are not learnt from but tried on, and the share of a language
# with few texts.
_HELD_ASIDE, _HELD_ASIDE_SHARE = 2_000, 0.1
# Share of a language's characters that have a piece; the rest, the rarest, are unknown (the library's
# default, which its page advises for languages with many characters).
_CHARACTER_COVERAGE = 0.9995
# Yang, sec. 3.2: "development set character coverage is higher than 99% for all languages, with less
# than 1% out-of-vocabulary tokens".
_LEAST_COVERAGE, _MOST_UNKNOWN = 0.99, 0.01
# The sums over texts, and so the pieces, depend on how many threads share them: not on the machine's cores.
_NUM_THREADS = 16


def fit_pieces(
    config: TextConfig, texts_by_language: Mapping[str, Iterable[str]]
) -> tuple[TextConfig, bytes]:
    """Learns a unigram model of at most `config.sentencepiece_size` pieces from texts.

    Every language gives the same number of texts, as far as it has them. How well the pieces cover
    each language is logged, and warned of where it is below the paper's figures.

    Args:
        config: With `lowercase`, letters are case-folded after normalisation (rule nmt_nfkc_cf).
        texts_by_language: Read once, language after language, in bounded memory.

    Returns:
        `config` as it was, and the serialized model.

    Raises:
        UserError: A library is not installed, or no such model can be learnt from the texts.
    """
    library("tensorflow_text")  # without it the model could not be used
    parts = {
        language: _hold_aside(texts)
        for language, texts in draw_balanced(texts_by_language, _SAMPLED_TEXTS).items()
    }
    texts = [text for used, _ in parts.values() for text in used]
    # The rarest characters of all texts may be those of one language: Chinese beside European ones.
    unknown = (1 - _CHARACTER_COVERAGE) / max(1, len(parts))
    model = train_pieces(
        texts,
        config.sentencepiece_size,
        character_coverage=1 - unknown,
        normalization_rule_name="nmt_nfkc_cf" if config.lowercase else "nmt_nfkc",
    )
    processor = library("sentencepiece").SentencePieceProcessor(model_proto=model)
    _report_size(processor.get_piece_size(), config.sentencepiece_size, len(texts))
    for language, (used, aside) in parts.items():
        _report_coverage(language, len(used), _coverage(processor, aside))
    return config, model


def train_pieces(
    texts: Sequence[str],
    size: int,
    *,
    model_type: str = "unigram",
    character_coverage: float = _CHARACTER_COVERAGE,
    **options: Any,
) -> bytes:
    """Learns a model of at most `size` pieces.

    Args:
        texts: All in memory.
        size: Few texts have fewer pieces.
        model_type: SentencePiece's name of the algorithm.
        character_coverage: Share of the characters that have a piece.
        options: More of SentencePiece's training.

    Returns:
        The serialized model.

    Raises:
        UserError: SentencePiece is not installed, or no such model can be learnt from the texts.
    """
    trainer, model = library("sentencepiece").SentencePieceTrainer, io.BytesIO()
    try:
        trainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type=model_type,
            vocab_size=size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            num_threads=_NUM_THREADS,
            minloglevel=2,
            **options,
        )
    except RuntimeError as error:
        raise UserError(_explained(str(error), texts, size)) from error
    return model.getvalue()


def _explained(error: str, texts: Sequence[str], size: int) -> str:
    """What SentencePiece's error means for a user."""
    characters = set().union(*texts)
    if needed := re.search(r"Vocabulary size is smaller than required_chars\. \d+ vs (\d+)", error):
        return (
            f"text.sentencepiece_size={size} expects more pieces than the different characters of the "
            f"texts, which need {needed[1]}; set text.sentencepiece_size to more than {needed[1]}"
        )
    return (
        f"text.sentencepiece_size={size} expects texts to learn the pieces from, got {len(texts)} with "
        f"{len(characters)} different characters; give more texts ({error.strip()})"
    )


def _hold_aside(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Parts texts into those to learn from and those to try the pieces on."""
    count = min(_HELD_ASIDE, int(_HELD_ASIDE_SHARE * len(texts)))
    aside = set(Random(1).sample(range(len(texts)), count))
    used = [text for place, text in enumerate(texts) if place not in aside]
    return used, [texts[place] for place in sorted(aside)]


class _Coverage(NamedTuple):
    """How much of some texts has pieces: shares, 1 and 0 at best."""

    num_texts: int
    characters: float
    unknown: float


def _coverage(processor: Any, texts: Sequence[str]) -> _Coverage:
    unknown_id = processor.unk_id()
    pieces = unknown = characters = unknown_characters = 0
    for text in texts:
        ids, spelt = processor.encode(text), processor.encode(text, out_type=str)
        lengths = [len(piece.removeprefix("▁")) for piece in spelt]
        pieces, characters = pieces + len(ids), characters + sum(lengths)
        # Unknown characters side by side are one piece.
        missing = [n for n, piece in zip(lengths, ids, strict=True) if piece == unknown_id]
        unknown, unknown_characters = unknown + len(missing), unknown_characters + sum(missing)
    return _Coverage(
        len(texts), 1 - unknown_characters / max(1, characters), unknown / max(1, pieces)
    )


def _report_size(size: int, asked: int, num_texts: int) -> None:
    if size == asked:
        logging.info("%d pieces of %d texts", size, num_texts)
    else:
        logging.warning(
            "text.sentencepiece_size=%d asks for more pieces than there are in %d texts: these have %d, "
            'and so has the model; give more texts for more (to SentencePiece: "Vocabulary size too high")',
            *(asked, num_texts, size),
        )


def _report_coverage(language: str, num_used: int, held: _Coverage) -> None:
    if not held.num_texts:
        logging.warning("%s: %d texts, too few to try the pieces on others", language, num_used)
        return
    line = (
        f"{language}: pieces of {num_used} texts; of {held.num_texts} others they spell "
        f"{held.characters:.3%} of the characters, and {held.unknown:.3%} of the pieces are unknown"
    )
    if held.characters < _LEAST_COVERAGE or held.unknown > _MOST_UNKNOWN:
        logging.warning(
            "%s, where at least %.0f%% and at most %.0f%% are expected: give more texts of %s, or raise "
            "text.sentencepiece_size",
            *(line, 100 * _LEAST_COVERAGE, 100 * _MOST_UNKNOWN, language),
        )
    else:
        logging.info("%s", line)
