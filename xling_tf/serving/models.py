"""Served models' versions: finds them by polling, loads, warms up, replaces, releases them."""

import gc
import logging
import re
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef, TensorInfo
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.match import as_lines
from xling_tf.client.runtimes import open_folder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.errors import UserError, as_user_error, first_line
from xling_tf.files import SAVED_MODEL, read_json_dict
from xling_tf.savedmodel.saved_models import load_saved_model, read_info, release_resources
from xling_tf.serving.batching import SignatureQueue
from xling_tf.serving.monitoring import AVAILABLE_VERSION, LOAD_FAILURES, log
from xling_tf.serving.protocol import ServingError, Tensors, is_callable, sample_request, to_inputs

# In a version's folder (TensorFlow Serving's g3doc/saved_model_warmup.md); at most 1,000 are used.
WARMUP_REQUESTS = Path("assets.extra") / "tf_serving_warmup_requests"

# ToHTTPStatusCode of model_servers/http_server.cc for the codes of a model's errors; the others
# have status 500.
_STATUSES = {3: 400, 4: 504, 5: 404, 8: 429, 9: 400, 11: 400, 12: 501, 14: 503}


class Servable:
    """A loaded version of a model: its SignatureDefs, and a queue for each signature.

    Requests hold a reference while they need it. Without references, the memory of the version is
    released.
    """

    def __init__(self, name: str, version: int, folder: Path) -> None:
        self.version = version
        self.signatures: Mapping[str, SignatureDef]
        if (folder / RUNTIME_SETTINGS).is_file():
            self._open_runtime(name, folder)
        else:
            self._open_saved_model(name, folder)

    def _open_runtime(self, name: str, folder: Path) -> None:
        """Opens a model for NumPy, ONNX Runtime or LiteRT, such as the one in the box."""
        backend = open_folder(folder)
        client = SentenceEncoder(backend)
        self.created = int((folder / RUNTIME_SETTINGS).stat().st_mtime)
        self.languages: Any = backend.settings.get("languages", [])
        self.match = as_lines(backend.settings.get("match"))
        self.max_tokens: int | None = backend.settings["text"].get("max_tokens")
        functions = {"serving_default": client.encode}
        if client.prompts:
            functions |= {
                "question_encoder": client.encode_query,
                "response_encoder": client.encode_document,
            }
        self.signatures = {key: _signature(key, backend.dim) for key in functions}
        self.queues = {
            key: SignatureQueue(name, partial(_encode, function), batched=True)
            for key, function in functions.items()
        }

    def _open_saved_model(self, name: str, folder: Path) -> None:
        self.created = int((folder / SAVED_MODEL).stat().st_mtime)
        info = read_info(folder)
        self.languages = info.get("languages", [])
        self.match = as_lines(info.get("match"))
        self.max_tokens = _max_tokens(folder)
        model = load_saved_model(folder)
        graphs = SavedModel.FromString((folder / SAVED_MODEL).read_bytes()).meta_graphs
        (graph,) = (graph for graph in graphs if tf.saved_model.SERVING in graph.meta_info_def.tags)
        self.signatures = dict(graph.signature_def)
        self.queues = {
            key: SignatureQueue(name, partial(_call, function), _is_batchable(self.signatures[key]))
            for key, function in model.signatures.items()
            if is_callable(self.signatures[key])
        }
        weakref.finalize(self, _release, [model]).atexit = False
        if not self.queues:
            raise UserError(f"{folder} has no signature whose inputs are all texts or numbers")

    def warm_up(self, folder: Path) -> None:
        """Runs the warm-up requests or, without any, each signature once.

        A request that fails raises a `UserError`: as in TensorFlow Serving, the version is then not
        served.
        """
        path = folder / WARMUP_REQUESTS
        if not path.is_file():
            for name, queue in self.queues.items():
                signature = self.signatures[name]
                with suppress(ServingError):  # A signature may reject the text, or zeros.
                    queue.run(to_inputs(sample_request(name, signature), signature.inputs)[0])
            return
        message = f"a warm-up request of {path} failed: {{error}}; remove it"
        with as_user_error(message, ServingError, KeyError, tf.errors.OpError):
            for record in tf.data.TFRecordDataset(str(path)).take(1000).as_numpy_iterator():
                request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
                inputs = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
                self.queues[request.model_spec.signature_name or "serving_default"].run(inputs)


