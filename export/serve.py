"""Serves exported models over HTTP, by the REST protocol of TensorFlow Serving.

    pip install -e '.[serving]'
    python export/serve.py --model en-es=exported/en-es
    curl -d '{"instances": ["Where is the station?"]}' localhost:8501/v1/models/en-es:predict

A model's path is an export, or a folder of exports named 1, 2, ...; the largest is served, and a new
one takes its place without a request being lost. The README of this folder has the rest.
"""

import os
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import one_line_errors, parse_flags, quiet_start
from xling_tf.serving.config import Limits, parse_models
from xling_tf.serving.listening import bind

_MODEL = flags.DEFINE_multi_string("model", [], "name=path of a model; once for each.")
_LABEL = flags.DEFINE_multi_string(
    "label",
    [],
    "model/label=version: a version that stays loaded and can be asked for by its label.",
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
    "max_enqueued_batches", 10, "Batches that wait; what is beyond is answered with 429.", 1
)
_THREADS = flags.DEFINE_integer(
    "num_batch_threads", os.cpu_count() or 1, "Calls of models at the same time.", 1
)
_BODY = flags.DEFINE_integer("max_body_bytes", Limits.body_bytes, "Of a request.", 1)
_TIMEOUT = flags.DEFINE_integer(
    "rest_api_timeout_in_ms", 30_000, "Milliseconds for an answer; 504 after it.", 1
)
_CLIENT = flags.DEFINE_float(
    "client_seconds",
    Limits.client_seconds,
    "For a client to send its headers, its body, to read its answer, and between requests.",
    0.1,
)
_CONNECTIONS = flags.DEFINE_integer("max_connections", Limits.connections, "At the same time.", 1)
_DRAIN = flags.DEFINE_float(
    "drain_seconds", 30, "For the requests in flight after SIGTERM or SIGINT.", 0
)
_LOG = flags.DEFINE_enum(
    "log_level", "INFO", ["DEBUG", "INFO", "WARNING", "ERROR"], "DEBUG logs each request."
)


def main(argv: list[str]) -> None:
    """Serves what the flags name, until it is told to end."""
    del argv
    with one_line_errors("the same command starts the server again"):
        models = parse_models(_MODEL.value, _LABEL.value)
        listener = bind(_HOST.value, _PORT.value)
        with quiet_start():
            from xling_tf.serving.batching import BatchingParameters
            from xling_tf.serving.model_server import ModelServer
            from xling_tf.serving.running import run

        batching = BatchingParameters(
            max_batch_size=_MAX_BATCH.value,
            batch_timeout_micros=_BATCH_TIMEOUT.value,
            max_enqueued_batches=_MAX_ENQUEUED.value,
            num_batch_threads=_THREADS.value,
        )
        limits = Limits(
            body_bytes=_BODY.value,
            request_seconds=_TIMEOUT.value / 1e3,
            client_seconds=_CLIENT.value,
            connections=_CONNECTIONS.value,
        )
        run(
            ModelServer(models, batching, enable_batching=_BATCHING.value),
            listener,
            limits,
            poll_seconds=_POLL.value,
            drain_seconds=_DRAIN.value,
            log_level=_LOG.value,
        )


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
