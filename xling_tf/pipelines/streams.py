"""Compressed files of any size and state as a bounded stream of records of bytes."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import IO, Any

import zstandard

from xling_tf.corpora.line_files import split_blocks

_PLAIN_PIECE = 1 << 16
# zstd cannot be told how much to unpack at once, but it makes at most 32,768 bytes of one: 64 MiB.
_COMPRESSED_PIECE = 1 << 11
_UNPACKED_PIECE = 1 << 24  # of bz2 and lzma, which make a million bytes of one
_XZ_MEMORY = 1 << 30  # bytes of its dictionary; `xz -9` makes one of 65 million
_ZSTD_WINDOW = 1 << 31  # Reddit's dumps are packed with `zstd --long=31`
# Decompressors raise OSError (bz2) as the disk does, so they are told apart by where they are called.
_DAMAGE = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)


class DamagedFileError(Exception):
    """Raised where a file cannot be read on; its text says what is wrong."""


def _zstd_decompressor() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(wbits=31),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY),
    ".zst": _zstd_decompressor,
}


def decompressed(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yields what a file holds, piece by piece.

    Args:
        file: The file's bytes as they are on disk.
        name: Its name; .gz, .bz2, .xz and .zst are unpacked, of any number of streams or frames.

    Raises:
        DamagedFileError: The compressed stream ends too early or is corrupt; all before that
            place was yielded.
    """
    endings = [ending for ending in _DECOMPRESSORS if name.endswith(ending)]
    if not endings:
        yield from iter(lambda: file.read(_PLAIN_PIECE), b"")
        return
    (ending,) = endings
    decompressor = None
    is_whole = False
    for piece in iter(lambda: file.read(_COMPRESSED_PIECE), b""):
        # Zeros may pad a gzip or xz file, and begin none.
        while piece := piece if decompressor else piece.lstrip(b"\0"):
            try:
                decompressor = decompressor or _DECOMPRESSORS[ending]()
                yield from _unpacked(decompressor, piece)
            except _DAMAGE as error:
                raise DamagedFileError(f"corrupt {ending} ({error})") from error
            is_whole = decompressor.eof
            piece = decompressor.unused_data if is_whole else b""
            if is_whole:
                decompressor = None
    if not is_whole:
        raise DamagedFileError(f"truncated {ending}")


def _unpacked(decompressor: Any, piece: bytes) -> Iterator[bytes]:
    if not hasattr(decompressor, "needs_input"):
        yield decompressor.decompress(piece)
        return
    yield decompressor.decompress(piece, _UNPACKED_PIECE)
    while not (decompressor.needs_input or decompressor.eof):
        yield decompressor.decompress(b"", _UNPACKED_PIECE)


def split(pieces: Iterable[bytes], separator: bytes, limit: int) -> Iterator[bytes | None]:
    r"""Yields the records between separators one by one, as `split_blocks` has them.

    Example:
        >>> list(split([b"one\ntw", b"o\nthree and more\n"], b"\n", 5))
        [b'one', b'two', None]
    """
    return chain.from_iterable(split_blocks(pieces, separator, limit))
