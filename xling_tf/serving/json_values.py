"""What JSON is made of, as RapidJSON sees it."""

import math
from typing import Any

_LARGEST_INT, _SMALLEST_INT = 2**64 - 1, -(2**63)


class Repeated(dict[str, Any]):
    """An object with a key that comes more than once: the first one counts, `pairs` has all."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        """The members, in order."""
        super().__init__(reversed(pairs))
        self.pairs = pairs


def json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of its members, in order."""
    members = dict(pairs)
    return members if len(members) == len(pairs) else Repeated(pairs)


def is_double(value: Any) -> bool:
    """Whether RapidJSON keeps a value as a double: decimals, and integers beyond 64 bits.

    Example:
        >>> is_double(1.0), is_double(1), is_double(2**64)
        (True, False, True)
    """
    if type(value) is int:
        return not _SMALLEST_INT <= value <= _LARGEST_INT
    return type(value) is float


def double(value: float | int) -> float:
    """A number as a double, infinite where it is too big for one."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, value)
