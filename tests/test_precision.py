import keras
import pytest

from xling_tf.trainer import precision
from xling_tf.trainer.precision import PRECISIONS, matmul_gflops, resolve_precision


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_named_precision_stays_and_nothing_is_measured(name, monkeypatch):
    monkeypatch.delattr(precision, "matmul_gflops")
    assert resolve_precision(name) == name


@pytest.mark.parametrize(
    ("bfloat16", "float32", "expected"),
    [
        (200.0, 100.0, "mixed_bfloat16"),
        (125.0, 100.0, "mixed_bfloat16"),
        (115.0, 100.0, "float32"),
        (30.0, 100.0, "float32"),
    ],
)
def test_auto_takes_bfloat16_where_it_is_well_faster(bfloat16, float32, expected, monkeypatch):
    rates = {"bfloat16": bfloat16, "float32": float32}
    monkeypatch.setattr(precision, "matmul_gflops", rates.__getitem__)
    assert resolve_precision("auto") == expected


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_rate_is_measured(dtype):
    assert 0 < matmul_gflops(dtype, rows=64, inner=32, columns=32) < 1e6


@pytest.mark.parametrize("name", PRECISIONS)
def test_precisions_are_policies_of_keras(name):
    assert keras.DTypePolicy(name).variable_dtype == "float32"
