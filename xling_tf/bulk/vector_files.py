"""Encodes files into folders of shards, can continue after a kill, and reads such folders."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from itertools import count, islice
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, parquet

from xling_tf.bulk.record_batches import VECTORS, column_of_texts, encode_batches, vectors_of
from xling_tf.bulk.text_files import TextFiles, find_files
from xling_tf.client.neighbours import require_positive
from xling_tf.client.quantization import Precision
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.corpora.cleaning import warn_of_unlisted
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import locked, read_json_dict, replacing, require_writable_folder, write_json
from xling_tf.processes import start_tensorflow
from xling_tf.savedmodel.saved_models import checksum, find_model, read_info
from xling_tf.sentence_encoder import SentenceEncoder

ROWS_PER_SHARD = 1 << 17
_DESCRIPTION = "vectors.json"  # what a folder holds
_SAMPLED = 2000  # texts by which the model's knowledge of them is judged
_CHUNK_ROWS = 1 << 14  # rows encoded at once
_CHUNK_BYTES = 1 << 26  # bytes of text encoded at once, however few rows that are


def encode_files(
    model: str | PathLike[str],
    patterns: str | Sequence[str],
    output: str | PathLike[str],
    *,
    text_column: str = "text",
    columns: Sequence[str] | None = None,
    header: bool = True,
    skip_damaged: bool = False,
    rows_per_shard: int = ROWS_PER_SHARD,
    precision: Precision = "float32",
    truncate_dim: int | None = None,
    prompt_name: str | None = None,
    report: Callable[[str], None] = lambda state: None,
) -> dict[str, int]:
    """Encodes the texts of files into a folder of shards, in bounded memory.

    The rows keep their order. A shard appears once it is complete. After a kill, the same call
    reads the rows of complete shards again and continues after them; the result is the same as
    without the kill. Texts that occur several times within 16,384 rows are encoded once.

    Args:
        model: The exported model, in any form that `xling_tf.load` takes.
        patterns: Names of files, local or as URLs for fsspec (`s3://bucket/*.parquet`), also with
            wildcards.
        output: The folder for `shard-00000.parquet` and so on, with the columns and the column
            "vector", fixed-size lists.
        text_column: Name of the column of texts.
        columns: Names of the columns to keep; None: all.
        header: Whether tables (.tsv, .csv) begin with column names; if not, these are f0, f1 and
            so on.
        skip_damaged: True skips and counts damaged rows and files, instead of raising a
            `UserError`.
        rows_per_shard: Number of rows of each shard but the last.
        precision: Precision of the vectors, see `SentenceEncoder.encode`.
        truncate_dim: Number of dimensions to keep; None: all.
        prompt_name: Name of one of the model's prompts; None for the default.
        report: Called with the state, for logs, after each chunk.

    Returns:
        The numbers of "rows" and of "empty texts", "damaged rows" and "damaged files", where there
        are any.

    Raises:
        UserError: The input, the folder or an option is not as expected, or a file is damaged.

    Examples:
        >>> encode_files("exported/en-es", "corpus/*.parquet", "vectors")  # doctest: +SKIP
        {'rows': 250000}
    """
    require_positive(rows_per_shard, "rows_per_shard")
    files, output = find_files(_as_list(patterns)), Path(output)
    require_writable_folder(output, "choose another `output`")
    # Most mistakes are errors before TensorFlow starts, and before anything is written.
    first = next(TextFiles(files, text_column, columns, header, skip_damaged).batches(), None)
    folder = find_model(model)
    options = _options(prompt_name=prompt_name, truncate_dim=truncate_dim)
    inputs = "".join(f"{file.name}\n{file.size} {file.version}\n" for file in files)
    settings = {
        "model": checksum(folder),
        "precision": precision,
        "options": options,
        "input": blake2b(inputs.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest(),
        "text_column": text_column,
        "columns": None if columns is None else list(columns),
        "header": header,
        "format": "parquet",
        "rows_per_shard": rows_per_shard,
    }
    description = _require_continuable(output / _DESCRIPTION, settings)
    if description and _fault(output, description) is None:
        return dict(description["counts"])
    sample = first[text_column][:_SAMPLED].to_pylist() if first else []
    unknown = _unknown_share(folder, [text or "" for text in sample])
    encoder, options = SentenceEncoder(folder), {**options, "precision": precision}
    width = int(encoder.encode([], **options).shape[1])  # an error if the options do not fit
    settings["dim"] = width * (8 if precision in ("binary", "ubinary") else 1)
    with locked(output, "output"):
        continue_with(output / _DESCRIPTION, settings)
        texts = TextFiles(files, text_column, columns, header, skip_damaged)
        rows, shards = _write_shards(texts, encoder, output, settings, options, report)
        counts = {"rows": rows, **{name: n for name, n in sorted(texts.counts.items()) if n}}
        facts = {"shards": shards, "counts": counts, "unknown_pieces": unknown}
        write_json(output / _DESCRIPTION, {**settings, **facts})
        return counts


def _unknown_share(folder: Path, texts: Sequence[str]) -> float:
    """Returns the share of the first texts' pieces that the model does not know.

    Warns if it is large, or if the texts are in a language that the model does not list.
    """
    runtime = read_json_dict(folder / RUNTIME_SETTINGS)  # of a model without TensorFlow
    languages = (runtime or read_info(folder)).get("languages", ())
    warn_of_unlisted(texts, languages, "the texts seem")
    if runtime:
        return 0.0
    start_tensorflow()
    model = import_module("xling_tf.model")
    if (tokenizer := model.read_tokenizer(folder)) is None:
        return 0.0
    coverage = import_module("xling_tf.tokenizers.coverage")
    share: float = coverage.warn_of_unknown(tokenizer, texts, f"the first {len(texts):,} texts")
    return share


class Estimate(NamedTuple):
    """What `encode_files` would do, estimated from the first rows."""

    rows: float
    seconds: float
    num_bytes: float  # of the vectors
    sample: NDArray[Any]  # the vectors of the first rows


def estimate(
    model: str | PathLike[str],
    patterns: str | Sequence[str],
    *,
    text_column: str = "text",
    columns: Sequence[str] | None = None,
    header: bool = True,
    skip_damaged: bool = False,
    precision: Precision = "float32",
    truncate_dim: int | None = None,
    prompt_name: str | None = None,
) -> Estimate:
    """Estimates what `encode_files` would do with these arguments, by encoding the first rows."""
    found = find_files(_as_list(patterns))
    files = TextFiles(found, text_column, columns, header, skip_damaged)
    texts = [
        text or ""
        for batch in islice(files.batches(), 4)
        for text in batch[text_column].to_pylist()
    ]
    encoder = SentenceEncoder(model)
    options = {
        "precision": precision,
        **_options(prompt_name=prompt_name, truncate_dim=truncate_dim),
    }
    encoder.encode(texts[:100], **options)  # the first call is slower
    begin = time.perf_counter()
    vectors = encoder.encode(texts, **options)
    seconds = time.perf_counter() - begin
    scale = max(1, sum(file.size for file in found) / max(1, files.bytes_read))
    return Estimate(len(texts) * scale, seconds * scale, vectors.nbytes * scale, vectors)


def _as_list(patterns: str | Sequence[str]) -> Sequence[str]:
    return [patterns] if isinstance(patterns, str) else patterns


def _options(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _write_shards(
    texts: TextFiles,
    encoder: SentenceEncoder,
    output: Path,
    settings: Mapping[str, Any],
    options: Mapping[str, Any],
    report: Callable[[str], None],
) -> tuple[int, int]:
    """Encodes the rows after the whole shards; returns the numbers of all rows and shards."""
    number, rows = _whole_shards(output, settings)
    before, begin = rows, time.monotonic()
    report(f"{rows:,} sentences are done, the next {_CHUNK_ROWS:,} are being encoded")
    rows_per_shard, size = settings["rows_per_shard"], sum(file.size for file in texts.files)
    chunks = _ahead(_chunks(texts.batches(skip=rows), texts.text_column, rows_per_shard))
    write: Callable[[pa.RecordBatch], None] | None = None
    # On errors, the stack discards the unfinished shard.
    with ExitStack() as shard:
        for batch in _ahead(encode_batches(chunks, encoder, texts.text_column, **options)):
            if write is None:
                writer = _shard_writer(output, number, settings, batch.schema)
                write = shard.enter_context(writer)
            rows += len(batch)
            write(batch)
            if rows % rows_per_shard == 0:
                shard.close()
                number, write = number + 1, None
            estimate = round(rows * size / max(1, texts.bytes_read))
            total = max(rows, estimate)  # sizes may be unknown
            rate = (rows - before) / max(1e-9, time.monotonic() - begin)
            report(f"{rows:,} of about {total:,} sentences, {rows / total:.0%}, {rate:,.0f} rows/s")
    return rows, number + bool(write)


@dataclass(frozen=True)
class VectorFolder:
    """The finished output of `encode_files`."""

    path: Path
    # Has "model" (a checksum), "precision", "dim", "counts" and other settings.
    description: Mapping[str, Any]
    # The size and the time of the last change of each file.
    state: Mapping[str, tuple[int, int]]

    @classmethod
    def open(cls, path: Path) -> "VectorFolder":
        """Opens a folder, or raises a `UserError` if it is no finished output of `encode_files`."""
        state = _state(path)
        if not (description := read_json_dict(path / _DESCRIPTION)):
            raise UserError(
                f"expected a folder that `xling-tf encode` has written, got {path}; encode the "
                "texts first, or correct the path"
            )
        if fault := _fault(path, description):
            raise UserError(f"{path} cannot be used: {fault}; run the same `xling-tf encode` again")
        return cls(path, description, state)

    def sizes(self) -> dict[str, int]:
        """Returns the size of each file, which tells other vectors from these."""
        return {name: size for name, (size, _) in self.state.items()}

    def require_unchanged(self) -> None:
        """Raises a `UserError` if a file has changed, come or gone since the folder was opened."""
        if _state(self.path) != self.state:
            raise UserError(
                f"{self.path} must stay the same while it is read, but was changed; start again "
                "when nothing writes to it"
            )

    def __len__(self) -> int:
        """Returns the number of rows."""
        return int(self.description["counts"]["rows"])

    @property
    def num_shards(self) -> int:
        """Number of shards."""
        return int(self.description["shards"])

    def vectors(self, shard: int) -> NDArray[Any]:
        """Returns the vectors `[rows, dim]` of a shard."""
        # Earlier versions could write the vectors beside the columns.
        if self.description["format"] == "npy":
            return np.load(_shard(self.path, shard).with_suffix(".npy"), mmap_mode="r")
        return vectors_of(pa.concat_arrays(self.columns(shard, [VECTORS])[VECTORS].chunks))

    def columns(self, shard: int, names: Sequence[str] | None = None) -> pa.Table:
        """Returns columns of a shard, by default all."""
        return parquet.read_table(_shard(self.path, shard), columns=names)


@contextmanager
def _shard_writer(
    folder: Path, number: int, settings: Mapping[str, Any], schema: pa.Schema
) -> Iterator[Callable[[pa.RecordBatch], None]]:
    """Yields a function that appends a batch to a shard."""
    names = schema.names[:-1] if settings["columns"] is None else settings["columns"]
    stored = [*names, VECTORS]
    # By dictionaries, Parquet stores int8 in a byte; without, in four.
    has_dictionaries = schema.field(VECTORS).type.value_type != pa.float32()
    with replacing(_shard(folder, number)) as temporary:
        message = "the columns cannot be written as Parquet ({error}); choose others with `columns`"
        with as_user_error(message, pa.ArrowNotImplementedError):
            writer = parquet.ParquetWriter(
                temporary,
                pa.schema([schema.field(name) for name in stored]),
                use_dictionary=[*names, f"{VECTORS}.list.element"] if has_dictionaries else names,
                write_statistics=names,
            )
        with writer:
            yield lambda batch: writer.write_batch(batch.select(stored))


def _state(folder: Path) -> dict[str, tuple[int, int]]:
    states = {path.name: path.stat() for path in folder.glob("shard-*")}
    return {name: (state.st_size, state.st_mtime_ns) for name, state in states.items()}


def _shard(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05}.parquet"


def _fault(folder: Path, description: Mapping[str, Any]) -> str | None:
    """Returns why a folder is not the finished output, or None if it is."""
    if "counts" not in description:
        return "it is not finished"
    rows_left, most = description["counts"]["rows"], description["rows_per_shard"]
    for number in range(description["shards"]):
        if (rows := _rows_of(_shard(folder, number))) is None:
            return f"shard {number} is missing or damaged"
        if rows != min(most, rows_left):
            return f"shard {number} has {rows} rows, not {min(most, rows_left)}"
        rows_left -= rows
    return f"{rows_left} rows are in no shard" if rows_left else None


def _rows_of(path: Path) -> int | None:
    """Returns the number of rows of a shard by its end; None if it is missing, empty or cut."""
    try:
        return int(parquet.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return None


def continue_with(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the description of the file's folder; in an empty one, writes these settings as such.

    Raises a `UserError` if the settings differ, because work in the folder then cannot be
    continued.
    """
    if not (description := _require_continuable(path, settings)):
        write_json(path, description := {**settings})
    return description


