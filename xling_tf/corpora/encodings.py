"""Text files as UTF-8: by the encoding that a file names itself, else UTF-8, else Windows-1252."""

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
    rb"""<\?xml\s[^>]*?\bencoding\s*=\s*["']([\w.:-]+)|<meta\s[^>]*?\bcharset\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
_DECLARED_WITHIN = 4096  # bytes; HTML asks for the first 1,024
# What pages that name an encoding mostly have, as browsers know (encoding.spec.whatwg.org).
_MEANT = {"ascii": "cp1252", "iso8859-1": "cp1252", "gb2312": "gb18030", "shift_jis": "cp932"}
_ASSUMED = "cp1252"


def named_encoding(head: bytes) -> str | None:
    r"""Returns the encoding that a file names: by its byte-order mark, or as XML and HTML do.

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


def as_utf8(pieces: Iterable[bytes], name: Path | str) -> Iterator[bytes]:
    """Yields a file's text in UTF-8, without a byte-order mark.

    If it names no encoding and most of its first piece's characters beyond
    ASCII are not UTF-8, Windows-1252 is assumed, which a
    warning says. Bytes that are neither are left to the reader.

    Args:
        pieces: The content; the first piece decides.
        name: Of the file, for messages.

    Raises:
        UserError: The file is not in the encoding that it names.
    """
    pieces = iter(pieces)
    head = next(pieces, b"")
    pieces = chain([head], pieces)
    encoding = named_encoding(head) or _encoding_without_name(head, name)
    if encoding is None or encoding == "utf-8":
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for piece in pieces:
            yield decoder.decode(piece).encode()
        yield decoder.decode(b"", final=True).encode()
    except UnicodeError as error:
        raise UserError(
            f"{name} must be in {encoding}, but is not: {error}; convert it with "
            "`iconv -f ENCODING -t UTF-8`"
        ) from error


def _encoding_without_name(head: bytes, name: Path | str) -> str | None:
    """Returns Windows-1252 if most characters beyond ASCII are not UTF-8; else None."""
    # A piece may end within a character, which is none yet.
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(head)
    num_wrong = text.count("\ufffd")
    num_right = sum(not character.isascii() for character in text) - num_wrong
    if num_wrong <= num_right or b"\0" in head:
        return None
    try:
        codecs.getincrementaldecoder(_ASSUMED)().decode(head)
    except UnicodeDecodeError:
        return None
    logging.warning(
        "%s names no encoding and is not UTF-8: Windows-1252 (Latin-1) is assumed; else convert it "
        "with `iconv -f ENCODING -t UTF-8`",
        name,
    )
    return _ASSUMED
