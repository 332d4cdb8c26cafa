import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xling_tf.errors import UserError
from xling_tf.search.quantization import Int8Ranges, dequantize, quantize

UNITS = np.random.default_rng(0).normal(size=(500, 32)).astype(np.float32)
UNITS /= np.linalg.norm(UNITS, axis=1, keepdims=True)


def test_int8_derived_by_hand():
    # 255 steps of 0.01 from -1 to 1.55: -1 -> -128, 0 -> 100 steps -> -28, 1.55 -> 127; 0.004 is nearer to 0
    # than to 0.01; what lies outside is cut.
    ranges = Int8Ranges(np.float32([-1.0]), np.float32([1.55]))
    vectors = np.float32([[-1.0], [0.0], [0.004], [1.55], [-7.0], [7.0]])
    codes = quantize(vectors, "int8", ranges=ranges)
    assert codes.dtype == np.int8
    assert codes[:, 0].tolist() == [-128, -28, -28, 127, -128, 127]
    back = dequantize(codes, "int8", ranges=ranges)
    assert back[:, 0] == pytest.approx([-1.0, 0.0, 0.0, 1.55, -1.0, 1.55], abs=1e-6)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_calibrated_int8_is_right_to_half_a_step(rows, dim, seed):
    vectors = np.random.default_rng(seed).normal(0, 9, (rows, dim)).astype(np.float32)
    ranges = Int8Ranges.calibrated(vectors)
    back = dequantize(quantize(vectors, "int8", ranges=ranges), "int8", ranges=ranges)
    assert np.all(np.abs(back - vectors) <= ranges.steps / 2 + 1e-5)


def test_ranges_of_unit_vectors_keep_the_cosines():
    back = dequantize(quantize(UNITS, "int8"), "int8")
    # Steps of 10 / sqrt(32) / 255 = 0.007, rounded errors of 0.002 in the mean square.
    assert np.sum(back * UNITS, axis=1) == pytest.approx(np.ones(500), abs=0.01)


def test_bits_derived_by_hand():
    # Positive numbers are 1, zero is not: 10100001 = 161, and 161 - 128 = 33; 01000000 = 64, less 128: -64.
    vectors = np.array([[1, -1, 2, 0, -3, -1, -1, 5], [-1, 1, -1, 0, -3, -1, -1, -5]], np.float32)
    assert quantize(vectors, "ubinary").tolist() == [[161], [64]]
    assert quantize(vectors, "ubinary").dtype == np.uint8
    assert quantize(vectors, "binary").tolist() == [[33], [-64]]
    assert quantize(vectors, "binary").dtype == np.int8
    for precision in ("binary", "ubinary"):
        back = dequantize(quantize(UNITS, precision), precision)
        assert back == pytest.approx(np.sign(UNITS) / 32**0.5)


def test_what_cannot_be_quantized_is_named():
    ranges = Int8Ranges.of_unit_vectors(16)
    for dim, precision, message in (
        (20, "ubinary", "multiple of 8 dimensions, got 20; shorten them to 16"),
        (32, "int4", "one of float32, int8, binary, ubinary, got 'int4'"),
        (32, "int8", "the 32 dimensions of the vectors, but have 16.*truncate_dim"),
    ):
        with pytest.raises(UserError, match=message):
            quantize(np.ones((2, dim)), precision, ranges=ranges)
    for minimum, maximum, message in (
        ([0.0], [0.0, 1.0], r"shapes \[\[1\], \[2\]\]"),
        ([0.0], [np.nan], "finite minima"),
        ([0.0, 1.0], [1.0, 0.5], "no minimum above"),
    ):
        with pytest.raises(UserError, match=message):
            Int8Ranges(np.float32(minimum), np.float32(maximum))


def test_ranges_come_back_from_their_file_to_the_bit(tmp_path):
    ranges = Int8Ranges.calibrated(UNITS)
    ranges.save(tmp_path / "ranges.json")
    loaded = Int8Ranges.load(str(tmp_path / "ranges.json"))
    assert np.array_equal(loaded.minimum, ranges.minimum)
    assert np.array_equal(loaded.maximum, ranges.maximum)
    assert loaded.minimum.dtype == np.float32

    path = tmp_path / "none.json"
    for text in ("", "[]", '{"minimum": ["a"], "maximum": [1]}'):
        path.write_text(text)
        with pytest.raises(UserError, match=r"none\.json must be a file that Int8Ranges\.save"):
            Int8Ranges.load(path)
