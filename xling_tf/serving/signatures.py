"""What the protocol needs to know of a model's SignatureDefs."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a signature (tensorflow/core/protobuf/meta_graph.proto).

    Attributes:
        name: Of the tensor in the graph, "serving_default_inputs:0".
        dtype: "DT_STRING", "DT_FLOAT", ...
        shape: -1 for a dimension that is not known, None for a rank that is not.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Signature:
    """One SignatureDef.

    Attributes:
        method_name: "tensorflow/serving/predict" for what Keras and tf.Module export.
        inputs: By alias.
        outputs: By alias.
    """

    method_name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
