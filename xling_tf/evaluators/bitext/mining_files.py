"""Comparable corpora, some of whose sentences translate each other: read, or made of a bitext."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.parallel_files import LANGUAGE
from xling_tf.evaluators.data import find_file

_FOLDERS = ("bucc", "bucc2018")
_BUCC = re.compile(rf"(({LANGUAGE})-({LANGUAGE})\.(training|test))\.gold(?:\.gz)?")

_LEAST_PAIRS = 8
_MOST_PAIRS = 20_000


class Comparable(NamedTuple):
    """Sentences of two languages.

    Attributes:
        sources: Distinct ones of the first language, in order.
        targets: Likewise of the second one.
        gold: The pairs among them that translate each other.
    """

    sources: list[str]
    targets: list[str]
    gold: frozenset[tuple[str, str]]


class BuccFiles(NamedTuple):
    """A part of a BUCC corpus: "id TAB sentence" of each language, and "id TAB id" of its gold pairs."""

    source: Path
    target: Path
    gold: Path


def find_bucc(folder: Path) -> dict[str, dict[str, BuccFiles]]:
    """Finds the corpora of the BUCC shared task whose gold pairs are known.

    Args:
        folder: The evaluation folder, with `bucc/de-en/de-en.training.de`, `.en` and `.gold`.

    Returns:
        Of each pair of languages, as "de-en", the parts "training" and "test" where they are there.
    """
    found: dict[str, dict[str, BuccFiles]] = {}
    paths = [path for name in _FOLDERS for path in sorted((folder / name).glob("*/*.gold*"))]
    for path in paths:
        if match := _BUCC.fullmatch(path.name):
            stem, source, target, part = match.groups()
            sides = [path.parent / f"{stem}.{language}" for language in (source, target)]
            first, second = (find_file(side.parent, side.name) or side for side in sides)
            found.setdefault(f"{source}-{target}", {}).setdefault(
                part, BuccFiles(first, second, path)
            )
    return found


def read_bucc(files: BuccFiles) -> Comparable:
    """Reads a part of a BUCC corpus.

    Args:
        files: Where it is.

    Raises:
        UserError: A line has not two fields, or the gold names no pair or a sentence that is not there.
    """
    sources, targets = (dict(_two_fields(path)) for path in (files.source, files.target))
    gold = set()
    for source, target in _two_fields(files.gold):
        if source not in sources or target not in targets:
            raise UserError(
                f"{files.gold} must name sentences of {files.source.name} and {files.target.name}, but "
                f"{source!r} or {target!r} is not there; fetch the three again together"
            )
        gold.add((sources[source], targets[target]))
    if not gold:
        raise UserError(f"{files.gold} must name a pair at least, but is empty; fetch it again")
    return _comparable(sources.values(), targets.values(), gold)


def from_bitext(rows: Sequence[tuple[str, ...]], seed: int) -> tuple[Comparable, Comparable]:
    """Makes two comparable corpora of a bitext, to choose a threshold on one and apply it to the other.

    Each gets half of the pairs, drawn at random, up to 10,000. Half of its own keep both their sides, which
    are its gold; of the others one side stays, in turns the source and the target, and has no translation.

    Args:
        rows: Sentences and their translations. Of those that share a sentence only the first by order is
            used, so that none has a second translation.
        seed: Of the draw.

    Returns:
        The two corpora.

    Raises:
        UserError: There are fewer than eight pairs, of which each corpus would have two gold ones.

    Example:
        >>> tuning, scored = from_bitext([(f"one {i}", f"uno {i}") for i in range(16)], seed=0)
        >>> len(scored.sources), len(scored.targets), len(scored.gold)
        (6, 6, 4)
    """
    pairs = _one_to_one(rows)
    if len(pairs) < _LEAST_PAIRS:
        raise UserError(
            f"mining must have {_LEAST_PAIRS} pairs at least that share no sentence, but has "
            f"{len(pairs)}; give more data"
        )
    order = np.random.default_rng(seed).permutation(len(pairs))[:_MOST_PAIRS]
    halves = (order[: len(order) // 2], order[len(order) // 2 :])
    first, second = (_with_distractors([pairs[place] for place in half]) for half in halves)
    return first, second


def _with_distractors(pairs: Sequence[tuple[str, str]]) -> Comparable:
    whole, rest = pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]
    sources = [source for source, _ in (*whole, *rest[::2])]
    targets = [target for _, target in (*whole, *rest[1::2])]
    return _comparable(sources, targets, whole)


def _one_to_one(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, str]]:
    seen: tuple[set[str], set[str]] = (set(), set())
    pairs = []
    for source, target in sorted(rows):
        if source not in seen[0] and target not in seen[1]:
            pairs.append((source, target))
        seen[0].add(source)
        seen[1].add(target)
    return pairs


def _comparable(
    sources: Iterable[str], targets: Iterable[str], gold: Iterable[tuple[str, str]]
) -> Comparable:
    return Comparable(sorted(set(sources)), sorted(set(targets)), frozenset(gold))


def _two_fields(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in read_every_line(path):
        fields = line.split("\t", 1)
        if len(fields) != 2:
            raise UserError(
                f"{path} must have two fields in every line, separated by a tab, but line {number} is "
                f"{line[:80]!r}; correct that line"
            )
        yield fields[0].strip(), fields[1].strip()
