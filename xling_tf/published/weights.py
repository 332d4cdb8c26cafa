"""The published CNN's parts, whatever they are read from, and our model with them in it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from xling_tf.config import DataConfig, ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.cnn import CnnEncoder
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.presets import get_preset
from xling_tf.task_config import TaskConfig

NAME = "universal-sentence-encoder-multilingual/3"
# Yang et al. 2019, table 1, beside English; zh is written as in the PRC, zh_TW as in Taiwan.
TARGETS = (
    *("ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr"),
    *("zh", "zh_TW"),
)
# The module cuts nothing, as far as its copies show (in training it did, after 256: sec. 4.2). It is
# a bound for our memory, which 5,000 characters do not reach.
_MAX_TOKENS = 4096


class PublishedWeights(NamedTuple):
    """What the published module is made of.

    Attributes:
        sentencepiece: SentencePiece's serialized model.
        table: `[at least pieces, dim]` float32, a row for each piece.
        layers: Kernel and bias, or scale and offset, of each of `weighted_layers`, by its name.
    """

    sentencepiece: bytes
    table: np.ndarray
    layers: Mapping[str, Sequence[np.ndarray]]


def published_config() -> ExperimentConfig:
    """What the published weights are in terms of our experiments: no task is trained.

    Example:
        >>> config = published_config()
        >>> len((config.data.source, *config.data.targets)), config.text.sentence_marks
        (16, True)
    """
    preset = get_preset("multilingual")
    off: dict[str, Any] = {
        name: dataclasses.replace(task, weight=0)
        for name, task in vars(preset.tasks).items()
        if isinstance(task, TaskConfig)
    }
    return dataclasses.replace(
        preset,
        description=f"the published {NAME}",
        data=DataConfig(targets=TARGETS),
        text=dataclasses.replace(preset.text, max_tokens=_MAX_TOKENS),
        tasks=dataclasses.replace(preset.tasks, **off),
    )


def make_model(config: ExperimentConfig, weights: PublishedWeights) -> Model:
    """Puts the weights into a new model.

    Args:
        config: Of the sizes of the weights.
        weights: As they were read.

    Raises:
        UserError: They have other sizes.
    """
    model = Model.build(config, weights.sentencepiece)
    put_table(model.encoder, weights.table)
    put_layers(model.encoder, weights.layers)
    return model


def put_table(encoder: TokenEncoder, table: np.ndarray) -> None:
    """Sets the embeddings; rows beyond the last piece, which no text has, are left out.

    Raises:
        UserError: There are fewer rows than pieces, or they have another width.
    """
    (variable,) = encoder.table_variables
    num_words, dim = variable.shape
    if len(table) < num_words or table.shape[1] != dim:
        raise UserError(
            f"a table of a row of {dim} for each of the SentencePiece model's {num_words} pieces is "
            f"expected, but it has the shape {list(table.shape)}; give weights and pieces of one module"
        )
    variable.assign(table[:num_words])


def put_layers(encoder: TokenEncoder, layers: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Sets weights of layers; a convolution's kernel may come as the matrix that is equal to it."""
    own = weighted_layers(encoder)
    for name, given in layers.items():
        arrays = zip(given, own[name].weights, strict=True)
        own[name].set_weights([array.reshape(variable.shape) for array, variable in arrays])


def weighted_layers(encoder: TokenEncoder) -> dict[str, keras.layers.Layer]:
    """The layers of a CNN encoder that have weights, but the table, in the order of its computation."""
    if not isinstance(encoder, CnnEncoder):
        raise TypeError(f"a CnnEncoder is expected, got {type(encoder).__name__}")
    layers: dict[str, keras.layers.Layer] = {}
    for projection, branch in zip(encoder.projections, encoder.branches, strict=True):
        width = branch.width
        layers[f"projection_{width}"] = projection.projection
        layers[f"norm_{width}"] = projection.norm
        for index, convolution in enumerate(branch.convolutions):
            layers[f"convolution_{width}_{index}"] = convolution
    feedforward = encoder.feedforward
    return layers | {
        "norm": encoder.norm,
        "pooled_projection": encoder.pooled_projection,
        "first": feedforward.first,
        "second": feedforward.second,
        "second_shortcut": feedforward.second_shortcut,
        "third": feedforward.third,
        "output_projection": feedforward.output_projection,
        "output_shortcut": feedforward.output_shortcut,
    }
