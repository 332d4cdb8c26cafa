"""Vectors in fewer bytes: int8 numbers (a quarter of float32), or bits (a 32nd).

What is lost is mostly won back by scoring some more of the nearest with a float query, as
`quantized_search` does (Yamada et al. 2021, "Efficient Passage Retrieval with Hashing for Open-domain
Question Answering", sec. 3). The names of the precisions are sentence-transformers'.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError
from xling_tf.files import replacing
from xling_tf.search.neighbours import as_array, as_vectors, chunks

Precision = Literal["float32", "int8", "binary", "ubinary"]

_STEPS = 255  # between the 256 numbers of a byte
_LEAST = -128  # int8
# A unit vector's numbers have a root mean square of 1 / sqrt(dim); hardly any is 5 times as large.
_UNIT_RANGE = 5.0


@dataclass(frozen=True, eq=False)
class Int8Ranges:
    """What -128 and 127 stand for in each dimension: what all parts of an index must share.

    Args:
        minimum: `[dim]` float32, the value of -128.
        maximum: `[dim]` float32, the value of 127, not below the minimum.

    Example:
        >>> ranges = Int8Ranges.calibrated([[0.0, -1.0], [2.55, 1.0]])
        >>> quantize([[0.01, 1.0], [9.0, -1.0]], "int8", ranges=ranges).tolist()
        [[-127, 127], [127, -128]]
    """

    minimum: NDArray[np.float32]
    maximum: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Refuses what is no range."""
        shapes = [list(np.shape(side)) for side in (self.minimum, self.maximum)]
        is_range = len(shapes[0]) == 1 and shapes[0] == shapes[1]
        widths = np.subtract(self.maximum, self.minimum) if is_range else np.array([np.nan])
        if not np.all(np.isfinite(widths) & (widths >= 0)):
            raise UserError(
                f"ranges must be finite minima and maxima of shape [dim], no minimum above its maximum, got "
                f"shapes {shapes}; make them with Int8Ranges.calibrated"
            )

    @classmethod
    def calibrated(cls, vectors: ArrayLike) -> Self:
        """Takes each dimension's least and greatest value of thousands of vectors `[rows, dim]`."""
        array = as_vectors(vectors, "vectors to calibrate with")
        if not len(array):
            raise UserError("at least one vector is expected to calibrate with, got none")
        return cls(array.min(axis=0).astype(np.float32), array.max(axis=0).astype(np.float32))

    @classmethod
    def of_unit_vectors(cls, dim: int) -> Self:
        """Takes one range for all unit vectors and dimensions, which needs no calibration."""
        bound = np.full(dim, _UNIT_RANGE / np.sqrt(dim), np.float32)
        return cls(-bound, bound)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` wrote."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
            sides = [np.asarray(found[name], np.float32) for name in ("minimum", "maximum")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} must be a file that Int8Ranges.save wrote, but cannot be read: {error!r}; "
                "calibrate anew"
            ) from error
        return cls(*sides)

    def save(self, path: str | Path) -> None:
        """Writes them as JSON, to lie beside the index."""
        text = json.dumps({"minimum": self.minimum.tolist(), "maximum": self.maximum.tolist()})
        with replacing(Path(path)) as temporary:
            temporary.write_text(text, encoding="utf-8")

    @property
    def steps(self) -> NDArray[np.float32]:
        """What a difference of 1 stands for, `[dim]`; 1 where a dimension has but one value."""
        steps = (self.maximum - self.minimum) / np.float32(_STEPS)
        return np.where(steps > 0, steps, np.float32(1))


def quantize(vectors: ArrayLike, precision: Precision, *, ranges: Int8Ranges | None = None) -> NDArray[Any]:
    """Quantizes vectors.

    Args:
        vectors: `[rows, dim]`; bits need a `dim` that is a multiple of 8.
        precision: "float32"; "int8", rounded to 256 values; "ubinary", the signs in `[rows, dim / 8]`
            uint8, the first the highest bit; "binary", the same bytes less 128 in int8.
        ranges: Of int8; None: `Int8Ranges.of_unit_vectors`. What lies outside is cut.

    Example:
        >>> quantize([[0.1, -0.1, 0.1, -0.1, 0.1, 0.1, 0.1, 0.1]], "ubinary").tolist()
        [[175]]
    """
    require_precision(precision)
    array = as_vectors(vectors, "vectors")
    dim = array.shape[1]
    if precision == "float32":
        return array.astype(np.float32, copy=False)
    if precision == "int8":
        ranges = ranges_of(ranges, dim)
        codes = np.empty(array.shape, np.int8)
        for part, vectors_part in zip(chunks(codes), chunks(array), strict=True):
            levels = np.rint((vectors_part.astype(np.float32) - ranges.minimum) / ranges.steps)
            part[:] = np.clip(levels, 0, _STEPS) + _LEAST
        return codes
    if dim % 8:
        raise UserError(
            f"bits need vectors with a multiple of 8 dimensions, got {dim}; shorten them to "
            f"{dim // 8 * 8} (truncate_dim) or use int8"
        )
    packed = np.packbits(array > 0, axis=1)
    # Less 128 is, in two's complement, the highest bit turned.
    return packed if precision == "ubinary" else (packed ^ np.uint8(128)).view(np.int8)


def dequantize(
    codes: ArrayLike, precision: Precision, *, ranges: Int8Ranges | None = None
) -> NDArray[np.float32]:
    """Makes float vectors `[rows, dim]` of what `quantize` gave for the same precision and ranges.

    Of int8 they are right to half a step of the ranges; of bits, unit vectors with the same signs.
    """
    array = require_codes(codes, precision)
    if precision == "float32":
        return array.astype(np.float32, copy=False)
    if precision == "int8":
        ranges = ranges_of(ranges, array.shape[1])
        return (array.astype(np.float32) - _LEAST) * ranges.steps + ranges.minimum
    signs = np.unpackbits(as_bits(array), axis=1).astype(np.float32) * 2 - 1
    return signs / np.sqrt(np.float32(signs.shape[1]))


def require_codes(codes: ArrayLike, precision: Precision) -> NDArray[Any]:
    """Makes sure that an array is codes `[rows, dim or bytes]` of a precision, and gives it."""
    require_precision(precision)
    array = as_array(codes, f"{precision} vectors")
    expected = {"float32": "float", "ubinary": "uint8"}.get(precision, "int8")
    is_right = array.dtype.kind == "f" if expected == "float" else array.dtype == expected
    if not is_right or array.ndim != 2:
        raise UserError(
            f"{precision} vectors must be {expected} of shape [rows, numbers], but are {array.dtype} of "
            f"shape {list(array.shape)}; give what quantize or encode gave for {precision}"
        )
    return array


def require_precision(precision: str) -> None:
    """Makes sure that a precision is known."""
    if precision not in get_args(Precision):
        expected = ", ".join(get_args(Precision))
        raise UserError(f"precision must be one of {expected}, got {precision!r}")


def as_bits(codes: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of "ubinary" from those of either precision of bits, told by their type."""
    return codes if codes.dtype == np.uint8 else codes.view(np.uint8) ^ np.uint8(128)


def ranges_of(ranges: Int8Ranges | ArrayLike | None, dim: int) -> Int8Ranges:
    """Checks ranges, which may be an array `[2, dim]` of minima and maxima; None: those of unit vectors."""
    if ranges is None:
        ranges = Int8Ranges.of_unit_vectors(dim)
    elif not isinstance(ranges, Int8Ranges):
        array = as_vectors(ranges, "ranges")
        if len(array) != 2:
            raise UserError(f"ranges must be Int8Ranges or of shape [2, {dim}], but have {list(array.shape)}")
        ranges = Int8Ranges(*array.astype(np.float32))
    if len(ranges.minimum) != dim:
        raise UserError(
            f"ranges must have the {dim} dimensions of the vectors, but have {len(ranges.minimum)}; "
            "calibrate with vectors of this truncate_dim"
        )
    return ranges
