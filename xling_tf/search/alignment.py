"""Aligns the sentences of two versions of a text, in order: groups of translations, and omissions.

The cost of a group is that of Vecalign (Thompson and Koehn 2019, "Vecalign: Improved Sentence
Alignment in Linear Time and Space", sec. 3) with a term for lengths (Gale and Church 1993, "A
Program for Aligning Sentences in Bilingual Corpora", sec. 3).
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.neighbours import chunks, require_positive, require_same_dim, unit_vectors
from xling_tf.client.texts import Texts, as_texts, is_blank
from xling_tf.errors import UserError

MAX_GROUP = 5  # sentences of one side
# Chosen on the development part of Text+Berg (docs/align.md).
_LENGTH_WEIGHT = 0.1
_OMISSION_QUANTILE = 0.2  # of the costs of sentences at random; that of Vecalign
# The mean cost of sentences at random is 1. Of a few sentences, a quantile is that of translations.
_LEAST_OMISSION = 0.9
_SHORTEST_OMISSION = 0.5  # cost of leaving out an empty sentence, by that of a long one
_VARIANCE = 6.8  # of the difference of lengths, for each character (Gale and Church 1993, sec. 3.1)

# For probabilities, chosen there as well. A path counts exp(-cost / temperature); for each group of
# several sentences on both sides, whose parts often are groups, times exp(-several).
_TEMPERATURE, _SEVERAL = 0.15, 2.0
_LEAST_COST = 0.05  # of a group; smaller differences do not make two pairs a group of 2 and 2

_COARSE_ROWS = 256  # texts of more sentences are first searched in coarser steps
_COARSE_GROUP = 2  # sentences, or coarser steps, on one side of a group in the first searches
_RADIUS = 32  # columns around the path of the coarser search
_ROWS_AT_ONCE = 64
_SAMPLE = 512  # sentences of each side whose pairs decide the cost of an omission
_PROBES = 64  # groups whose encodings are compared with the sums of their sentences' vectors
_MIN_PROBE_COSINE = 0.98


class AlignedGroup(NamedTuple):
    """Neighbouring sentences of two texts that are translations, or a sentence without one.

    The score is 1 for equal vectors, and 0 for the mean distance of random sentences; a sentence
    without a translation has the score 0. The probability says how likely exactly this group is
    right.
    """

    source: range  # rows
    target: range
    score: float
    probability: float


def align(
    source: Texts,
    target: Texts,
    model: Any,
    *,
    max_group: int = MAX_GROUP,
    encode_groups: bool | None = None,
    show_progress_bar: bool = False,
) -> list[AlignedGroup]:
    """Aligns the sentences of a text with those of its translation.

    Time and memory grow linearly with the length of the texts: beyond 256 sentences, a coarse
    search finds where the fine one looks.

    Args:
        source: The sentences of a text, in order.
        target: Those of its translation.
        model: A model of `load`, or a function from a list of texts to `[texts, dim]` vectors.
        max_group: Largest number of sentences on one side of a group.
        encode_groups: False adds up the vectors of a group's sentences, so that nothing is encoded
            twice. True also encodes each group as one text, and takes the mean of both vectors;
            encoding then takes about 15 times as long. None encodes groups unless a sample shows
            that both vectors are nearly equal (a mean cosine of at least 0.98).
        show_progress_bar: Whether to show progress bars.

    Returns:
        The groups in order. Each row of both texts is in one of them.

    Raises:
        UserError: The model cannot encode, or an argument is out of range.

    Examples:
        >>> angles = {"Uno.": 0.0, "Dos.": 1.5, "One.": 0.0, "Two.": 1.6}
        >>> encode = lambda texts: [[np.cos(angles[t]), np.sin(angles[t])] for t in texts]
        >>> groups = align(["Uno.", "Dos."], ["One.", "Two."], encode, encode_groups=False)
        >>> [(group.source, group.target) for group in groups]
        [(range(0, 1), range(0, 1)), (range(1, 2), range(1, 2))]
    """
    require_positive(max_group, "max_group")
    if isinstance(model, str):  # strings have an encode too
        raise UserError(
            f"expected a model of xling_tf.load, got the string {model!r}; load it first"
        )
    encoder = model if callable(getattr(model, "encode", None)) else SentenceEncoder(model)
    sides = as_texts(source, "source"), as_texts(target, "target")
    kept = [[row for row, text in enumerate(side) if not is_blank(text)] for side in sides]
    texts = [[side[row] for row in rows] for side, rows in zip(sides, kept, strict=True)]
    vectors_of = _Groups(encoder, max_group, show_progress_bar)
    if encode_groups is None:
        encode_groups = all(texts) and not vectors_of.are_sums([*texts[0], *texts[1]])
    # Not every model can encode an empty list.
    nothing = np.zeros((max_group, 1, 0), np.float32)
    vectors = [vectors_of(side, encode_groups) if all(texts) else nothing for side in texts]
    lengths = [[len(text) for text in side] for side in texts]
    groups = align_vectors(vectors[0], vectors[1], lengths[0], lengths[1])
    return [*_with_blank_rows(groups, kept, [*map(len, sides)])]


def _with_blank_rows(
    groups: Sequence[AlignedGroup], kept: Sequence[list[int]], counts: Sequence[int]
) -> Iterator[AlignedGroup]:
    """Yields groups of the rows that are kept, as groups of all rows; a blank one has no partner.

    A blank row between the sentences of a group is in the group.
    """
    done = [0, 0]
    places = [[*rows, count] for rows, count in zip(kept, counts, strict=True)]
    ends = [range(len(rows), len(rows) + 1) for rows in kept]
    end = AlignedGroup(ends[0], ends[1], 0.0, 0.0)
    for group in [*groups, end]:
        ranges = []
        for side, rows in enumerate(group[:2]):
            start = places[side][rows[0]] if rows else done[side]
            for row in range(done[side], start):
                blank = range(row, row + 1)
                both = (range(0), blank) if side else (blank, range(0))
                yield AlignedGroup(*both, score=0.0, probability=1.0)
            done[side] = places[side][rows[-1]] + 1 if rows else start
            ranges.append(range(start, done[side]))
        if group is not end:
            yield group._replace(source=ranges[0], target=ranges[1])


class _Groups:
    """Makes vectors of the groups of neighbouring sentences of a text."""

    def __init__(self, encoder: Any, max_group: int, show_progress: bool) -> None:
        self._encoder, self._max_group = encoder, max_group
        self._show_progress = show_progress

    def __call__(self, texts: list[str], encode: bool) -> NDArray[np.float32]:
        """Returns unit vectors `[max_group, texts + 1, dim]` of groups that end before each row."""
        raw = self._raw(texts)
        vectors = sums_of_groups(self._encode(texts) if raw is None else raw, self._max_group)
        if not encode:
            return vectors
        sizes = range(1, self._max_group + 1)
        groups = [
            " ".join(texts[end - size : end]) if end >= size else ""
            for size in sizes
            for end in range(len(texts) + 1)
        ]
        encoded = unit_vectors(self._encode(groups), "vectors")
        vectors += encoded.reshape(vectors.shape)
        _scale_to_unit_length(vectors)
        return vectors

    def are_sums(self, texts: list[str]) -> bool:
        """True if a sample of groups has the direction of the sums of its sentences' vectors."""
        ends = np.unique(np.linspace(2, len(texts), _PROBES).astype(int))
        pairs = [(texts[end - 2], texts[end - 1]) for end in ends.tolist()]
        pairs = [pair for pair in pairs if not any(map(is_blank, pair))]
        if not pairs:
            return True
        firsts, seconds = (self._raw([*side]) for side in zip(*pairs, strict=True))
        if firsts is None or seconds is None:
            return False
        sums = unit_vectors(firsts + seconds, "vectors")
        encoded = unit_vectors(self._encode([" ".join(pair) for pair in pairs]), "vectors")
        return float(np.mean(np.sum(sums * encoded, axis=1))) >= _MIN_PROBE_COSINE

    def _raw(self, texts: list[str]) -> NDArray[np.float32] | None:
        """Returns vectors of the model's own lengths, or None if it has only unit vectors."""
        try:
            return self._encode(texts, normalize_embeddings=False)
        except ValueError:  # a wheel has a `UserError` of its own
            return None

    def _encode(self, texts: list[str], **options: Any) -> NDArray[np.float32]:
        if self._show_progress:
            options["show_progress_bar"] = True
        return np.asarray(self._encoder.encode(texts, **options), np.float32)


