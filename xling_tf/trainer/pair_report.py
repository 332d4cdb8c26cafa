"""What a fine-tuning understood of its pairs, and what seems wrong with them, before it trains."""

from collections.abc import Collection, Iterator, Sequence

from absl import logging

from xling_tf.corpora.cleaning import language_of, language_of_texts, warn_of_unlisted
from xling_tf.corpora.store import StoredCorpus
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.coverage import MANY_UNKNOWN, coverage

_SAMPLE = 2000  # pairs that are looked at
_LONGEST = 100  # characters of a text that are shown
_MANY_SWAPPED = 0.05  # share of the rows
# Shares of questions on both sides, from which the sides may be swapped.
_FEW_QUESTIONS, _MANY_QUESTIONS = 0.1, 0.5
_QUESTION_MARKS = ("?", "？", "؟", ";")  # the last one is Greek
_SIDES = ("text", "right")


def log_pairs(corpus: StoredCorpus, tokenizer: Tokenizer, languages: Collection[str] = ()) -> None:
    """Logs two pairs, their languages, how well a tokenizer knows them, and warnings.

    Args:
        corpus: The pairs.
        tokenizer: The one of the model.
        languages: Those that the model lists.
    """
    pairs = _sample(corpus)
    logging.info(
        "%d pairs: %d to train on, %d held out; two of them:",
        corpus.num_records,
        len(corpus.train),
        len(corpus.held_out),
    )
    for pair in (pairs[0], pairs[len(pairs) // 2]):
        for side, text in zip(_SIDES, pair, strict=True):
            logging.info("  %-6s %s", f"{side}:", text[:_LONGEST] + "..." * (len(text) > _LONGEST))
    sides = [*zip(*pairs, strict=True)]
    recognised = [language_of_texts(texts) for texts in sides]
    for name, texts, language in zip(_SIDES, sides, recognised, strict=True):
        known = coverage(tokenizer, texts)
        logging.info(
            "%s: %s, %.1f tokens a word, %.1f%% of them unknown, %.1f%% of the texts cut at %d",
            name,
            language or "language uncertain",
            known.tokens_per_word,
            100 * known.unknown,
            100 * known.cut,
            tokenizer.config.max_tokens,
        )
        warn_of_unlisted(texts, languages, f"{name}: the texts seem")
        if known.unknown > MANY_UNKNOWN:
            logging.warning(
                "%s: the model does not know %.0f%% of the tokens, so it cannot tell such texts "
                "apart; if it was not trained on this script, start from another model "
                "(`xling-tf languages%s` may name one)",
                name,
                100 * known.unknown,
                f" {language}" * bool(language),
            )
    for warning in _warnings(pairs, recognised):
        logging.warning("%s", warning)


def _sample(corpus: StoredCorpus) -> list[tuple[str, str]]:
    pairs = []
    for records in (corpus.train, corpus.held_out):
        for record in records[:: -(-len(records) // _SAMPLE) or 1]:
            pairs.append((record[0], record[1]))
    return pairs


def _warnings(pairs: Sequence[tuple[str, str]], recognised: Sequence[str | None]) -> Iterator[str]:
    first, second = recognised
    asked = [sum(pair[side].endswith(_QUESTION_MARKS) for pair in pairs) for side in (0, 1)]
    if asked[0] < _FEW_QUESTIONS * len(pairs) and asked[1] > _MANY_QUESTIONS * len(pairs):
        yield "the sides look swapped: the right texts are questions, and the others are not"
    if first and second and first != second:
        swapped = sum(
            language_of(one, (first, second)) == second
            and language_of(other, (first, second)) == first
            for one, other in pairs
        )
        if swapped > _MANY_SWAPPED * len(pairs):
            yield f"at least {swapped / len(pairs):.0%} of the rows have their sides swapped"
    equal = sum(one.casefold() == other.casefold() for one, other in pairs)
    if equal > _MANY_SWAPPED * len(pairs):
        yield f"{equal / len(pairs):.0%} of the pairs are the same text on both sides"
