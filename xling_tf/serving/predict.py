"""Requests to predict, and their answers."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from xling_tf.serving.answers import columns, rows
from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_reading import read
from xling_tf.serving.json_values import Repeated
from xling_tf.serving.json_writing import printed
from xling_tf.serving.signatures import Signature, TensorInfo
from xling_tf.serving.tensors import MAX_RANK, flatten, is_base64, shape_of, to_array

DEFAULT_SIGNATURE = "serving_default"
# A value of two bytes takes a hundred as an object of Python: 32 MiB of brackets would take gigabytes.
# Counted are all commas and brackets, in texts too: a thousand texts of 10,000 letters have a fifth.
MAX_VALUES = 10**6
_SEPARATORS = (b",", b"[", b"{")


class PredictRequest(NamedTuple):
    """A request in arrays.

    Attributes:
        signature_name: Of the signature to call.
        inputs: By alias, one for each of the signature's; strings are `bytes` in object arrays.
        row_form: Whether it came as `instances`, so that `predictions` are answered.
    """

    signature_name: str
    inputs: dict[str, np.ndarray]
    row_form: bool


def parse_predict(body: bytes, signatures: Mapping[str, Signature]) -> PredictRequest:
    """Reads the body of a request to predict (FillPredictRequestFromJson, util/json_tensor.cc).

    Args:
        body: JSON.
        signatures: Of the model, by name. It is asked after the JSON was read, so that a mapping
            whose lookups raise (no such model) is heard as late as in TensorFlow Serving.

    Raises:
        ServingError: In the words of TensorFlow Serving.
    """
    document, signature_name = read_request(body)
    try:
        inputs = signatures[signature_name].inputs
    except KeyError:
        raise ServingError.invalid_argument(
            f'Serving signature name: "{signature_name}" not found in signature def'
        ) from None
    if not inputs:
        raise ServingError.invalid_argument(
            f"Failed to get input map for signature: {document.get('signature_name') or 'DEFAULT'}"
        )
    if "instances" in document:
        arrays = _from_instances(_instances(document), inputs)
        return PredictRequest(signature_name, arrays, True)
    if "inputs" in document:
        return PredictRequest(signature_name, _from_inputs(document["inputs"], inputs), False)
    raise ServingError.invalid_argument("Missing 'inputs' or 'instances' key")


def read_request(body: bytes) -> tuple[dict[str, Any], str]:
    """The JSON of a request and the signature it names: what is looked at before the model is.

    Source: ParseJson and FillSignature of util/json_tensor.cc.

    Raises:
        ServingError: It is no JSON, has too many values, is no object, or its signature's name no
            string.
    """
    if sum(map(body.count, _SEPARATORS)) > MAX_VALUES:
        raise ServingError(413, f"A request is expected to have at most {MAX_VALUES} values")
    document = read(body)
    if not isinstance(document, dict):
        raise ServingError.invalid_argument(f"JSON Value: {printed(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise ServingError.invalid_argument(
            f"JSON Value: {printed(document)} not formatted correctly. 'signature_name' key must "
            "be a string value."
        )
    return document, name or DEFAULT_SIGNATURE


def format_predict(
    outputs: Mapping[str, np.ndarray], signature: Signature, row_form: bool
) -> bytes:
    """The answer to a request to predict (MakeJsonFromTensors, util/json_tensor.cc).

    Args:
        outputs: By alias.
        signature: The one that was called; it says which type each output has.
        row_form: `PredictRequest.row_form`.

    Raises:
        ServingError: The outputs have no common first dimension, or a type that JSON lacks.
    """
    if not outputs:
        raise ServingError.invalid_argument("Cannot convert empty tensor map to JSON")
    types = {alias: signature.outputs[alias].dtype for alias in sorted(outputs)}
    return (rows if row_form else columns)(outputs, types)


def _instances(document: dict[str, Any]) -> list[Any]:
    instances = document["instances"]
    if "inputs" in document:
        message = (
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
        )
    elif not isinstance(instances, list):
        message = "Excepting 'instances' to be an list/array"
    elif not instances:
        message = "No values in 'instances' array"
    else:
        return instances
    raise ServingError.invalid_argument(f"JSON Value: {printed(document)} {message}")


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_base64(value)


class _Batch:
    """One input, gathered from the instances: all of one shape (AddInstanceItem)."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype
        self.elements: list[Any] = []
        self.shape: tuple[int, ...] | None = None

    def add(self, name: str, item: Any) -> None:
        shape = _checked_shape(name, item)
        elements = flatten(item, shape, self.dtype)
        self.elements += elements
        if self.shape is None:
            self.shape = shape
            self.size = len(elements)
        elif len(elements) != self.size:
            raise ServingError.invalid_argument(
                f"Expecting tensor size: {self.size} but got: {len(elements)}"
            )
        elif shape != self.shape:
            raise ServingError.invalid_argument(
                f"Expecting shape {_shown(self.shape)} but got: {_shown(shape)}"
            )

    def array(self, count: int) -> np.ndarray:
        shape = self.shape or ()
        # Repeated keys add elements twice; the tensor is filled with the first ones.
        return to_array(self.elements[: count * self.size], (count, *shape), self.dtype)


