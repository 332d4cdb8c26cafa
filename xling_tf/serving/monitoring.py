"""The server's metrics for Prometheus, and its log lines as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime

from prometheus_client import Counter, Gauge, Histogram

_LOGGER = logging.getLogger("xling_tf.serving")
_MICROSECONDS = [10 * 1.8**power for power in range(33)]  # TensorFlow Serving's buckets
_ROWS = [2**power for power in range(15)]

# The metrics have TensorFlow Serving's names where it has the same metric.
_MODEL, _THEIRS, _OURS = ["model_name"], ":tensorflow:serving:", "xling_tf_serving_"
REQUESTS = Counter(_THEIRS + "request_count", "Requests by HTTP status.", [*_MODEL, "status"])
REQUEST_LATENCY = Histogram(
    _THEIRS + "request_latency", "Microseconds from a request to its answer.", _MODEL, buckets=_MICROSECONDS
)
RUNTIME_LATENCY = Histogram(
    _THEIRS + "runtime_latency", "Microseconds of a call of the model.", _MODEL, buckets=_MICROSECONDS
)
BATCH_ROWS = Histogram(_OURS + "batch_rows", "Rows in a call.", _MODEL, buckets=_ROWS)
QUEUED_ROWS = Gauge(_OURS + "queued_rows", "Rows that wait for a call.", _MODEL)
AVAILABLE_VERSION = Gauge(_OURS + "available_version", "The version that is served.", _MODEL)
LOAD_FAILURES = Counter(_OURS + "load_failures", "Failed loads of versions.", _MODEL)


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: time, level, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        """Formats a record; lines of other packages have their text in `message`."""
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
    output.setFormatter(JsonFormatter())
    for logger, minimum in ((_LOGGER, level), (logging.getLogger("uvicorn"), "INFO")):
        logger.handlers = [output]
        logger.setLevel(minimum)
        logger.propagate = False
