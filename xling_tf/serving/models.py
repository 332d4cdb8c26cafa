"""The versions of the served models: finds them by polling, loads, warms up, replaces and releases them."""

import gc
import logging
import re
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.errors import UserError, as_user_error, first_line
from xling_tf.files import SAVED_MODEL
from xling_tf.savedmodel.saved_models import load_saved_model, release_resources
from xling_tf.serving.batching import SignatureQueue
from xling_tf.serving.monitoring import Metrics, log
from xling_tf.serving.protocol import MAX_VERSION, ServingError, Target, Tensors

# In a version's folder (TensorFlow Serving's g3doc/saved_model_warmup.md); at most 1,000 are used.
WARMUP_REQUESTS = Path("assets.extra") / "tf_serving_warmup_requests"

# ToHTTPStatusCode of model_servers/http_server.cc, for the codes of a model's errors.
_STATUSES = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400}
_STATUSES |= {12: 501, 14: 503}


@dataclass(frozen=True)
class ModelConfig:
    """A model to serve; versions with a label stay loaded beside the largest one."""

    name: str
    path: Path  # of an export, or of a folder of exports named by their versions
    labels: Mapping[str, int] = field(default_factory=dict)


class Servable:
    """A loaded version of a model: its SignatureDefs, and a queue for each signature.

    Requests hold a reference while they need it. Without references, the memory of the version is released.
    """

    def __init__(self, name: str, version: int, folder: Path, *, batched: bool = True) -> None:
        self.version = version
        self.created = int((folder / SAVED_MODEL).stat().st_mtime)
        model = load_saved_model(folder)
        graphs = SavedModel.FromString((folder / SAVED_MODEL).read_bytes()).meta_graphs
        (graph,) = (graph for graph in graphs if tf.saved_model.SERVING in graph.meta_info_def.tags)
        self.signatures: Mapping[str, SignatureDef] = dict(graph.signature_def)
        self.queues = {
            key: SignatureQueue(
                name, partial(_call, function), batched and _is_batchable(self.signatures[key])
            )
            for key, function in model.signatures.items()
        }
        weakref.finalize(self, _release, [model]).atexit = False

    def warm_up(self, folder: Path) -> int:
        """Runs the warm-up requests or, without any, each signature once; returns the number of calls.

        A request that fails raises a `UserError`: as in TensorFlow Serving, the version is then not served.
        """
        path = folder / WARMUP_REQUESTS
        if not path.is_file():
            for name, queue in self.queues.items():
                with suppress(ServingError):  # A signature may reject an empty row.
                    queue.run(_one_empty_row(self.signatures[name]))
            return len(self.queues)
        calls, message = 0, f"a warm-up request of {path} failed: {{error}}; remove it"
        with as_user_error(message, ServingError, KeyError, tf.errors.OpError):
            for record in tf.data.TFRecordDataset(str(path)).take(1000).as_numpy_iterator():
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
                self.queues[request.model_spec.signature_name or "serving_default"].run(inputs)
                calls += 1
        return calls


class ServedModel:
    """A model with its loaded versions; `poll` looks for new ones in its folder.

    The largest version is served (TensorFlow Serving's policy `latest`), and versions with a label. A version
    replaces another once it is loaded and warmed up; the old one stays until its last request is answered
    (`availability_preserving`). A version that cannot be loaded is tried again when its files change.
    """

    def __init__(self, config: ModelConfig, metrics: Metrics, *, batched: bool = True) -> None:
        self.config = config
        self._metrics = metrics
        self._batched = batched
        # These dictionaries are replaced, not changed, so that a request sees all of a switch or nothing.
        self._serving: dict[int, Servable] = {}
        # For every version so far: its state, and the code and message of its error.
        self.known: dict[int, tuple[str, str, str]] = {}
        # For every version, its files at the last attempt to load it.
        self._tried: dict[int, object] = {}

    def servable(self, target: Target) -> Servable:
        """The version that a request asks for; a `ServingError` 404 if it is not loaded."""
        version, serving = self._version(target), self._serving
        wanted = max(serving, default=0) if version is None else version
        if wanted not in serving:
            name = self.config.name
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError(f"Servable not found for request: {request}", 404)
        return serving[wanted]

    def latest(self) -> Servable | None:
        """The largest loaded version."""
        return max(self._serving.values(), key=lambda servable: servable.version, default=None)

    def states(self, target: Target) -> dict[int, tuple[str, str, str]]:
        """The states of the version that a request asks for, or of all versions."""
        version = self._version(target)
        states = {key: state for key, state in self.known.items() if version in (None, key)}
        if not states:
            versions = "any versions" if version is None else f"version {version}"
            raise ServingError(f"Could not find {versions} of model {self.config.name}", 404)
        return states

    def is_available(self) -> bool:
        """True if a version is loaded, and all versions with labels are."""
        return bool(self._serving) and self._serving.keys() >= set(self.config.labels.values())

    def poll(self) -> None:
        """Loads new versions that are wanted, and unloads those that no longer are."""
        folders = find_versions(self.config.path)
        if not folders:  # as while a folder is being replaced
            return
        if any(state == "UNLOADING" for state, _, _ in self.known.values()):
            gc.collect()  # A request's error and its traceback refer to each other, and to the version.
        labelled = folders.keys() & set(self.config.labels.values())
        for version in {max(folders), *labelled} - self.known.keys():
            self._set_status(version, "START")
        largest = next((v for v in sorted(folders, reverse=True) if self._load(v, folders[v])), None)
        wanted = {version for version in labelled if self._load(version, folders[version])}
        wanted |= self._serving.keys() if largest is None else {largest}
        for version in self._serving.keys() - wanted:
            self._unload(version)
        if self._serving:
            self._metrics.available_version.labels(self.config.name).set(max(self._serving))

    def _load(self, version: int, folder: Path) -> bool:
        """Loads a version unless its files are those of the last attempt; returns True if it is served."""
        state = _state_of_files(folder)
        if self._tried.get(version) == state:
            return version in self._serving
        self._tried[version] = state
        replaced = version in self._serving  # an older export of the same number
        if not replaced:
            self._set_status(version, "LOADING")
        self._log("loading", version)
        started = time.perf_counter()
        try:
            servable = Servable(self.config.name, version, folder, batched=self._batched)
            calls = servable.warm_up(folder)
        except Exception as error:  # No model may stop the server.
            message = first_line(str(error).replace(str(folder), f"version {version}"))
            self._set_status(version, "AVAILABLE" if replaced else "END", "UNKNOWN", message)
            self._metrics.load_failures.labels(self.config.name).inc()
            self._log("load_failed", version, logging.ERROR, error=message)
            return replaced
        milliseconds = round((time.perf_counter() - started) * 1e3)
        self._serving = {**self._serving, version: servable}
        self._set_status(version, "AVAILABLE")
        self._log("available", version, ms=milliseconds, warm_up_calls=calls)
        return True

    def _unload(self, version: int) -> None:
        """Stops serving a version; its memory is released after its last request."""

        def unloaded() -> None:
            self._set_status(version, "END")
            self._log("unloaded", version)

        self._set_status(version, "UNLOADING")
        weakref.finalize(self._serving[version], unloaded).atexit = False
        self._serving = {key: value for key, value in self._serving.items() if key != version}
        del self._tried[version]

    def _version(self, target: Target) -> int | None:
        if target.label is None:
            # OpenVINO's clients ask for version 0 if they are given none.
            return None if target.version == 0 and 0 not in self.known else target.version
        if target.label not in self.config.labels:
            raise ServingError(f"Unrecognized servable version label: {target.label}")
        return self.config.labels[target.label]

    def _set_status(self, version: int, state: str, code: str = "OK", text: str = "") -> None:
        self.known = {**self.known, version: (state, code, text)}

    def _log(self, event: str, version: int, level: int = logging.INFO, **fields: object) -> None:
        log(level, event, model=self.config.name, version=version, **fields)


