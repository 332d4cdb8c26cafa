"""FarmHash's Fingerprint64 in plain Python: the hash of `tf.strings.to_hash_bucket_fast`.

Source: `farmhashna::Hash64` in src/farmhash.cc of https://github.com/google/farmhash. Numbers have
64 bits: `_MASK` cuts them where a larger one would give another result, or grow without bound.
"""

import struct
from collections.abc import Sequence

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_SEED = 81
_MASK = 2**64 - 1

_Pair = tuple[int, int]
_State = tuple[int, int, int, _Pair, _Pair]


def fingerprint(text: bytes) -> int:
    """Computes FarmHash's Fingerprint64.

    Example:
        >>> fingerprint(b"hola") % 10  # tf.strings.to_hash_bucket_fast("hola", 10)
        7
    """
    size = len(text)
    if size > 64:
        return _of_blocks(text)
    factor = _K2 + 2 * size
    if size > 16:
        return _up_to_64(text, factor)
    if size >= 8:
        first, last = _word(text, 0) + _K2, _word(text, -8)
        left = _rotated(last, 37) * factor + first
        return _mixed(left, (_rotated(first, 25) + last) * factor, factor)
    if size >= 4:
        first, last = int.from_bytes(text[:4], "little"), int.from_bytes(text[-4:], "little")
        return _mixed(size + (first << 3), last, factor)
    if size:
        first, last = text[0] + (text[size // 2] << 8), size + (text[-1] << 2)
        return _shifted(first * _K2 ^ last * _K0) * _K2 & _MASK
    return _K2


def _up_to_64(text: bytes, factor: int) -> int:
    """Hashes 17 to 64 bytes."""
    a, b = _word(text, 0) * (_K1 if len(text) <= 32 else _K2), _word(text, 8)
    c, d = _word(text, -8) * factor, _word(text, -16) * _K2
    left = _rotated(a + b, 43) + _rotated(c, 30) + d
    mixed = _mixed(left, a + _rotated(b + _K2, 18) + c, factor)
    if len(text) <= 32:
        return mixed
    e, f = _word(text, 16) * factor, _word(text, 24)
    g, h = (left + _word(text, -32)) * factor, (mixed + _word(text, -24)) * factor
    return _mixed(_rotated(e + f, 43) + _rotated(g, 30) + h, e + _rotated(f + a, 18) + g, factor)


def _of_blocks(text: bytes) -> int:
    """Hashes more than 64 bytes, in blocks of 64; the last one overlaps the one before."""
    y = _SEED * _K1 + 113
    z = _shifted(y * _K2 + 113) * _K2
    state: _State = (_SEED * _K2 + _word(text, 0), y, z, (0, 0), (0, 0))
    border = (len(text) - 1) // 64 * 64
    for start in range(0, border, 64):
        state = _next(state, text[start : start + 64], _K1, 1)
    x, y, z, v, w = state
    factor = _K1 + 2 * (z & 0xFF)
    w_first = w[0] + len(text) - 1 - border
    v_first = v[0] + w_first
    state = (x, y, z, (v_first, v[1]), (w_first + v_first, w[1]))
    x, y, z, v, w = _next(state, text[-64:], factor, 9)
    left = _mixed(v[0], w[0], factor) + _shifted(y) * _K0 + z
    return _mixed(left, _mixed(v[1], w[1], factor) + x, factor)


def _next(state: _State, block: bytes, factor: int, weight: int) -> _State:
    """Returns the state after a block; factor and weight differ for the last one."""
    x, y, z, v, w = state
    words = struct.unpack("<8Q", block)
    x = _rotated(x + y + v[0] + words[1], 37) * factor ^ w[1] * weight
    y = _rotated(y + v[1] + words[6], 42) * factor + v[0] * weight + words[5]
    z = _rotated(z + w[0], 33) * factor
    v = _pair(words[:4], v[1] * factor, x + w[0])
    w = _pair(words[4:], z + w[1], y + words[2])
    return z, y, x, v, w


def _pair(words: Sequence[int], first: int, second: int) -> _Pair:
    first += words[0]
    total = first + words[1] + words[2]
    second = _rotated(second + first + words[3], 21) + _rotated(total, 44)
    return total + words[3] & _MASK, second + first & _MASK


def _mixed(first: int, second: int, factor: int) -> int:
    mixed = _shifted((first ^ second) * factor)
    return _shifted((second ^ mixed) * factor) * factor & _MASK


def _shifted(number: int) -> int:
    number &= _MASK
    return number ^ number >> 47


def _rotated(number: int, bits: int) -> int:
    number &= _MASK
    return (number >> bits | number << 64 - bits) & _MASK


def _word(text: bytes, start: int) -> int:
    return int.from_bytes(text[start:][:8], "little")
