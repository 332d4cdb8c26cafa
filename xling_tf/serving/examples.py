"""Requests to classify and to regress, which sentence encoders do not answer.

TensorFlow Serving feeds tf.Examples to signatures of those kinds. Here such requests are told
what the protocol says of them where the model has no such signature, as none of ours has.
"""

from collections.abc import Mapping
from typing import Any

from xling_tf.serving.errors import ServingError
from xling_tf.serving.json_writing import printed
from xling_tf.serving.paths import Action
from xling_tf.serving.predict import read_request
from xling_tf.serving.signatures import Signature
from xling_tf.serving.tensors import json_type


def refuse_examples(
    action: Action, body: bytes, signatures: Mapping[str, Signature]
) -> ServingError:
    """What to answer to a request to classify or to regress.

    Args:
        action: "classify" or "regress".
        body: JSON.
        signatures: As for `predict.parse_predict`: looked at after the JSON.

    Returns:
        The mistake in the request, or that this server does not do it.
    """
    try:
        document, name = read_request(body)
    except ServingError as error:
        return error
    examples = document.get("examples")
    if "examples" not in document:
        return _malformed(
            document, "When method is classify, key 'examples' is expected and was not found"
        )
    if not isinstance(examples, list):
        return _malformed(document, "Expecting 'examples' value to be an list/array")
    if not examples:
        return _malformed(document, "'examples' value is an empty array")
    for example in examples:
        if not isinstance(example, dict):
            return ServingError.invalid_argument(
                f"Example must be JSON object but got JSON {json_type(example)}"
            )
    try:
        signature = signatures[name]
    except KeyError:
        return ServingError.invalid_argument(f"No signature was found with the name: {name}")
    return _mismatch(action, signature)


def _mismatch(action: str, signature: Signature) -> ServingError:
    """PreProcessClassification and PreProcessRegression, without the check of the method's name.

    Source: servables/tensorflow/classifier.cc and regressor.cc; model_servers/server.h has
    enable_signature_method_name_check off.
    """
    if len(signature.inputs) != 1:
        return ServingError.invalid_argument("Expected one input Tensor.")
    outputs = len(signature.outputs)
    if action == "regress" and outputs != 1:
        return ServingError.invalid_argument("Expected one output Tensor.")
    if outputs not in (1, 2):
        return ServingError.invalid_argument(f"Expected one or two output Tensors, found {outputs}")
    return ServingError.unimplemented(f"This server does not {action}; use predict.")


def _malformed(document: Any, message: str) -> ServingError:
    return ServingError.invalid_argument(f"JSON Value: {printed(document)} {message}")
