"""Opens SavedModels, which imports TensorFlow, REST servers and Python functions as embedders."""

import dataclasses
import hashlib
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import urllib3

from xling_tf.client.match import as_lines
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError, as_user_error, one_line
from xling_tf.evaluators.encoding import BatchLimits, Embedder, encode_checked
from xling_tf.files import SAVED_MODEL, read_json
from xling_tf.savedmodel.saved_models import checksum, load_saved_model, model_name, read_info
from xling_tf.sentence_encoder import find_folder, load

# Half a megabyte of JSON comes back, in well under a second from most servers.
_REST_LIMITS = BatchLimits(128, 2**16)
_TIMEOUT = urllib3.Timeout(connect=10.0, read=120.0)
# Waits of 0, 1, 2, 4, 8 and 16 seconds for a full queue, or for a server that is restarted.
_RETRIES = urllib3.Retry(
    total=6,
    backoff_factor=0.5,
    status_forcelist=(429, 502, 503, 504),
    allowed_methods=None,
    raise_on_status=False,
    respect_retry_after_header=False,
)
_URL = re.compile(r"https?://[^?#\s]+/v1/models/(?P<name>[^/:?#]+)(/(versions|labels)/[^/:?#]+)?")
_PROBES = ["Hola", "The cat is sleeping.", "你好，世界", "¿Qué tal? 12 345"]
_POOL = urllib3.PoolManager()


def open_embedder(specification: str) -> Embedder:
    """Opens a model: `rest:URL`, `python:module:function`, or one that `find_model` finds."""
    kind, _, rest = specification.partition(":")
    if kind == "rest":
        return _open_rest(rest)
    return _open_python_function(rest) if kind == "python" else _open_saved_model(specification)


