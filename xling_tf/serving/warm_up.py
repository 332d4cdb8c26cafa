"""A version's first calls, made before clients make theirs."""

import logging
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.errors import UserError
from xling_tf.serving.batches import Tensors
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_log import log
from xling_tf.serving.servable import Servable
from xling_tf.serving.signatures import Signature, TensorInfo

# WarmupConsts of TensorFlow Serving's saved model warm-up.
WARMUP_REQUESTS = "assets.extra/tf_serving_warmup_requests"
MAX_WARMUP_REQUESTS = 1000


def warm_up(servable: Servable, folder: Path) -> int:
    """Makes the calls that the model's warm-up requests ask for, or one of each signature.

    Args:
        servable: What is called.
        folder: Its exported model.

    Returns:
        How many calls were made.

    Raises:
        UserError: A warm-up request cannot be read or fails, which fails the version as in TensorFlow
            Serving.
    """
    requests = folder / WARMUP_REQUESTS
    if not requests.is_file():
        return sum(_try(servable, name) for name in servable.lanes)
    try:
        records = tf.data.TFRecordDataset(str(requests)).take(MAX_WARMUP_REQUESTS)
        return sum(_replay(servable, record) for record in records.as_numpy_iterator())
    except (ServingError, tf.errors.OpError) as error:
        raise UserError(
            f"warm-up requests are expected to succeed, but one of {requests} did not: {error}; "
            "mend or remove the file"
        ) from error


def _replay(servable: Servable, record: bytes) -> int:
    """Makes the call of one `PredictionLog`."""
    request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
    name = request.model_spec.signature_name or "serving_default"
    if name not in servable.lanes:
        raise ServingError.not_found(f"there is no signature {name}")
    servable.lanes[name].run({key: tf.make_ndarray(value) for key, value in request.inputs.items()})
    return 1


def _try(servable: Servable, name: str) -> int:
    """Calls a signature with one row of nothing; that it refuses that is no failure."""
    inputs = _nothing(servable.signatures[name])
    try:
        servable.lanes[name].run(inputs)
    except ServingError as error:
        fields = {"model": servable.model_name, "version": servable.version, "signature": name}
        log(logging.DEBUG, "warm_up_refused", **fields, error=error.message)
    return 1


def _nothing(signature: Signature) -> Tensors:
    return {name: _empty(info) for name, info in signature.inputs.items()}


def _empty(info: TensorInfo) -> np.ndarray:
    shape = [max(size, 1) for size in info.shape or ()]
    if info.dtype == "DT_STRING":
        return np.full(shape, b"", object)
    return np.zeros(shape, tf.dtypes.as_dtype(types_pb2.DataType.Value(info.dtype)).as_numpy_dtype)