def sums_of_groups(vectors: NDArray[np.floating], max_group: int) -> NDArray[np.float32]:
    """Adds up neighbouring vectors: unit vectors `[max_group, rows + 1, dim]` before each row.

    Example:
        >>> sums_of_groups(np.array([[3.0, 0.0], [0.0, 4.0]]), 2).round(1)[:, 1:].tolist()
        [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.6000000238418579, 0.800000011920929]]]
    """
    sums = _sums(vectors, max_group)
    _scale_to_unit_length(sums)
    return sums


def _scale_to_unit_length(vectors: NDArray[np.float32]) -> None:
    for group in vectors:
        for part in chunks(group):
            part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-12)


def align_vectors(
    source: NDArray[np.float32],
    target: NDArray[np.float32],
    source_lengths: Sequence[int],
    target_lengths: Sequence[int],
) -> list[AlignedGroup]:
    """Aligns two texts by the vectors of their groups; see `align`.

    Args:
        source: Unit vectors `[max_group, sources + 1, dim]` of the groups that end before each row;
            zeros where there is no such group.
        target: Those of the other text.
        source_lengths: Characters of each sentence.
        target_lengths: Those of the other text.

    Returns:
        The groups in order.
    """
    num_sources, num_targets = len(source_lengths), len(target_lengths)
    if num_sources and num_targets:
        require_same_dim(source[0], target[0], "source", "target")
    else:
        return [
            *(AlignedGroup(range(i, i + 1), range(0), 0.0, 1.0) for i in range(num_sources)),
            *(AlignedGroup(range(0), range(j, j + 1), 0.0, 1.0) for j in range(num_targets)),
        ]
    coarse_path = _coarse_path(source[0, 1:], target[0, 1:])
    lengths = [np.asarray(side, np.float32) for side in (source_lengths, target_lengths)]
    lengths[0] = lengths[0] * _length_ratio(coarse_path, *lengths)
    sides = [
        _Side(vectors, _sums(side, len(vectors)), other[:, 1:].mean(axis=(0, 1)))
        for vectors, side, other in zip((source, target), lengths, (target, source), strict=True)
    ]
    costs = _Costs(*sides)
    band = _band(coarse_path, num_sources, num_targets, 1)
    path = _search(costs, band)
    return [
        AlignedGroup(range(i, k), range(j, m), costs.score(k, k - i, m, m - j), probability)
        for ((i, j), (k, m)), probability in zip(
            pairwise(path), _probabilities(costs, band, path), strict=True
        )
    ]


