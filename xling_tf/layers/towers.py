"""The layers that tasks put on top of the shared encoder."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.layers.base import Layer


@keras.saving.register_keras_serializable(package="xling_tf")
class Tower(Layer):
    """Feed-forward layers with tanh (320 and 512 in Chidambaram et al. 2019, sec. 2.2).

    Args:
        dims: Width of each layer.
        residual: Adds the output to the first `dims[-1]` entries of the input, and initialises the
            last layer with zeros: the untrained tower then returns its input (He et al. 2016).
    """

    def __init__(self, dims: Sequence[int], residual: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)  # the residual stays in float32
        self.dims, self.residual = tuple(dims), residual
        self.layers = [
            keras.layers.Dense(
                dim, activation="tanh", dtype=self.dtype_policy, name=f"dense_{index}"
            )
            for index, dim in enumerate(dims)
        ]

    def build(self, inputs_shape: Sequence[Any]) -> None:
        """Creates the variables for inputs `[batch, dim]`."""
        for layer, dim in zip(self.layers, (inputs_shape[-1], *self.dims), strict=False):
            layer.build((None, dim))
        if self.residual:
            last = self.layers[-1].kernel
            last.assign(ops.zeros_like(last))

    def call(self, inputs: Tensor) -> Tensor:
        """Maps `[batch, dim]` to `[batch, dims[-1]]` float32."""
        outputs = inputs
        for layer in self.layers:
            outputs = layer(outputs)
        outputs = ops.cast(outputs, "float32")
        return (
            outputs + ops.cast(inputs[:, : self.dims[-1]], "float32") if self.residual else outputs
        )


@keras.saving.register_keras_serializable(package="xling_tf")
class InferenceHead(Layer):
    """Classifies two encodings by (u, v, |u - v|, u * v) (Chidambaram et al. 2019, sec. 2.2).

    Args:
        dim: Width of the hidden layer (512).
        num_classes: Number of classes.
    """

    def __init__(self, dim: int, num_classes: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.dim, self.num_classes, dtype = dim, num_classes, self.dtype_policy
        self.hidden = keras.layers.Dense(dim, activation="tanh", dtype=dtype, name="hidden")
        # All classes start with nearly equal logits: training would first have to unlearn the
        # larger ones that inputs of about 1 would give.
        small = keras.initializers.RandomNormal(stddev=0.01)
        self.logits = keras.layers.Dense(
            num_classes, kernel_initializer=small, dtype=dtype, name="logits"
        )

    def build(self, premise_shape: Sequence[Any], *_: Any) -> None:
        """Creates the variables for premises and hypotheses `[batch, dim]`."""
        self.hidden.build((None, 4 * premise_shape[-1]))
        self.logits.build((None, self.hidden.units))

    def call(self, premise: Tensor, hypothesis: Tensor) -> Tensor:
        """Maps `[batch, dim]` premises and hypotheses to `[batch, num_classes]` float32 logits."""
        relation = [premise, hypothesis, abs(premise - hypothesis), premise * hypothesis]
        hidden = self.hidden(ops.concatenate(relation, axis=1))
        return ops.cast(self.logits(hidden), "float32")
