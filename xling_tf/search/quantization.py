"""Vectors in fewer bytes: int8 or uint8 (a quarter of float32) or bits (a 32nd)."""

from typing import Any, Literal, get_args

import numpy as np
from absl import logging
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError, require_known
from xling_tf.inputs import describe
from xling_tf.search.neighbours import as_vectors, require_same_dim

Precision = Literal["float32", "int8", "binary", "ubinary"]
PRECISIONS = get_args(Precision)

_STEPS = 255  # between the 256 values of a byte
_FEW = 100  # vectors; sentence-transformers warns of ranges of fewer, too
# The components of a unit vector have a root mean square of 1 / sqrt(dim); hardly any is 5 times larger.
_UNIT_RANGE = 5.0


def quantize_embeddings(
    embeddings: ArrayLike,
    precision: Precision | Literal["uint8"],
    ranges: ArrayLike | None = None,
    calibration_embeddings: ArrayLike | None = None,
) -> NDArray[Any]:
    """Quantizes vectors, as sentence-transformers' `quantize_embeddings` does.

    Args:
        embeddings: `[rows, dim]` floats. Bits need a `dim` that is a multiple of 8.
        precision: "float32"; "int8" or "uint8", each component as one of 256 values; "ubinary", the signs
            packed in uint8 `[rows, dim / 8]`, the first in the highest bit; "binary", the same bytes less
            128 in int8.
        ranges: `[2, dim]`, the smallest and largest value of each dimension in "int8" and "uint8"; only
            vectors of the same ranges can be compared.
        calibration_embeddings: `[rows, dim]` that give the ranges instead; None for `embeddings`.

    Example:
        >>> quantize_embeddings([[0.1, -0.1, 0.1, -0.1, 0.1, 0.1, 0.1, 0.1]], "ubinary").tolist()
        [[175]]
        >>> quantize_embeddings([[0.0], [0.5]], "int8", ranges=[[0.0], [1.0]]).tolist()
        [[-128], [0]]
    """
    require_known("precision", precision, (*PRECISIONS, "uint8"))
    vectors = as_vectors(embeddings, "embeddings")
    if precision not in ("int8", "uint8"):
        return quantize_units(vectors, precision)
    if not len(vectors):
        return vectors.astype(precision)
    if ranges is None:
        given = vectors if calibration_embeddings is None else calibration_embeddings
        samples = as_vectors(given, "calibration_embeddings")
        if len(samples) < _FEW:
            logging.warning("the ranges of %s are those of only %d vectors", precision, len(samples))
        ranges = [samples.min(axis=0, initial=np.inf), samples.max(axis=0, initial=-np.inf)]
    limits = as_vectors(ranges, "ranges")
    require_same_dim(vectors, limits, "embeddings", "ranges")
    if len(limits) != 2 or np.any(limits[0] > limits[1]):
        raise UserError(
            f"ranges must be two rows, the smallest and the largest values, got {describe(ranges)}"
        )
    step, offset = (limits[1] - limits[0]) / _STEPS, 128 * (precision == "int8")
    levels = (vectors - limits[0]) / np.where(step > 0, step, 1) - offset
    return np.clip(levels, -offset, _STEPS - offset).astype(precision)  # cut off toward zero


def quantize_units(vectors: NDArray[np.floating], precision: str) -> NDArray[Any]:
    """Quantizes unit vectors, with one scale for all of a dimension: those of any two calls compare.

    "int8" rounds to steps of 10 / sqrt(dim) / 255; the others are as `quantize_embeddings` says.
    """
    dim = vectors.shape[1]
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision == "int8":
        bound = np.float32(_UNIT_RANGE / np.sqrt(max(dim, 1)))
        levels = np.rint((vectors.astype(np.float32) + bound) / (2 * bound / _STEPS))
        return (np.clip(levels, 0, _STEPS) - 128).astype(np.int8)
    if dim % 8:
        remedy = f"use truncate_dim={dim // 8 * 8}" if dim > 8 else "use another precision"
        raise UserError(f"bits need dimensions in multiples of 8, got {dim}; {remedy}")
    packed = np.packbits(vectors > 0, axis=1)
    # In two's complement, subtracting 128 flips the highest bit.
    return packed if precision == "ubinary" else (packed ^ np.uint8(128)).view(np.int8)
