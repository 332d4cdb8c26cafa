"""Vectors in fewer bytes: int8 (a quarter of float32) or bits (a 32nd).

To search them, use FAISS, whose indexes compress float vectors themselves: of unit vectors,
`faiss.index_factory(dim, "SQ8")` finds nearly what the float vectors find, and
`faiss.index_factory(dim, "LSH,Refine(SQ8)")` searches their signs and scores the best again.
"""

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError
from xling_tf.search.neighbours import as_vectors, chunks

Precision = Literal["float32", "int8", "binary", "ubinary"]

_STEPS = 255  # between the 256 values of a byte
# The components of a unit vector have a root mean square of 1 / sqrt(dim); hardly any is 5 times larger.
_UNIT_RANGE = 5.0


def quantize_embeddings(
    embeddings: ArrayLike, precision: Precision, ranges: ArrayLike | None = None
) -> NDArray[Any]:
    """Quantizes vectors, as sentence-transformers' `quantize_embeddings` does.

    Args:
        embeddings: `[rows, dim]` floats. Bits need a `dim` that is a multiple of 8.
        precision: "float32"; "int8", each component rounded to one of 256 values; "ubinary", the signs
            packed in uint8 `[rows, dim / 8]`, the first in the highest bit; "binary", the same bytes less
            128 in int8.
        ranges: For int8, `[2, dim]`: the values that become -128 and 127; values outside are clipped. All
            vectors of an index need the same. None: a fixed range that suits unit vectors.

    Raises:
        UserError: The precision is unknown, or `ranges` or `dim` do not fit it.

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
        return _to_int8(vectors, ranges)
    if dim % 8:
        raise UserError(f"bits need dimensions in multiples of 8, got {dim}; use truncate_dim={dim // 8 * 8}")
    packed = np.packbits(vectors > 0, axis=1)
    # In two's complement, subtracting 128 flips the highest bit.
    return packed if precision == "ubinary" else (packed ^ np.uint8(128)).view(np.int8)


def _to_int8(vectors: NDArray[np.floating], ranges: ArrayLike | None) -> NDArray[np.int8]:
    dim = vectors.shape[1]
    if ranges is None:
        bound = _UNIT_RANGE / np.sqrt(max(dim, 1))
        lowest, highest = np.full(dim, -bound, np.float32), np.full(dim, bound, np.float32)
    else:
        limits = as_vectors(ranges, "ranges").astype(np.float32)
        if limits.shape != (2, dim) or (limits[0] > limits[1]).any():
            shape = list(limits.shape)
            raise UserError(f"ranges must be smallest and largest values [2, {dim}], got shape {shape}")
        lowest, highest = limits
    steps = (highest - lowest) / np.float32(_STEPS)
    steps = np.where(steps > 0, steps, np.float32(1))
    codes = np.empty(vectors.shape, np.int8)
    for codes_part, part in zip(chunks(codes), chunks(vectors), strict=True):
        levels = np.rint((part.astype(np.float32) - lowest) / steps)
        codes_part[:] = np.clip(levels, 0, _STEPS) - 128
    return codes


def require_precision(precision: str) -> None:
    """Raises a `UserError` if a precision is unknown."""
    if precision not in get_args(Precision):
        expected = ", ".join(get_args(Precision))
        raise UserError(f"precision must be one of {expected}, got {precision!r}")
