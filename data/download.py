"""Fetches files over HTTP: an interrupted fetch goes on, and a checksum proves that it is right."""

import contextlib
import http.client
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from absl import logging

from xling_tf.errors import UserError, one_line
from xling_tf.files import file_digest

_PIECE = 1 << 16  # bytes
_MOST_INTERRUPTIONS = 10  # of one fetch, each after some bytes
_RANGE_NOT_SATISFIABLE = 416
# Not all errors of the system: a disk may be full.
_INTERRUPTIONS = (
    *(urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError),
    http.client.HTTPException,
)
_AGAIN = "the same command continues where it stopped"


def fetch(
    address: str,
    path: Path,
    *,
    sha256: str = "",
    seconds: float = 30.0,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Fetches a file, unless it is there.

    What has arrived is kept beside it as `<name>.part`, and the next call continues it. If the
    server cannot, the file is fetched from its beginning.

    Args:
        address: The file's address.
        path: Where the file goes; its folder is made if it is missing.
        sha256: The checksum in hexadecimal digits, if it is known. A file with another one is
            fetched again, and an unfinished one that ends with another is fetched from the start.
        seconds: The longest wait for an answer, or for the next bytes.
        report: Called with the state, for logs.

    Raises:
        UserError: The file does not arrive (what has arrived is kept), or it has another checksum
            (nothing is kept).
    """
    if path.is_file() and sha256 in ("", file_digest(path, "sha256")):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    if part.exists():
        _complete(address, part, seconds, report)
        if sha256 not in ("", file_digest(part, "sha256")):
            logging.warning("%s was changed while it was fetched, so it is fetched again", address)
            part.unlink()
    if not part.exists():
        _complete(address, part, seconds, report)
    if sha256 and (actual := file_digest(part, "sha256")) != sha256:
        part.unlink()
        raise UserError(
            f"{address} must have the SHA-256 {sha256}, but has {actual}, because it was changed "
            "or damaged on its way; nothing of it was kept, so try again, or fetch it elsewhere"
        )
    os.replace(part, path)


def _complete(address: str, part: Path, seconds: float, report: Callable[[str], None]) -> None:
    """Fetches what a file lacks; goes on after an interruption if bytes have arrived before it."""
    expected = f"{address} must be served to be fetched"
    for _ in range(_MOST_INTERRUPTIONS):
        begun = part.stat().st_size if part.exists() else 0
        try:
            _append(address, part, begun, seconds, report)
            return
        except urllib.error.HTTPError as error:
            raise UserError(
                f"{expected}, but the server answers {error.code} {error.reason}; if it stays so, "
                f"find the file elsewhere and put it at {part.with_name(part.stem)}"
            ) from error
        except _INTERRUPTIONS as error:
            if not part.exists() or part.stat().st_size <= begun:
                raise UserError(
                    f"{expected}, but is not ({one_line(error) or type(error).__name__}); {_AGAIN}"
                ) from error
    raise UserError(f"{expected}, but was interrupted {_MOST_INTERRUPTIONS} times; {_AGAIN}")


def _append(
    address: str, part: Path, begun: int, seconds: float, report: Callable[[str], None]
) -> None:
    request = urllib.request.Request(address)
    if begun:
        request.add_header("Range", f"bytes={begun}-")
    with contextlib.ExitStack() as stack:
        try:
            answer = stack.enter_context(urllib.request.urlopen(request, timeout=seconds))
        except urllib.error.HTTPError as error:
            # The server has nothing after `begun`: the file is complete, or is a shorter one now.
            total = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range") or "")
            if error.code != _RANGE_NOT_SATISFIABLE:
                raise
            error.close()
            if not total or int(total[1]) != begun:
                part.unlink()
                _append(address, part, 0, seconds, report)
            return
        parts = re.match(rf"bytes {begun}-", answer.headers.get("Content-Range") or "")
        file = stack.enter_context(part.open("ab" if begun and parts else "wb"))
        length = answer.headers.get("Content-Length")
        end = file.tell() + int(length) if length else None
        while piece := answer.read(_PIECE):
            file.write(piece)
            report(f"{file.tell() / 1e6:.1f} MB" + (f" of {end / 1e6:.1f}" if end else ""))
        if end is not None and file.tell() < end:
            raise http.client.IncompleteRead(b"", end - file.tell())
