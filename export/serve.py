"""Serves exported models over HTTP, by the REST protocol of TensorFlow Serving.

    pip install -e '.[serving]'
    python export/serve.py --model en-es=exported/en-es
    curl -d '{"instances": ["Where is the station?"]}' localhost:8501/v1/models/en-es:predict

A model's path is an export, or a folder of exports named 1, 2, ...; the largest is served, and a new
one takes its place without a request being lost.
"""

import os
import re
import socket
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import UserError, one_line_errors, parse_flags, quiet_start
from xling_tf.hub.saved_models import resolve

_MODEL = flags.DEFINE_multi_string("model", [], "name=path of a model; once for each.")
_LABEL = flags.DEFINE_multi_string(
    "label", [], "model/label=version: stays loaded and can be asked for by its label."
)
_HOST = flags.DEFINE_string("host", "127.0.0.1", "Address to listen on; 0.0.0.0 for all.")
_PORT = flags.DEFINE_integer("port", 8501, "Port; 0 for a free one.", 0, 65535)
_POLL = flags.DEFINE_float(
    "file_system_poll_wait_seconds", 1, "Between looks for new versions; 0 for none.", 0
)
_BATCHING = flags.DEFINE_bool(
    "enable_batching", True, "Whether requests that wait at the same time share calls of a model."
)
_MAX_BATCH = flags.DEFINE_integer("max_batch_size", 1000, "Rows of a call of a model.", 1)
_BATCH_TIMEOUT = flags.DEFINE_integer(
    "batch_timeout_micros", 0, "Microseconds that a batch waits for more rows.", 0
)
_MAX_ENQUEUED = flags.DEFINE_integer(
    "max_enqueued_batches",
    10,
    "Batches that may wait; a request that does not fit gets 429, or 413 if it never could.",
    1,
)
_THREADS = flags.DEFINE_integer(
    "num_batch_threads", os.cpu_count() or 1, "Calls of models at the same time.", 1
)
_BODY = flags.DEFINE_integer("max_body_bytes", 32 * 2**20, "Of a request; 413 beyond it.", 1)
_TIMEOUT = flags.DEFINE_integer(
    "rest_api_timeout_in_ms", 30_000, "Milliseconds for an answer; 504 after it.", 1
)
_CLIENT = flags.DEFINE_float(
    "client_seconds", 30, "For a client to send its body (408), and between requests.", 0.1
)
_CONNECTIONS = flags.DEFINE_integer("max_connections", 1000, "At the same time; else 503.", 1)
_DRAIN = flags.DEFINE_float("drain_seconds", 30, "For the requests in flight after SIGTERM or SIGINT.", 0)
_KEY = flags.DEFINE_string(
    "api_key", None, "That clients have to send; default $XLING_TF_API_KEY, and without one all may ask."
)
_ORIGINS = flags.DEFINE_list("cors_origins", [], "Of web pages that may ask; * for all.")
_LOG = flags.DEFINE_enum(
    "log_level", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"], "DEBUG logs each request."
)


def main(argv: list[str]) -> None:
    """Serves what the flags name, until it is told to end."""
    del argv
    with one_line_errors("the same command starts the server again"):
        models, api_key = parse_models(_MODEL.value, _LABEL.value), _api_key()
        listener = _bind()
        with quiet_start():
            from xling_tf.serving.app import Limits, run
            from xling_tf.serving.batching import BatchingParameters
            from xling_tf.serving.models import ModelConfig

        run(
            [ModelConfig(name, path, labels) for name, (path, labels) in models.items()],
            listener,
            BatchingParameters(
                max_batch_size=_MAX_BATCH.value,
                batch_timeout_micros=_BATCH_TIMEOUT.value,
                max_enqueued_batches=_MAX_ENQUEUED.value,
                num_batch_threads=_THREADS.value,
            ),
            Limits(
                body_bytes=_BODY.value,
                request_seconds=_TIMEOUT.value / 1e3,
                client_seconds=_CLIENT.value,
                connections=_CONNECTIONS.value,
            ),
            api_key=api_key,
            origins=_ORIGINS.value,
            enable_batching=_BATCHING.value,
            poll_seconds=_POLL.value,
            drain_seconds=_DRAIN.value,
            log_level=_LOG.value,
        )


def parse_models(models: list[str], labels: list[str]) -> dict[str, tuple[Path, dict[str, int]]]:
    """Reads --model and --label into each model's path and labels, by its name.

    Example:
        >>> parse_models(["en-es=."], ["en-es/stable=3"])
        {'en-es': (PosixPath('.'), {'stable': 3})}
    """
    parsed: dict[str, tuple[Path, dict[str, int]]] = {}
    for given in models:
        match = re.fullmatch(r"([^/:\s=]+)=(.+)", given)
        if not match or match[1] in parsed:
            raise UserError(
                f"--model is expected as name=path, once a name, with no '/', ':' or space, got {given!r}"
            )
        path = Path(os.path.expanduser(match[2]))
        parsed[match[1]] = path if path.is_dir() else resolve(match[2]), {}
    if not parsed:
        raise UserError("--model name=path is expected at least once, got none")
    for given in labels:
        match = re.fullmatch(r"([^/:\s]+)/(.+)=([0-9]{1,18})", given)
        if not match or match[1] not in parsed:
            raise UserError(
                "--label is expected as model/label=version, where --model names the model "
                f"({', '.join(parsed)}), got {given!r}"
            )
        parsed[match[1]][1][match[2]] = int(match[3])
    return parsed


def _api_key() -> str:
    """The key that clients have to send; empty if there is none."""
    given = _KEY.value
    if given is None:  # An empty variable counts as none.
        given = os.environ.get("XLING_TF_API_KEY") or None
    key = (given or "").strip()
    if given is not None and not (key and key.isascii() and key.isprintable()):
        raise UserError(
            "--api_key or $XLING_TF_API_KEY is expected to be printable ASCII, which all clients can send in "
            "a header; leave it out to answer everybody"
        )
    return key


def _bind() -> socket.socket:
    """Takes the address, before TensorFlow is imported."""
    try:
        family = socket.getaddrinfo(_HOST.value, _PORT.value, type=socket.SOCK_STREAM)[0][0]
        # asyncio turns Nagle's algorithm off for sockets that are told to be TCP: else an answer's body waits
        # 40 ms for the client to acknowledge its headers.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_HOST.value, _PORT.value))
    except OSError as error:
        raise UserError(
            f"--host {_HOST.value} and --port {_PORT.value} are expected to be free to listen on, but: "
            f"{error.strerror}; give another --port, or end the program that has it"
        ) from error
    return listener


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