class _Side:
    """The groups of a text that end before each row, by their number of sentences.

    Args:
        vectors: `[sizes, rows + 1, dim]`, of unit length or zero.
        lengths: `[sizes, rows + 1]`, in characters of the target.
        other: `[dim]`, the mean vector of the other text.
    """

    def __init__(
        self,
        vectors: NDArray[np.float32],
        lengths: NDArray[np.float32] | None,
        other: NDArray[np.float32],
    ) -> None:
        self.vectors, self.lengths = vectors, lengths
        self.distances = 1 - vectors @ other  # the mean over the sentences of the other text

    def __len__(self) -> int:
        return self.vectors.shape[1] - 1

    def omission_weights(self) -> NDArray[np.floating]:
        """Returns `[rows]`, which is less than 1 for sentences of less than half the mean length.

        Short ones are often headings, numbers of pages and captions.
        """
        if self.lengths is None:
            return np.ones(len(self))
        lengths = self.lengths[0, 1:]
        return np.minimum(1, _SHORTEST_OMISSION + lengths / max(lengths.mean(), 1))


def _weight(a: int, b: int) -> float:
    """Returns the factor on a group's cost: n for 1 and n sentences, as in Vecalign.

    For several sentences on both sides, where Vecalign has a * b, it is the mean of this product
    and a + b - 1. Either alone aligns the development part worse.
    """
    return (a * b + a + b - 1) / 2