def _from_instances(
    instances: list[Any], inputs: Mapping[str, TensorInfo]
) -> dict[str, np.ndarray]:
    """FillTensorMapFromInstancesList."""
    if not isinstance(instances[0], dict) and len(inputs) > 1:
        raise ServingError.invalid_argument(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    names = sorted(inputs)
    batches = {name: _Batch(inputs[name].dtype) for name in names}
    objects = _is_object(instances[0])
    for index, instance in enumerate(instances):
        if _is_object(instance) != objects:
            wanted, came = ("object", "list") if objects else ("value/list", "object")
            raise ServingError.invalid_argument(
                f"Expecting {wanted} but got {came} at item {index} of input list"
            )
        place = f"Failed to process element: {index}"
        if not objects:
            _add(batches, names[0], instance, place)
            continue
        for name, item in instance.pairs if isinstance(instance, Repeated) else instance.items():
            _add(batches, name, item, f"{place} key: {name}")
        if instance.keys() != inputs.keys():
            raise ServingError.invalid_argument(
                f"{place} of 'instances' list. JSON object: {printed(instance)} keys must be equal "
                f"to: {','.join(names)}"
            )
    filled = names if objects else names[:1]
    return {name: batches[name].array(len(instances)) for name in filled}


def _add(batches: dict[str, _Batch], name: str, item: Any, place: str) -> None:
    try:
        if name not in batches:
            raise ServingError.invalid_argument(f"JSON object: does not have named input: {name}")
        batches[name].add(name, item)
    except ServingError as error:
        code = "UNIMPLEMENTED" if error.status == 501 else "INVALID_ARGUMENT"
        raise ServingError.invalid_argument(
            f"{place} of 'instances' list. Error: {code}: {error.message}"
        ) from None


def _from_inputs(value: Any, inputs: Mapping[str, TensorInfo]) -> dict[str, np.ndarray]:
    """FillTensorMapFromInputsMap."""
    if not _is_object(value):
        if len(inputs) > 1:
            raise ServingError.invalid_argument(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        value = {next(iter(inputs)): value}
    arrays = {}
    for name in sorted(inputs):
        if name not in value:
            raise ServingError.invalid_argument(f"Missing named input: {name} in 'inputs' object.")
        shape = _checked_shape(name, value[name])
        dtype = inputs[name].dtype
        arrays[name] = to_array(flatten(value[name], shape, dtype), shape, dtype)
    return arrays


def _checked_shape(name: str, value: Any) -> tuple[int, ...]:
    shape = shape_of(value)
    if len(shape) >= MAX_RANK:
        raise ServingError.invalid_argument(f"tensor parsing error: {name}")
    return shape


def _shown(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"
