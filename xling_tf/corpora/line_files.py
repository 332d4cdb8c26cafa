"""Corpus files as lines of text: read in bounded memory, and written, the same bytes every time."""

import gzip
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import IO, Literal

from xling_tf.errors import UserError
from xling_tf.files import replacing, unpacked

# Bytes of the longest line, two novels' worth of chapters: of a text some hundred tokens count, so a
# longer line is no sentence but a file without line feeds, or a packed bomb.
MAX_LINE = 1 << 20
# UAX #15, sec. 13: no language needs more marks on a letter.
_MAX_MARKS = 30
# A text has no more than this many times the bytes of its NFC: 3.5 times for a "ΐ" of three characters.
MAX_EXPANSION = 4


class Unreadable(StrEnum):
    """Why there is no text of a line."""

    NOT_UTF8 = "not UTF-8"
    TOO_LONG = "longer than 1 MiB"


def read_lines(path: Path) -> Iterator[tuple[int, str | Unreadable]]:
    r"""Yields each line's number from 1 and its stripped NFC text, or why there is none.

    Only "\n" ends a line; other separators, such as U+2028, are text. Tabs are not stripped,
    because they may stand beside an empty column. The file may be packed; some MiB of it are in memory.
    """
    number = 0
    try:
        with path.open("rb") as file:
            for block in split_blocks(unpacked(file, path), b"\n", MAX_LINE):
                yield from enumerate(_decoded(block), number + 1)
                number += len(block)
    except OSError as error:
        raise UserError(
            f"{path} must be a readable file, but is not ({error.strerror or error}); correct the path"
        ) from error


def read_every_line(path: Path) -> Iterator[tuple[int, str]]:
    """As `read_lines`, where a line without text is a `UserError`."""
    for number, line in read_lines(path):
        if isinstance(line, Unreadable):
            raise UserError(
                f"{path} must be lines of UTF-8 text of 1 MiB at most, but line {number} is {line}; "
                "correct that line, or convert the file with `iconv -f ENCODING -t UTF-8`"
            )
        yield number, line


def split_blocks(pieces: Iterable[bytes], separator: bytes, limit: int) -> Iterator[list[bytes | None]]:
    r"""Splits a stream at separators, in memory that a record without end does not fill.

    Yields the records that end in each piece; None for one of more bytes than the limit.

    Example:
        >>> list(split_blocks([b"one\ntw", b"o\nthree and more\nend"], b"\n", 5))
        [[b'one'], [b'two', None], [b'end']]
    """
    pending = bytearray()
    is_too_long = False
    for piece in pieces:
        # The separator may have begun before the piece.
        begin = max(0, len(pending) - len(separator) + 1)
        pending += piece
        end = pending.rfind(separator, begin)
        if end >= 0:
            records: list[bytes | None] = [
                None if len(record) > limit else record for record in bytes(pending[:end]).split(separator)
            ]
            if is_too_long:
                records[0] = None
            yield records
            is_too_long = False
            del pending[: end + len(separator)]
        if len(pending) > limit:
            is_too_long = True
            del pending[: -len(separator)]
    if pending or is_too_long:
        yield [None if is_too_long else bytes(pending)]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines whole or not at all, packed where the file's name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        file: IO[bytes] | gzip.GzipFile
        file = stack.enter_context(stack.enter_context(replacing(path)).open("wb"))
        if path.suffix == ".gz":
            # Neither the time nor the temporary name.
            file = gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)
            stack.enter_context(file)
        file.writelines(f"{line}\n".encode() for line in lines)


def normal_form(text: str, form: Literal["NFC", "NFKC"] = "NFC") -> str:
    """Normalises a text.

    Long runs of marks are sorted beforehand, because `unicodedata` takes n * n steps to order n marks on
    one letter: minutes for a hostile megabyte.
    """
    if unicodedata.is_normalized(form, text):
        return text

    def in_order(marks: re.Match[str]) -> str:
        apart = (unicodedata.normalize("NFKD" if form == "NFKC" else "NFD", mark) for mark in marks[0])
        return "".join(sorted("".join(apart), key=unicodedata.combining))

    return unicodedata.normalize(form, _flood().sub(in_order, text))


@cache
def _flood() -> re.Pattern[str]:
    """Matches more than thirty marks in a row; a mark is a character that decomposes to marks alone."""
    characters = map(chr, range(sys.maxunicode + 1))
    # Half-width Japanese marks are letters (Lm) that decompose to marks.
    candidates = (c for c in characters if unicodedata.category(c) in ("Mn", "Mc", "Me", "Lm"))
    marks = "".join(
        character
        for character in candidates
        if all(map(unicodedata.combining, unicodedata.normalize("NFKD", character)))
    )
    return re.compile(f"[{re.escape(marks)}]{{{_MAX_MARKS + 1},}}")


def _decoded(block: list[bytes | None]) -> list[str | Unreadable]:
    # A block at a time is several times faster than a line at a time. No character composes
    # with a line feed or a tab, so normalising the block normalises each of its columns.
    lines = [line for line in block if line is not None]
    text = _text(b"\n".join(lines)) if len(lines) == len(block) else Unreadable.TOO_LONG
    texts = list(map(_text, block)) if isinstance(text, Unreadable) else text.split("\n")
    # Files that were put together have marks of byte order inside.
    return [line if isinstance(line, Unreadable) else line.strip(" \r\ufeff") for line in texts]


def _text(raw: bytes | None) -> str | Unreadable:
    if raw is None:
        return Unreadable.TOO_LONG
    # UTF-16 of ASCII letters is valid UTF-8 with a NUL beside each letter; no text holds NUL.
    try:
        return Unreadable.NOT_UTF8 if b"\0" in raw else normal_form(raw.decode())
    except UnicodeDecodeError:
        return Unreadable.NOT_UTF8
