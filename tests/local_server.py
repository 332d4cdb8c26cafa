"""A server on this machine, for fetches: with and without ranges, and with connections that end."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class FileServer(ThreadingHTTPServer):
    """Serves files by name, and notes what was asked for.

    Attributes:
        files: The content of each file.
        asked: The name of each request, with its range.
        has_ranges: False ignores ranges, as some servers do.
        cuts: Of the next answers, how many bytes arrive before the connection ends.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files = dict(files)
        self.asked: list[tuple[str, str]] = []
        self.has_ranges = True
        self.cuts: list[int] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class _Handler(BaseHTTPRequestHandler):
    server: FileServer

    def do_GET(self) -> None:
        name, wanted = self.path.lstrip("/"), self.headers.get("Range") or ""
        self.server.asked.append((name, wanted))
        if name not in self.server.files:
            self.send_error(404)
            return
        content, begin = self.server.files[name], 0
        if self.server.has_ranges and wanted:
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
            if begin >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        rest = content[begin:]
        self.wfile.write(rest[: self.server.cuts.pop(0)] if self.server.cuts else rest)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(files: Mapping[str, bytes]) -> Iterator[FileServer]:
    """Serves files until the block ends."""
    with FileServer(files) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
