"""Search for translations among all the sentences of a corpus."""

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Encode, encode_checked, require
from xling_tf.search.neighbours import index_kind, nearest

# Texts encoded at a time: of a corpus of millions no double-precision copy is made as a whole.
_CHUNK = 65_536
# Cosines of float32 vectors that differ by less than their rounding are a tie.
_TIE = 1e-6
# Right answers of one query for which room is made in its search.
_MOST_ANSWERS = 10


class ParallelSearch:
    """The share of sentences whose nearest one of another language translates them.

    The similarity is the cosine, and the search is exact up to 200,000 sentences (`index_kind`). A
    sentence that comes again is one candidate: every copy of the translation is right, and so is every
    other translation that the corpus has of the query. A tie counts against the system, so one that maps
    all texts to one vector finds none.

    Args:
        rows: Sentences that translate each other, one of each language.
        languages: Their codes.
        name: Of the data.

    Attributes:
        protocol: What the results depend on.

    Raises:
        UserError: There is only one language, or one has no two different sentences.

    Example:
        >>> search = ParallelSearch([("one", "uno"), ("two", "dos")], ("en", "es"), name="numbers")
        >>> vectors = {"one": [1, 0], "uno": [1, 0], "two": [0, 1], "dos": [1, 1]}
        >>> search.precisions(lambda texts: np.array([vectors[text] for text in texts]))
        {'en-es': 1.0, 'es-en': 0.5}
    """

    def __init__(
        self, rows: Sequence[tuple[str, ...]], languages: Sequence[str], *, name: str
    ) -> None:
        if len(languages) < 2:
            raise UserError(
                f"{name} must have two languages at least, but has only {', '.join(languages)}; give more "
                "data"
            )
        columns = list(zip(*rows, strict=True)) or [()] * len(languages)
        self._sides = {
            language: _distinct(texts, f"{name} ({language})")
            for language, texts in zip(languages, columns, strict=True)
        }
        num_candidates = {language: len(texts) for language, (texts, _) in self._sides.items()}
        self.protocol: Mapping[str, Any] = {
            "similarity": "cosine",
            "right": "every translation of the query's text",
            "index": index_kind(max(num_candidates.values())),
            "num_rows": len(rows),
            "num_candidates": num_candidates,
        }

    def precisions(self, encode: Encode) -> dict[str, float]:
        """Searches by the system's vectors.

        Args:
            encode: The system.

        Returns:
            The precision at 1 by "<query language>-<candidate language>", of every ordered pair.

        Raises:
            UserError: A vector is zero or not finite, or FAISS is not installed.
        """
        units = {
            language: encode_units(encode, texts) for language, (texts, _) in self._sides.items()
        }
        rows = {language: places for language, (_, places) in self._sides.items()}
        return {
            f"{query}-{answer}": share_found(units[query], units[answer], rows[query], rows[answer])
            for query, answer in permutations(units, 2)
        }


def encode_units(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    """Encodes texts and scales their vectors to length 1.

    Args:
        encode: The system.
        texts: The texts, of which there may be millions.

    Returns:
        The unit vectors, `[n, dim]`.

    Raises:
        UserError: A vector is zero or not finite.
    """
    chunks = []
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        vectors = encode_checked(encode, chunk)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        require(lengths[:, 0] > 0, chunk, "a vector with a direction", "zero only")
        chunks.append((vectors / lengths).astype(np.float32))
    return np.concatenate(chunks)


def share_found(
    queries: NDArray[np.float32],
    candidates: NDArray[np.float32],
    query_rows: NDArray[np.int64],
    answer_rows: NDArray[np.int64],
) -> float:
    """The share of rows whose query has one of its answers nearest, and nothing else as near.

    Args:
        queries: Unit vectors of distinct texts, `[queries, dim]`.
        candidates: Likewise, `[candidates, dim]`.
        query_rows: The query of each row, `[rows]`.
        answer_rows: The candidate that answers it, `[rows]`; a query of several rows has several
            answers.

    Returns:
        The precision at 1.

    Example:
        >>> units, places = np.eye(3, dtype=np.float32), np.arange(3)
        >>> share_found(units, units, places, places)
        1.0
        >>> share_found(units, units[[0, 1, 1]], places, places)
        0.3333333333333333
    """
    answers = np.unique(query_rows * len(candidates) + answer_rows)
    most = np.unique(answers // len(candidates), return_counts=True)[1].max()
    neighbours = nearest(queries, candidates, 1 + min(int(most), _MOST_ANSWERS))
    pairs = np.arange(len(queries))[:, np.newaxis] * len(candidates) + neighbours.indices
    is_wrong = (neighbours.indices >= 0) & ~np.isin(pairs, answers)
    best_wrong = np.where(is_wrong, neighbours.scores, -np.inf).max(axis=1)
    is_found = best_wrong < neighbours.scores[:, 0] - _TIE
    return float(np.mean(is_found[query_rows]))


def _distinct(texts: Sequence[str], whose: str) -> tuple[list[str], NDArray[np.int64]]:
    """Sorts the different texts of a language, and says where each row has its own."""
    different = sorted(set(texts))
    if len(different) < 2:
        raise UserError(
            f"{whose} must have two different sentences at least, but has {len(different)}; give more "
            "data"
        )
    place_of = {text: place for place, text in enumerate(different)}
    return different, np.array([place_of[text] for text in texts])
