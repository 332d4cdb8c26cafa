"""Requests that TensorFlow Serving runs through a model before it is served, so that none is slow.

The place, the format and their limit of 1,000 are those of TensorFlow Serving's
g3doc/saved_model_warmup.md. A request that fails there keeps the model from being served, so each is
run here first.
"""

import errno
from collections.abc import Iterator, Mapping
from itertools import chain, cycle, islice
from pathlib import Path
from typing import Any

import tensorflow as tf

from xling_tf.serving_layout.protos import serving_proto

# Below a version's folder.
WARMUP_FILE = Path("assets.extra") / "tf_serving_warmup_requests"

_WORDS = ("Hello", "maybe", "sí", "ねこ")
_SENTENCES = (
    "The ferry leaves at noon.",
    "El tren llega tarde otra vez.",
    "Nous avons oublié les clés.",
    "Wo kann man hier gut essen?",
    "La porta era già aperta.",
    "A loja fecha às oito.",
    "De fiets staat achter het huis.",
    "Jutro będzie padać śnieg.",
    "Поезд отправляется утром.",
    "Köprüden sonra sola dönün.",
    "هل تمطر اليوم؟",
    "今天的汤很好喝。",
    "今天的湯很好喝。",
    "猫が窓のそばで眠っている。",
    "오늘은 바람이 많이 분다.",
    "วันนี้อากาศดีมาก",
)
# Longer than the models read.
_LONG = (" ".join(_SENTENCES * 8),)
# What one request holds; the last has texts of all lengths, and one without any word.
_REQUESTS = (
    _WORDS[:1],
    _SENTENCES[:1],
    _LONG,
    _SENTENCES[:8],
    tuple(islice(cycle((*_WORDS, "", *_SENTENCES, *_LONG)), 32)),
)


def make_warmup_requests(model: Any, name: str) -> dict[str, list[Any]]:
    """Makes requests for every signature that takes texts and gives an answer to ours.

    A signature may take strings that are no texts, as serialized examples; it gets none.

    Args:
        model: A loaded SavedModel.
        name: The model's, as it is served.

    Returns:
        For each signature, `PredictionLog` messages: batches of 1, 8 and 32 texts, short and long, in
        16 languages.
    """
    requests = {}
    for signature, function in sorted(model.signatures.items()):
        _, inputs = function.structured_input_signature
        records = list(_make_requests(name, signature, inputs)) if _are_texts(inputs) else []
        requests[signature] = records if _all_run(model, records) else []
    return requests


def write_warmup_requests(requests: Mapping[str, list[Any]], folder: Path) -> None:
    """Writes them as the TFRecord of a version's folder, in place of what it may have.

    Args:
        requests: By signature; where there is none, there is no file.
        folder: The version's folder.
    """
    path = folder / WARMUP_FILE
    path.unlink(missing_ok=True)
    records = [record.SerializeToString(deterministic=True) for record in chain(*requests.values())]
    if not records:
        return
    path.parent.mkdir(exist_ok=True)
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.ResourceExhaustedError as error:
        raise OSError(errno.ENOSPC, str(error)) from error


def replay(model: Any, record: Any) -> dict[str, tf.Tensor]:
    """Runs a request through the signature that it names.

    Args:
        model: A loaded SavedModel.
        record: A `PredictionLog`.
    """
    request = record.predict_log.request
    inputs = {key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()}
    outputs: dict[str, tf.Tensor] = model.signatures[request.model_spec.signature_name](**inputs)
    return outputs


def _are_texts(inputs: Mapping[str, tf.TensorSpec]) -> bool:
    return all(
        spec.dtype == tf.string and spec.shape.is_compatible_with([None])
        for spec in inputs.values()
    )


def _make_requests(name: str, signature: str, inputs: Mapping[str, Any]) -> Iterator[Any]:
    logs, predict = serving_proto("apis.prediction_log"), serving_proto("apis.predict")
    for texts in _REQUESTS:
        request = predict.PredictRequest()
        request.model_spec.name = name
        request.model_spec.signature_name = signature
        for index, key in enumerate(sorted(inputs)):
            # Where there are two inputs, they are not the same texts.
            column = [texts[(row + index) % len(texts)].encode() for row in range(len(texts))]
            request.inputs[key].CopyFrom(tf.make_tensor_proto(column, tf.string))
        yield logs.PredictionLog(predict_log=logs.PredictLog(request=request))


def _all_run(model: Any, records: list[Any]) -> bool:
    try:
        for record in records:
            replay(model, record)
    except (tf.errors.OpError, ValueError):
        return False
    return True
