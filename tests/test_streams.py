"""Packed files in any state, in bounded memory."""

import bz2
import gzip
import io
import lzma
import re
from collections.abc import Iterator
from functools import partial

import pytest
import zstandard

from xling_tf.pipelines.streams import DamagedFileError, decompressed, split

PACKERS = {
    ".gz": gzip.compress,
    ".bz2": partial(bz2.compress, compresslevel=1),
    ".xz": partial(lzma.compress, preset=0),
    ".zst": zstandard.ZstdCompressor().compress,
}


def unpacked(content: bytes, ending: str) -> tuple[bytes, str]:
    """What can be read of a file, and what was wrong with it."""
    pieces: list[bytes] = []
    try:
        for piece in decompressed(io.BytesIO(content), f"file{ending}"):
            pieces.append(piece)
    except DamagedFileError as error:
        return b"".join(pieces), str(error)
    return b"".join(pieces), ""


def noise(size: int) -> bytes:
    """Text that packs badly, so that packed files have many blocks."""
    return "".join(f"{i * i * 7919 % 999_983:x}\n" for i in range(size // 6)).encode()


@pytest.mark.parametrize("ending", PACKERS)
def test_files_of_several_streams_are_read_to_their_end(ending: str):
    packed = b"".join(map(PACKERS[ending], (b"one\n", b"", b"two\n", noise(50_000))))
    assert unpacked(packed, ending) == (b"one\ntwo\n" + noise(50_000), "")


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_zeros_may_pad_a_file(ending: str):
    assert unpacked(PACKERS[ending](b"one\n") + bytes(9000), ending) == (b"one\n", "")


@pytest.mark.parametrize("ending", PACKERS)
def test_of_a_truncated_file_the_begin_is_kept(ending: str):
    text = noise(900_000)
    content, fault = unpacked(PACKERS[ending](text)[:-100], ending)
    assert fault == f"truncated {ending}"
    assert text.startswith(content)
    assert len(content) > 300_000


@pytest.mark.parametrize("ending", PACKERS)
def test_of_a_corrupt_file_the_begin_is_kept(ending: str):
    text = noise(900_000)
    packed = bytearray(PACKERS[ending](text))
    packed[-20_000:] = b"\x55" * 20_000
    content, fault = unpacked(bytes(packed), ending)
    assert re.match(rf"(corrupt|truncated) \{ending}", fault)
    assert text[:300_000] == content[:300_000]


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("content", [b"", b"this is no packed file", bytes(5000)])
def test_what_is_no_packed_file_is_damaged(ending: str, content: bytes):
    read, fault = unpacked(content, ending)
    assert read == b""
    assert fault


def test_windows_as_large_as_those_of_reddits_dumps_are_read():
    # Without a promise of the size, a frame demands the whole window; 2**28 is over zstd's limit.
    parameters = zstandard.ZstdCompressionParameters(window_log=28, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert unpacked(packer.compress(b"one\n") + packer.flush(), ".zst") == (b"one\n", "")


@pytest.mark.parametrize("ending", PACKERS)
def test_what_unpacks_to_far_more_comes_in_small_pieces(ending: str):
    largest = 1 << (26 if ending == ".zst" else 24)
    packed = PACKERS[ending](bytes(3 * largest // 2))
    sizes = [len(piece) for piece in decompressed(io.BytesIO(packed), f"bomb{ending}")]
    assert sum(sizes) == 3 * largest // 2
    assert max(sizes) <= largest


def test_records_are_split_wherever_the_pieces_end():
    text = b"one</p>two</p>three"
    for size in range(1, len(text)):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert list(split(pieces, b"</p>", 99)) == [b"one", b"two", b"three"]


def test_a_record_without_end_takes_no_memory():
    def endless() -> Iterator[bytes]:
        yield b"short\n"
        for _ in range(2000):
            yield b"x" * 50_000
        yield b"\nshort\n"

    # 100 MB of one line.
    assert list(split(endless(), b"\n", 1 << 20)) == [b"short", None, b"short"]
