"""Shared parts of the pipelines: finding and reading files, counting records, publishing shards."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import apache_beam as beam
from apache_beam.io import WriteToText
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.compressed import unpacked
from xling_tf.corpora.line_files import MAX_LINE, Unreadable, split_blocks
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.errors import UserError

_METRICS = "xling_tf"
_COMPLETE = "complete"  # lists the shards that are complete, and to be moved to the data folder


def count(outcome: str, number: int = 1) -> None:
    """Counts records with an outcome in the metrics of the runner; workers call it."""
    Metrics.counter(_METRICS, outcome).inc(number)


@contextmanager
def dropping(records: str) -> Iterator[None]:
    """Counts a record that raises `MalformedLineError` inside the block, by the reason."""
    try:
        yield
    except MalformedLineError as error:
        count(f"{records} dropped: {error}")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Finds the files that match each pattern, on any file system of Beam.

    Raises:
        UserError: A pattern cannot be looked up, or matches no file.
    """
    paths: dict[str, None] = {}
    for pattern in patterns:
        try:
            (match,) = FileSystems.match([pattern])
        except (BeamIOError, ValueError) as error:
            raise UserError(
                f"--input {pattern} cannot be looked up: {error}; correct it"
            ) from error
        if not match.metadata_list:
            raise UserError(f"--input must match files, but {pattern} matches none; correct it")
        paths |= dict.fromkeys(sorted(file.path for file in match.metadata_list))
    return list(paths)


def open_raw(path: str) -> BinaryIO:
    """Opens a file without decompressing it: Beam would not notice a truncated file."""
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def read_lines(paths: Sequence[str]) -> beam.PTransform[Any, Any]:
    """Makes a transform that reads the lines of files, each file in one worker."""
    return beam.Create(paths) | beam.Reshuffle() | beam.FlatMap(_lines)


def _lines(path: str) -> Iterator[bytes]:
    """Yields the lines of a file, compressed or not, except those that are too long."""
    with open_raw(path) as file:
        for block in split_blocks(unpacked(file, path), b"\n", MAX_LINE):
            for line in block:
                if line is None:
                    count(f"lines dropped: {Unreadable.TOO_LONG}")
                else:
                    yield line


def prepare(
    name: str,
    lines: beam.PTransform[Any, Any],
    *,
    output: str,
    options: PipelineOptions,
    num_shards: int,
) -> Counter[str]:
    """Runs a pipeline and publishes the shards of its corpus.

    Shards are written to a hidden folder. When all are complete, they are moved to
    `<output>/<corpus>-00000-of-000NN<suffix>`, in place of earlier shards of the corpus. If there
    is nothing to write, the earlier shards stay. If a run was killed while it moved the shards, the
    next one first moves the others.

    Args:
        name: Path of the corpus in the data folder, with the suffix:
            "conversations/reddit.en.tsv.gz".
        lines: Makes the lines; a document is one element with a line feed after each sentence.
        output: The data folder.
        options: Beam's options.
        num_shards: Number of files.

    Returns:
        How many records had which outcome.

    Raises:
        UserError: An input is damaged, or nothing is left of it.
    """
    stem, *endings = name.rsplit(".", 2)  # "documents/x.en" and ".txt.gz"
    suffix = "".join(f".{ending}" for ending in endings)
    staging = FileSystems.join(output, f".{name.replace('/', '.')}.work")
    if FileSystems.exists(FileSystems.join(staging, _COMPLETE)):
        _move_shards(staging, output, stem, suffix)
    _delete(staging)
    try:
        with beam.Pipeline(options=options) as pipeline:
            _ = (
                pipeline
                | lines
                | beam.Map(_counted)
                | WriteToText(
                    FileSystems.join(staging, *stem.split("/")),
                    file_name_suffix=suffix,
                    num_shards=num_shards,
                )
            )
    except BaseException as error:
        _delete(staging)
        # Workers pass errors on as text that ends with the name of the step.
        text = f"UserError: {error}" if isinstance(error, UserError) else str(error)
        if messages := re.findall(r"UserError: (.+?)(?: \[while running .*)?$", text, re.MULTILINE):
            raise UserError(messages[-1]) from error
        raise
    counters = pipeline.result.metrics().query(MetricsFilter().with_namespace(_METRICS))["counters"]
    counts: Counter[str] = Counter()
    for counter in counters:  # each step has its own
        counts[counter.key.metric.name] += counter.result
    if not counts["lines written"]:
        _delete(staging)
        outcomes = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items()))
        raise UserError(
            f"expected records to keep for {name}, but there are none ({outcomes or 'no record'}); "
            "give other files with --input"
        )
    names = [FileSystems.split(path)[1] for path in _shards(staging, stem, suffix)]
    # Written under another name first: a list that was cut would lose shards.
    unfinished = FileSystems.join(staging, f"{_COMPLETE}.part")
    with FileSystems.create(unfinished) as file:
        file.write("\n".join(names).encode())
    FileSystems.rename([unfinished], [FileSystems.join(staging, _COMPLETE)])
    _move_shards(staging, output, stem, suffix)
    _delete(staging)
    return counts


def _move_shards(staging: str, output: str, stem: str, suffix: str) -> None:
    """Moves the complete shards over earlier ones, and then deletes those that are too many.

    A kill loses nothing, because the list of shards stays until all is done, and the next call goes
    on.
    """
    with FileSystems.open(FileSystems.join(staging, _COMPLETE)) as file:
        names = file.read().decode().split("\n")
    folder = FileSystems.join(output, *stem.split("/")[:-1])
    if not FileSystems.exists(folder):
        FileSystems.mkdirs(folder)
    for path in _shards(staging, stem, suffix):
        FileSystems.rename([path], [FileSystems.join(folder, FileSystems.split(path)[1])])
    earlier = _shards(output, stem, suffix)
    if too_many := [path for path in earlier if FileSystems.split(path)[1] not in names]:
        FileSystems.delete(too_many)


def _delete(path: str) -> None:
    if FileSystems.exists(path):
        FileSystems.delete([path])


def _counted(line: str) -> str:
    count("lines written")
    return line


def _shards(folder: str, stem: str, suffix: str) -> list[str]:
    pattern = FileSystems.join(folder, *f"{stem}-*-of-*{suffix}".split("/"))
    return sorted(f.path for match in FileSystems.match([pattern]) for f in match.metadata_list)