def _require_continuable(path: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    folder, description = path.parent, read_json_dict(path)
    names = os.listdir(folder) if folder.is_dir() and not description else []
    if others := sorted(name for name in names if name != "lock" and name[0] != "."):
        raise UserError(f"{folder} must be empty, but has {others[0]}; give another `output`")
    for name, value in settings.items():
        if description and description.get(name) != value:
            values = f"another {name} ({description.get(name)!r}, not {value!r})"
            raise UserError(
                f"{folder} was begun with {values}; give another `output`, or remove the folder"
            )
    return description


def _whole_shards(folder: Path, settings: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the number of shards before the first that is missing or not full, and of their rows.

    That one is written again: the last one of all may have fewer rows, but so may one that lost
    some.
    """
    rows = settings["rows_per_shard"]
    number = next(number for number in count() if _rows_of(_shard(folder, number)) != rows)
    return number, number * rows


def _chunks(
    batches: Iterator[pa.RecordBatch], text_column: str, shard_rows: int
) -> Iterator[pa.RecordBatch]:
    """Joins and cuts batches into those that are encoded at once.

    Where it cuts depends on the rows since the shard's beginning and not on the batches' sizes, so
    that a continued encoding has the same vectors to the last bit.
    """
    parts: list[pa.RecordBatch] = []
    rows = size = 0  # of the parts
    rows_left = shard_rows  # in the shard
    for batch in batches:
        begin = 0
        lengths = compute.binary_length(column_of_texts(batch, text_column)).fill_null(0)
        for row, length in enumerate(lengths.to_pylist()):
            if rows in (_CHUNK_ROWS, rows_left) or (rows and size + length > _CHUNK_BYTES):
                yield pa.concat_batches([*parts, batch.slice(begin, row - begin)])
                rows_left = (rows_left - rows) or shard_rows
                parts, rows, size, begin = [], 0, 0, row
            rows, size = rows + 1, size + length
        parts.append(batch.slice(begin))
    if rows:
        yield pa.concat_batches(parts)


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches while a thread makes the next one."""
    with ThreadPoolExecutor(1) as thread:
        upcoming = thread.submit(next, batches, None)
        while (batch := upcoming.result()) is not None:
            upcoming = thread.submit(next, batches, None)
            yield batch
