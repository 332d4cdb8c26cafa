"""Converts text files to UTF-8, from the encoding that they declare or seem to have."""

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from absl import logging

from xling_tf.errors import UserError

# The mark of UTF-32 begins with that of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_DECLARED = re.compile(
    rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([\w.:-]+)"""
    rb"""|<meta\s[^>]*?\bcharset\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
_DECLARED_WITHIN = 4096  # bytes; HTML asks for the first 1,024
# What pages that name an encoding mostly have, as browsers know (encoding.spec.whatwg.org).
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932"}
# The encoding that European versions of Excel write, a superset of Latin-1.
_ASSUMED = "cp1252"
_SAMPLE = 1 << 20  # bytes, which tell the encoding
# A byte beside an ASCII letter, or one of Windows-1252's marks such as quotes and dashes, and no
# other byte. Greek, Russian or Chinese letters stand together.
_ALONE = re.compile(
    rb"(?<![\x80-\xff])(?:(?<=[A-Za-z])[\x80-\xff]|[\x80-\xff](?=[A-Za-z])|[\x80-\xbf])"
    rb"(?![\x80-\xff])"
)


def named_encoding(head: bytes) -> str | None:
    r"""Returns the encoding that a file declares by a byte-order mark, or in XML or HTML.

    Examples:
        >>> named_encoding("Hola".encode("utf-16")), named_encoding(b"Hola")
        ('utf-16', None)
        >>> named_encoding(b'<html><meta charset="latin-1">')
        'cp1252'
    """
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return encoding
    is_markup = head.lstrip().startswith(b"<")
    if not is_markup or not (match := _DECLARED.search(head[:_DECLARED_WITHIN])):
        return None
    try:
        name = codecs.lookup((match[1] or match[2]).decode()).name
        b"a".decode(name)  # "rot13" is none of bytes
    except (LookupError, UnicodeError):
        return None
    # UTF-16 without a mark has no readable name: it is UTF-8.
    return None if name.startswith(("utf-16", "utf-32")) else _MEANT.get(name, name)


def as_utf8(
    pieces: Iterable[bytes], name: Path | str, *, is_quiet: bool = False
) -> Iterator[bytes]:
    """Yields a file's text in UTF-8, without a byte-order mark.

    A file that declares no encoding and looks like Windows-1252 is read as that, with a warning.
    Otherwise, bytes that are not UTF-8 are left to the reader.

    Args:
        pieces: The content, whose first MiB decides.
        name: Of the file, for messages.
        is_quiet: Whether to leave out the warning, because the file will be read again.

    Raises:
        UserError: The file is not in the encoding that it declares.
    """
    pieces = iter(pieces)
    sample: list[bytes] = []
    size = 0
    for piece in pieces:
        sample.append(piece)
        size += len(piece)
        if size >= _SAMPLE:
            break
    head = b"".join(sample)[:_SAMPLE]
    pieces = chain(sample, pieces)
    named = named_encoding(head)
    if (named is None and not _looks_western(head)) or named == "utf-8":
        yield from pieces
        return
    if named is None and not is_quiet:
        logging.warning(
            "%s is not UTF-8, so it is read as Windows-1252 (Latin-1); if letters with accents are "
            "wrong, convert it with `iconv -f ENCODING -t UTF-8`",
            name,
        )
    decoder = codecs.getincrementaldecoder(named or _ASSUMED)("strict" if named else "replace")
    try:
        for piece in pieces:
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise UserError(
            f"{name} must be in {named}, but is not: {error}; convert it with "
            "`iconv -f ENCODING -t UTF-8`"
        ) from error


def _looks_western(sample: bytes) -> bool:
    """Returns True if most lines with other bytes than ASCII are not UTF-8, none has control
    characters, and most of these bytes stand alone, as accents do.
    """
    lines = [line for line in sample.split(b"\n") if not line.isascii()]
    if 2 * sum(map(_is_utf8, lines)) >= len(lines) or re.search(rb"[\x00-\x08\x0e-\x1f]", sample):
        return False
    others = len(re.findall(rb"[\x80-\xff]", sample))
    return 2 * len(_ALONE.findall(sample)) > others


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
