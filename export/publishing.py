"""An exported model as the next version in a serving folder, and the files that start a server on it.

The folder is what TensorFlow Serving, and any server of its protocol, reads: `<name>/<version>`. Sources:
TensorFlow Serving's `g3doc/serving_config.md`, `g3doc/saved_model_warmup.md`, `config/*.proto`.
"""

import errno
import fcntl
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging
from google.protobuf import text_format
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, new_folder, replacing, require_writable_folder
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.serving.models import WARMUP_REQUESTS, find_versions
from xling_tf.serving.protocol import MAX_VERSION

# Of the TensorFlow that exports: an older server need not know all operations. Its model server is linked
# with those of tensorflow-text, SentencePiece's among them (tensorflow_serving/model_servers/BUILD).
IMAGE = "tensorflow/serving:2.21.0"

_FLAGS = (
    "--model_config_file=/models/models.config",
    "--model_config_file_poll_wait_seconds=10",  # A model that is added is served without a restart.
    "--monitoring_config_file=/models/monitoring.config",
    "--enable_batching",
    "--batching_parameters_file=/models/batching.config",
)
_MODEL = """  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
"""
# Written where they are missing, and from then on the user's.
_FILES = {
    "models.config": """\
# The models that TensorFlow Serving serves, each in its largest version. To pin some and to name them for
# clients (--allow_version_labels_for_unavailable_models is needed for that), add to a model's config
#
#     model_version_policy { specific { versions: 1 versions: 2 } }
#     version_labels { key: "stable" value: 1 }
#
# A base_path is a path in the container. export/main.py adds new models and leaves all else as it is.
model_config_list {
}
""",
    "batching.config": """\
# How TensorFlow Serving joins requests that wait at the same time. The models encode a large batch in
# parts, sorted by length, so there is no reason for a small one, nor for allowed_batch_sizes.
max_batch_size { value: 1000 }
# How long a request waits for others. On CPUs, batches form while all threads are busy.
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 10 }
""",
    "monitoring.config": """\
prometheus_config { enable: true path: "/monitoring/prometheus/metrics" }
""",
    "compose.yaml": f"""\
# docker compose --file compose.yaml up
services:
  tensorflow-serving:
    image: {IMAGE}
    # This machine alone; others should come through a proxy that knows who they are.
    ports: ["127.0.0.1:8501:8501"]
    volumes: [".:/models:ro"]
    command: {list(_FLAGS)}
    restart: unless-stopped
""",
}
_SENTENCES = (
    *("Hello", "sí", "", "ねこ", "The ferry leaves at noon.", "El tren llega tarde otra vez."),
    *(
        "Wo kann man hier gut essen?",
        "Поезд отправляется утром.",
        "هل تمطر اليوم؟",
        "今天的汤很好喝。",
    ),
    *("오늘은 바람이 많이 분다.", "วันนี้อากาศดีมาก"),
)
_LONG = " ".join(_SENTENCES * 10)  # longer than the models read
# The texts of each warm-up request: short, long, and texts of all lengths.
_WARMUP_TEXTS = (_SENTENCES[:1], (_LONG,), _SENTENCES[:8], (*_SENTENCES * 3, _LONG)[-32:])


class Published(NamedTuple):
    """The folder that was made, and how many warm-up requests each signature has."""

    folder: Path
    warmup: dict[str, int]


def publish(model: Path, serving: Path, name: str, version: int | None = None) -> Published:
    """Makes a version of an exported model that a server can serve, with warm-up requests.

    It is a copy, so that it stays as it is whatever becomes of the export, and can be mounted into a
    container. It appears whole, and no version is ever overwritten. What is copied was loaded and has
    answered all warm-up requests.

    Args:
        model: Folder of the exported model.
        serving: The folder of all models that are served; made where it is missing.
        name: The model's name there.
        version: Its number; None: the next free one.

    Raises:
        UserError: The model cannot be served, the version cannot be added, or files not be written.
    """
    base = serving / name
    _require_place(base, name, version)
    before = _identity(model)
    loaded = load_saved_model(model)
    if not loaded.signatures:
        raise UserError(
            f"a model with signatures is expected, which are what a server calls, but {model} has none; "
            "save it with them"
        )
    requests = {key: _requests(loaded, name, key) for key in sorted(loaded.signatures)}
    require_writable_folder(serving, "give another --serving, or mend its rights")
    with _one_at_a_time(serving):
        number = next_version(base) if version is None else version
        _require_place(base, name, number)
        try:
            with new_folder(base / str(number)) as temporary:
                shutil.copytree(model, temporary, dirs_exist_ok=True)
                if _identity(model) != before:
                    raise UserError(f"{model} was replaced while it was copied; start this again")
                _write_requests(temporary / WARMUP_REQUESTS, requests)
        except (shutil.Error, OSError) as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
                raise OSError(errno.ENOSPC, "the disk is full") from error
            raise UserError(
                f"{model} is expected to be copied to {base / str(number)}, but: {error}; nothing was "
                "published"
            ) from error
        _configure(serving, name, number)
    for signature in (each for each, records in requests.items() if not records):
        logging.warning("signature %s takes no texts, and gets no warm-up requests", signature)
    return Published(base / str(number), {key: len(each) for key, each in requests.items()})


