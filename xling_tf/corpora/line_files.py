"""Corpus files as lines of text, read in bounded memory and written reproducibly."""

import bz2
import gzip
import json
import lzma
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from enum import StrEnum
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from xling_tf.compressed import unpacked
from xling_tf.corpora.encodings import as_utf8
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import replacing

# Regular expression of a language code in a file name: "es", "pt_BR", "zh_Hans".
LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
# Languages and scripts without spaces between words: Chinese, Japanese and Thai, not Korean. The
# scripts are ranges of characters, for the brackets of a regular expression.
_UNSPACED_LANGUAGES = frozenset({"ja", "th", "zh"})
CHINESE = "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff"
THAI = "\u0e00-\u0e7f"
UNSPACED = THAI + KANA + CHINESE

# Bytes. A model reads a few hundred tokens of a text, so a longer line is not a sentence: the file
# has no line feeds, or is a decompression bomb.
MAX_LINE = 1 << 20


class Unreadable(StrEnum):
    """Why a line has no text, or a row of a table no cells."""

    NOT_UTF8 = "not UTF-8"
    TOO_LONG = "longer than 1 MiB"
    NOT_CSV = "not CSV"
    OPEN_QUOTE = "not CSV, in a cell whose quote does not close"
    NOT_JSON = "not a JSON object with distinct keys"
    NOT_TEXT = "a value that is not a text"


def json_object(line: str) -> dict[str, Any]:
    """Parses a line of JSON; raises a `ValueError` if it is no object, or one with a key twice."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(members := dict(pairs)) < len(pairs):
            raise ValueError("a key occurs twice")
        return members

    if not isinstance(value := json.loads(line, object_pairs_hook=distinct), dict):
        raise ValueError("no object")
    return value


def read_lines(path: Path) -> Iterator[tuple[int, str | Unreadable]]:
    r"""Yields the number of each line, from 1, and its stripped text in NFC, or why it has none.

    Only "\n" ends a line; other separators, such as U+2028, are text. Tabs are not stripped,
    because they may delimit an empty column. The file may be compressed; a few MiB of it are in
    memory.
    """
    number = 0
    try:
        with path.open("rb") as file:
            pieces = as_utf8(unpacked(file, path), path)
            for block in split_blocks(pieces, b"\n", MAX_LINE):
                yield from enumerate(map(_text, block), number + 1)
                number += len(block)
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}; correct the path"
        ) from error


def first_lines(path: Path, count: int, holding: str = "") -> list[str]:
    """Returns the first readable lines that contain `holding`, without a warning of encodings."""
    message = f"{path} cannot be read: {{error}}; correct the path"
    with as_user_error(message, OSError), path.open("rb") as file:
        pieces = as_utf8(unpacked(file, path), path, is_quiet=True)
        blocks = split_blocks(pieces, b"\n", MAX_LINE)
        lines = chain.from_iterable(blocks)
        held = (line for line in lines if holding.encode() in (line or b""))
        texts = map(_text, islice(held, count))
        return [text for text in texts if not isinstance(text, Unreadable)]


def read_every_line(path: Path) -> Iterator[tuple[int, str]]:
    """Works like `read_lines`, but raises a `UserError` for a line without text."""
    for number, line in read_lines(path):
        if isinstance(line, Unreadable):
            raise UserError(
                f"line {number} of {path} is {line}; correct it, or convert the file with "
                "`iconv -f ENCODING -t UTF-8`"
            )
        yield number, line


def split_blocks(
    pieces: Iterable[bytes], separator: bytes, limit: int
) -> Iterator[list[bytes | None]]:
    r"""Splits a stream at separators; yields the records that end in each piece, None if too long.

    Examples:
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
                None if len(record) > limit else record
                for record in bytes(pending[:end]).split(separator)
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


# Formats that have other contents than lines of cells between tabs, or that only readers know.
_OTHER_FORMATS = (
    ".csv .json .jsonl .ndjson .parquet .arrow .feather .orc .avro .xls .xlsx .ods .xml .tmx "
    ".html .zip .7z .rar .tar .tgz .lz4 .deflate"
).split()
_PACKERS = {".gz", ".bz2", ".xz", ".lzma", ".zst", ".zstd"}


def require_name_of_lines(path: Path) -> None:
    """Raises a `UserError` if the name of an output promises a format other than TSV."""
    endings = [ending.lower() for ending in path.suffixes[-2:]]
    if endings and endings[-1] in (".zst", ".zstd"):
        library("zstandard", "zstandard, for .zst files,", "bulk")
    named = endings[:-1] if endings and endings[-1] in _PACKERS else endings
    if named and (wrong := named[-1]) in _OTHER_FORMATS:
        raise UserError(
            f"`output` is written as lines of text, but {path.name} ends in {wrong}; name it .tsv "
            "or .tsv.gz"
        )


def _packing(file: BinaryIO, name: str) -> Any:
    """Returns a context that compresses what is written to a file, as its name says."""
    match Path(name.lower()).suffix:
        case ".gz":  # no time and no temporary name: the bytes are reproducible
            return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case ".bz2":
            return bz2.BZ2File(file, "wb")
        case ".xz":
            return lzma.LZMAFile(file, "wb")
        case ".lzma":
            return lzma.LZMAFile(file, "wb", format=lzma.FORMAT_ALONE)
        case ".zst" | ".zstd":
            zstandard = library("zstandard", "zstandard, for .zst files,", "bulk")
            return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
    return nullcontext(file)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines to a file that appears whole or not at all, compressed as its name says."""
    with (
        replacing(path) as temporary,
        temporary.open("wb") as file,
        _packing(file, path.name) as output,
    ):
        for line in lines:
            output.write(f"{line}\n".encode())


# White space, and byte-order marks, which `str.strip` leaves.
_AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\ufeff"


def stripped(text: str) -> str:
    r"""Returns a text without white space and byte-order marks around it.

    Examples:
        >>> stripped(" \ufeff Hola\u3000")
        'Hola'
    """
    return text.strip(_AROUND)


def as_cell(text: str) -> str:
    """Returns a text for a cell of a table: a space in place of tabs and line ends."""
    return re.sub(r"[\t\r\n]+", " ", text)


def without_country(language: str) -> str:
    """Returns the language of a code such as "pt_BR" or "zh_TW", without the country or script."""
    return language.partition("_")[0]


def is_unspaced(language: str) -> bool:
    """Returns True for a language without spaces between words."""
    return without_country(language) in _UNSPACED_LANGUAGES


def decoded(raw: bytes | None) -> str | Unreadable:
    r"""Decodes a line, or gives the reason for having no text; None is a line that is too long.

    Examples:
        >>> decoded(b"Hola"), decoded(b"\xff").value
        ('Hola', 'not UTF-8')
    """
    if raw is None:
        return Unreadable.TOO_LONG
    # UTF-16 of ASCII letters is valid UTF-8 with a NUL beside each letter; no text has NUL.
    try:
        return Unreadable.NOT_UTF8 if b"\0" in raw else raw.decode()
    except UnicodeDecodeError:
        return Unreadable.NOT_UTF8


def _text(raw: bytes | None) -> str | Unreadable:
    text = decoded(raw)
    if isinstance(text, Unreadable):
        return text
    return unicodedata.normalize("NFC", text).strip(" \r\ufeff")
