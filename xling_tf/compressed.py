"""Reads compressed files as a stream, in bounded memory."""

import bz2
import itertools
import lzma
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from xling_tf.errors import UserError, library

_PIECE = 1 << 16  # bytes read at once
_PACKED_PIECE = 1 << 10  # bytes decompressed at once; the worst zstd bomb makes 32 MiB of them


def _zstd() -> Any:
    zstandard = library("zstandard", "zstandard, for .zst files,", "bulk")
    # Reddit's dumps are compressed with windows of 2 GiB.
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


# Decompressors by the ending of a file's name, and the endings by a file's first bytes.
_UNPACKERS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".lzma": lzma.LZMADecompressor,
    ".zst": _zstd,
    ".zstd": _zstd,
    ".deflate": zlib.decompressobj,
}
# These endings, or none, as a regular expression.
PACKED = rf"(?i:{'|'.join(map(re.escape, _UNPACKERS))})?"
_FIRST_BYTES = {
    b"\x1f\x8b": ".gz",
    b"BZh": ".bz2",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
}
_BZIP2_BLOCK = b"1AY&SY"  # follows "BZh" and a digit; without it, the file may be text
# The first bytes of unsupported formats: zip, 7z, rar, compress and lz4; tar has "ustar" at `_TAR`.
_UNSUPPORTED = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!\x1a", b"\x1f\x9d", b"\x04\x22\x4d\x18")
_TAR = slice(257, 262)
_WHEN_COMPLETE = "start again when nothing writes to it"


def compression_of(name: Path | str, head: bytes) -> str | None:
    """Detects how a file is compressed, by its first 512 bytes or else by its name.

    Returns:
        An ending such as ".gz", or None for a plain file.

    Raises:
        UserError: The file is an archive, or compressed in an unsupported format.

    Examples:
        >>> compression_of("table.tsv", b"hello"), compression_of("table.tsv.XZ", b"")
        (None, '.xz')
    """
    if head.startswith(_UNSUPPORTED) or head[_TAR] == b"ustar":
        raise UserError(
            f"{name} must be plain or compressed ({', '.join(_UNPACKERS)}); unpack it first"
        )
    for first, ending in _FIRST_BYTES.items():
        if head.startswith(first) and (ending != ".bz2" or head[4:10] == _BZIP2_BLOCK):
            return ending
    return next((ending for ending in _UNPACKERS if str(name).lower().endswith(ending)), None)


def unpacked(file: BinaryIO, name: Path | str) -> Iterator[bytes]:
    """Yields the content of a file piece by piece, decompressed, without a byte order mark.

    Yields:
        Pieces of about 64 KiB; larger by up to 32 MiB if a kilobyte decompresses to that much.

    Raises:
        UserError: The file is an archive, damaged, cut off, compressed twice or followed by other
            bytes, or it was changed while it was read: a mix of two contents would be neither.
    """
    before = _state(file)
    head = file.read(_PIECE)
    pieces: Iterator[bytes] = iter(partial(file.read, _PIECE), b"")
    if ending := compression_of(name, head):
        pieces = _unpack(itertools.chain([head], pieces), ending, name)
        head = next(pieces, b"")
        if compression_of(f"{name} (unpacked)", head):
            raise UserError(
                f"{name} must be text, compressed once, but is compressed twice; decompress it"
            )
    yield head.removeprefix(b"\xef\xbb\xbf")
    yield from pieces
    if _state(file) != before:
        raise UserError(
            f"{name} must stay the same while it is read, but was changed; {_WHEN_COMPLETE}"
        )


def decompressed(path: Path) -> Iterator[bytes]:
    """Yields the content of a plain or compressed file piece by piece, also that of an archive."""
    with path.open("rb") as file:
        pieces = iter(partial(file.read, _PIECE), b"")
        head = next(pieces, b"")
        ending = next((ending for f, ending in _FIRST_BYTES.items() if head.startswith(f)), None)
        pieces = itertools.chain([head], pieces)
        yield from _unpack(pieces, ending, path) if ending else pieces


def _state(file: BinaryIO) -> tuple[int, int] | None:
    """Returns the size and the time of the last change of a local file; None for other streams."""
    try:
        state = os.fstat(file.fileno())
    except (AttributeError, OSError):
        return None
    return (state.st_size, state.st_mtime_ns) if stat.S_ISREG(state.st_mode) else None


def _unpack(pieces: Iterable[bytes], ending: str, name: Path | str) -> Iterator[bytes]:
    unpacker, pending = _UNPACKERS[ending](), bytearray()
    for piece in pieces:
        for begin in range(0, len(piece), _PACKED_PIECE):
            rest = piece[begin : begin + _PACKED_PIECE]
            while rest:
                if unpacker.eof:
                    # Another compressed stream may follow, perhaps after zeros.
                    rest = rest.lstrip(b"\0")
                    if not rest:
                        break
                    unpacker = _UNPACKERS[ending]()
                try:
                    pending += unpacker.decompress(rest)
                # zstandard raises plain Exceptions, bzip2 OSErrors.
                except Exception as error:
                    raise _damaged(name, ending, f"it is damaged: {error}") from error
                rest = unpacker.unused_data
            if len(pending) >= _PIECE:
                yield bytes(pending)
                pending.clear()
    if not unpacker.eof:
        raise _damaged(name, ending, "it ends too early")
    if pending:
        yield bytes(pending)


def _damaged(name: Path | str, ending: str, reason: str) -> UserError:
    return UserError(
        f"{name} must be a whole {ending} file, but {reason}; download it again, or remove "
        f"{ending} from its name if it is not compressed"
    )