def _open_saved_model(specification: str) -> Embedder:
    """Opens an exported model, or a published TF2 module for TensorFlow Hub."""
    folder = find_folder(specification)
    if not (folder / SAVED_MODEL).exists():
        return _open_client(specification, folder)
    model = load_saved_model(folder)
    import tensorflow as tf

    inputs = {n: tuple(call.structured_input_signature[1]) for n, call in model.signatures.items()}
    if callable(model):
        inputs.setdefault("serving_default", ("inputs",))

    # The closure keeps the model alive, without which its signatures do not work.
    def call(name: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        tensors = {key: tf.constant(texts, tf.string) for key, texts in columns.items()}
        if name not in model.signatures:
            return np.asarray(model(*tensors.values()))
        outputs = model.signatures[name](**tensors)
        return np.asarray(outputs.get("outputs", next(iter(outputs.values()))))

    description: dict[str, Any] = {
        "kind": "SavedModel",
        "folder": model_name(specification),
        "device": "GPU" if tf.config.list_physical_devices("GPU") else "CPU",
    }
    if (config := folder / "config.json").is_file():
        with as_user_error(f"{config} must be JSON ({{error}}); correct or remove it", ValueError):
            description["config"] = read_json(config)
    embedder = _from_signatures(
        folder,
        inputs,
        call,
        name=description["folder"],
        # Published modules pad the whole batch to its longest text.
        batch_limits=BatchLimits(),
        checksum=checksum(folder),
        description=description,
        trained_on=TrainedOn.read(folder),
        match=as_lines(read_info(folder).get("match")),
    )
    try:
        encode_checked(embedder, ["one", "two"])
    except (TypeError, ValueError, UserError, tf.errors.OpError) as error:
        cause = f"fails with two strings: {one_line(error)}"
        raise UserError(
            f"{folder} must hold a model that maps strings to vectors, but {cause}"
        ) from error
    return embedder


def _open_client(specification: str, folder: Path) -> Embedder:
    """Opens a model that is no SavedModel, such as a wheel or an export for ONNX Runtime."""
    encoder = load(specification)
    return Embedder(
        name=model_name(specification),
        sentences=encoder.encode,
        questions=encoder.encode_query,
        responses=lambda answers, contexts: encoder.encode_document(answers),
        checksum=checksum(folder),
        description={"kind": "exported model", "folder": model_name(specification)},
        trained_on=TrainedOn.read(folder),
        match=encoder.match,
    )


def _open_rest(url: str) -> Embedder:
    """Opens a model on a server that speaks TensorFlow Serving's REST protocol."""
    url = url.rstrip("/")
    match = _URL.fullmatch(url)
    if match is None:
        raise UserError(
            f"expected a URL as rest:http://host:port/v1/models/name, got {url!r}; correct it"
        )

    def read(answer: Any) -> tuple[str, dict[str, tuple[str, ...]]]:
        signatures = answer["metadata"]["signature_def"]["signature_def"]
        inputs = {name: tuple(signature["inputs"]) for name, signature in signatures.items()}
        return str(answer["model_spec"]["version"]), inputs

    version, inputs = _request(f"{url}/metadata", read)

    def call(name: str, columns: Mapping[str, list[str]]) -> np.ndarray:
        count, body = len(next(iter(columns.values()))), {"signature_name": name, "inputs": columns}
        return _request(f"{url}:predict", lambda answer: _vectors(answer["outputs"], count), body)

    embedder = _from_signatures(
        url,
        inputs,
        call,
        name=f"{match['name']}-rest",
        batch_limits=_REST_LIMITS,
        description={"kind": "REST", "url": url, "version": version},
    )
    # A digest of the version and of some vectors, rounded as parallel sums differ; adding 0 turns
    # -0.0 into 0.0.
    digest = hashlib.blake2b(version.encode(), digest_size=16)
    responses = embedder.encode_responses(_PROBES, _PROBES)
    for vectors in (embedder(_PROBES), embedder.encode_questions(_PROBES), responses):
        digest.update((vectors.round(3) + 0).tobytes())
    return dataclasses.replace(embedder, checksum=digest.hexdigest())


def _open_python_function(target: str) -> Embedder:
    """Imports a function. It has no checksum, as nothing tells when its vectors change."""
    here = str(Path.cwd())
    sys.path.insert(0, here)
    cause = f"there is no {target!r} ({{error}})"
    message = f"python: must be followed by module:function, here or installed; {cause}"
    try:
        with as_user_error(message, AttributeError, ImportError, ValueError):
            function = pkgutil.resolve_name(target)
            if not callable(function):
                raise ValueError("it cannot be called")
    finally:
        sys.path.remove(here)
    return Embedder(
        name=target.replace(":", "."),
        sentences=function,
        batch_limits=BatchLimits(),
        description={"kind": "Python function", "function": target},
    )


def _from_signatures(
    place: object,
    inputs: Mapping[str, tuple[str, ...]],
    call: Callable[..., np.ndarray],
    **attributes: Any,
) -> Embedder:
    """Makes an embedder of a model's signatures; `call` gets a name and the texts by input.

    Sentences are encoded by `serving_default`, else by `default` or, as multilingual-qa has no
    other, by `question_encoder`.
    """

    def function(name: str, *keys: str) -> Callable[..., np.ndarray] | None:
        if not keys or set(inputs.get(name, ())) != set(keys):
            return None
        return lambda *columns: call(name, dict(zip(keys, columns, strict=True)))

    def single_input_function(name: str) -> Callable[..., np.ndarray] | None:
        return function(name, *inputs.get(name, ())[:1])

    names = ("serving_default", "default", "question_encoder")
    sentences = next(filter(None, map(single_input_function, names)), None)
    if sentences is None:
        others = ", ".join(sorted(inputs)) or "none"
        raise UserError(
            f"{place} must have a signature 'serving_default' with one input, but has {others}"
        )
    answers = single_input_function("response_encoder")
    return Embedder(
        sentences=sentences,
        raw=single_input_function("raw"),
        questions=single_input_function("question_encoder"),
        responses=function("response_encoder", "input", "context")
        or (answers and (lambda texts, contexts: answers(texts))),
        inference=function("inference", "premise", "hypothesis"),
        **attributes,
    )


def _vectors(outputs: Any, count: int) -> np.ndarray:
    """The vectors among a signature's outputs, which have names if there are several."""
    array = np.array(outputs["outputs"] if isinstance(outputs, dict) else outputs)
    if array.ndim != 2 or len(array) != count or array.dtype.kind not in "fi":
        raise ValueError(f"{count} vectors were expected")
    return array.astype(np.float32)


def _request(url: str, read: Callable[[Any], Any], body: Any = None) -> Any:
    """Sends a request, again while the server is away, and reads its response's JSON."""
    options = {"method": "GET"} if body is None else {"method": "POST", "json": body}
    # A wrong address is said at once.
    retries = _RETRIES.new(connect=2) if body is None else _RETRIES
    try:
        response = _POOL.request(url=url, timeout=_TIMEOUT, retries=retries, **options)
    except urllib3.exceptions.HTTPError as error:
        cause = str(getattr(error, "reason", None) or error)[:200]
        raise UserError(
            f"{url} failed several times: {cause}; start the server, then try again"
        ) from error
    content = " ".join(response.data.decode("utf-8", "replace").split())[:200]
    if response.status != 200:
        raise UserError(f"{url} must answer 200 OK, but answered {response.status}: {content}")
    try:
        return read(json.loads(response.data))
    except (
        AttributeError,
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        answer = f"{content!r} ({error!r})"
        raise UserError(
            f"{url} must answer as TensorFlow Serving does, but gave {answer}"
        ) from error