class _Costs:
    """The costs of groups, and of leaving a sentence without a translation."""

    def __init__(self, source: _Side, target: _Side) -> None:
        self.source, self.target = source, target
        sizes = range(1, len(source.vectors) + 1), range(1, len(target.vectors) + 1)
        self.sizes = [*product(*sizes)]
        samples = (
            np.unique(np.linspace(1, len(side), _SAMPLE).astype(int)) for side in (source, target)
        )
        quantile = float(np.quantile(self._of(1, 1, *samples), _OMISSION_QUANTILE))
        omission = max(quantile, _LEAST_OMISSION)
        self.omissions = [omission * side.omission_weights() for side in (source, target)]

    def block(self, rows: slice, columns: slice) -> NDArray[np.float32]:
        """Returns `[kinds, rows, columns]`, the costs of the groups that end before these."""
        return np.stack([self._of(a, b, rows, columns) * _weight(a, b) for a, b in self.sizes])

    def _of(self, a: int, b: int, rows: Any, columns: Any) -> NDArray[np.float32]:
        source, target = self.source, self.target
        cosines = source.vectors[a - 1, rows] @ target.vectors[b - 1, columns].T
        mean = (source.distances[a - 1, rows, np.newaxis] + target.distances[b - 1, columns]) / 2
        costs = np.maximum((1 - cosines) / np.maximum(mean, 1e-6), _LEAST_COST)
        if source.lengths is not None and target.lengths is not None:
            first = source.lengths[a - 1, rows, np.newaxis]
            second = target.lengths[b - 1, columns]
            variance = _VARIANCE * (first + second) / 2 + 1
            costs += _LENGTH_WEIGHT * (first - second) ** 2 / (2 * variance)
        return costs

    def score(self, row: int, a: int, column: int, b: int) -> float:
        """Returns the score of a group of `a` and `b` sentences that end before these."""
        if not a or not b:
            return 0.0
        cosine = self.source.vectors[a - 1, row] @ self.target.vectors[b - 1, column]
        mean = (self.source.distances[a - 1, row] + self.target.distances[b - 1, column]) / 2
        return float(1 - (1 - cosine) / max(mean, 1e-6))


def _sums(values: NDArray[np.floating], max_group: int) -> NDArray[np.float32]:
    """Returns the sums `[max_group, rows + 1, ...]` of neighbours that end before each row."""
    sums = np.zeros((max_group, len(values) + 1, *values.shape[1:]), np.float32)
    for size in range(1, min(max_group, len(values)) + 1):
        before = sums[size - 2, size - 1 : -1] if size > 1 else 0
        sums[size - 1, size:] = values[size - 1 :] + before
    return sums


_Path = list[tuple[int, int]]  # the rows of both sides between groups, from (0, 0) to the ends


class _Band(NamedTuple):
    """The columns that a search considers at each row, from `begin` to before `end`."""

    begin: NDArray[np.int64]  # [rows + 1], never falls
    end: NDArray[np.int64]


def _coarse_path(source: NDArray[np.float32], target: NDArray[np.float32]) -> _Path:
    """Searches in steps of many sentences, then of half as many, down to single ones."""
    num_steps = max(len(source), len(target)) / _COARSE_ROWS
    level = max(0, int(np.ceil(np.log2(num_steps))))
    path: _Path = []
    for step in [1 << power for power in range(level, -1, -1)]:
        sides = [
            sums_of_groups(np.add.reduceat(side, np.arange(0, len(side), step)), _COARSE_GROUP)
            for side in (source, target)
        ]
        means = [side[0, 1:].mean(axis=0) for side in sides]
        costs = _Costs(_Side(sides[0], None, means[1]), _Side(sides[1], None, means[0]))
        path = _search(costs, _band(path, len(costs.source), len(costs.target), 2))
    return path