def next_version(base: Path) -> int:
    """One more than any number used, by a version or by `3.bad`, which was one before a rollback."""
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    numbers = [int(found[0]) for name in names if (found := re.match("[0-9]+", name))]
    return max(numbers, default=0) + 1


def docker_command(serving: Path) -> str:
    """The line that serves the folder by TensorFlow Serving's image, on this machine's port 8501."""
    volume = f"{serving.resolve()}:/models:ro"
    options = ["--rm", "-p", "127.0.0.1:8501:8501", "-v", volume]
    return shlex.join(["docker", "run", *options, IMAGE, *_FLAGS])


def _require_place(base: Path, name: str, version: int | None) -> None:
    """Refuses a name, a folder, a number or a `models.config` that a version cannot be added with."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", name) or name.isdecimal():
        raise UserError(
            "a model's name must be letters, digits, '.', '_' and '-', begin with a letter or a digit and "
            f"be no number, but it is {name!r}; give another one with --name"
        )
    for folder in (base.resolve(), *base.resolve().parents):
        if (folder / SAVED_MODEL).is_file():
            raise UserError(
                f"{base} is expected to be a folder of versions, but {folder} is an exported model; give "
                "another --serving or --name"
            )
    if version is not None and not 1 <= version <= MAX_VERSION:
        raise UserError(f"--version must be a number from 1 to {MAX_VERSION}, but it is {version}")
    if version in find_versions(base):
        raise UserError(
            f"a new version is expected, but {base}/{version} is there and is never overwritten; leave out "
            f"--version for the next free one, {next_version(base)}"
        )
    _models_config(base.parent, name)


def _configure(serving: Path, name: str, version: int) -> None:
    """Writes the files that are missing, and adds the model to those served."""
    for file, text in (_FILES | {"models.config": _models_config(serving, name)}).items():
        path = serving / file
        if not path.exists() or (file == "models.config" and path.read_text("utf-8") != text):
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
            logging.info("%s written", path)
    parsed = text_format.Parse((serving / "models.config").read_text("utf-8"), ModelServerConfig())
    for model in parsed.model_config_list.config:
        pinned = model.model_version_policy.specific.versions
        if model.name == name and pinned and version not in pinned:
            logging.warning("models.config pins versions %s of %s; add %d", pinned, name, version)


def _models_config(serving: Path, name: str) -> str:
    """The text of `models.config` with the model in it, and all that the user wrote."""
    path = serving / "models.config"
    text = path.read_text(encoding="utf-8") if path.exists() else _FILES["models.config"]
    try:
        models = text_format.Parse(text, ModelServerConfig()).model_config_list.config
        if name in [model.name for model in models]:
            return text
        block = _MODEL.format(name=name)
        head, brace, tail = text.rpartition("}")
        added = f"{head.rstrip()}\n{block}{brace}{tail}"
        read_back = text_format.Parse(added, ModelServerConfig()).model_config_list.config
        if [model.name for model in read_back] == [*(model.name for model in models), name]:
            return added
    except text_format.ParseError as error:
        reason = f"at {error}"
    else:
        reason = "nothing can be added before its last brace"
    raise UserError(
        f"{path} must be TensorFlow Serving's ModelServerConfig in text form, with a model_config_list at "
        f"its end, but {reason}; add {name} to it by hand, or move it away to have it made anew"
    )


def _requests(model: Any, name: str, signature: str) -> list[PredictionLog]:
    """Warm-up requests for a signature that takes texts and gives an answer to ours; else none.

    One that takes other strings, as serialized examples, would fail, and keep the model from being served.
    """
    function = model.signatures[signature]
    _, inputs = function.structured_input_signature
    if not all(s.dtype == tf.string and s.shape.is_compatible_with([None]) for s in inputs.values()):
        return []
    records = []
    for texts in _WARMUP_TEXTS:
        # Where there are two inputs, they are not the same texts.
        columns = {
            key: tf.constant([texts[(row + index) % len(texts)] for row in range(len(texts))])
            for index, key in enumerate(sorted(inputs))
        }
        try:
            function(**columns)
        except (tf.errors.OpError, ValueError):
            return []
        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = name, signature
        for key, column in columns.items():
            request.inputs[key].CopyFrom(tf.make_tensor_proto(column))
        records.append(PredictionLog(predict_log=PredictLog(request=request)))
    return records


def _write_requests(path: Path, requests: dict[str, list[PredictionLog]]) -> None:
    """Writes warm-up requests in place of those that the export may have."""
    path.unlink(missing_ok=True)
    if not any(requests.values()):
        return
    path.parent.mkdir(exist_ok=True)
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in itertools.chain(*requests.values()):
                writer.write(record.SerializeToString(deterministic=True))
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, str(error)) from error


def _identity(model: Path) -> tuple[int, int] | None:
    """Tells the folder from one that is renamed to its place."""
    with suppress(FileNotFoundError):
        status = model.stat()
        return (status.st_dev, status.st_ino)
    return None


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Lets processes that publish into one folder wait for each other, where the file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
