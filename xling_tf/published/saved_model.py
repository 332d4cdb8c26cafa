"""The published weights out of a SavedModel folder, as it is downloaded.

Names of variables are no interface. What each layer is follows from the shapes of its variables; where
several layers have the same ones, the vectors that the SavedModel itself gives decide which is which.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import tensorflow as tf
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.hub.saved_models import load_saved_model, one_line
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.published.pieces import find_pieces
from xling_tf.published.variables import FoundLayer, FoundVariables, Shapes, read_variables
from xling_tf.published.weights import NAME, put_layers, put_table, weighted_layers

# Of our vectors to the SavedModel's. What is right differs by rounding, and by the epsilon of the kernel
# that TensorFlow may put in the place of a layer norm in a graph.
_ENOUGH = 0.999
_EXACT = 0.99999
_PROBES = (
    "The cat is sleeping.",
    "I enjoy taking long walks along the beach with my dog.",
    "¿Dónde está la biblioteca, por favor?",
    "Das Wetter wird morgen besser, sagt der Sprecher im Radio.",
    "今天下午我们去公园散步。",
    "12 345",
)

_Item = TypeVar("_Item")
Layers = Mapping[str, FoundLayer]


def model_of_saved_model(folder: Path, config: ExperimentConfig) -> Model:
    """Puts the weights of a published SavedModel into a new model.

    Args:
        folder: With `saved_model.pb` and `variables/`.
        config: Of the sizes that are expected.

    Raises:
        UserError: The folder holds something else, or no order of its layers gives its vectors.
    """
    vectors = _encode(folder)
    found = read_variables(folder)
    model = Model.build(config, find_pieces(folder, config.text).vocabulary)
    put_table(model.encoder, found.table)
    similarity, layers = _best_assignment(model, found, vectors)
    if similarity < _ENOUGH:
        raise UserError(
            f"an order of its layers in which our encoder gives the vectors of {folder} is expected, with a "
            f"cosine of {_ENOUGH}, but the best one reaches {similarity:.4f} ({_described(layers)}); give "
            f"the CNN of {NAME}"
        )
    logging.info("cosine %.6f to the SavedModel's own vectors", similarity)
    put_layers(model.encoder, {name: layer.arrays for name, layer in layers.items()})
    return model


def _encode(folder: Path) -> np.ndarray:
    """What the SavedModel makes of the probes."""
    loaded = load_saved_model(folder)
    try:
        encode = loaded if callable(loaded) else loaded.signatures["serving_default"]
        outputs = encode(tf.constant(_PROBES))
    except (KeyError, TypeError, ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"a SavedModel that maps strings to vectors is expected in {folder}, but it cannot be used "
            f"({type(error).__name__}: {one_line(error)}); give the folder with "
            "saved_model.pb and variables/"
        ) from error
    if isinstance(outputs, Mapping):
        outputs = outputs["outputs"] if "outputs" in outputs else next(iter(outputs.values()))
    return np.asarray(unit_length(outputs))


def _best_assignment(
    model: Model, found: FoundVariables, vectors: np.ndarray
) -> tuple[float, Layers]:
    """Finds the assignment of layers whose vectors are the nearest to those that are expected.

    Layers are tried in the order in which they are listed first, then those of equal shapes in others.
    """
    features = model.preprocessor(tf.constant(_PROBES))
    encode = tf.function(lambda: unit_length(model.encoder(features)))
    best: tuple[float, Layers] = (-1.0, {})
    put: Layers = {}
    for layers in _assignments(_wanted_shapes(model.encoder), found.layers):
        changed = {name: layer for name, layer in layers.items() if put.get(name) is not layer}
        put_layers(model.encoder, {name: layer.arrays for name, layer in changed.items()})
        put = layers
        similarity = float(np.mean(np.sum(encode() * vectors, axis=1)))
        best = max(best, (similarity, layers), key=lambda scored: scored[0])
        if similarity > _EXACT:
            break
    return best


def _wanted_shapes(encoder: TokenEncoder) -> dict[str, Shapes]:
    return {
        name: tuple(tuple(variable.shape) for variable in layer.weights)
        for name, layer in weighted_layers(encoder).items()
    }


def _assignments(wanted: Mapping[str, Shapes], found: Sequence[FoundLayer]) -> Iterator[Layers]:
    """All that shapes allow; the last sets of equal shapes change first.

    Raises:
        UserError: Shapes are missing.
    """
    for form in (_without_ones, _as_matrices):
        names = _by_form(form, wanted.items())
        layers = _by_form(form, [(layer, layer.shapes) for layer in found])
        if all(len(layers[key]) >= len(group) for key, group in names.items()):
            break
    else:
        raise UserError(
            f"layers of the shapes {_listed(wanted.values())} are expected beside the table, but there "
            f"are {_listed(layer.shapes for layer in found)}; give the CNN of {NAME}"
        )
    order = list(itertools.chain(*names.values()))
    ways = (itertools.permutations(layers[key], len(group)) for key, group in names.items())
    for chosen in itertools.product(*ways):
        yield dict(zip(order, itertools.chain(*chosen), strict=True))


def _by_form(
    form: Callable[[Shapes], Shapes], items: Iterable[tuple[_Item, Shapes]]
) -> Mapping[Shapes, list[_Item]]:
    groups: dict[Shapes, list[_Item]] = defaultdict(list)
    for item, shapes in items:
        groups[form(shapes)].append(item)
    return groups


def _without_ones(shapes: Shapes) -> Shapes:
    """As of a convolution in one dimension that was made as one in two."""
    return tuple(tuple(size for size in shape if size > 1) for shape in shapes)


def _as_matrices(shapes: Shapes) -> Shapes:
    """As of a convolution that was made as a product with the tokens side by side."""
    return tuple((math.prod(shape[:-1]), *shape[-1:]) for shape in shapes)


def _described(layers: Layers) -> str:
    return ", ".join(f"{name} = {layer.name}" for name, layer in layers.items())


def _listed(layers: Iterable[Shapes]) -> str:
    """Shapes, and how often they are there: `2 x [3, 256, 256] [256]`."""
    counts = Counter(" ".join(str(list(shape)) for shape in shapes) for shapes in layers)
    return ", ".join(f"{count} x {shapes}" for shapes, count in sorted(counts.items())) or "none"
