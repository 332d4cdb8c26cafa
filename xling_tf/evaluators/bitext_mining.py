"""Bitext mining: finds translations among sentences, most of which have none."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.data import Dataset, Rows
from xling_tf.evaluators.encoding import Encode, encode_in_chunks
from xling_tf.search.neighbours import index_kind
from xling_tf.search.search import bitext_mining

_MIN_PAIRS = 8
_MAX_PAIRS = 20_000


class BitextMining:
    """F1 of mined translations, with a threshold of the margin that is chosen on other sentences.

    See `bitext_mining` for the margin (Artetxe and Schwenk 2019). Rows are sentences and their translations,
    with "" for a missing side. Repeated sentences count once. The threshold is chosen on the rows for
    `tuning`; without `scored`, these are scored too.
    """

    def __init__(self, tuning: Rows, scored: Rows | None = None, *, name: str, **protocol: Any) -> None:
        self.name = name
        self._parts = []
        for rows in (tuning, scored):
            if rows is not None:
                sources, targets = (sorted({row[side] for row in rows} - {""}) for side in (0, 1))
                self._parts.append((sources, targets, {row for row in rows if all(row)}))
        if not all(gold for _, _, gold in self._parts):
            raise UserError(f"{name} must have a pair of translations; add some")
        sizes = dict(zip(("num_sources", "num_targets", "num_gold"), map(len, self._parts[-1]), strict=True))
        self._num_gold = sizes["num_gold"]
        self.pairs = sorted(self._parts[-1][2])
        threshold_from = "the scored part itself" if scored is None else "the other part"
        index = index_kind(max(sizes["num_sources"], sizes["num_targets"]))
        choices = {"index": index, "threshold_from": threshold_from}
        self.protocol: Mapping[str, Any] = {**choices, **sizes, **protocol}

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


def best_threshold(margins: NDArray[np.float64], is_right: NDArray[np.bool_], num_gold: int) -> float:
    """The threshold with the best F1: `margins` are descending, and `is_right` marks the gold pairs."""
    f1 = 2 * np.cumsum(is_right) / (np.arange(1, len(margins) + 1) + num_gold)
    # Pairs with equal margins are taken together.
    is_end = np.append(margins[1:] < margins[:-1], True)
    last = int(np.argmax(np.where(is_end, f1, -1.0)))
    return float(np.mean(margins[last : last + 2]))


def _mine(
    encode: Encode, sources: list[str], targets: list[str], gold: set[tuple[str, ...]]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The margins of mined pairs, descending, and which of the pairs are gold."""
    pairs = bitext_mining(encode_in_chunks(encode, sources), encode_in_chunks(encode, targets))
    is_gold = [(sources[pair.first], targets[pair.second]) in gold for pair in pairs]
    return np.array([pair.score for pair in pairs]), np.array(is_gold)


def from_bitext(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Makes two corpora for mining: one to choose a threshold on, the other to score.

    Each gets a random half of the pairs, up to 10,000. Half of its pairs keep both sides, which are gold;
    the others keep one side, alternately. Pairs that share a sentence with an earlier pair are left out.
    """
    pairs = data.without_shared_sentences(rows)
    if len(pairs) < _MIN_PAIRS:
        raise UserError(f"mining needs {_MIN_PAIRS} pairs that share no sentence, but has {len(pairs)}")
    drawn = [pairs[i] for i in np.random.default_rng(seed).permutation(len(pairs))[:_MAX_PAIRS]]
    corpora = []
    for half in (drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]):
        rest = half[len(half) // 2 :]
        sources, targets = [(a, "") for a, _ in rest[::2]], [("", b) for _, b in rest[1::2]]
        corpora.append([*half[: len(half) // 2], *sources, *targets])
    return corpora[0], corpora[1]


def _find(folder: Path, seed: int) -> Iterator[Dataset]:
    corpora: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for name, path in data.tables_in(folder / "mining").items():
        if match := re.fullmatch(rf"(bucc\.{LANGUAGE}-{LANGUAGE})\.(training|test)", name):
            corpora[match[1]][match[2]] = path

    def load(name: str) -> BitextMining:
        parts, languages = corpora[name], name.removeprefix("bucc.").split("-")
        read_part = partial(data.read_table, columns=("source", "target"), others=languages)
        read = [read_part(parts[n]) for n in ("training", "test") if n in parts]
        return BitextMining(*read, name=name)

    for name, parts in corpora.items():
        yield Dataset(name=name, files=(*parts.values(),), load=partial(load, name))

    def make(rows: Rows, languages: Sequence[str], name: str) -> BitextMining:
        built = "two random halves of the pairs; in each, half of the pairs have both sides, the others one"
        return BitextMining(*from_bitext(rows, seed), name=name, built_from=built, seed=seed)

    yield from data.parallel_datasets(data.find_bitexts(folder), make)


SUITE = data.Suite(
    name="mining",
    title="Translations mined from comparable sentences",
    source="Artetxe and Schwenk 2019, on the BUCC shared task",
    layout="mining/bucc.<xx>-en.training.tsv and .test.tsv: a sentence TAB its translation under a line with "
    "the languages' codes, one of them empty where there is none (data/convert.py --format bucc)",
    find=_find,
)
