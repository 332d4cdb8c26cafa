"""The server's metrics for Prometheus, and its log lines as JSON."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

import prometheus_client as prometheus

_LOGGER = logging.getLogger("xling_tf.serving")
# tensorflow_serving/servables/tensorflow/util.cc: scale of 10, power of 1.8, 33 buckets.
_MICROSECONDS = [10 * 1.8**power for power in range(33)]


class Metrics:
    """The metrics of one server, with TensorFlow Serving's names where it has the same metric."""

    def __init__(self) -> None:
        prometheus.disable_created_metrics()  # TensorFlow Serving has no times of creation.
        self._registry = prometheus.CollectorRegistry()

        def make(kind: Any, name: str, text: str, *labels: str, **more: Any) -> Any:
            return kind(name, text, ["model_name", *labels], registry=self._registry, **more)

        def latency(name: str, text: str, *labels: str) -> prometheus.Histogram:
            name = f":tensorflow:serving:{name}"
            return make(prometheus.Histogram, name, f"Microseconds {text}.", *labels, buckets=_MICROSECONDS)

        counter, gauge = prometheus.Counter, prometheus.Gauge
        name, rows = "xling_tf_serving_", [2**power for power in range(15)]
        self.requests = make(counter, ":tensorflow:serving:request_count", "Requests by code.", "status")
        self.request_latency = latency(
            "request_latency", "from a request's last byte to its answer", "API", "entrypoint"
        )
        self.runtime_latency = latency("runtime_latency", "of a call of the model", "API", "runtime")
        self.queuing_latency = latency(
            "batching_session:queuing_latency", "for which a batch waited for a thread"
        )
        self.batch_rows = make(prometheus.Histogram, name + "batch_rows", "Rows in a call.", buckets=rows)
        self.queued_rows = make(gauge, name + "queued_rows", "Rows waiting for a call.")
        self.available_version = make(gauge, name + "available_version", "Largest version that is served.")
        self.load_failures = make(counter, name + "load_failures", "Failed loads of versions.")

    def page(self) -> bytes:
        """The metrics in Prometheus' text format, without `_total` in TensorFlow Serving's names."""
        page = prometheus.generate_latest(self._registry)
        return re.sub(rb"(:tensorflow:serving:\w+)_total\b", rb"\1", page)


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
