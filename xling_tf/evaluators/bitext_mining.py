"""Bitext mining: are the translations found among sentences that mostly have none?"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.pairs import as_rows
from xling_tf.errors import UserError
from xling_tf.evaluators.data import LANGUAGE, Dataset, Missing, Suite, read_table, tables_in
from xling_tf.evaluators.encoding import Encode
from xling_tf.evaluators.parallel_texts import Rows, datasets, find_bitexts
from xling_tf.evaluators.retrieval import encode_in_chunks
from xling_tf.search.semantic import NUM_NEIGHBOURS, mine_by_margin

_LEAST_PAIRS = 8
_MOST_PAIRS = 20_000
_BUILT = {
    "built_from": "two random parts of the pairs; in each, half of the pairs have both sides and the others "
    "one, in turns"
}
_BUCC_LAYOUT = (
    "mining/bucc.<xx>-en.training.tsv and .test.tsv: a sentence TAB its translation under a line with the "
    "languages' codes, one of them empty where there is none (data/convert.py --format bucc)"
)


class BitextMining:
    """F1 of the translations mined by margin, above a threshold chosen on other sentences.

    Pairs are mined by `mine_by_margin` (Artetxe and Schwenk 2019, "Margin-based parallel corpus mining",
    eq. 2, ratio, "max"), no sentence taken twice. A sentence that comes again counts once.

    Args:
        tuning: Sentences and their translations, one of them "" where there is none. The threshold is
            the one that gives the best F1 here.
        scored: More of the kind, on which the scores are computed; None: on `tuning` too.
        name: What results call this evaluator.
        protocol: What else results should say of the data.

    Raises:
        UserError: There is no pair of translations.

    Example:
        >>> rows = [("one", "uno"), ("two", "dos"), ("three", ""), ("", "cuatro")]
        >>> vectors = {"one": [1, 0, 0], "two": [0, 1, 0], "three": [0, 1, 1], "cuatro": [1, 0, -1]}
        >>> vectors |= {"uno": [1, 0, 0], "dos": [0, 1, 0]}
        >>> evaluator = BitextMining(rows, name="numbers")
        >>> evaluator(lambda texts: np.array([vectors[text] for text in texts]))["f1"]
        1.0
    """

    def __init__(
        self,
        tuning: Rows,
        scored: Rows | None = None,
        *,
        name: str,
        protocol: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._parts = []
        for rows in (tuning, scored):
            if rows is not None:
                rows = _texts(rows, name)
                sources, targets = (sorted({row[side] for row in rows} - {""}) for side in (0, 1))
                self._parts.append((sources, targets, {row for row in rows if all(row)}))
        if not all(gold for _, _, gold in self._parts):
            raise UserError(f"{name} must have a pair of translations, but has none; add some")
        num_sources, num_targets, self._num_gold = map(len, self._parts[-1])
        self.pairs = sorted(self._parts[-1][2])
        self.protocol: Mapping[str, Any] = {
            "margin": "ratio",
            "num_neighbours": NUM_NEIGHBOURS,
            "threshold_from": "the scored part itself" if scored is None else "the other part",
            "num_sources": num_sources,
            "num_targets": num_targets,
            "num_gold": self._num_gold,
            **protocol,
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "f1", "precision", "recall" and the "threshold" of the margin."""
        mined = [_mine(encode, *part) for part in self._parts]
        threshold = best_threshold(*mined[0], len(self._parts[0][2]))
        margins, is_right = mined[-1]
        num_taken = int(np.sum(margins >= threshold))
        num_right = int(np.sum(is_right[margins >= threshold]))
        return {
            "f1": 2 * num_right / (num_taken + self._num_gold),
            "precision": num_right / max(num_taken, 1),
            "recall": num_right / self._num_gold,
            "threshold": threshold,
        }


def _texts(rows: Any, name: str) -> list[tuple[str, ...]]:
    """Reads rows of two texts from a list or a table; one of the two may be missing."""
    texts = [tuple("" if text is None else text for text in row) for row in as_rows(rows)[1]]
    for number, row in enumerate(texts, 1):
        if len(row) != 2 or not all(isinstance(text, str) for text in row):
            raise UserError(
                f'{name} must be rows of two texts, of which one may be "", but row {number} is {row}'
            )
    return texts


def best_threshold(margins: NDArray[np.float64], is_right: NDArray[np.bool_], num_gold: int) -> float:
    """The falling margin above which pairs have the best F1: the middle between the last and the next."""
    f1 = 2 * np.cumsum(is_right) / (np.arange(1, len(margins) + 1) + num_gold)
    # Pairs with equal margins are taken together.
    is_end = np.append(margins[1:] < margins[:-1], True)
    last = int(np.argmax(np.where(is_end, f1, -1.0)))
    return float(np.mean(margins[last : last + 2]))


def _mine(
    encode: Encode, sources: list[str], targets: list[str], gold: set[tuple[str, ...]]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The margins of mined pairs, falling, and which of the pairs are gold."""
    mined = mine_by_margin(encode_in_chunks(encode, sources), encode_in_chunks(encode, targets))
    pairs = ((sources[source], targets[target]) for source, target in mined.rows)
    return mined.margins, np.array([pair in gold for pair in pairs])


def from_bitext(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Makes two corpora of a bitext, to choose a threshold on one and apply it to the other.

    Each gets half of the pairs, drawn at random, up to 10,000. Half of its own keep both sides, which are
    its gold; of the others one side stays, in turns. Of pairs that share a sentence the first stays.
    """
    seen: set[tuple[int, str]] = set()
    pairs = []
    for pair in sorted(rows):
        if seen.isdisjoint(enumerate(pair)):
            pairs.append(pair)
        seen.update(enumerate(pair))
    if len(pairs) < _LEAST_PAIRS:
        raise UserError(
            f"mining must have {_LEAST_PAIRS} pairs at least that share no sentence, but has "
            f"{len(pairs)}; give more data"
        )
    drawn = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))[:_MOST_PAIRS]]
    corpora = []
    for half in (drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]):
        rest = half[len(half) // 2 :]
        sources, targets = [(a, "") for a, _ in rest[::2]], [("", b) for _, b in rest[1::2]]
        corpora.append([*half[: len(half) // 2], *sources, *targets])
    return corpora[0], corpora[1]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    corpora: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, path in tables_in(folder / "mining").items():
        if match := re.fullmatch(rf"(bucc\.{LANGUAGE}-{LANGUAGE})\.(training|test)", name):
            corpora[match[1]][match[2]] = path
    for name, parts in corpora.items():
        yield Dataset(name=name, files=(*parts.values(),), load=partial(_load_bucc, name, parts))
    if not corpora:
        yield Missing(name="bucc", expected=_BUCC_LAYOUT)

    def make(rows: Rows, languages: Sequence[str], name: str) -> BitextMining:
        return BitextMining(*from_bitext(rows, seed), name=name, protocol={**_BUILT, "seed": seed})

    yield from datasets(find_bitexts(folder), make)


def _load_bucc(name: str, parts: Mapping[str, Path]) -> BitextMining:
    languages = name.removeprefix("bucc.").split("-")
    read = [read_table(parts[n], languages) for n in ("training", "test") if n in parts]
    return BitextMining(*read, name=name, protocol={"parts": list(parts)})


SUITE = Suite(
    name="mining",
    title="Translations mined from comparable sentences",
    source="Artetxe and Schwenk 2019, on the BUCC shared task",
    find=_find,
)
