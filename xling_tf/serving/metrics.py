"""What is counted and timed, for Prometheus, by TensorFlow Serving's names where it has them."""

import re

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

# Microseconds; tensorflow_serving/servables/tensorflow/util.cc: scale of 10, power of 1.8, 33 buckets.
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
_ROWS = [2**power for power in range(15)]


class Metrics:
    """The metrics of one server, in a registry of their own.

    Example:
        >>> metrics = Metrics()
        >>> metrics.requests.labels("en-es", "OK").inc()
        >>> b':tensorflow:serving:request_count{model_name="en-es",status="OK"} 1.0' in metrics.page()
        True
    """

    def __init__(self) -> None:
        # Prometheus asks for the time of each series' start only in another format.
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self.requests = self._counter(
            ":tensorflow:serving:request_count", "Requests, by canonical code.", "status"
        )
        self.request_latency = self._histogram(
            ":tensorflow:serving:request_latency",
            "Microseconds from a request's last byte to its answer.",
            _MICROSECONDS,
            "API",
            "entrypoint",
        )
        self.runtime_latency = self._histogram(
            ":tensorflow:serving:runtime_latency",
            "Microseconds of a call of the model.",
            _MICROSECONDS,
            "API",
            "runtime",
        )
        # TensorFlow Serving's label is the pool of threads; one pool here serves all models.
        self.queuing_latency = self._histogram(
            ":tensorflow:serving:batching_session:queuing_latency",
            "Microseconds that a batch waited for a thread.",
            _MICROSECONDS,
        )
        self.batch_rows = self._histogram(
            "xling_tf_serving_batch_rows", "Rows of a call of the model.", _ROWS
        )
        self.queued_rows = self._gauge(
            "xling_tf_serving_queued_rows", "Rows that wait for a call of the model."
        )
        self.available_version = self._gauge(
            "xling_tf_serving_available_version", "Largest version that answers."
        )
        self.load_failures = self._counter(
            "xling_tf_serving_load_failures", "Versions that could not be loaded."
        )
        self.load_seconds = self._gauge(
            "xling_tf_serving_load_seconds", "Seconds of the last load, warm-up included."
        )

    def page(self) -> bytes:
        """The metrics in Prometheus' text format.

        TensorFlow Serving's counters lack the `_total` that Prometheus' own client adds.
        """
        return re.sub(
            rb"(:tensorflow:serving:\w+)_total\b", rb"\1", generate_latest(self._registry)
        )

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(name, told, ["model_name", *labels], registry=self._registry)

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(name, told, ["model_name"], registry=self._registry)

    def _histogram(self, name: str, told: str, buckets: list[float], *labels: str) -> Histogram:
        return Histogram(
            name, told, ["model_name", *labels], buckets=buckets, registry=self._registry
        )
