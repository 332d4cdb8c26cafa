"""Unit vectors in fewer bytes: int8 (a quarter of float32) or bits (a 32nd)."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError

Precision = Literal["float32", "int8", "binary", "ubinary"]
PRECISIONS = get_args(Precision)

_STEPS = 255  # between the 256 values of a byte
# The components of a unit vector have a root mean square of 1 / sqrt(dim); hardly any is 5 times
# larger.
_UNIT_RANGE = 5.0


def quantize_units(vectors: NDArray[np.floating], precision: str) -> NDArray[Any]:
    """Quantizes unit vectors `[rows, dim]`, with a scale that depends only on `dim`.

    Results of different calls are therefore comparable.

    "int8" rounds to steps of 10 / sqrt(dim) / 255. "ubinary" packs the signs in uint8 `[rows, dim /
    8]`, the first in the highest bit; "binary" has the same bytes less 128 in int8, as in
    sentence-transformers. Bits need a `dim` that is a multiple of 8.

    Examples:
        >>> vectors = np.array([[0.1, -0.1, 0.1, -0.1, 0.1, 0.1, 0.1, 0.1]])
        >>> quantize_units(vectors, "ubinary").tolist()
        [[175]]
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


def from_int8(vectors: NDArray[np.int8]) -> NDArray[np.float32]:
    """Returns vectors in the direction of int8 ones: n stands for n + 0.5, the middle of its step.

    The zero vector has the two values in the middle, 0 and -1, which no unit vector has in all
    places.
    """
    has_length = ((vectors != 0) & (vectors != -1)).any(axis=-1, keepdims=True)
    return np.where(has_length, vectors + np.float32(0.5), np.float32(0))


def dequantized(vectors: NDArray[Any], dim: int) -> NDArray[np.float32]:
    """Returns vectors `[rows, dim]` in the direction of what `quantize_units` made of unit vectors.

    A bit stands for 1 or -1. The zero vector has no bits; no other vector of usual dimensions has
    none.

    Raises:
        UserError: The type or shape is none of `quantize_units`.

    Examples:
        >>> dequantized(np.array([[175]], np.uint8), 8).tolist()
        [[1.0, -1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 1.0]]
    """
    if vectors.dtype == np.int8 and vectors.shape[1:] == (dim,):
        return from_int8(vectors)
    if vectors.dtype not in (np.int8, np.uint8) or vectors.shape[1:] != (dim / 8,):
        raise UserError(
            f"expected vectors of {dim} dimensions in int8 or bits, got {vectors.dtype} of shape "
            f"{list(vectors.shape)}; encode both sides with one model and one `truncate_dim`"
        )
    packed = vectors if vectors.dtype == np.uint8 else vectors.view(np.uint8) ^ np.uint8(128)
    signs = np.unpackbits(packed, axis=1).astype(np.float32) * 2 - 1
    return signs * packed.any(axis=1, keepdims=True)
