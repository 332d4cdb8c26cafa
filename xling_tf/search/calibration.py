"""Fits the probability of a match: slope and intercept of its log odds as a function of the cosine.

See `client.match.probabilities`. Matches and other pairs count equally, as if half of all pairs
matched.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.client.batches import Encode
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.match import KINDS, Line, equal_weights, fit_line
from xling_tf.corpora.folder import SAMPLE_FOLDER, discover
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.readers import percentages
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError, require_known

_POOL = 1000  # pairs among which the nearest wrong candidate of a sentence is searched
# In percent of the scores' range: pairs from `_SAME` on mean the same, those up to `_DIFFERENT` do
# not. On the STS Benchmark's scale these are 4, "mostly equivalent", and 3, "some important
# information differs".
_SAME, _DIFFERENT = 80, 60
_BINS = 10
# Numbers of documents with which a question is compared: powers of this number.
_SIZE_STEP = 4
# Of the built-in sample, at most so many translations of a pair of languages, and documents about
# something else in a language.
_SAMPLE_PAIRS, _SAMPLE_FOREIGN = 80, 256


class MatchExamples(NamedTuple):
    """The arguments of `fit_line`, with weights that add up to 0.5 for each class."""

    cosines: NDArray[np.floating]
    is_match: NDArray[np.bool_]
    num_candidates: NDArray[np.integer]  # see `probabilities`
    weights: NDArray[np.floating]


def selected(examples: MatchExamples, rows: slice) -> MatchExamples:
    """Returns some of the examples."""
    cosines, is_match, num_candidates, weights = examples
    return MatchExamples(cosines[rows], is_match[rows], num_candidates[rows], weights[rows])


def joined(parts: Sequence[MatchExamples]) -> MatchExamples:
    """Returns the examples of several corpora as one."""
    return MatchExamples(*map(np.concatenate, zip(*parts, strict=True)))


def balanced(cosines: NDArray[np.floating], is_match: NDArray[np.bool_]) -> MatchExamples:
    """Returns pairs as examples, each without other candidates; both classes count equally."""
    return MatchExamples(cosines, is_match, np.ones(len(cosines), int), equal_weights(is_match))


def calibration_error(predicted: NDArray[np.floating], is_same: NDArray[np.bool_]) -> float:
    """Returns the expected calibration error in ten bins (Guo et al. 2017, eq. 3).

    Both classes count equally.
    """
    weights = equal_weights(is_same)
    bins = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
    return float(np.abs(np.bincount(bins, weights * (predicted - is_same), _BINS)).sum())


def translation_examples(encode: Encode, pairs: Sequence[tuple[str, str]]) -> MatchExamples:
    """Returns the cosines of up to 1,000 translations, and of sources and the nearest wrong ones.

    `encode` returns unit vectors. Half of the examples are translations.
    """
    pairs = pairs[:: -(-len(pairs) // _POOL) or 1]
    first_vectors, second_vectors = (encode([pair[side] for pair in pairs]) for side in (0, 1))
    scores = first_vectors @ second_vectors.T
    wrong = np.where(_are_right(pairs), -np.inf, scores).max(axis=1, initial=-np.inf)
    has_wrong = np.isfinite(wrong)
    cosines = np.concatenate([np.diagonal(scores)[has_wrong], wrong[has_wrong]])
    return balanced(cosines, np.arange(len(cosines)) < len(cosines) // 2)


def answer_examples(
    encoder: SentenceEncoder, pairs: Sequence[tuple[str, str]], foreign: Sequence[str]
) -> MatchExamples:
    """Returns the cosines of questions and the best of 4, 16, 64, ... documents.

    A match is an answer that is nearer than all wrong documents. Half of the other examples are the
    nearest wrong document, as if the answer were missing, and half the nearest document about
    something else.

    Args:
        encoder: The model.
        pairs: Questions and their answers; the wrong documents are other answers.
        foreign: Documents that answer none of the questions.
    """
    queries = encoder.encode_query([question for question, _ in pairs])
    scores = queries @ encoder.encode_document([answer for _, answer in pairs]).T
    is_right = _are_right(pairs)
    random = np.random.default_rng(0)
    wrong, sizes = _best_of(np.where(is_right, -np.inf, scores), random)
    other, other_sizes = _best_of(queries @ encoder.encode_document(foreign).T, random)
    right = np.where(is_right, scores, -np.inf).max(axis=1, initial=-np.inf)
    right = np.where(right[:, np.newaxis] >= wrong, right[:, np.newaxis], -np.inf)
    columns = []
    for part, label, numbers, share in (
        (right, True, sizes, 0.5),
        (wrong, False, sizes, 0.25),
        (other, False, other_sizes, 0.25),
    ):
        has_score = np.isfinite(part)
        count = int(has_score.sum())
        columns.append(
            (
                part[has_score],
                np.full(count, label),
                np.broadcast_to(numbers, part.shape)[has_score],
                np.full(count, share / max(count, 1)),
            )
        )
    return MatchExamples(*map(np.concatenate, zip(*columns, strict=True)))


def _best_of(
    scores: NDArray[np.floating], random: np.random.Generator
) -> tuple[NDArray[np.floating], NDArray[np.integer]]:
    """Returns `[queries, sizes]`, the best of the first columns in random order, and the sizes."""
    count = scores.shape[1]
    powers = np.arange(1, max(2, int(np.log(max(count, 2)) / np.log(_SIZE_STEP)) + 1))
    sizes = np.minimum(_SIZE_STEP**powers, count)
    best = np.maximum.accumulate(random.permuted(scores, axis=1), axis=1)
    return best[:, sizes - 1], sizes


def _are_right(pairs: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
    """`[pairs, pairs]`: True if the first text of a row has the second text of a column, or if the
    second texts are the same.
    """
    sides = ([normalised(pair[side]) for pair in pairs] for side in (0, 1))
    first, second = (np.unique(side, return_inverse=True)[1] for side in sides)
    return (first[:, np.newaxis] == first) | (second[:, np.newaxis] == second)


def fit_pairs(encoder: SentenceEncoder, kind: str, pairs: Any, languages: Sequence[str]) -> Line:
    """Fits the line of a kind of match on a user's pairs, see `exporters.base.calibrate`.

    Pairs are in any form of `corpora.pairs.read_pairs`. If they have scores, those from 80% of the
    range on match, those up to 60% do not, and the others are left out. Without scores, all pairs
    match, and the nearest wrong candidates do not; for answers, sentences of the built-in sample do
    not match either. Raises a `UserError` if the probability would fall as the cosine rises.
    """
    require_known("kind", kind, KINDS)
    rows = read_pairs(pairs)
    if scores := [row.score for row in rows if row.score is not None]:
        percents = np.array(percentages(scores))
        is_clear = (percents >= _SAME) | (percents <= _DIFFERENT)
        by_role = {
            "default": encoder.encode,
            "query": encoder.encode_query,
            "document": encoder.encode_document,
        }
        first, second = (
            by_role[role]([row[side] for row in rows]) for side, role in enumerate(KINDS[kind])
        )
        cosines = np.sum(first * second, axis=1)
        line = fit_line(cosines[is_clear], percents[is_clear] >= _SAME)
    elif kind == "answer":
        pairs = [row[:2] for row in rows]
        line = fit_line(*answer_examples(encoder, pairs, foreign_texts(languages)))
    else:
        line = fit_line(*translation_examples(encoder.encode, [row[:2] for row in rows]))
    if round(line[0], 3) <= 0:
        raise UserError(
            "expected higher cosines for pairs that match (the highest score, or label 1) than for "
            "others, but they are not higher; reverse the labels if 0 means a match, or use "
            "another model"
        )
    return line


def fit_sample(
    encoder: SentenceEncoder, languages: Sequence[str], kinds: Collection[str] = tuple(KINDS)
) -> dict[str, Line]:
    """Fits lines on the built-in sample: translations and questions in some of the languages.

    Args:
        encoder: The model.
        languages: Codes of the model's languages; () stands for English.
        kinds: The kinds of match to fit.

    Returns:
        The lines by kind. A kind is missing if the sample has no texts for it in these languages,
        or if pairs that match do not have higher cosines.
    """
    codes = _sample_languages(languages)
    parts: dict[str, list[MatchExamples]] = {kind: [] for kind in kinds}
    if "same_meaning" in kinds:
        for pairs in _sample("parallel", codes):
            pairs = pairs[:: -(-len(pairs) // _SAMPLE_PAIRS)]
            parts["same_meaning"].append(translation_examples(encoder.encode, pairs))
    if "answer" in kinds:
        for code in codes:
            for rows in _sample("questions", (code,)):
                pairs = [row[:2] for row in rows]
                parts["answer"].append(answer_examples(encoder, pairs, foreign_texts((code,))))
    return fit_parts(parts)


def fit_parts(parts: dict[str, list[MatchExamples]]) -> dict[str, Line]:
    """Fits a line for each kind of match on examples of several corpora, which count equally."""
    lines = {}
    for kind, examples in parts.items():
        classes = {*chain(*(part.is_match.tolist() for part in examples))}
        if len(classes) == 2:
            line = fit_line(*joined(examples))
            if round(line[0], 3) > 0:
                lines[kind] = line
    return lines


def _sample_languages(languages: Sequence[str]) -> list[str]:
    """Returns the model's languages among those of the sample."""
    known = dict.fromkeys(chain(*(file.languages for file in discover(SAMPLE_FOLDER))))
    return [code for code in known if code in (languages or ("en",))]


def _sample(record_type: str, languages: Collection[str]) -> Iterator[list[Any]]:
    """Yields the records of each of the sample's corpora in some languages."""
    for file in discover(SAMPLE_FOLDER):
        if file.record_type == record_type and {*file.languages} <= {*languages}:
            yield [record for record, _ in file.read(*file.paths)]


def foreign_texts(languages: Sequence[str]) -> list[str]:
    """Returns sentences of the sample's stories and dialogues, which answer no question of others.

    They are in those of the languages that the sample has, or in English.
    """
    texts: dict[str, None] = {}
    for code in _sample_languages(languages) or ["en"]:
        records = chain(*_sample("documents", (code,)), *_sample("conversations", (code,)))
        statements = dict.fromkeys(text for text in chain(*records) if not _is_question(text))
        texts |= dict.fromkeys([*statements][:_SAMPLE_FOREIGN])
    return [*texts]


def _is_question(text: str) -> bool:
    return text.rstrip().endswith(("?", "？"))
