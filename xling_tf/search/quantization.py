"""Vectors in fewer bytes: int8 (a quarter of float32) or bits (a 32nd)."""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError, require_known
from xling_tf.search.neighbours import as_vectors, chunks

Precision = Literal["float32", "int8", "binary", "ubinary"]

_STEPS = 255  # between the 256 values of a byte
# The components of a unit vector have a root mean square of 1 / sqrt(dim); hardly any is 5 times larger.
_UNIT_RANGE = 5.0


def quantize_embeddings(embeddings: ArrayLike, precision: Precision) -> NDArray[Any]:
    """Quantizes vectors, as sentence-transformers' `quantize_embeddings` does.

    Args:
        embeddings: `[rows, dim]` floats. Bits need a `dim` that is a multiple of 8, int8 needs unit vectors.
        precision: "float32"; "int8", each component rounded to one of 256 values; "ubinary", the signs
            packed in uint8 `[rows, dim / 8]`, the first in the highest bit; "binary", the same bytes less
            128 in int8.

    Example:
        >>> quantize_embeddings([[0.1, -0.1, 0.1, -0.1, 0.1, 0.1, 0.1, 0.1]], "ubinary").tolist()
        [[175]]
    """
    require_precision(precision)
    vectors = as_vectors(embeddings, "embeddings")
    dim = vectors.shape[1]
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision == "int8":
        bound = np.float32(_UNIT_RANGE / np.sqrt(max(dim, 1)))
        codes = np.empty(vectors.shape, np.int8)
        for codes_part, part in zip(chunks(codes), chunks(vectors), strict=True):
            levels = np.rint((part.astype(np.float32) + bound) / (2 * bound / _STEPS))
            codes_part[:] = np.clip(levels, 0, _STEPS) - 128
        return codes
    if dim % 8:
        remedy = f"use truncate_dim={dim // 8 * 8}" if dim > 8 else "use another precision"
        raise UserError(f"bits need dimensions in multiples of 8, got {dim}; {remedy}")
    packed = np.packbits(vectors > 0, axis=1)
    # In two's complement, subtracting 128 flips the highest bit.
    return packed if precision == "ubinary" else (packed ^ np.uint8(128)).view(np.int8)


def require_precision(precision: str) -> None:
    """Raises a `UserError` if a precision is unknown."""
    require_known("precision", precision, get_args(Precision))
