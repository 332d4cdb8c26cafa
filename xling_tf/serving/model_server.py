"""The models and what is asked of them, without HTTP."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from xling_tf.serving.batches import Tensors
from xling_tf.serving.batching import BatchingParameters, BatchScheduler
from xling_tf.serving.config import ModelConfig
from xling_tf.serving.errors import ServingError
from xling_tf.serving.examples import refuse_examples
from xling_tf.serving.metrics import Metrics
from xling_tf.serving.paths import Target
from xling_tf.serving.predict import format_predict, parse_predict
from xling_tf.serving.repository import ModelRepository
from xling_tf.serving.servable import Servable
from xling_tf.serving.signatures import Signature
from xling_tf.serving.status import format_metadata, format_status


class _Prediction(NamedTuple):
    """A request that waits for its outputs, and how they are answered."""

    outputs: "Future[Tensors]"
    answer: Callable[[Tensors], bytes]


class ModelServer:
    """Answers the protocol's requests from models in the file system.

    Attributes:
        metrics: What it counts and times.
    """

    def __init__(
        self,
        models: Sequence[ModelConfig],
        batching: BatchingParameters,
        *,
        enable_batching: bool = True,
    ) -> None:
        """Makes a server that has loaded nothing yet.

        Args:
            models: What it serves.
            batching: How requests share calls of a model, and how many calls there are at a time.
            enable_batching: Whether they share calls at all.
        """
        self.metrics = Metrics()
        self._repository = ModelRepository(models, self.metrics, batched=enable_batching)
        self._scheduler = BatchScheduler(batching, self.metrics)
        # JSON holds Python's one lock, so more threads than these would only wait for it.
        self._workers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="json")

    def start(self, poll_seconds: float = 1.0) -> None:
        """Loads the models, and follows their files.

        Args:
            poll_seconds: Between two looks at the files; 0 for none.

        Raises:
            UserError: A model cannot be loaded.
        """
        self._repository.start(poll_seconds)

    def stop(self) -> bool:
        """Ends its threads; returns whether no call of a model is left running."""
        self._repository.stop()
        self._workers.shutdown(wait=False, cancel_futures=True)
        return self._scheduler.close()

    def models(self) -> list[str]:
        """The models' names."""
        return self._repository.names()

    def is_available(self) -> bool:
        """Whether every model can answer."""
        return self._repository.is_available()

    def signatures(self, name: str) -> Mapping[str, Signature]:
        """The signatures of the version of a model that is served.

        Raises:
            ServingError: None is.
        """
        servable = self._repository.lease(Target(name, None, None, "metadata"))
        servable.release()
        return servable.signatures

    def status(self, target: Target) -> bytes:
        """The answer to a request for a model's state."""
        return format_status(self._repository.statuses(target))

    def metadata(self, target: Target) -> bytes:
        """The answer to a request for a model's signatures."""
        servable = self._repository.lease(target)
        servable.release()
        return format_metadata(target.model, servable.version, servable.signatures)

    async def predict(self, target: Target, body: bytes) -> bytes:
        """The answer to a request for a model's outputs; cancelling it takes it out of the queue.

        Args:
            target: Which model; of its actions, "classify" and "regress" are refused as they should be.
            body: The request's JSON.

        Raises:
            ServingError: It cannot be answered.
        """
        begun = self._workers.submit(self._begin, target, body)
        try:
            prediction = await asyncio.wrap_future(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(_abandon)
            raise
        outputs = await asyncio.wrap_future(prediction.outputs)
        return await asyncio.wrap_future(self._workers.submit(prediction.answer, outputs))

    def _begin(self, target: Target, body: bytes) -> _Prediction:
        """Reads a request and queues it."""
        leased = _LeasedSignatures(lambda: self._repository.lease(target))
        try:
            if target.action != "predict":
                raise refuse_examples(target.action, body, leased)
            request = parse_predict(body, leased)
            servable = leased.servable
            outputs = self._submit(servable, request.signature_name, request.inputs)
        except BaseException:
            leased.release()
            raise
        outputs.add_done_callback(lambda done: leased.release())
        signature = servable.signatures[request.signature_name]
        return _Prediction(
            outputs, lambda tensors: format_predict(tensors, signature, request.row_form)
        )

    def _submit(self, servable: Servable, signature: str, inputs: Tensors) -> "Future[Tensors]":
        if signature not in servable.lanes:
            raise ServingError.invalid_argument(f"Signature {signature!r} cannot be called")
        _require_shapes(inputs, servable.signatures[signature])
        return self._scheduler.submit(servable.lanes[signature], inputs)


def _require_shapes(inputs: Tensors, signature: Signature) -> None:
    """Refuses what the model would, before it takes a place in the queue from others."""
    for name, values in inputs.items():
        expected = signature.inputs[name].shape
        if expected is None:
            continue
        fits = len(expected) == values.ndim and all(
            size in (-1, given) for size, given in zip(expected, values.shape, strict=True)
        )
        if not fits:
            raise ServingError.invalid_argument(
                f"Input {name} is expected to have shape {list(expected)}, but has "
                f"{list(values.shape)}"
            )


class _LeasedSignatures(Mapping[str, Signature]):
    """The signatures of a version that is looked for when the first of them is.

    The protocol tells of mistakes in a request's JSON before it tells that there is no such model.
    """

    def __init__(self, lease: Callable[[], Servable]) -> None:
        self._lease = lease
        self._servable: Servable | None = None

    @property
    def servable(self) -> Servable:
        """The version, which is leased."""
        if self._servable is None:
            self._servable = self._lease()
        return self._servable

    def release(self) -> None:
        """Ends the lease, if there is one."""
        if self._servable is not None:
            self._servable.release()

    def __getitem__(self, name: str) -> Signature:
        return self.servable.signatures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.servable.signatures)

    def __len__(self) -> int:
        return len(self.servable.signatures)


def _abandon(begun: "Future[_Prediction]") -> None:
    """Cancels what nobody waits for any more."""
    if not begun.cancelled() and begun.exception() is None:
        begun.result().outputs.cancel()
