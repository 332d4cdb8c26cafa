"""Serves exported models over HTTP.

The server speaks the REST protocols of TensorFlow Serving, OpenAI and TEI.

    pip install -e '.[serving]'
    xling-tf serve --model exported/en-es
    curl -d '{"instances": ["Where is the station?"]}' localhost:8501/v1/models/en-es:predict

The path of a model is an export, or a folder of exports named 1, 2, ... The server uses the largest
number, and switches to a new one without losing a request.
"""

import json
import logging
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.client.batches import available_cpus
from xling_tf.errors import UserError, as_user_error
from xling_tf.models import IN_THE_BOX
from xling_tf.program import quiet_start, report_default_model, run
from xling_tf.savedmodel.saved_models import find_model, model_name

_MODEL = flags.DEFINE_multi_string(
    "model",
    [IN_THE_BOX],
    "The exported model; name=model serves it under another name than its folder's. Repeatable.",
)
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
_PORT = flags.DEFINE_integer("port", 8501, "Port; 0 chooses a free one.", 0, 65535)
_POLL = flags.DEFINE_float(
    "file_system_poll_wait_seconds",
    1,
    "Seconds between checks for new versions; 0 turns them off.",
    0,
)
# The fields of TensorFlow Serving's BatchingParameters.
_PARAMETERS = ("max_batch_size", "max_enqueued_batches", "num_batch_threads")
flags.DEFINE_integer("max_batch_size", 1000, "Maximum number of rows in a call of a model.", 1)
flags.DEFINE_integer(
    "max_enqueued_batches", 10, "Maximum number of waiting batches; more get 429.", 1
)
flags.DEFINE_integer(
    "num_batch_threads", available_cpus(), "Number of calls of models at the same time.", 1
)
_BODY = flags.DEFINE_integer(
    "max_body_bytes", 32 * 2**20, "Maximum bytes of a request; larger ones get 413.", 1
)
_TIMEOUT = flags.DEFINE_integer(
    "rest_api_timeout_in_ms", 30_000, "Milliseconds until a request gets 504.", 1
)
_CONNECTIONS = flags.DEFINE_integer(
    "max_connections", 1000, "Maximum connections at the same time; more get 503.", 1
)
_DRAIN = flags.DEFINE_float(
    "drain_seconds", 30, "Seconds that requests in flight may take after SIGTERM or SIGINT.", 0
)
_SLOW = flags.DEFINE_float("slow_seconds", 1, "Requests that take longer get a line in the log.", 0)
_KEY = flags.DEFINE_string(
    "api_key", None, "Key that requests need; default: $XLING_TF_API_KEY, or no key."
)
_ORIGINS = flags.DEFINE_list(
    "cors_origins", [], "Origins of web pages that may send requests; * for all."
)
_LOG = flags.DEFINE_enum(
    "log_level", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"], "DEBUG logs requests."
)


def main() -> None:
    """Serves the models that the flags name, until SIGTERM or SIGINT."""
    signal.signal(signal.SIGTERM, _stop_early)
    report_default_model(flags.FLAGS["model"])
    models, api_key = parse_models(_MODEL.value), _api_key()
    listener = _bind()
    with quiet_start():
        from xling_tf.serving.app import ServerConfig, serve
        from xling_tf.serving.batching import BatchingParameters

    _start_logging(_LOG.value)
    serve(
        models,
        listener,
        BatchingParameters(**{name: getattr(flags.FLAGS, name) for name in _PARAMETERS}),
        ServerConfig(
            api_key=api_key,
            origins=_ORIGINS.value,
            body_bytes=_BODY.value,
            request_seconds=_TIMEOUT.value / 1e3,
            connections=_CONNECTIONS.value,
            poll_seconds=_POLL.value,
            drain_seconds=_DRAIN.value,
            slow_seconds=_SLOW.value,
        ),
    )


