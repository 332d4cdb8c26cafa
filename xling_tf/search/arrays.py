"""Arrays of vectors from users: checked, brought to unit length, shortened, compared."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError

_CHUNK = 16_384  # rows in memory at once
# Lengths of float32 unit vectors are this near to 1; float16 ones are not, and are normalised.
_UNIT_TOLERANCE = 1e-5


def as_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Checks that something is vectors.

    Args:
        vectors: `[rows, dim]` of any float type, which may be memory-mapped, or one vector `[dim]`.
        name: What the caller calls them, for the message.

    Returns:
        `[rows, dim]`: the same array, or a view of it.

    Raises:
        UserError: They have another rank, or are no floats.

    Example:
        >>> as_vectors([0.6, 0.8], "queries").shape
        (1, 2)
    """
    try:
        array = np.asarray(vectors)
    except ValueError:  # NumPy's words for vectors of several lengths
        raise UserError(
            f"{name} must be vectors of one length, but theirs differ; encode all with one model"
        ) from None
    if array.size == 0 and array.ndim == 1:
        return np.zeros((0, 0), np.float32)
    if array.dtype.kind != "f" or array.ndim not in (1, 2):
        hint = "encode texts first" if array.dtype.kind in "OSUT" else "dequantize codes first"
        raise UserError(
            f"{name} must be float vectors of shape [rows, dim], but are {array.dtype} of shape "
            f"{list(array.shape)}; {hint}"
        )
    return np.atleast_2d(array)


def unit_vectors(vectors: ArrayLike, name: str) -> NDArray[np.floating]:
    """Gives vectors unit length, whose inner products are their cosines; zero stays zero.

    Args:
        vectors: As in `as_vectors`.
        name: What the caller calls them, for the message.

    Returns:
        `[rows, dim]`: the same array where all are of unit length, else a float32 copy.

    Raises:
        UserError: They are no vectors, or one is not finite.

    Example:
        >>> unit_vectors([[3.0, 4.0], [0.0, 0.0]], "corpus").round(3).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    array = as_vectors(vectors, name)
    require_finite(array, name)
    lengths = np.concatenate([np.zeros(0), *map(_lengths, chunks(array))])
    if np.all(np.abs(lengths - 1) <= _UNIT_TOLERANCE):
        return array
    result = np.empty(array.shape, np.float32)
    np.divide(array, np.where(lengths > 0, lengths, 1)[:, np.newaxis], out=result, casting="unsafe")
    return result


def truncated(vectors: ArrayLike, dim: int, name: str = "vectors") -> NDArray[np.floating]:
    """Keeps the first dimensions of vectors, brought to unit length again.

    Loses least for models trained with these dimensions (Kusupati et al. 2022, "Matryoshka
    Representation Learning").

    Args:
        vectors: `[rows, whole dim]`.
        dim: How many are kept, at most all.
        name: What the caller calls the vectors, for the message.

    Returns:
        `[rows, dim]`.

    Raises:
        UserError: They are no vectors, or have fewer dimensions.

    Example:
        >>> truncated([[0.0, 0.5, 9.0]], 2).tolist()
        [[0.0, 1.0]]
    """
    array = as_vectors(vectors, name)
    require_positive(dim, "truncate_dim")
    if dim > array.shape[1]:
        raise UserError(
            f"truncate_dim must be at most the {array.shape[1]} dimensions that {name} have, got {dim}"
        )
    return unit_vectors(array[:, :dim], name)


def cosine_similarity(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
    """The cosine of each vector of the one with each of the other.

    Args:
        a: `[n, dim]` or one vector `[dim]`.
        b: `[m, dim]` or one vector `[dim]`.

    Returns:
        `[n, m]`; 0 where a vector is zero.

    Raises:
        UserError: They are no vectors, or of different dimensions.

    Example:
        >>> cosine_similarity([[1.0, 0.0], [0.0, 2.0]], [3.0, 0.0]).tolist()
        [[1.0], [0.0]]
    """
    rows, columns = unit_vectors(a, "a"), unit_vectors(b, "b")
    if not len(rows) or not len(columns):
        return np.zeros((len(rows), len(columns)), np.float32)
    require_same_dim(rows, columns, "a", "b")
    return rows.astype(np.float32) @ columns.astype(np.float32).T


def require_finite(vectors: NDArray[np.floating], name: str) -> None:
    """Makes sure that no number of vectors `[rows, dim]` is infinite or NaN.

    Raises:
        UserError: One is.
    """
    finite = np.concatenate(
        [np.ones(0, bool), *(np.isfinite(c).all(axis=1) for c in chunks(vectors))]
    )
    if not finite.all():
        raise UserError(
            f"{name} must be finite vectors, but row {int(np.argmin(finite))} has infinity or NaN in "
            "it; encode it anew"
        )


def require_same_dim(a: NDArray[Any], b: NDArray[Any], name_a: str, name_b: str) -> None:
    """Makes sure that two arrays `[rows, dim]` have vectors of one space.

    Raises:
        UserError: Their dimensions differ.
    """
    if a.shape[1] != b.shape[1]:
        raise UserError(
            f"{name_a} and {name_b} must have as many dimensions, but {name_a} have {a.shape[1]} and "
            f"{name_b} {b.shape[1]}; encode both with one model and one truncate_dim"
        )


def require_positive(value: int, name: str) -> None:
    """Makes sure that a count is one.

    Raises:
        UserError: It is no integer, or less than 1.
    """
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise UserError(f"{name} must be an integer of at least 1, got {value!r}")


def chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yields the rows of an array, some thousands at a time."""
    return (array[start : start + _CHUNK] for start in range(0, len(array), _CHUNK))


def _lengths(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.linalg.norm(vectors.astype(np.float64), axis=1)
