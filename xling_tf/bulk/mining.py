"""Mines translations in two folders of vectors, larger than memory; runs can be continued."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from absl import logging
from numpy.typing import NDArray
from pyarrow import compute

from xling_tf.bulk.record_batches import column_of_texts
from xling_tf.bulk.vector_files import VectorFolder, continue_with
from xling_tf.client.known_translations import Pairs, require_precision
from xling_tf.client.neighbours import (
    Neighbours,
    best_neighbours,
    chunks,
    index_kind,
    nearest,
    unit_vectors,
)
from xling_tf.client.quantization import from_int8
from xling_tf.client.search import (
    MIN_MARGIN,
    NUM_NEIGHBOURS,
    PRECISION,
    best_pairs,
    margin_by_known,
)
from xling_tf.client.texts import is_blank
from xling_tf.corpora.cleaning import language_of_texts
from xling_tf.corpora.document_files import language_of_name, warn_of_languages
from xling_tf.corpora.line_files import require_name_of_lines, write_lines
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import locked, replacing, require_writable_file, require_writable_folder

_GIB = 1 << 30
_PROGRAM_BYTES = 3 << 28  # memory of the libraries and of a chunk of queries
_BYTES_PER_ROW = 64  # for each row of both sides: its mean, its margin and its place in the order
_PAIRS_AT_ONCE = 1 << 20  # pairs whose texts are read together
_MAX_CLUSTERS = 8192  # fewer rows have as many clusters as the root of their number
_PROBES = 12  # clusters that are searched for each query
_TRAINING = 40  # rows per cluster for k-means; FAISS' guidelines say 30 to 256
_ITERATIONS = 4  # of k-means; more hardly move the clusters
_CODED = 4  # dimensions that a code of 4 bits stands for
_CANDIDATES = 64  # the vectors with the nearest codes; their cosines are computed
_SEARCHED_AT_ONCE = 2048  # queries; FAISS takes 30 KB for each
_ADVICE = (  # evaluation/results/languages.json, mining
    f"pairs have a margin of {MIN_MARGIN} or more, the default. Where one sentence in nine had a "
    "translation, 28% of such pairs were right in German, and 14% in Basque, which the model had "
    "not learned. If you know a few hundred translations, `known` chooses a margin for the "
    "`precision` that you want"
)
_MANY_UNKNOWN = 0.02  # as in tokenizers.coverage, which needs TensorFlow
_SAMPLED = 1000  # texts of each side whose language is recognised
_NO_LENGTH = np.float32(1e-9)  # in place of the length of a zero vector, which cannot divide
_QUERIES_AT_ONCE = 32  # their candidates take 4 MiB in float32, which stay in the cache


def mine_translations(
    source: Path,
    target: Path,
    output: Path,
    *,
    threshold: float | None = None,
    known: Any = None,
    precision: float = PRECISION,
    memory: float = 4.0,
    report: Callable[[str], None] = lambda state: None,
) -> dict[str, float]:
    """Finds the translations in two folders of vectors, where most sentences may have none.

    It does what `bitext_mining` does, in bounded memory. A side of more than 200,000 sentences is
    searched approximately: product codes (Jégou et al. 2011) in clusters of vectors find
    candidates, which are then ranked by cosine. Of equal sentences, only the first counts, and
    blank ones are in no pair.

    The folder `OUTPUT.neighbours` keeps the results of the search: after a kill, the same call
    continues, and a call with another threshold only writes the output again.

    A margin that suits one text and model may be useless for another. With a few hundred `known`
    translations whose sides are among the texts, the margin is chosen for a wanted precision, see
    `client.known_translations`.

    Args:
        source: A folder of `encode_files`, in float32 or int8.
        target: Another one, of the same model, dimension and precision.
        output: The file to write, best pairs first: a table of source, target and score like that
            of `align`.
        threshold: Smallest margin of a pair; None for 1.06, or for the one that `known` chooses.
        known: Translations in any form of `corpora.pairs.read_pairs`, such as a table's path.
        precision: Wanted share of translations among the pairs, for `known`.
        memory: Memory to use, in GiB.
        report: Called with the state, for logs.

    Returns:
        The numbers of distinct "sources" and "targets", and of "pairs". With `known`, also the
        chosen "margin", the estimated "precision" of the pairs without a known sentence, and the
        "recall" of the known translations.

    Raises:
        UserError: The folders cannot be compared, do not fit into the memory, lack the texts, or
            are changed while they are mined.
    """
    translations = known_pairs(output, threshold, known, precision)
    forward, backward = searches = _plan(source, target, output, memory)
    sides = [search.queries for search in searches]
    _warn_of_sides(source, target, sides)
    rows = None if translations is None else _rows_of_known(translations, sides)
    with locked(_prepare(output, forward), "output"):
        for search in searches:
            search.run(report)
        report("choosing pairs")
        counts: dict[str, float] = {"sources": len(sides[0]), "targets": len(sides[1])}
        if rows is None:
            pairs = best_pairs(forward, backward, MIN_MARGIN if threshold is None else threshold)
        else:
            pairs = best_pairs(forward, backward)
            choice = margin_by_known(forward, backward, pairs, rows, precision)
            counts |= choice._asdict()
            pairs = pairs.from_margin(choice.margin)
        report(f"writing {len(pairs.margins):,} pairs")
        _write(output, sides, pairs)
    if known is None and threshold is None:
        logging.info("%s", _ADVICE)
    return {**counts, "pairs": len(pairs.margins)}


def known_pairs(
    output: Path, threshold: float | None, known: Any, precision: float
) -> list[tuple[str, str]] | None:
    """Checks arguments of `mine_translations`, and returns the known translations or None."""
    require_name_of_lines(output)
    require_writable_file(output, "choose another `output`")
    if known is not None and threshold is not None:
        raise UserError(
            "expected `known` translations, which choose the margin, or a `threshold`, got both; "
            "leave one out"
        )
    require_precision(precision)
    return None if known is None else [(pair[0], pair[1]) for pair in read_pairs(known)]


def _rows_of_known(pairs: Sequence[tuple[str, str]], sides: Sequence["_Side"]) -> NDArray[np.int64]:
    """Returns the numbers `[known, 2]` of the known translations whose sides are both there."""
    keys = [(normalised(first), normalised(second)) for first, second in pairs]
    numbers = [side.numbers_of({key[column] for key in keys}) for column, side in enumerate(sides)]
    found = [(numbers[0].get(a), numbers[1].get(b)) for a, b in keys]
    rows = {(a, b) for a, b in found if a is not None and b is not None}
    if not rows:
        swapped = sides[0].numbers_of({key[1] for key in keys})
        advice = "swap its columns" if swapped else "encode them together with the texts"
        raise UserError(f"no `known` translation has both sides among the texts; {advice}")
    logging.info("%d of %d known translations are among the texts", len(rows), len(keys))
    return np.array(sorted(rows), np.int64)


def _warn_of_sides(source: Path, target: Path, sides: Sequence["_Side"]) -> None:
    """Warns if the folders seem to be swapped, of another language than their names say, or of the
    same one, or if the model does not know many of their pieces.
    """
    for path, side in zip((source, target), sides, strict=True):
        if (unknown := side.folder.description.get("unknown_pieces", 0)) > _MANY_UNKNOWN:
            logging.warning(
                "%.0f%% of the pieces of %s are unknown to the model that encoded it",
                *(100 * unknown, path),
            )
    samples = [side.sample() for side in sides]
    if all(samples):
        paths = source, target
        recognised = [
            language_of_texts(texts, [language_of_name(path) or "und"])
            for texts, path in zip(samples, paths, strict=True)
        ]
        warn_of_languages(paths, recognised)


def mining_blocks(
    source: Path, target: Path, output: Path, *, memory: float = 4.0
) -> list[partial[None]]:
    """Returns the search of `mine_translations` in parts, to call in any order and on any machines.

    Each part searches one block of candidates; it is a function without arguments, which can be
    pickled. All machines need the folders under the same paths. A part that was interrupted
    continues when it is called again. Afterwards, `mine_translations` with the same arguments
    chooses the pairs.

    Example (docs/scale.md has Spark's and Beam's):
        >>> search = ray.remote(lambda block: block())  # doctest: +SKIP
        >>> ray.get([*map(search.remote, mining_blocks(source, target, output))])  # doctest: +SKIP
    """
    searches = _plan(source, target, output, memory)
    _prepare(output, searches[0])
    return [
        partial(_search_block, source, target, output, memory, number, begin)
        for number, search in enumerate(searches)
        for begin in range(0, search.candidates.folder.num_shards, search.shards_at_once)
    ]


def _search_block(
    source: Path, target: Path, output: Path, memory: float, number: int, begin: int
) -> None:
    search = _plan(source, target, output, memory)[number]
    search.run(lambda state: None, begin, begin + search.shards_at_once)


def describe_mining(source: Path, target: Path, *, memory: float = 4.0) -> str:
    """Says what `mine_translations` would search, in how many blocks, and with how much disk."""
    searches = _plan(source, target, Path("unwritten"), memory)
    sizes = [len(search.queries) for search in searches]
    blocks = [-(-s.candidates.folder.num_shards // s.shards_at_once) for s in searches]
    # 4 bytes for a score, 8 for a number.
    gigabytes = 12e-9 * NUM_NEIGHBOURS * np.dot(sizes, blocks)
    return (
        f"{sizes[0]:,} distinct sentences are searched in {blocks[0]} blocks of the other side, "
        f"{sizes[1]:,} in {blocks[1]}; the neighbours take {gigabytes:.2g} GB beside the output"
    )


def _prepare(output: Path, search: "_Search") -> Path:
    """Returns the folder of what is found, which must be new or of the same two sides."""
    require_writable_file(output, "choose another `output`")
    work, sides = search.prefix.parent, (search.queries, search.candidates)
    require_writable_folder(work, "choose another `output`")
    descriptions = (
        json.dumps([side.folder.description, side.folder.sizes()], sort_keys=True) for side in sides
    )
    digests = [blake2b(text.encode(), digest_size=16).hexdigest() for text in descriptions]
    settings = {"source": digests[0], "target": digests[1], "num_neighbours": NUM_NEIGHBOURS}
    # Blank sentences were searched before, so that the others had other numbers.
    settings["sides"] = "without blank sentences"
    continue_with(work / "search.json", settings)
    return work


def _plan(source: Path, target: Path, output: Path, memory: float) -> tuple["_Search", "_Search"]:
    """Returns the searches from source and target, which keep their results beside `output`."""
    work = output.with_name(f"{output.name}.neighbours")
    folders = [VectorFolder.open(source), VectorFolder.open(target)]
    _require_comparable(*folders)
    first, second = (_Side(folder) for folder in folders)
    room = memory * _GIB - _PROGRAM_BYTES - _BYTES_PER_ROW * (len(first) + len(second))
    return _Search(first, second, work / "forward", room), _Search(
        second, first, work / "backward", room
    )


class _Side:
    """The distinct sentences of a folder that are not blank, numbered from 0."""

    def __init__(self, folder: VectorFolder) -> None:
        self.folder = folder
        # Python's hash has 64 bits: in one run of 40, a collision loses one of a billion sentences.
        texts = (self.texts(shard).to_pylist() for shard in range(folder.num_shards))
        blank: set[int] = set()  # the hashes of blank texts, which are in no pair
        hashes = []
        for part in texts:
            hashes.append(np.fromiter(map(hash, part), np.int64))
            blank.update(hash(text) for text in set(part) if is_blank(text))
        every = np.concatenate([np.zeros(0, np.int64), *hashes])
        rows = np.sort(np.unique(every, return_index=True)[1])
        self.rows = rows[~np.isin(every[rows], [*blank])]  # the row of each number in the folder
        self._shard_starts = np.cumsum([0, *map(len, hashes)])
        # Numbers at which shards begin.
        self.starts = np.searchsorted(self.rows, self._shard_starts)

    def __len__(self) -> int:
        return len(self.rows)

    def texts(self, shard: int) -> pa.LargeStringArray:
        """Returns all texts of a shard."""
        name = self.folder.description["text_column"]
        batches = self.folder.columns(shard, [name]).to_batches()
        return pa.concat_arrays([column_of_texts(batch, name) for batch in batches]).fill_null("")

    def sample(self) -> list[str]:
        """Returns the first texts."""
        if not self.folder.num_shards:
            return []
        return [text for text in self.texts(0)[:_SAMPLED].to_pylist() if not is_blank(text)]

    def numbers_of(self, keys: Set[str]) -> dict[str, int]:
        """Returns the numbers of the sentences that, normalised, are among some texts."""
        numbers: dict[str, int] = {}
        for shard in range(self.folder.num_shards):
            for row, text in enumerate(self.texts(shard).to_pylist(), self._shard_starts[shard]):
                if (key := normalised(text)) in keys and key not in numbers:
                    number = int(np.searchsorted(self.rows, row))
                    if number < len(self.rows) and self.rows[number] == row:
                        numbers[key] = number
        return numbers

    def texts_of(self, numbers: NDArray[np.int64]) -> pa.LargeStringArray:
        """Returns the texts of sentences, reading each shard once."""
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], self.starts)
        parts = [pa.array([], pa.large_string())]
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            rows = self.rows[numbers[order[slice(*bounds[shard : shard + 2])]]]
            parts.append(self.texts(shard).take(pa.array(rows - self._shard_starts[shard])))
        positions = np.empty_like(order)
        positions[order] = np.arange(len(order))
        return pa.concat_arrays(parts).take(pa.array(positions))

    def vectors(self, shard: int) -> NDArray[Any]:
        """Returns a shard's vectors, in the folder's precision, without repeated sentences."""
        vectors, numbers = self.folder.vectors(shard), slice(*self.starts[shard : shard + 2])
        rows = self.rows[numbers] - self._shard_starts[shard]
        return vectors if len(rows) == len(vectors) else vectors[rows]


class _Search:
    """The nearest sentences of one side for each of another, in files by shards of both sides."""

    def __init__(self, queries: _Side, candidates: _Side, prefix: Path, room: float) -> None:
        self.queries, self.candidates = queries, candidates
        self.prefix, self._k = prefix, min(NUM_NEIGHBOURS, len(candidates))
        self._kind = index_kind(len(candidates))
        description = candidates.folder.description
        dim, size = description["dim"], 1 if description["precision"] == "int8" else 4
        # Exact search copies the vectors. Lists of codes and row numbers grow by doubling.
        row_bytes = 8 * dim if self._kind == "flat" else size * dim + 2 * (dim / 2 / _CODED + 8) + 4
        if self._kind == "ivf":
            room -= 8 * dim * _TRAINING * _num_clusters(len(candidates))  # two copies in float32
        longest = max(len(queries.folder), len(candidates.folder), 1)
        shard_rows = min(description["rows_per_shard"], longest)
        room -= 3 * size * dim * shard_rows  # to read a shard
        self.shards_at_once = int(room / row_bytes / shard_rows)
        if self.shards_at_once < 1:
            more = (row_bytes * shard_rows - room) / _GIB
            raise UserError(
                f"shards of {shard_rows:,} rows need {more:.2g} GiB more; raise `memory`, or "
                "encode with a smaller `rows_per_shard`"
            )

    def run(self, report: Callable[[str], None], begin: int = 0, end: int = sys.maxsize) -> None:
        """Searches what has not been searched yet, among the candidates of some shards."""
        if not self._k:  # all candidates are blank
            return
        end = min(end, self.candidates.folder.num_shards)
        files = [self._whole_files(shard) for shard in range(self.queries.folder.num_shards)]
        done = [_first_gap(begin, searched) for searched in files]
        # An earlier run, perhaps with another `memory`, may have searched later shards for some
        # queries: a block ends there, so that all queries continue from the same place.
        places = [*done, *(begin for searched in files for begin, _ in searched)]
        while (first := min(done, default=end)) < end:
            last = min(first + self.shards_at_once, end, *(p for p in places if p > first))
            block = None  # frees the last one
            block = _Block(self.candidates, first, last, self._kind)
            for shard in np.flatnonzero(np.equal(done, first)).tolist():
                state = f"{self.prefix.name}, candidates up to {last} of {end} shards"
                report(f"{state}, queries of {shard} of {len(done)}")
                found = block.nearest(self.queries.vectors(shard), self._k)
                self.queries.folder.require_unchanged()
                self.candidates.folder.require_unchanged()
                name = f"{self.prefix.name}-{shard:05}-{first:05}-{last:05}.npz"
                with (
                    replacing(self.prefix.with_name(name)) as temporary,
                    temporary.open("wb") as file,
                ):
                    np.savez(file, scores=found.scores, indices=found.indices)
                done[shard] = _first_gap(last, files[shard])

    def __iter__(self) -> Iterator[Neighbours]:
        """Yields what was found for each shard's sentences; nothing without candidates."""
        for shard in range(self.queries.folder.num_shards if self._k else 0):
            parts = list(map(_read, self._files(shard).values()))
            scores, indices = (np.concatenate(a, axis=1) for a in zip(*parts, strict=True))
            yield best_neighbours(self._k, (scores, indices))

    def _files(self, shard: int) -> dict[tuple[int, int], Path]:
        """Returns a query shard's files by the first and last of the shards of candidates."""
        paths = sorted(self.prefix.parent.glob(f"{self.prefix.name}-{shard:05}-*.npz"))
        return {(int(path.stem[-11:-6]), int(path.stem[-5:])): path for path in paths}

    def _whole_files(self, shard: int) -> dict[tuple[int, int], Path]:
        """Like `_files`, without those that a power loss left empty or cut, which it removes."""
        files, rows = self._files(shard), int(np.diff(self.queries.starts)[shard])
        for place, path in [*files.items()]:
            try:
                scores, indices = _read(path)
                is_whole = len(scores) == rows and scores.shape == indices.shape
            except UserError:
                is_whole = False
            if not is_whole:
                logging.warning("%s is damaged; it is searched again", path)
                path.unlink(missing_ok=True)
                del files[place]
        return files


