"""Translation retrieval: is the translation found among random other sentences?"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.parallel_files import BITEXT_LAYOUTS, ParallelTexts, find_bitexts
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, encode_checked

PRECISION_AT = (1, 3, 10)
_QUERIES_PER_CHUNK = 256
# Vectors are float32 by contract: scores that differ by less than its rounding are a tie.
_TIE = 1e-6


class _Direction(NamedTuple):
    name: str
    queries: NDArray[np.int32]  # [num_queries], rows of the query texts
    candidates: NDArray[np.int32]  # [num_queries, num_candidates], rows, the right one first


class TranslationRetrieval:
    """Precision at 1, 3 and 10 of finding a sentence's translation, in both directions.

    Each query's translation is ranked by dot product among candidates drawn at random from the
    other pairs (Chidambaram et al. 2019, sec. 3.4: the right one and K = 999 others). Other
    translations of the query, and repetitions of the right one, are never candidates. A tie counts
    against the system, so one that maps all texts to one vector scores 0.

    Everything is drawn once, here: the order of `pairs` makes no difference, and every system
    faces the same candidates.

    Args:
        pairs: Translations held out of training.
        source: The language of their sources, as "en".
        target: The language of their targets, as "es".
        name: What results call this evaluator.
        num_candidates: The right translation and the random others together; where there are
            too few pairs, as many as there are.
        max_queries: The queries of a direction; more pairs than this are sampled.
        seed: The seed of sampling and drawing.

    Raises:
        UserError: There are no two pairs that differ on both sides.

    Example:
        >>> pairs = [TranslationPair("one", "uno"), TranslationPair("two", "dos")]
        >>> evaluator = TranslationRetrieval(pairs, source="en", target="es", name="numbers")
        >>> vectors = {"one": [1, 0], "uno": [1, 0], "two": [0, 1], "dos": [0, 1]}
        >>> scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> scores["en-es/precision_at_1"]
        1.0
    """

    def __init__(
        self,
        pairs: Sequence[TranslationPair],
        *,
        source: str,
        target: str,
        name: str,
        num_candidates: int = 1000,
        max_queries: int = 5000,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "num_candidates": num_candidates,
            "max_queries": max_queries,
            "seed": seed,
            "num_pairs": len(pairs),
        }
        rng = np.random.default_rng(seed)
        distinct = _distinct(pairs)
        # The sampled pairs are the pool of candidates too: no more is encoded than is asked for.
        order = rng.permutation(len(distinct))[: max(max_queries, num_candidates)]
        pool = [distinct[index] for index in order]
        self._texts = [list(dict.fromkeys(pair[side] for pair in pool)) for side in (0, 1)]
        row_of = [{text: row for row, text in enumerate(texts)} for texts in self._texts]
        self._directions = []
        for side, languages in enumerate((f"{source}-{target}", f"{target}-{source}")):
            queries = [pair[side] for pair in pool[:max_queries]]
            right = [pair[1 - side] for pair in pool[:max_queries]]
            translations = _translations(distinct, side)
            valid = [translations[query] for query in queries]
            direction = _Direction(
                name=languages,
                queries=np.array([row_of[side][query] for query in queries], np.int32),
                candidates=_draw(row_of[1 - side], right, valid, num_candidates, rng),
            )
            self._directions.append(direction)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Ranks the candidates by the system's vectors.

        Args:
            encode: The system.

        Returns:
            "<query language>-<candidate language>/precision_at_<k>" for both directions and k of
            1, 3 and 10, and the "num_queries" and "num_candidates" of a direction.

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        vectors = [encode_checked(encode, texts) for texts in self._texts]
        scores: dict[str, float] = {}
        for side, direction in enumerate(self._directions):
            queries = vectors[side][direction.queries]
            ranks = _ranks(queries, vectors[1 - side], direction.candidates)
            for k in PRECISION_AT:
                scores[f"{direction.name}/precision_at_{k}"] = float(np.mean(ranks <= k))
        scores["num_queries"] = float(len(self._directions[0].queries))
        widths = [direction.candidates.shape[1] for direction in self._directions]
        scores["num_candidates"] = float(min(widths))
        return scores


def _distinct(pairs: Iterable[TranslationPair]) -> list[tuple[str, str]]:
    # Texts that differ in case or spaces only are one text, spelt as in the first pair by order.
    spellings: tuple[dict[str, str], dict[str, str]] = ({}, {})
    return list(
        dict.fromkeys(
            (
                spellings[0].setdefault(normalised(source), source),
                spellings[1].setdefault(normalised(target), target),
            )
            for source, target, _ in sorted(pairs)
        )
    )


def _translations(pairs: Iterable[tuple[str, str]], side: int) -> dict[str, set[str]]:
    translations: defaultdict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        translations[pair[side]].add(pair[1 - side])
    return translations


def _draw(
    row_of: dict[str, int],
    right: Sequence[str],
    translations: Sequence[set[str]],
    num_candidates: int,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """Draws each query's candidates as rows, the right one first."""
    excluded = [[row_of[text] for text in texts if text in row_of] for texts in translations]
    num_others = min(num_candidates - 1, len(row_of) - max(map(len, excluded), default=0))
    if num_others < 1:
        raise UserError(
            "translation retrieval must have held-out pairs with different sentences on both "
            f"sides, but {len(row_of)} of one side came in {len(right)} pairs; give more data"
        )
    drawn = np.empty([len(right), 1 + num_others], np.int32)
    drawn[:, 0] = [row_of[text] for text in right]
    for query, rows in enumerate(excluded):
        # As many more are drawn as may have to go, so that those that stay are still a fair draw.
        others = rng.choice(len(row_of), num_others + len(rows), replace=False)
        drawn[query, 1:] = others[~np.isin(others, rows)][:num_others]
    return drawn


def _ranks(
    queries: NDArray[np.float64], texts: NDArray[np.float64], candidates: NDArray[np.int32]
) -> NDArray[np.int64]:
    # A few queries times all texts is one matrix product, after which the drawn ones are picked;
    # gathering the vectors of each query's candidates would move a thousand times the memory.
    lengths = np.linalg.norm(texts, axis=1)
    ranks = []
    for start in range(0, len(queries), _QUERIES_PER_CHUNK):
        chunk = queries[start : start + _QUERIES_PER_CHUNK]
        rows = candidates[start : start + _QUERIES_PER_CHUNK]
        scores = np.take_along_axis(chunk @ texts.T, rows, axis=1)
        tie = _TIE * np.linalg.norm(chunk, axis=1) * lengths[rows[:, 0]]
        ranks.append(np.sum(scores >= (scores[:, 0] - tie)[:, np.newaxis], axis=1))
    return np.concatenate(ranks)


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    bitexts = find_bitexts(folder)
    for bitext in bitexts:
        yield Dataset(name=bitext.name, files=bitext.files, load=partial(_load, bitext, seed))
    if not bitexts:
        yield Missing(name="translations", expected=BITEXT_LAYOUTS)


def _load(bitext: ParallelTexts, seed: int) -> TranslationRetrieval:
    source, target = bitext.languages
    pairs = [TranslationPair(first, second) for first, second in bitext.read()]
    return TranslationRetrieval(pairs, source=source, target=target, name=bitext.name, seed=seed)


SUITE = Suite(
    name="retrieval",
    title="Translation retrieval among 999 random others",
    source="Chidambaram et al. 2019, sec. 3.4",
    find=_find,
)
