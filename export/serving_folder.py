"""Copies an exported model into a serving folder as its next version, with warm-up requests.

TensorFlow Serving, and any server with its protocol, reads `<folder>/<name>/<version>`; see
TensorFlow Serving's `g3doc/saved_model_warmup.md`.
"""

import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog, PredictLog

from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, new_folder, one_at_a_time, require_writable_folder
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.serving.models import WARMUP_REQUESTS, find_versions

_SENTENCES = (
    "Hello",
    "sí",
    "",
    "ねこ",
    "The ferry leaves at noon.",
    "El tren llega tarde otra vez.",
    "Wo kann man hier gut essen?",
    "Поезд отправляется утром.",
    "هل تمطر اليوم؟",
    "今天的汤很好喝。",
    "오늘은 바람이 많이 분다.",
    "วันนี้อากาศดีมาก",
)
_LONG = " ".join(_SENTENCES * 10)  # longer than the models' limit
# The texts of each warm-up request: one short, one long, 8 short, 32 of all lengths.
_WARMUP_TEXTS = (_SENTENCES[:1], (_LONG,), _SENTENCES[:8], (*_SENTENCES * 3, _LONG)[-32:])


def publish(
    model: Path, serving: Path, name: str, version: int | None = None
) -> tuple[Path, dict[str, int]]:
    """Copies an exported model into the folder of all served models, as a new version.

    By default, that is the next one. The copy does not change if the export does, and can be
    mounted into a container. It appears whole or not at all, never overwrites a version, and has
    answered all its warm-up requests. Returns the new folder, and the number of these requests for
    each signature.
    """
    base = serving / name
    _require_place(base, name, version)
    loaded = load_saved_model(model)
    if not loaded.signatures:
        raise UserError(f"{model} has no signatures, which servers call; save it with them")
    requests = {key: _requests(loaded, name, key) for key in sorted(loaded.signatures)}
    require_writable_folder(serving, "give another --serving, or change its permissions")
    serving.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(serving):
        number = next_version(base) if version is None else version
        _require_place(base, name, number)
        try:
            with new_folder(base / str(number)) as temporary:
                mode = temporary.stat().st_mode
                shutil.copytree(model, temporary, dirs_exist_ok=True)
                temporary.chmod(mode)  # only its owner can read the folder of an unpacked archive
                _write_requests(temporary / WARMUP_REQUESTS, requests)
        except (OSError, tf.errors.ResourceExhaustedError) as error:  # shutil.Error is an OSError
            raise UserError(f"{model} cannot be copied to {base / str(number)}: {error}") from error
    for signature in (key for key, records in requests.items() if not records):
        logging.warning(
            "signature %s does not take arbitrary texts: it gets no warm-up requests", signature
        )
    return base / str(number), {key: len(records) for key, records in requests.items()}


def next_version(base: Path) -> int:
    """One more than the largest version number so far, also in names like `3.bad` (a rollback)."""
    names = [path.name for path in base.iterdir()] if base.is_dir() else []
    numbers = [int(match[0]) for name in names if (match := re.match("[0-9]+", name))]
    return max(numbers, default=0) + 1


def _require_place(base: Path, name: str, version: int | None) -> None:
    """Raises a `UserError` if a version cannot be added here, with this name and number."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", name) or name.isdecimal():
        raise UserError(
            "--name must be letters, digits, '.', '_' and '-', begin with a letter or a digit and "
            f"not be a number, but is {name!r}"
        )
    for folder in (base.resolve(), *base.resolve().parents):
        if (folder / SAVED_MODEL).is_file():
            raise UserError(
                f"{base} must be a folder of versions, but {folder} is an exported model"
            )
    if version is not None and not 1 <= version < 10**18:
        raise UserError(f"--version must be a number from 1 to 10**18 - 1, but it is {version}")
    if version in find_versions(base):
        raise UserError(
            f"{base}/{version} exists and is never overwritten; {next_version(base)} is free"
        )


def _requests(model: Any, name: str, signature: str) -> list[PredictionLog]:
    """Warm-up requests for a signature that takes any texts; none for others.

    A failing request, such as texts where a signature takes serialized examples, would stop the
    version from being served.
    """
    function = model.signatures[signature]
    _, inputs = function.structured_input_signature
    if not all(
        s.dtype == tf.string and s.shape.is_compatible_with([None]) for s in inputs.values()
    ):
        return []
    records = []
    for texts in _WARMUP_TEXTS:
        # Each input gets other texts.
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
    """Writes warm-up requests; replaces those of the export."""
    path.unlink(missing_ok=True)
    if not any(requests.values()):
        return
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in itertools.chain(*requests.values()):
            writer.write(record.SerializeToString(deterministic=True))
