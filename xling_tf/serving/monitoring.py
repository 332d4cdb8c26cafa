"""The server's metrics for Prometheus, and its log."""

import logging

from prometheus_client import Counter, Gauge, Histogram

_LOGGER = logging.getLogger("xling_tf.serving")

# The metrics have TensorFlow Serving's names where it has the same metric, and its buckets of
# microseconds.
_MODEL, _THEIRS, _OURS = ["model_name"], ":tensorflow:serving:", "xling_tf_serving_"
_TIMES = [10 * 1.8**power for power in range(33)]
REQUESTS = Counter(_THEIRS + "request_count", "Requests by HTTP status.", [*_MODEL, "status"])
REQUEST_LATENCY = Histogram(
    _THEIRS + "request_latency", "Time to an answer.", _MODEL, buckets=_TIMES
)
RUNTIME_LATENCY = Histogram(_THEIRS + "runtime_latency", "Time of a call.", _MODEL, buckets=_TIMES)
BATCH_ROWS = Histogram(
    _OURS + "batch_rows", "Rows in a call.", _MODEL, buckets=[2**n for n in range(15)]
)
QUEUED_ROWS = Gauge(_OURS + "queued_rows", "Rows that wait for a call.", _MODEL)
AVAILABLE_VERSION = Gauge(_OURS + "available_version", "The version that is served.", _MODEL)
LOAD_FAILURES = Counter(_OURS + "load_failures", "Failed loads of versions.", _MODEL)
REFUSED = Counter(
    _OURS + "refused", "Connections and requests refused before they were read.", ["reason"]
)
LOST_LINES = Counter(_OURS + "lost_log_lines", "Lines that nobody read in time.")


def log(level: int, event: str, **fields: object) -> None:
    """Logs an event by its name; fields, `record.fields`, must not hold what a client sent,
    except for a request id.
    """
    _LOGGER.log(level, event, extra={"fields": fields})
