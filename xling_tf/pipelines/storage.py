"""Files of any file system that Beam knows, written whole or not at all."""

import gzip
import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, TextIO

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from xling_tf.errors import UserError

_RAW = CompressionTypes.UNCOMPRESSED


class Input(NamedTuple):
    """A raw file: its path, and what changes when the file does."""

    path: str
    size: int
    modified: float


def find_inputs(patterns: Iterable[str]) -> list[Input]:
    """Finds the files of some patterns, ordered by path, each once.

    Args:
        patterns: Paths with `*`, `?` and `[...]`; also of remote file systems, as gs://.

    Raises:
        UserError: A pattern has no file.
    """
    found: dict[str, Input] = {}
    for pattern in patterns:
        try:
            (match,) = FileSystems.match([absolute(pattern)])
        except (BeamIOError, ValueError) as error:
            raise UserError(f"--input {pattern} cannot be looked up: {error}") from error
        if not match.metadata_list:
            raise UserError(
                f"--input must name files that exist, but {pattern} has none; correct the path"
            )
        for file in match.metadata_list:
            modified = file.last_updated_in_seconds or 0.0
            found[file.path] = Input(file.path, file.size_in_bytes, modified)
    return [found[path] for path in sorted(found)]


def absolute(path: str) -> str:
    """The path that means the same file in every working folder; Beam needs it of patterns."""
    return path if "://" in path else os.path.abspath(path)


def open_raw(path: str) -> BinaryIO:
    """Opens a file for reading its bytes as they are."""
    return FileSystems.open(path, compression_type=_RAW)


@contextmanager
def reading(path: str) -> Iterator[TextIO]:
    """Yields a gzip text file that `writing` wrote."""
    with (
        open_raw(path) as raw,
        gzip.GzipFile("", "rb", fileobj=raw) as zipped,
        io.TextIOWrapper(zipped, "utf-8", newline="\n") as file,
    ):
        yield file


@contextmanager
def writing(path: str, compression_level: int = 6) -> Iterator[TextIO]:
    """Yields a gzip text file that appears at `path` if the block succeeds.

    Equal texts give equal bytes. A retried or doubled unit of work, as runners have them,
    writes a file of its own, and the last one stays.
    """
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    try:
        with (
            FileSystems.create(temporary, compression_type=_RAW) as raw,
            gzip.GzipFile("", "wb", compression_level, raw, mtime=0) as zipped,
            io.TextIOWrapper(io.BufferedWriter(zipped, 1 << 16), "utf-8", newline="\n") as file,
        ):
            yield file
        FileSystems.rename([temporary], [path])
    except BaseException:
        delete([temporary])
        raise


def exists(path: str) -> bool:
    """Whether there is such a file or folder."""
    return bool(FileSystems.exists(path))


def join(folder: str, *names: str) -> str:
    """The path of something in a folder."""
    return str(FileSystems.join(folder, *names))


def matching(pattern: str) -> list[str]:
    """The paths of the files of a pattern."""
    (match,) = FileSystems.match([pattern])
    return [file.path for file in match.metadata_list]


def delete(paths: Iterable[str]) -> None:
    """Deletes files, and folders with all in them, that are there."""
    FileSystems.delete([path for path in paths if exists(path)])


def move(source: str, target: str) -> None:
    """Moves a file to a folder that may not be there yet; what was at its new path goes."""
    folder = FileSystems.split(target)[0]
    if not exists(folder):
        FileSystems.mkdirs(folder)
    FileSystems.rename([source], [target])


def read_json(path: str) -> Any:
    """Reads a JSON file of ours, an object; None where there is none.

    Raises:
        UserError: It is damaged.
    """
    if not exists(path):
        return None
    try:
        with open_raw(path) as file:
            content = json.loads(file.read())
    except (RecursionError, ValueError) as error:
        raise damaged(path, error) from error
    if not isinstance(content, dict):
        raise damaged(path, "no object")
    return content


def damaged(path: str, error: object) -> UserError:
    """Makes the error of a file that a pipeline has written and cannot read."""
    return UserError(
        f"{path} must be as an earlier start of this command wrote it, but is damaged ({str(error)[:200]}); "
        "delete it and start the same command again"
    )


def write_json(path: str, content: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    temporary = f"{path}.{os.urandom(6).hex()}.tmp"
    with FileSystems.create(temporary, compression_type=_RAW) as file:
        file.write((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
    FileSystems.rename([temporary], [path])
