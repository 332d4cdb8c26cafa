"""Pictures of an embedding space: maps of parallel sentences, their similarities, retrieval errors.

They give no scores but things to be drawn, small enough for a results file.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, Evaluator
from xling_tf.evaluators.parallel_texts import (
    NO_BITEXTS,
    ParallelTexts,
    find_bitexts,
    find_multilingual,
)
from xling_tf.evaluators.pictures.sentence_map import Rows, SentenceMap, cut, drawn, unit_vectors

_HEAT_ROWS = 12
_SEARCHED_ROWS = 2000
_ERRORS = 12
# Corpora that are drawn: a results file is to stay below a megabyte.
_CORPORA = 4


class HeatMap:
    """The cosine of each of some sentences with each one's translation.

    Args:
        rows: Sentences that translate each other; the first two languages are used.
        languages: Their codes.
        name: What results call this evaluator.
        seed: Of the sentences drawn.

    Raises:
        UserError: There are no two different rows.

    Example:
        >>> rows = [("one", "uno"), ("two", "dos")]
        >>> vectors = {"one": [1, 0], "uno": [1, 0], "two": [0, 1], "dos": [3, 4]}
        >>> evaluator = HeatMap(rows, ("en", "es"), name="numbers")
        >>> evaluator(lambda texts: np.array([vectors[text] for text in texts]))["similarities"]
        [[1.0, 0.6], [0.0, 0.8]]
    """

    def __init__(self, rows: Rows, languages: Sequence[str], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._languages = tuple(languages[:2])
        self._rows = drawn([row[:2] for row in rows], _HEAT_ROWS, seed, name)
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "seed": seed,
            "num_rows": len(self._rows),
        }

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Computes the similarities of the system's vectors.

        Args:
            encode: The system.

        Returns:
            "languages", "texts" (a list for each of the two) and "similarities", rows of the first
            language's sentences by columns of the second's.

        Raises:
            UserError: A vector is zero or not finite.
        """
        texts = list(zip(*self._rows, strict=True))
        first, second = (unit_vectors(encode, of_language) for of_language in texts)
        return {
            "languages": list(self._languages),
            "texts": [list(map(cut, of_language)) for of_language in texts],
            "similarities": (first @ second.T).round(3).tolist(),
        }


class RetrievalErrors:
    """Sentences that find something else than their translation, to be read.

    Args:
        rows: Sentences that translate each other; those of the first language search for those of
            the second.
        languages: Their codes.
        name: What results call this evaluator.
        seed: Of the sentences drawn, where there are more than 2,000.

    Raises:
        UserError: There are no two different rows.

    Example:
        >>> rows = [("one", "uno"), ("two", "dos")]
        >>> vectors = {"one": [1, 0], "uno": [0, 1], "two": [0, 1], "dos": [3, 4]}
        >>> evaluator = RetrievalErrors(rows, ("en", "es"), name="numbers")
        >>> found = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
        >>> found["errors"][0]["query"], found["errors"][0]["found"], found["errors"][0]["right"]
        ('one', 'dos', 'uno')
    """

    def __init__(self, rows: Rows, languages: Sequence[str], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._languages = tuple(languages[:2])
        rows = drawn([row[:2] for row in rows], _SEARCHED_ROWS, seed, name)
        answers: defaultdict[str, list[str]] = defaultdict(list)
        for query, answer in rows:
            answers[query].append(answer)
        self._answers = dict(answers)
        self._candidates = sorted({answer for _, answer in rows})
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "seed": seed,
            "num_queries": len(self._answers),
            "num_candidates": len(self._candidates),
        }

    def __call__(self, encode: Encode) -> dict[str, Any]:
        """Searches by the system's vectors.

        Args:
            encode: The system.

        Returns:
            "languages", "num_queries", "num_errors" and "errors", those first where what was found
            beats the right answer by most: "query", "found", "right" and the two scores.

        Raises:
            UserError: A vector is zero or not finite.
        """
        queries = list(self._answers)
        cosines = unit_vectors(encode, queries) @ unit_vectors(encode, self._candidates).T
        place_of = {text: place for place, text in enumerate(self._candidates)}
        errors = []
        for query, scores in zip(queries, cosines, strict=True):
            found = int(np.argmax(scores))
            right = max((place_of[text] for text in self._answers[query]), key=scores.__getitem__)
            if scores[found] > scores[right]:
                errors.append((float(scores[found] - scores[right]), query, found, right, scores))
        errors.sort(key=lambda error: (-error[0], error[1]))
        return {
            "languages": list(self._languages),
            "num_queries": len(queries),
            "num_errors": len(errors),
            "errors": [
                {
                    "query": cut(query),
                    "found": cut(self._candidates[found]),
                    "right": cut(self._candidates[right]),
                    "found_score": round(float(scores[found]), 3),
                    "right_score": round(float(scores[right]), 3),
                }
                for _, query, found, right, scores in errors[:_ERRORS]
            ],
        }


def _corpora(folder: Path, most_languages: int) -> list[ParallelTexts]:
    """Picks the corpora: those of most languages, then one for each pair not among theirs."""
    found = [*find_multilingual(folder), *find_bitexts(folder)]
    found = [texts for texts in found if len(texts.languages) <= most_languages]
    covered: set[frozenset[str]] = set()
    chosen = []
    for texts in sorted(found, key=lambda texts: (-len(texts.languages), texts.name)):
        if not any(covering >= set(texts.languages) for covering in covered):
            covered.add(frozenset(texts.languages))
            chosen.append(texts)
    return chosen[:_CORPORA]


def _find(
    kind: Callable[..., Evaluator], most_languages: int, folder: Path, seed: int
) -> Iterator[Dataset | Missing]:
    corpora = _corpora(folder, most_languages)
    for texts in corpora:
        load = partial(_load, kind, texts, seed)
        yield Dataset(name=texts.name, files=texts.files, load=load)
    if not corpora:
        yield NO_BITEXTS


def _load(kind: Callable[..., Evaluator], texts: ParallelTexts, seed: int) -> Evaluator:
    return kind(texts.read(), texts.languages, name=texts.name, seed=seed)


SUITES = (
    Suite(
        name="sentence_map",
        title="Parallel sentences on a plane",
        source="Yu et al. 2018, figure 1, of documents",
        find=partial(_find, SentenceMap, 6),
        illustrates=True,
    ),
    Suite(
        name="heat_map",
        title="Similarities of some sentences and translations",
        source="none; as the published models' pages show them",
        find=partial(_find, HeatMap, 2),
        illustrates=True,
    ),
    Suite(
        name="retrieval_errors",
        title="Sentences that find something else than their translation",
        source="Yu et al. 2018, Table 3",
        find=partial(_find, RetrievalErrors, 2),
        illustrates=True,
    ),
)
