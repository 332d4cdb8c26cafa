"""The digits of floats: six where they suffice, else all that are needed to get the float back.

TensorFlow Serving writes a number with six significant digits ("%g") and, if that is not the same
number when read, with nine (a float) or seventeen (a double): WriteDecimal of util/json_tensor.cc.
"""

import math

import numpy as np

# One number of the common size, "-1234.123456789012,"; what it does not need are zero bytes.
_LAYOUT = np.dtype(
    [("sign", "u1"), ("whole", "u4"), ("point", "u1"), ("decimals", "u4", 3), ("end", "u1")]
)
_PLACES = 12
_SMALLEST, _LARGEST = 1e-4, 1e4
_BOUNDS = np.array([1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3])
_POWERS = 10.0 ** np.arange(_PLACES + 1)
_WHOLE_POWERS = 10 ** np.arange(_PLACES + 1)
# Small enough to stay in the processor's cache.
_AT_ONCE = 8192
_ODD = b"?"


def _table(digits: list[str]) -> np.ndarray:
    return np.array(digits, "S4").view(np.uint32)


_NUMBERS = range(10_000)
_WHOLE = _table([str(number) for number in _NUMBERS])
_FULL = [f"{number:04d}" for number in _NUMBERS]
_STRIPPED = [digits.rstrip("0") for digits in _FULL]
_LAST_DIGITS = _table(_FULL + _STRIPPED)
_FIRST_DIGITS = _table(_FULL + [digits or "0" for digits in _STRIPPED])


def decimal(value: float, single: bool) -> str:
    """One number.

    Args:
        value: Any float.
        single: Whether it is a float32.

    Example:
        >>> decimal(0.1, single=True), decimal(1 / 3, single=False), decimal(9e6, single=True)
        ('0.1', '0.33333333333333331', '9e+06')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if single:
        value = float(np.float32(value))
    text = f"{value:.6g}"
    read_back = float(np.float32(text)) if single else float(text)
    if read_back != value:
        text = f"{value:.9g}" if single else f"{value:.17g}"
    return text if "." in text or "e" in text else text + ".0"


def decimals(values: np.ndarray) -> bytes:
    """Rows of numbers, with a comma after each but the last of a row, and a semicolon after that.

    Args:
        values: `[rows, n]`, float32 or float64, n > 0.

    Example:
        >>> decimals(np.array([[0.5, 1 / 3], [3e-5, -2]], np.float32))
        b'0.5,0.333333343;3e-05,-2.0;'
    """
    ends = np.where(
        np.arange(values.size) % values.shape[1] == values.shape[1] - 1, ord(";"), ord(",")
    )
    flat = values.ravel()
    if values.dtype != np.float32:
        texts = zip(flat.tolist(), ends.tolist(), strict=True)
        return "".join(f"{decimal(value, single=False)}{end:c}" for value, end in texts).encode()
    starts = range(0, len(flat), _AT_ONCE)
    return b"".join(
        _singles(flat[start : start + _AT_ONCE], ends[start : start + _AT_ONCE]) for start in starts
    )


def _singles(values: np.ndarray, ends: np.ndarray) -> bytes:
    sizes = np.abs(values).astype(np.float64)
    odd = ~((sizes >= _SMALLEST) & (sizes < _LARGEST) | (sizes == 0))
    sizes[odd] = 0
    table = _digits(sizes)
    table["sign"] = np.where(np.signbit(values), ord("-"), 0)
    table[odd] = np.frombuffer(_ODD.ljust(_LAYOUT.itemsize, b"\0"), _LAYOUT)
    table["end"] = ends
    pieces = table.tobytes().translate(None, b"\0").split(_ODD)
    spliced = [b""] * (2 * len(pieces) - 1)
    spliced[::2] = pieces
    spliced[1::2] = [decimal(value, single=True).encode() for value in values[odd].tolist()]
    return b"".join(spliced)


def _digits(sizes: np.ndarray) -> np.ndarray:
    """Floats that are 0 or in [1e-4, 1e4), as doubles, in `_LAYOUT`."""
    # Places after the point that make nine digits: 12 for 0.000123456789, 5 for 1234.56789.
    places = _PLACES - np.searchsorted(_BOUNDS, sizes, "right")
    # A float has 24 bits and 5**12 has 28, so that the product is exact and rounded once, as printf
    # rounds. Reading six digits back by way of a double loses nothing: see the test.
    scales = _POWERS[places - 3]
    short = np.rint(sizes * scales)
    is_short = (short / scales).astype(np.float32) == sizes
    digits = np.where(is_short, short * 1000, np.rint(sizes * _POWERS[places]))
    scaled = digits.astype(np.int64) * _WHOLE_POWERS[_PLACES - places]
    rest, low = np.divmod(scaled, 10_000)
    rest, middle = np.divmod(rest, 10_000)
    whole, high = np.divmod(rest, 10_000)
    no_low = low == 0
    table = np.empty(len(sizes), _LAYOUT)
    table["whole"], table["point"] = _WHOLE[whole], ord(".")
    table["decimals"][:, 0] = _FIRST_DIGITS[high + 10_000 * (no_low & (middle == 0))]
    table["decimals"][:, 1] = _LAST_DIGITS[middle + 10_000 * no_low]
    table["decimals"][:, 2] = _LAST_DIGITS[low + 10_000]
    return table