def _first_gap(place: int, parts: Iterable[tuple[int, int]]) -> int:
    """Returns the first place, from the given one on, that none of the parts, in order, holds."""
    for begin, end in parts:
        place = max(place, end) if begin <= place else place
    return place


def _read(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    message = f"{path} is damaged; remove it, and run the same command again"
    damage = (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile)
    # numpy would leave a damaged file open that it had opened itself.
    with as_user_error(message, *damage), path.open("rb") as file, np.load(file) as arrays:
        return arrays["scores"], arrays["indices"]


class _Block:
    """Some shards' sentences in memory, with an index."""

    def __init__(self, side: _Side, begin: int, end: int, kind: str) -> None:
        self._first = int(side.starts[begin])
        description = side.folder.description
        rows, dim = int(side.starts[end]) - self._first, description["dim"]
        is_int8 = kind == "ivf" and description["precision"] == "int8"
        self._vectors = np.empty((rows, dim), np.int8 if is_int8 else np.float32)
        filled = 0
        for shard in range(begin, end):
            vectors = side.vectors(shard)
            part = self._vectors[filled : filled + len(vectors)]
            part[:] = _units(vectors) if kind == "flat" else vectors
            filled += len(vectors)
        lengths = [np.linalg.norm(_floats(part), axis=1) for part in chunks(self._vectors)]
        self._lengths = np.maximum(np.concatenate(lengths or [np.zeros(0)]), _NO_LENGTH).astype(
            np.float32
        )
        self._index = self._index_of_codes() if kind == "ivf" and rows else None

    def nearest(self, queries: NDArray[Any], k: int) -> Neighbours:
        """Finds the sentences with the highest cosines to vectors, by their numbers in the side."""

        def search(part: NDArray[Any]) -> Neighbours:
            if not self._index:
                return nearest(_units(part), self._vectors, k, kind="flat")
            return best_neighbours(k, self._nearest_by_codes(self._index, _units(part)))

        none = Neighbours(np.zeros((0, k), np.float32), np.zeros((0, k), np.int64))
        # FAISS uses all cores and the ranking one, so ranking overlaps with the next search.
        parts = chunks(queries, _SEARCHED_AT_ONCE) if self._index else chunks(queries)
        with ThreadPoolExecutor(2 if self._index else 1) as pool:
            results = pool.map(search, parts)
            scores, indices = map(np.concatenate, zip(none, *results, strict=True))
        return Neighbours(scores, np.where(indices < 0, -1, indices + self._first))

    def _index_of_codes(self) -> Any:
        faiss = library("faiss", "FAISS", "mining")
        rows, dim = self._vectors.shape
        clusters, codes = _num_clusters(rows), -(-dim // _CODED)
        kind = f"IVF{clusters},PQ{codes}x4fs"
        index = faiss.index_factory(_CODED * codes, kind, faiss.METRIC_INNER_PRODUCT)
        index.nprobe = _PROBES
        index.cp.niter = _ITERATIONS
        index.by_residual = False
        sample = np.linspace(0, rows - 1, min(rows, _TRAINING * clusters)).astype(int)
        index.train(_padded(_units(self._vectors[sample])))
        for part in chunks(self._vectors):
            index.add(_padded(_units(part)))
        return index

    def _nearest_by_codes(self, index: Any, queries: NDArray[np.float32]) -> Neighbours:
        _, candidates = index.search(_padded(queries), _CANDIDATES)
        scores = np.empty(candidates.shape, np.float32)
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            part = slice(start, start + _QUERIES_AT_ONCE)
            vectors = _floats(self._vectors[candidates[part]])
            scores[part] = (vectors @ queries[part, :, np.newaxis])[:, :, 0] / self._lengths[
                candidates[part]
            ]
        # Zero vectors are nobody's neighbours and have none, as in `nearest`.
        is_zero = (self._lengths[candidates] <= _NO_LENGTH) | ~queries.any(axis=1, keepdims=True)
        candidates[is_zero] = -1
        return Neighbours(np.where(candidates < 0, -np.inf, scores), candidates)


def _num_clusters(rows: int) -> int:
    return max(1, min(_MAX_CLUSTERS, int(rows**0.5), rows // _TRAINING))


def _floats(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return from_int8(vectors) if vectors.dtype == np.int8 else vectors


def _units(vectors: NDArray[Any]) -> NDArray[np.float32]:
    return unit_vectors(_floats(vectors), "vectors").astype(np.float32, copy=False)


def _padded(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Appends zeros up to a multiple of the dimensions that a code stands for."""
    return np.pad(vectors, ((0, 0), (0, -vectors.shape[1] % _CODED)))


def _write(output: Path, sides: Sequence[_Side], pairs: Pairs) -> None:
    """Writes pairs of sentences, some at a time, by their numbers."""
    margins, *rows = pairs

    def lines() -> Iterator[str]:
        yield "source\ttarget\tscore"
        for start in range(0, len(margins), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            texts = (
                compute.replace_substring_regex(
                    side.texts_of(numbers[part]), r"[\t\r\n]+", " "
                ).to_pylist()
                for side, numbers in zip(sides, rows, strict=True)
            )
            for margin, source, target in zip(margins[part].tolist(), *texts, strict=True):
                yield f"{source}\t{target}\t{margin:.6f}"
        for side in sides:  # an error here discards the lines
            side.folder.require_unchanged()

    write_lines(output, lines())


def _require_comparable(*folders: VectorFolder) -> None:
    """Raises a `UserError` unless both folders have texts, and vectors that can be compared."""
    for name in ("model", "dim", "precision"):
        if len({folder.description[name] for folder in folders}) > 1:
            values = " and ".join(f"{f.path} has {f.description[name]}" for f in folders)
            raise UserError(
                f"both folders must have vectors of one {name}, but {values}; encode one again"
            )
    for folder in folders:
        columns, name = (folder.description[setting] for setting in ("columns", "text_column"))
        if columns is not None and name not in columns:
            raise UserError(
                f"{folder.path} must have the texts beside the vectors, but was encoded without "
                f"them; encode again with the `columns` {','.join([*columns, name])}"
            )
        if folder.description["precision"] not in ("float32", "int8"):
            raise UserError(
                f"expected vectors in float32 or int8, but {folder.path} has binary ones; encode "
                "again with another `precision`"
            )