class ServedModel:
    """A model and its version that is served; `poll` looks for another one in its folder.

    The largest version is served (TensorFlow Serving's policy `latest`). A version replaces another
    once it is loaded and warmed up; the old one stays until its last request is answered. A version
    that cannot be loaded is tried again when its files change.
    """

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path  # of an export, or of a folder of exports named by their versions
        self.current: Servable | None = None
        # For every version: its state, and its error's code and message; replaced, not changed.
        self.states: dict[int, tuple[str, str, str]] = {}
        # For every version, its files at the last attempt to load it.
        self._tried: dict[int, object] = {}

    def servable(self, version: str | None = None) -> Servable:
        """The served version; a `ServingError` 404 if a request asks for another one."""
        current = self.current
        # OpenVINO's clients ask for version 0 if they are given none.
        if current is None or version not in (None, "0", str(current.version)):
            raise ServingError(
                f"version {version or 'latest'} of model {self.name} is not served", 404
            )
        return current

    def states_of(self, version: str | None = None) -> dict[int, tuple[str, str, str]]:
        """The states of the version that a request asks for, or of all versions."""
        states = {v: state for v, state in self.states.items() if version in (None, "0", str(v))}
        if not states:
            raise ServingError(f"model {self.name} has no version {version or 'yet'}", 404)
        return states

    def poll(self) -> None:
        """Serves the largest version that can be loaded; without one, the current version stays."""
        if any(state == "UNLOADING" for state, _, _ in self.states.values()):
            # A request's error and its traceback refer to each other, and to the version.
            gc.collect()
        try:
            for version, folder in sorted(find_versions(self.path).items(), reverse=True):
                if self._load(version, folder):
                    break
        except OSError as error:  # A file is gone; a disk that fails now may work at the next poll.
            log(logging.ERROR, "poll_failed", model=self.name, error=str(error))

    def _load(self, version: int, folder: Path) -> bool:
        """Loads a version unless its files are the last attempt's; returns True if served."""
        old, stats = self.current, ((path, path.lstat()) for path in sorted(folder.rglob("*")))
        files = [(path, stat.st_ino, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
        # The served version may be an older export of the same number.
        is_served = old is not None and old.version == version
        if self._tried.get(version) == files:
            return is_served
        self._tried[version] = files
        if not is_served:
            self._set_state(version, "LOADING")
        try:
            servable = Servable(self.name, version, folder)
            servable.warm_up(folder)
        except Exception as error:  # No model may stop the server.
            message = first_line(str(error).replace(str(folder), f"version {version}"))
            self._set_state(version, "AVAILABLE" if is_served else "END", message)
            LOAD_FAILURES.labels(self.name).inc()
            return is_served
        self.current = servable
        self._set_state(version, "AVAILABLE")
        AVAILABLE_VERSION.labels(self.name).set(version)
        if old is not None and not is_served:
            self._set_state(old.version, "UNLOADING")
            weakref.finalize(old, self._set_state, old.version, "END").atexit = False
            del self._tried[old.version]
        return True

    def _set_state(self, version: int, state: str, error: str = "") -> None:
        self.states = {**self.states, version: (state, "UNKNOWN" if error else "OK", error)}
        fields = {"model": self.name, "version": version, "state": state, "error": error}
        log(logging.ERROR if error else logging.INFO, "version", **fields)


def load_models(paths: Mapping[str, Path]) -> dict[str, ServedModel]:
    """Loads the models at paths, by name; raises a `UserError` if one cannot load any version."""
    models = {name: ServedModel(name, path) for name, path in paths.items()}
    for name, model in models.items():
        LOAD_FAILURES.labels(name)  # A counter cannot be watched before it exists.
        model.poll()
        if model.current is None:
            versions = [f"{version}: {text}" for version, (_, _, text) in model.states.items()]
            raise UserError(
                f"{name}={model.path} must be an exported model, or a folder of models named 1, 2, "
                f"..., but has {'; '.join(versions) or 'none'}"
            )
    return models


def follow(models: Mapping[str, ServedModel], poll_seconds: float) -> Event:
    """Polls the folders in a thread until the returned event is set, unless `poll_seconds` is 0."""
    stopped = Event()

    def run() -> None:
        while not stopped.wait(poll_seconds):
            for model in models.values():
                model.poll()

    if poll_seconds:
        Thread(target=run, name="poll", daemon=True).start()
    return stopped


def find_versions(path: Path) -> dict[int, Path]:
    """The folders of a model's versions: version 1 for an export, else integer subfolders."""
    if (path / SAVED_MODEL).is_file() or (path / RUNTIME_SETTINGS).is_file():
        return {1: path}
    folders = sorted(path.iterdir()) if path.is_dir() else []
    # Numbers of at most 18 digits fit in 64 bits.
    numbered = (folder for folder in folders if re.fullmatch("[0-9]{1,18}", folder.name))
    return {int(folder.name): folder for folder in numbered if folder.is_dir()}


def _call(function: Any, inputs: Tensors) -> Tensors:
    try:
        outputs = function(**{key: tf.constant(value) for key, value in inputs.items()})
        return {key: value.numpy() for key, value in outputs.items()}
    except tf.errors.OpError as error:
        status = _STATUSES.get(error.error_code, 500)
        raise ServingError(first_line(error.message), status) from error
    except (TypeError, ValueError) as error:
        raise ServingError(first_line(str(error))) from error


def _encode(function: Any, inputs: Tensors) -> Tensors:
    (texts,) = inputs.values()
    return {"outputs": function([text.decode("utf-8", "replace") for text in texts.tolist()])}


def _signature(key: str, dim: int) -> SignatureDef:
    """Describes a signature as a SavedModel of this package does."""
    name = "inputs" if key == "serving_default" else "input"

    def info(name: str, shape: list[int | None], dtype: tf.DType) -> TensorInfo:
        form = tf.TensorShape(shape).as_proto()
        return TensorInfo(name=name, dtype=dtype.as_datatype_enum, tensor_shape=form)

    return SignatureDef(
        inputs={name: info(name, [None], tf.string)},
        outputs={"outputs": info("outputs", [None, dim], tf.float32)},
    )


def _max_tokens(folder: Path) -> int | None:
    """The number of tokens at which a model of this package cuts texts."""
    tokenizer = read_json_dict(folder / "config.json").get("tokenizer")
    tokens = tokenizer.get("max_tokens") if isinstance(tokenizer, dict) else None
    return tokens if isinstance(tokens, int) else None


def _release(model: list[Any]) -> None:
    release_resources(model.pop())
    gc.collect()  # A SavedModel's objects refer to each other.


def _is_batchable(signature: SignatureDef) -> bool:
    """True if a signature takes and gives any number of rows."""
    infos = (*signature.inputs.values(), *signature.outputs.values())
    shapes = [info.tensor_shape for info in infos]
    return bool(signature.inputs) and all(shape.dim and shape.dim[0].size == -1 for shape in shapes)
