"""The server's metrics for Prometheus, and its log lines as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

from prometheus_client import Counter, Gauge, Histogram

_LOGGER = logging.getLogger("xling_tf.serving")

# The metrics have TensorFlow Serving's names where it has the same metric, and its buckets of microseconds.
_MODEL, _THEIRS, _OURS = ["model_name"], ":tensorflow:serving:", "xling_tf_serving_"
_TIMES = [10 * 1.8**power for power in range(33)]
REQUESTS = Counter(_THEIRS + "request_count", "Requests by HTTP status.", [*_MODEL, "status"])
REQUEST_LATENCY = Histogram(_THEIRS + "request_latency", "Time to an answer.", _MODEL, buckets=_TIMES)
RUNTIME_LATENCY = Histogram(_THEIRS + "runtime_latency", "Time of a call.", _MODEL, buckets=_TIMES)
BATCH_ROWS = Histogram(_OURS + "batch_rows", "Rows in a call.", _MODEL, buckets=[2**n for n in range(15)])
QUEUED_ROWS = Gauge(_OURS + "queued_rows", "Rows that wait for a call.", _MODEL)
AVAILABLE_VERSION = Gauge(_OURS + "available_version", "The version that is served.", _MODEL)
LOAD_FAILURES = Counter(_OURS + "load_failures", "Failed loads of versions.", _MODEL)


class _JsonFormatter(logging.Formatter):
    """Formats a record as a line of JSON: time, level, event and its fields; for other packages `message`."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()}
        other = {"event": record.name, "message": record.getMessage()}
        return json.dumps(line | getattr(record, "fields", other), ensure_ascii=False)


def log(level: int, event: str, **fields: object) -> None:
    """Logs an event by its name; fields must not hold what a client sent."""
    _LOGGER.log(level, event, extra={"fields": fields})


def start_logging(level: str) -> None:
    """Writes the server's and uvicorn's log lines to standard output."""
    logging.raiseExceptions = False  # A full disk loses lines but stops no request.
    output = logging.StreamHandler(sys.stdout)
    output.setFormatter(_JsonFormatter())
    for logger, minimum in ((_LOGGER, level), (logging.getLogger("uvicorn"), "INFO")):
        logger.handlers = [output]
        logger.setLevel(minimum)
        logger.propagate = False
