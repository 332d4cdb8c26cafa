"""Models and their versions: found by looking at their folders, loaded, warmed up, replaced, released."""

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

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL
from xling_tf.hub.saved_models import load_saved_model, release_resources
from xling_tf.serving.batching import Lane
from xling_tf.serving.monitoring import Metrics, log
from xling_tf.serving.protocol import MAX_VERSION, ServingError, Target, Tensors

# Below a version's folder: TensorFlow Serving's g3doc/saved_model_warmup.md; up to 1,000 count.
WARMUP_REQUESTS = Path("assets.extra") / "tf_serving_warmup_requests"

# ToHTTPStatusCode of model_servers/http_server.cc, for the codes that a model can end with.
_STATUSES = {1: 499, 3: 400, 4: 504, 5: 404, 6: 409, 7: 403, 8: 429, 9: 400, 10: 409, 11: 400}
_STATUSES |= {12: 501, 14: 503}
# Lines that TensorFlow puts before a message, nodes after it, and paths of this machine.
_REPORT = re.compile(r"Graph execution error:|Detected at node|<stack traces|File |\s*\Z")
_NODES = re.compile(r"\s*\[(?:Op:|\[\{\{node ).*")
_PATH = re.compile(r"(?<![\w.>])/(?:[\w.@+-]+/)*[\w.@+-]+")


@dataclass(frozen=True)
class ModelConfig:
    """A model to serve: an export, or a folder of exports named by their versions.

    Versions with a label stay loaded beside the largest one.
    """

    name: str
    path: Path
    labels: Mapping[str, int] = field(default_factory=dict)


class Servable:
    """A loaded version of a model: its SignatureDefs, and a lane for each that can be called.

    Requests hold it as long as they need it. When the last reference is gone, its memory is given back.
    """

    def __init__(self, name: str, version: int, folder: Path, *, batched: bool = True) -> None:
        self.version = version
        self.created = int((folder / SAVED_MODEL).stat().st_mtime)
        model = load_saved_model(folder)
        graphs = SavedModel.FromString((folder / SAVED_MODEL).read_bytes()).meta_graphs
        (graph,) = (each for each in graphs if tf.saved_model.SERVING in each.meta_info_def.tags)
        self.signatures: Mapping[str, SignatureDef] = dict(graph.signature_def)
        self.lanes = {
            key: Lane(name, partial(_call, function), batched and _is_batchable(graph, key))
            for key, function in model.signatures.items()
        }
        weakref.finalize(self, _release, [model]).atexit = False

    def warm_up(self, folder: Path) -> int:
        """Makes the calls of the version's warm-up requests, or one of each signature; counts them.

        A request that fails is a `UserError` and fails the version, as in TensorFlow Serving.
        """
        path = folder / WARMUP_REQUESTS
        if not path.is_file():
            for name, lane in self.lanes.items():
                with suppress(ServingError):  # That it refuses an empty row is no failure.
                    lane.run(_one_empty_row(self.signatures[name]))
            return len(self.lanes)
        calls = 0
        try:
            for record in tf.data.TFRecordDataset(str(path)).take(1000).as_numpy_iterator():
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
                self.lanes[request.model_spec.signature_name or "serving_default"].run(inputs)
                calls += 1
        except (ServingError, KeyError, tf.errors.OpError) as error:
            raise UserError(f"a warm-up request of {path} failed: {error}; remove it") from error
        return calls


