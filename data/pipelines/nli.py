"""SNLI and MultiNLI as they are published to a corpus for each of their splits."""

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.common import ReadLines, count, decoded, dropping, open_raw, split_lines
from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.snli import SNLI_FILE, parse_snli
from xling_tf.errors import UserError
from xling_tf.files import unpacked

Place = tuple[str, str]  # a file and, if it is an archive, the member's name


class Inferences(beam.PTransform[Any, Any]):
    """Keeps the pairs of a split, a file of JSON lines, that have a gold label."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place = place

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Gives lines of label TAB premise TAB hypothesis."""
        path, member = self._place
        if member:
            lines = pipeline | beam.Create([self._place]) | beam.FlatMapTuple(_member_lines)
        else:
            lines = pipeline | ReadLines([path])
        return lines | beam.FlatMap(labelled_line)


def find_splits(paths: Sequence[str]) -> dict[str, Place]:
    """Finds each split, by its corpus in the data folder, in JSON lines as published or their archives."""
    found: dict[str, Place] = {}
    for path in paths:
        held = _held(path)
        if not held:
            raise UserError(
                "--input must name the files as published, such as snli_1.0_train.jsonl, "
                f"multinli_1.0_dev_matched.jsonl or their archives, but got {path}"
            )
        for corpus, member in held.items():
            if corpus in found:
                raise UserError(f"{corpus} is in {found[corpus][0]} and {path}; name one of them")
            found[corpus] = (path, member)
    return found


def _held(path: str) -> dict[str, str]:
    """Names the members of an archive by corpus; of a plain file the member is empty."""
    if not path.lower().endswith(".zip"):
        return {corpus: ""} if (corpus := _corpus(path)) else {}
    with _whole_archive(path), open_raw(path) as raw, zipfile.ZipFile(raw) as archive:
        # What macOS adds has the same file names in a folder of its own.
        names = [name for name in archive.namelist() if not name.startswith("__MACOSX")]
    return {corpus: name for name in names if (corpus := _corpus(name))}


def _corpus(path: str) -> str | None:
    match = SNLI_FILE.fullmatch(re.split(r"[/\\]", path)[-1])
    return match and f"nli/{match['name']}.en.{match['split']}.tsv.gz"


def _member_lines(path: str, member: str) -> Iterator[bytes]:
    with (
        _whole_archive(path),
        open_raw(path) as raw,
        zipfile.ZipFile(raw) as archive,
        archive.open(member) as file,
    ):
        yield from split_lines(unpacked(file, f"{path}: {member}"))


@contextmanager
def _whole_archive(path: str) -> Iterator[None]:
    try:
        yield
    # A RuntimeError is of a password, or of a compression that Python does not have.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UserError(f"{path} must be a whole zip archive, but is not: {error}; fetch it again") from error


def labelled_line(line: bytes) -> Iterator[str]:
    """Yields label TAB premise TAB hypothesis of a line that has them, and counts it."""
    if not line.strip():
        return
    count("pairs")
    with dropping("pairs"):
        pair = parse_snli(decoded(line))
        label = NLI_LABELS[pair.label]
        count(label)
        yield "\t".join((label, normalise(pair.premise), normalise(pair.hypothesis)))