def load_models(
    configs: Sequence[ModelConfig], metrics: Metrics, *, batched: bool = True
) -> dict[str, ServedModel]:
    """Loads models, by name; raises a `UserError` if one cannot load any version, or a labelled one."""
    models = {config.name: ServedModel(config, metrics, batched=batched) for config in configs}
    for name, model in models.items():
        metrics.load_failures.labels(name)  # A counter cannot be watched before it exists.
        model.poll()
        if not model.is_available():
            versions = [f"{v}: {text}" if text else str(v) for v, (_, _, text) in model.known.items()]
            labelled = "".join(f", {version}" for version in model.config.labels.values())
            raise UserError(
                f"--model {name}={model.config.path} must be an exported model, or a folder of models named "
                f"1, 2, ...{labelled}, but has {'; '.join(versions) or 'none'}"
            )
    return models


def follow(models: Mapping[str, ServedModel], poll_seconds: float) -> Event:
    """Polls the models' folders in a thread until the returned event is set."""
    stopped = Event()

    def run() -> None:
        while not stopped.wait(poll_seconds):
            for name, model in models.items():
                try:
                    model.poll()
                except Exception as error:  # A disk that fails now may work at the next poll.
                    log(logging.ERROR, "poll_failed", model=name, error=str(error))

    Thread(target=run, name="poll", daemon=True).start()
    return stopped


def find_versions(path: Path) -> dict[int, Path]:
    """The folders of a model's versions: version 1 for an export, else its subfolders named by integers."""
    if (path / SAVED_MODEL).is_file():
        return {1: path}
    folders = sorted(path.iterdir()) if path.is_dir() else []
    numbered = {int(entry.name): entry for entry in folders if re.fullmatch("[0-9]{1,19}", entry.name)}
    return {key: entry for key, entry in numbered.items() if key <= MAX_VERSION and entry.is_dir()}


def _state_of_files(folder: Path) -> list[tuple[Path, int, int, int]]:
    """Returns what changes with the files in a folder."""
    state = []
    for path in sorted(folder.rglob("*")):
        with suppress(FileNotFoundError):  # a temporary file that is gone, or a link to nothing
            status = path.stat()
            state.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
    return state


def _call(function: Any, inputs: Tensors) -> Tensors:
    try:
        outputs = function(**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}
    except tf.errors.OpError as error:
        status = _STATUSES.get(error.error_code, 500)
        raise ServingError(first_line(error.message), status) from error
    except (TypeError, ValueError) as error:
        raise ServingError(first_line(str(error))) from error


def _release(model: list[Any]) -> None:
    release_resources(model.pop())
    gc.collect()  # A SavedModel's objects refer to each other.


def _is_batchable(signature: SignatureDef) -> bool:
    """True if a signature takes and gives any number of rows."""
    infos = [*signature.inputs.values(), *signature.outputs.values()]
    shapes = [info.tensor_shape for info in infos]
    return bool(signature.inputs) and all(shape.dim and shape.dim[0].size == -1 for shape in shapes)


def _one_empty_row(signature: SignatureDef) -> Tensors:
    arrays = {}
    for name, info in signature.inputs.items():
        shape = [max(dimension.size, 1) for dimension in info.tensor_shape.dim]
        arrays[name] = tf.zeros(shape, info.dtype).numpy()  # zeros of strings are empty
    return arrays