class ServedModel:
    """One model; `poll` follows its folder, everything else answers from what is loaded.

    The largest version is served, as by TensorFlow Serving's policy `latest`, and those with a label beside
    it. A version replaces another once it is loaded and warm; the other one stays until its last request
    is answered (`availability_preserving`). One that cannot be loaded changes nothing until its files do.
    """

    def __init__(self, config: ModelConfig, metrics: Metrics, *, batched: bool = True) -> None:
        self.config = config
        self._metrics = metrics
        self._batched = batched
        # Dictionaries are never changed, only replaced: a request sees all of a switch or nothing.
        self._serving: dict[int, Servable] = {}
        # Of every version that was ever met: its state, and the code and message of an error.
        self.known: dict[int, tuple[str, str, str]] = {}
        # What the files were like when a version was last loaded, or could not be.
        self._tried: dict[int, object] = {}

    def servable(self, target: Target) -> Servable:
        """The version that a request is for."""
        version, serving = self._version(target), self._serving
        wanted = max(serving, default=0) if version is None else version
        if wanted not in serving:
            name = self.config.name
            asked = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise ServingError(f"Servable not found for request: {asked}", 404)
        return serving[wanted]

    def latest(self) -> Servable | None:
        """The largest version that is served."""
        return max(self._serving.values(), key=lambda each: each.version, default=None)

    def states(self, target: Target) -> dict[int, tuple[str, str, str]]:
        """The state of the version that a request is for, or of all."""
        version = self._version(target)
        states = {key: state for key, state in self.known.items() if version in (None, key)}
        if not states:
            asked = "any versions" if version is None else f"version {version}"
            raise ServingError(f"Could not find {asked} of model {self.config.name}", 404)
        return states

    def is_available(self) -> bool:
        """Whether all that should be served is."""
        return bool(self._serving) and self._serving.keys() >= set(self.config.labels.values())

    def poll(self) -> None:
        """Loads what is new and wanted, and unloads what is not wanted any more."""
        found = find_versions(self.config.path)
        if not found:  # So a folder looks while it is replaced.
            return
        if any(state == "UNLOADING" for state, _, _ in self.known.values()):
            gc.collect()  # A request's error and its traceback refer to each other, and to the version.
        labelled = found.keys() & set(self.config.labels.values())
        for version in {max(found), *labelled} - self.known.keys():
            self._set_status(version, "START")
        largest = next((v for v in sorted(found, reverse=True) if self._load(v, found[v])), None)
        kept = {version for version in labelled if self._load(version, found[version])}
        kept |= self._serving.keys() if largest is None else {largest}
        for version in self._serving.keys() - kept:
            self._unload(version)
        if self._serving:
            available = self._metrics.available_version.labels(self.config.name)
            available.set(max(self._serving))

    def _load(self, version: int, folder: Path) -> bool:
        """Whether the version is loaded, which is tried if its files are not those of the last try."""
        files = [(path, path.stat()) for path in sorted(folder.rglob("*"))]
        tried = [(path, each.st_ino, each.st_size, each.st_mtime_ns) for path, each in files]
        if self._tried.get(version) == tried:
            return version in self._serving
        self._tried[version] = tried
        replaced = version in self._serving  # an older export of the same number
        if not replaced:
            self._set_status(version, "LOADING")
        self._log("loading", version)
        started = time.perf_counter()
        try:
            servable = Servable(self.config.name, version, folder, batched=self._batched)
            calls = servable.warm_up(folder)
        except Exception as error:  # Whatever is wrong with a model, the server goes on.
            message = first_line(str(error).replace(str(folder), f"version {version}"))
            self._set_status(version, "AVAILABLE" if replaced else "END", "UNKNOWN", message)
            self._metrics.load_failures.labels(self.config.name).inc()
            self._log("load_failed", version, logging.ERROR, error=message)
            return replaced
        seconds = time.perf_counter() - started
        self._metrics.load_seconds.labels(self.config.name).set(seconds)
        self._serving = {**self._serving, version: servable}
        self._set_status(version, "AVAILABLE")
        self._log("available", version, ms=round(seconds * 1e3), warm_up_calls=calls)
        return True

    def _unload(self, version: int) -> None:
        """Stops serving a version; its memory is given back after its last request."""

        def unloaded() -> None:
            self._set_status(version, "END")
            self._log("unloaded", version)

        self._set_status(version, "UNLOADING")
        weakref.finalize(self._serving[version], unloaded).atexit = False
        self._serving = {key: value for key, value in self._serving.items() if key != version}
        del self._tried[version]

    def _version(self, target: Target) -> int | None:
        if target.label is None:
            # OpenVINO's clients ask for version 0 where they are told none.
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
    """Loads all models; a `UserError` tells of one without a version, or without one that has a label."""
    models = {each.name: ServedModel(each, metrics, batched=batched) for each in configs}
    for name, model in models.items():
        metrics.load_failures.labels(name)  # A counter that is not there cannot be watched.
        model.poll()
        if not model.is_available():
            failures = [f"{version}: {text}" for version, (_, _, text) in model.known.items()]
            wanted = ["1, 2, ...", *(f"{version} too" for version in model.config.labels.values())]
            raise UserError(
                f"--model {name}={model.config.path} is expected to be an exported model, or to have such "
                f"in folders named {', '.join(wanted)}; found: {'; '.join(failures) or 'none'}"
            )
    return models


def follow(models: Mapping[str, ServedModel], poll_seconds: float) -> Event:
    """Looks at the models' folders again and again, in one thread, until the event is set."""
    stopped = Event()

    def run() -> None:
        while not stopped.wait(poll_seconds):
            for name, model in models.items():
                try:
                    model.poll()
                except Exception as error:  # A disk that fails now may answer at the next look.
                    log(logging.ERROR, "poll_failed", model=name, error=str(error))

    Thread(target=run, name="poll", daemon=True).start()
    return stopped


def find_versions(path: Path) -> dict[int, Path]:
    """The versions of a model, an export or a folder of exports named by integers, and their folders."""
    if (path / SAVED_MODEL).is_file():
        return {1: path}
    folders = sorted(path.iterdir()) if path.is_dir() else []
    numbered = {int(each.name): each for each in folders if re.fullmatch("[0-9]{1,19}", each.name)}
    return {key: each for key, each in numbered.items() if key <= MAX_VERSION and each.is_dir()}


def first_line(message: str) -> str:
    """What went wrong, without TensorFlow's report around it and without paths of this machine.

    Example:
        >>> first_line("/models/en-es/3/saved_model.pb; No such file or directory")
        '...; No such file or directory'
    """
    lines = [line for line in message.splitlines() if not _REPORT.match(line)]
    return _PATH.sub("...", _NODES.sub("", lines[0] if lines else ""))[:500]


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


def _is_batchable(graph: MetaGraphDef, name: str) -> bool:
    """Whether a signature takes and gives any number of rows."""
    inputs, outputs = graph.signature_def[name].inputs, graph.signature_def[name].outputs
    shapes = [info.tensor_shape for info in (*inputs.values(), *outputs.values())]
    return bool(inputs) and all(each.dim and each.dim[0].size == -1 for each in shapes)


def _one_empty_row(signature: SignatureDef) -> Tensors:
    arrays = {}
    for name, info in signature.inputs.items():
        shape = [max(dimension.size, 1) for dimension in info.tensor_shape.dim]
        dtype = tf.dtypes.as_dtype(info.dtype)
        fill = b"" if dtype == tf.string else 0
        arrays[name] = np.full(shape, fill, dtype.as_numpy_dtype)
    return arrays