def parse_models(models: list[str]) -> dict[str, Path]:
    """Parses --model: the path of each model, by its name.

    Examples:
        >>> parse_models(["english=.", "xling_tf"])
        {'english': PosixPath('.'), 'xling_tf': PosixPath('xling_tf')}
    """
    parsed: dict[str, Path] = {}
    for flag in models:
        given, model = re.findall(r"^(?:([^/:\s=]+)=)?(.*)", flag)[0]
        name = given or model_name(model)
        if re.search(r"[/:\s=]", name) or name in parsed:
            raise UserError(
                f"--model must be name=model, each once, without /, : or spaces, got {flag!r}"
            )
        path = Path(os.path.expanduser(model))
        parsed[name] = path if path.is_dir() else find_model(model)
    return parsed


def _api_key() -> str:
    """The key that requests must have; empty if there is none."""
    key = (
        os.environ.get("XLING_TF_API_KEY", "").strip() if _KEY.value is None else _KEY.value.strip()
    )
    if not (key.isascii() and key.isprintable()) or (_KEY.value is not None and not key):
        raise UserError("--api_key or $XLING_TF_API_KEY must be printable ASCII")
    return key


class _JsonFormatter(logging.Formatter):
    """A record as a JSON line: time, level, event and its fields; `message` for other packages."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
        other = {"event": record.name, "message": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", other), ensure_ascii=False)


class _Background(logging.Handler):
    """Writes lines in a thread; if their reader hangs, lines are dropped and counted."""

    def __init__(self, file: int, lines: int = 10_000) -> None:
        super().__init__()
        self._file = file
        self._lines: queue.Queue[bytes | None] = queue.Queue(lines)
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(f"{self.format(record)}\n".encode(errors="replace"))
        except queue.Full:
            from xling_tf.serving.monitoring import LOST_LINES

            LOST_LINES.inc()

    def close(self) -> None:
        """Waits for the last lines, but not for a reader that hangs."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=1)
            self._thread.join(2)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            with suppress(OSError):  # A full disk loses lines but stops no request.
                # Not by sys.stdout, whose lock would be held when Python ends.
                while line:
                    line = line[os.write(self._file, line) :]


class _OnceAMinute(logging.Filter):
    """Passes each message of other packages once a minute: faults may repeat thousands of times."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        now, message = time.monotonic(), (record.name, str(record.msg)[:60])
        if now - self._passed.get(message, -60) < 60:
            return False
        self._passed = {k: at for k, at in self._passed.items() if now - at < 60} | {message: now}
        return True


def _start_logging(level: str) -> None:
    """Writes the server's, uvicorn's and asyncio's log lines to standard output."""
    output = _Background(sys.stdout.fileno())
    output.setFormatter(_JsonFormatter())
    for name, minimum in (
        ("xling_tf.serving", level),
        ("uvicorn", "WARNING"),
        ("asyncio", "ERROR"),
    ):
        logger = logging.getLogger(name)
        logger.handlers = [output]
        logger.setLevel(minimum)
        logger.propagate = False
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(_OnceAMinute())


def _stop_early(number: int, frame: object) -> None:
    """Ends the process while models load: a container's process 1 would ignore the signal."""
    logging.shutdown()
    os._exit(0)


def _bind() -> socket.socket:
    """Binds the address before TensorFlow is imported, which takes seconds."""
    address = f"--host {_HOST.value} --port {_PORT.value}"
    message = f"cannot listen on {address}: {{error}}; give another --host or --port"
    with as_user_error(message, OSError, UnicodeError):  # the latter for "a..b"
        family = socket.getaddrinfo(_HOST.value, _PORT.value, type=socket.SOCK_STREAM)[0][0]
        # With IPPROTO_TCP, asyncio turns Nagle's algorithm off; else an answer's body would wait 40
        # ms until the client acknowledges its headers.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST.value, _PORT.value))
    return listener


if __name__ == "__main__":
    run(main, "the same command starts the server again", extra="serving")