def _length_ratio(
    path: _Path, source: NDArray[np.float32], target: NDArray[np.float32]
) -> np.float32:
    """Returns the characters of the target for one of the source, where groups have both."""
    ends = np.array(path)
    is_group = (np.diff(ends, axis=0) > 0).all(axis=1)
    sums = [np.append(0, np.cumsum(side))[ends[:, n]] for n, side in enumerate((source, target))]
    first, second = (np.diff(side)[is_group].sum() for side in sums)
    return np.float32(second / first) if first and second else np.float32(1)


def _band(path: _Path, num_rows: int, num_columns: int, step: int) -> _Band:
    """Returns the columns around a path whose rows and columns are `step` times as long."""
    rows = np.arange(num_rows + 1)
    if not path:
        return _Band(np.zeros_like(rows), np.full_like(rows, num_columns + 1))
    points = np.array(path) * step
    # The path is between its last point before a row and its first point after it.
    first = np.searchsorted(points[:, 0], rows - _RADIUS, side="left") - 1
    last = np.searchsorted(points[:, 0], rows + _RADIUS, side="right")
    begin = points[np.maximum(first, 0), 1] - _RADIUS
    end = points[np.minimum(last, len(points) - 1), 1] + _RADIUS + 1
    return _Band(np.maximum(begin, 0), np.minimum(end, num_columns + 1))


_SOURCE_OMITTED, _TARGET_OMITTED = -1, -2  # moves; others are numbers of `_Costs.sizes`


def _rows(
    costs: _Costs, band: _Band, backward: bool = False
) -> Iterator[tuple[int, slice, NDArray[np.float32]]]:
    """Yields each row, its columns, and `[kinds, columns]`, the costs of groups that end there."""
    num_rows = len(costs.source) + 1
    order = slice(None, None, -1 if backward else 1)
    for start in range(0, num_rows, _ROWS_AT_ONCE)[order]:
        last = min(start + _ROWS_AT_ONCE, num_rows)
        first = int(band.begin[start])
        block = costs.block(slice(start, last), slice(first, int(band.end[last - 1])))
        for row in range(start, last)[order]:
            begin, end = int(band.begin[row]), int(band.end[row])
            yield row, slice(begin, end), block[:, row - start, begin - first : end - first]


def _search(costs: _Costs, band: _Band) -> _Path:
    """Finds the cheapest path by dynamic programming in a band."""
    num_columns = len(costs.target)
    most_rows, most_columns = costs.sizes[-1]
    # The costs up to the last rows; columns before the first one are never reached.
    totals = np.full((most_rows + 1, most_columns + num_columns + 1), np.inf)
    omitted = np.append(0, np.cumsum(costs.omissions[1]))
    moves: list[NDArray[np.int8]] = []
    for row, columns, groups in _rows(costs, band):
        begin, end = columns.start, columns.stop
        ways = np.empty((len(costs.sizes) + 1, end - begin))
        for way, group, (a, b) in zip(ways, groups, costs.sizes, strict=False):
            before = totals[(row - a) % len(totals), most_columns - b + begin :][: end - begin]
            np.add(before, group, way)
        here = totals[row % len(totals), most_columns:]
        above = totals[(row - 1) % len(totals), most_columns:]
        if row:
            ways[-1] = above[columns] + costs.omissions[0][row - 1]
        else:
            ways[-1] = np.where(np.arange(begin, end), np.inf, 0)
        move = ways.argmin(axis=0).astype(np.int8)
        move[move == len(costs.sizes)] = _SOURCE_OMITTED
        # A column is reached from any one before it by omissions of the target.
        best = ways.min(axis=0) - omitted[columns]
        least = np.minimum.accumulate(best)
        move[best > least] = _TARGET_OMITTED
        here[:] = np.inf
        here[columns] = least + omitted[columns]
        moves.append(move)
    return _path_back(moves, band, costs.sizes)


