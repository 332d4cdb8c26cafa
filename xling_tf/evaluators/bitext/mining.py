"""Bitext mining: are the translations found among sentences that mostly have none?"""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.evaluators.bitext.mining_files import (
    BuccFiles,
    Comparable,
    find_bucc,
    from_bitext,
    read_bucc,
)
from xling_tf.evaluators.bitext.parallel_files import ParallelTexts, find_bitexts
from xling_tf.evaluators.bitext.parallel_search import encode_units
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode
from xling_tf.search.margins import NUM_NEIGHBOURS, mine_by_margin

_BUCC_LAYOUT = (
    "as published, bucc/<xx>-en/<xx>-en.training.<xx> and .en (id TAB sentence) and .gold (id TAB id), "
    "and .test likewise"
)


class _Ranked(NamedTuple):
    """The margins of mined pairs, falling, which of them are gold, and how many gold ones there are."""

    margins: NDArray[np.float64]
    is_right: NDArray[np.bool_]
    num_gold: int


class BitextMining:
    """F1 of the translations mined by margin, above a threshold chosen on other sentences.

    The margin of a pair is its cosine divided by the mean cosine of its sentences to their 4 nearest
    neighbours (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining", eq. 2, ratio). The
    candidates are every sentence's best in both directions, and no sentence is taken twice (its retrieval
    strategy "max"). A sentence that comes again counts once.

    Args:
        tuning: On which the threshold is chosen that gives the best F1.
        scored: On which the scores are computed; the same as `tuning` where no other gold is known.
        name: What results call this evaluator.
        protocol: What else is to be told of the data.
    """

    def __init__(
        self, tuning: Comparable, scored: Comparable, *, name: str, protocol: Mapping[str, Any]
    ) -> None:
        self.name = name
        self._tuning, self._scored = tuning, scored
        is_same = tuning is scored
        self.protocol: Mapping[str, Any] = {
            "margin": "ratio",
            "num_neighbours": NUM_NEIGHBOURS,
            "threshold_from": "the scored part itself" if is_same else "the other part",
            "num_sources": len(scored.sources),
            "num_targets": len(scored.targets),
            "num_gold": len(scored.gold),
            **protocol,
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Mines by the system's vectors.

        Args:
            encode: The system.

        Returns:
            "f1", "precision", "recall" and the "threshold" of the margin.

        Raises:
            UserError: A vector is zero or not finite, or FAISS is not installed.
        """
        tuning = _rank(encode, self._tuning)
        scored = tuning if self._scored is self._tuning else _rank(encode, self._scored)
        threshold = best_threshold(*tuning)
        is_taken = scored.margins >= threshold
        num_right = int(np.sum(scored.is_right & is_taken))
        precision = num_right / max(int(np.sum(is_taken)), 1)
        recall = num_right / scored.num_gold
        return {
            "f1": 2 * precision * recall / (precision + recall) if num_right else 0.0,
            "precision": precision,
            "recall": recall,
            "threshold": threshold,
        }


def best_threshold(
    margins: NDArray[np.float64], is_right: NDArray[np.bool_], num_gold: int
) -> float:
    """Finds the margin above which pairs have the best F1.

    Args:
        margins: Of the pairs, `[pairs]`, falling.
        is_right: Which of them are right, `[pairs]`.
        num_gold: How many are right of all that there are.

    Returns:
        The middle between the margin of the last pair that is taken and that of the next one.

    Example:
        >>> best_threshold(np.array([3.0, 2.0, 1.0]), np.array([True, True, False]), 2)
        1.5
    """
    num_taken = np.arange(1, len(margins) + 1)
    f1 = 2 * np.cumsum(is_right) / (num_taken + num_gold)
    # Pairs with equal margins are taken together.
    is_end = np.append(margins[1:] < margins[:-1], True)
    last = int(np.argmax(np.where(is_end, f1, -1.0)))
    following = margins[last + 1] if last + 1 < len(margins) else margins[last]
    return float((margins[last] + following) / 2)


def _rank(encode: Encode, part: Comparable) -> _Ranked:
    mined = mine_by_margin(encode_units(encode, part.sources), encode_units(encode, part.targets))
    pairs = ((part.sources[source], part.targets[target]) for source, target in mined.rows)
    is_right = np.array([pair in part.gold for pair in pairs])
    return _Ranked(mined.margins, is_right, len(part.gold))


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    corpora = find_bucc(folder)
    for languages, parts in corpora.items():
        load = partial(_load_bucc, f"bucc.{languages}", parts)
        paths = tuple(path for files in parts.values() for path in files)
        yield Dataset(name=f"bucc.{languages}", files=paths, load=load)
    if not corpora:
        yield Missing(name="bucc", expected=_BUCC_LAYOUT)
    for bitext in find_bitexts(folder):
        load = partial(_load_bitext, bitext, seed)
        yield Dataset(name=bitext.name, files=bitext.files, load=load)


def _load_bucc(name: str, parts: Mapping[str, BuccFiles]) -> BitextMining:
    read = {part: read_bucc(files) for part, files in parts.items()}
    tuning = read.get("training") or read["test"]
    scored = read.get("test", tuning)
    return BitextMining(tuning, scored, name=name, protocol={"parts": list(parts)})


def _load_bitext(bitext: ParallelTexts, seed: int) -> BitextMining:
    tuning, scored = from_bitext(bitext.read(), seed)
    protocol = {
        "built_from": "two random parts of the pairs; in each, half of the pairs have both sides and the "
        "others one, in turns",
        "seed": seed,
    }
    return BitextMining(tuning, scored, name=bitext.name, protocol=protocol)


SUITE = Suite(
    name="mining",
    title="Translations mined from comparable sentences",
    source="Artetxe and Schwenk 2019, on the BUCC shared task",
    find=_find,
)
