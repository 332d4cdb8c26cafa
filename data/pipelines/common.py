"""What the pipelines share: finding and reading files, counting records, publishing a corpus' shards."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import apache_beam as beam
from absl import logging
from apache_beam.coders import BytesCoder
from apache_beam.io import ReadAllFromText, WriteToText
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection

from xling_tf.corpora.line_files import MAX_LINE, Unreadable, split_blocks
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.errors import UserError
from xling_tf.files import HEAD_BYTES, packing, unpacked

_METRICS = "xling_tf"
_REPORT = "preparation.json"


def count(outcome: str, number: int = 1) -> None:
    """Counts records of an outcome in the runner's metrics; to be called on workers."""
    Metrics.counter(_METRICS, outcome).inc(number)


@contextmanager
def dropping(records: str) -> Iterator[None]:
    """Counts a record that proves malformed or unfit inside the block, by the reason."""
    try:
        yield
    except MalformedLineError as error:
        count(f"{records} dropped: {error}")


def find_files(patterns: Sequence[str]) -> list[str]:
    """Finds the files that match, on any file system that Beam knows; each pattern must match some."""
    found: dict[str, None] = {}
    for pattern in patterns:
        try:
            (match,) = FileSystems.match([pattern])
        except (BeamIOError, ValueError) as error:
            raise UserError(f"--input {pattern} cannot be looked up: {error}") from error
        if not match.metadata_list:
            raise UserError(f"--input must match files, but {pattern} matches none; correct it")
        found |= dict.fromkeys(sorted(file.path for file in match.metadata_list))
    return list(found)


class ReadLines(beam.PTransform[Any, Any]):
    """Reads the lines of text files as bytes; workers share a plain file, one unpacks a packed one."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        packed = {path: is_packed(path) for path in paths}
        self._packed = [path for path in paths if packed[path]]
        self._plain = [path for path in paths if not packed[path]]

    def expand(self, pipeline: beam.Pipeline) -> PCollection[bytes]:
        """Gives lines without their ends."""
        read = ReadAllFromText(coder=BytesCoder(), compression_type=CompressionTypes.UNCOMPRESSED)
        parts = (
            pipeline | "Plain files" >> beam.Create(self._plain) | read,
            pipeline
            | "Packed files" >> beam.Create(self._packed)
            | beam.Reshuffle()
            | beam.FlatMap(lines_of),
        )
        return parts | beam.Flatten()


def is_packed(path: str) -> bool:
    """True if a file is packed; a `UserError` if it cannot be opened or is an archive."""
    try:
        with open_raw(path) as file:
            return bool(packing(path, file.read(HEAD_BYTES)))
    except OSError as error:
        raise UserError(f"--input {path} must be a readable file, but is not: {error}; correct it") from error


def open_raw(path: str) -> BinaryIO:
    """Opens a file without unpacking it: Beam would not notice that a packed file is cut."""
    return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)


def lines_of(path: str) -> Iterator[bytes]:
    """Yields the lines of a file, plain or compressed; a line that is too long becomes empty."""
    with open_raw(path) as file:
        yield from split_lines(unpacked(file, path))


def split_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the lines of a text that comes in pieces; a line that is too long becomes empty."""
    for block in split_blocks(pieces, b"\n", MAX_LINE):
        for line in block:
            if line is None:
                count(f"lines dropped: {Unreadable.TOO_LONG}")
            yield line or b""


def decoded(line: bytes) -> str:
    """Decodes a line of UTF-8, without byte order mark and carriage return."""
    try:
        return line.decode("utf-8-sig").rstrip("\r")
    except UnicodeDecodeError:
        raise MalformedLineError("not UTF-8") from None


def prepare(
    corpora: Mapping[str, beam.PTransform[Any, Any]],
    *,
    output: str,
    num_shards: int,
    options: PipelineOptions,
    settings: Mapping[str, Any],
) -> Counter[str]:
    """Runs the pipelines that write corpora of a data folder, and counts the records of each outcome.

    Shards are written under a hidden folder and moved to `<output>/<corpus>-00000-of-000NN<suffix>` when
    all are there, in place of earlier shards of that corpus; if there is nothing to write, those stay.
    Corpora are named by their path with the files' suffix, "conversations/reddit.en.tsv.gz"; a document has
    a line feed after each of its sentences. The settings and the counts go to `preparation.json`.
    """
    staging = FileSystems.join(output, f".{next(iter(corpora)).replace('/', '.')}.work")
    if FileSystems.exists(staging):
        FileSystems.delete([staging])
    try:
        with beam.Pipeline(options=options) as pipeline:
            for name, lines in corpora.items():
                stem, suffix = _split_suffix(name)
                prefix = FileSystems.join(staging, *stem.split("/"))
                _ = (
                    pipeline
                    | f"Make {name}" >> lines
                    | f"Count {name}" >> beam.Map(_counted)
                    | f"Write {name}" >> WriteToText(prefix, file_name_suffix=suffix, num_shards=num_shards)
                )
    except BaseException as error:
        if FileSystems.exists(staging):
            FileSystems.delete([staging])
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
        FileSystems.delete([staging])
        found = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
        raise UserError(
            f"the inputs must hold text for {', '.join(corpora)}, but nothing was kept of them: "
            f"{found or 'no record'}; name other files with --input"
        )
    for name in corpora:
        new, earlier = _shards(staging, name), _shards(output, name)
        folder = FileSystems.join(output, *name.split("/")[:-1])
        if not FileSystems.exists(folder):
            FileSystems.mkdirs(folder)
        if earlier:
            FileSystems.delete(earlier)
        moved = [FileSystems.join(folder, FileSystems.split(path)[1]) for path in new]
        FileSystems.rename(new, moved)
    FileSystems.delete([staging])
    _report(output, {name: {**settings, "counts": dict(counts)} for name in corpora})
    return counts


def _counted(line: str) -> str:
    count("lines written")
    return line


def _split_suffix(name: str) -> tuple[str, str]:
    """Splits "documents/x.en.txt.gz" into "documents/x.en" and ".txt.gz"."""
    stem, first, second = name.rsplit(".", 2)
    return stem, f".{first}.{second}"


def _shards(folder: str, name: str) -> list[str]:
    stem, suffix = _split_suffix(name)
    pattern = FileSystems.join(folder, *f"{stem}-*-of-*{suffix}".split("/"))
    return sorted(file.path for match in FileSystems.match([pattern]) for file in match.metadata_list)


def _report(output: str, entries: Mapping[str, Any]) -> None:
    """Adds what was prepared to the folder's `preparation.json`."""
    path = FileSystems.join(output, _REPORT)
    report: dict[str, Any] = {}
    if FileSystems.exists(path):
        try:
            with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
                report = dict(json.loads(file.read()))
        except (RecursionError, TypeError, ValueError) as error:
            logging.warning("%s is replaced, since it cannot be read: %s", path, error)
    temporary = f"{path}.tmp"
    with FileSystems.create(temporary, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        text = json.dumps({**report, **entries}, indent=2, ensure_ascii=False)
        file.write(f"{text}\n".encode())
    if FileSystems.exists(path):
        FileSystems.delete([path])
    FileSystems.rename([temporary], [path])