def _probabilities(costs: _Costs, band: _Band, path: _Path) -> list[float]:
    """Returns the share of all paths that have each step of a path, by what a path counts.

    Sums forward and backward (Rabiner 1989, "A Tutorial on Hidden Markov Models", sec. III A).
    """
    most_rows, most_columns = costs.sizes[-1]
    omitted = np.append(0, np.cumsum(costs.omissions[1])) / _TEMPERATURE
    priors = [_SEVERAL if min(size) > 1 else 0.0 for size in costs.sizes]
    shape = most_rows + 1, most_columns + len(omitted)
    sums = np.full(shape, -np.inf)  # logarithms
    before: list[NDArray[np.float64]] = []
    for row, columns, groups in _rows(costs, band):
        begin, count = columns.start, columns.stop - columns.start
        ways = [
            sums[(row - a) % len(sums), most_columns - b + begin :][:count]
            - group / _TEMPERATURE
            - prior
            for group, prior, (a, b) in zip(groups, priors, costs.sizes, strict=True)
        ]
        here = sums[row % len(sums), most_columns:]
        if row:
            above = sums[(row - 1) % len(sums), most_columns:]
            ways.append(above[columns] - costs.omissions[0][row - 1] / _TEMPERATURE)
        else:
            ways.append(np.where(np.arange(columns.start, columns.stop), -np.inf, 0))
        total = np.logaddexp.reduce(ways) + omitted[columns]
        here[:] = -np.inf
        here[columns] = np.logaddexp.accumulate(total) - omitted[columns]
        before.append(here[columns].copy())
    sums = np.full(shape, -np.inf)
    sums[(len(before) - 1) % len(sums), -1] = 0
    ends: dict[int, list[tuple[int, int, int, int]]] = {}
    for number, ((i, j), (k, m)) in enumerate(pairwise(path)):
        ends.setdefault(k, []).append((number, i, j, m))
    probabilities = [0.0] * (len(path) - 1)
    for row, columns, groups in _rows(costs, band, backward=True):
        begin, count = columns.start, columns.stop - columns.start
        slot = sums[row % len(sums)]
        here = slot[most_columns:][columns]
        after = np.logaddexp.accumulate((here - omitted[columns])[::-1])[::-1] + omitted[columns]
        slot[:] = -np.inf
        omission = costs.omissions[0][row - 1] / _TEMPERATURE if row else np.inf
        for number, i, j, m in ends.get(row, ()):
            if i == row:
                cost = omitted[m] - omitted[j]
            elif j == m:
                cost = omission
            else:
                kind = costs.sizes.index((row - i, m - j))
                cost = groups[kind, m - begin] / _TEMPERATURE + priors[kind]
            share = before[i][j - band.begin[i]] - cost + after[m - begin] - before[-1][-1]
            probabilities[number] = min(float(np.exp(share)), 1.0)
        weighed = (
            group / _TEMPERATURE + prior for group, prior in zip(groups, priors, strict=True)
        )
        for cost, (a, b) in zip((*weighed, omission), (*costs.sizes, (1, 0)), strict=True):
            earlier = sums[(row - a) % len(sums), most_columns - b + begin :][:count]
            np.logaddexp(earlier, after - cost, out=earlier)
    return probabilities


def _path_back(
    moves: Sequence[NDArray[np.int8]], band: _Band, sizes: Sequence[tuple[int, int]]
) -> _Path:
    row, column = len(moves) - 1, int(band.end[-1]) - 1
    path = [(row, column)]
    while row or column:
        move = int(moves[row][column - band.begin[row]])
        a, b = {_SOURCE_OMITTED: (1, 0), _TARGET_OMITTED: (0, 1)}.get(move) or sizes[move]
        row, column = row - a, column - b
        path.append((row, column))
    return path[::-1]
