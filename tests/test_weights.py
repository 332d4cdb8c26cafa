"""Weights by name: assigned all or none, in safetensors files and in SavedModels."""

import numpy as np
import pytest
import tensorflow as tf

from xling_tf.errors import UserError
from xling_tf.weights import assign_weights, read_saved_model_weights, read_weights, write_weights


def variables() -> dict[str, tf.Variable]:
    return {"a": tf.Variable([1.0, 2.0]), "b/kernel": tf.Variable([[3.0]]), "b/bias": tf.Variable([4.0])}


VALUES = {"a": np.array([5.0, 6.0]), "b/kernel": np.array([[7.0]]), "b/bias": np.array([8.0])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b/kernel": np.zeros((1, 2))}, r"of another shape: b/kernel \[1, 2\] instead of \[1, 1\]\)"),
        (
            {"a": None, "c": np.zeros(1), "b/bias": np.zeros(())},
            "missing: a; unexpected: c; of another shape",
        ),
        ({f"c{n}": np.zeros(1) for n in range(5)}, r"unexpected: c0, c1, c2 and 2 more\)"),
    ],
)
def test_of_values_that_do_not_fit_none_is_assigned(change, message):
    unchanged = variables()
    values = {name: value for name, value in {**VALUES, **change}.items() if value is not None}
    with pytest.raises(UserError, match=rf"weights in some/folder .*{message}"):
        assign_weights(unchanged, values, "some/folder")
    for name, variable in variables().items():
        np.testing.assert_array_equal(unchanged[name], variable)


def test_files_keep_types_shapes_and_names(tmp_path):
    path, transposed = tmp_path / "x.safetensors", np.arange(6, dtype=np.float32).reshape(3, 2).T
    write_weights(path, {"transposed/é": transposed})
    ((name, array),) = read_weights(path).items()
    assert (name, array.tolist()) == ("transposed/é", transposed.tolist())
    content = path.read_bytes()
    for damaged in (b"", b"\xff" * 20, content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"x\.safetensors must be a safetensors file, but is damaged"):
            read_weights(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
    with pytest.raises(UserError, match="is a pointer of Git LFS; run git lfs pull"):
        read_weights(path)


def test_saved_models_of_others_have_no_names(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    for folder in (tmp_path / "other", tmp_path / "none"):
        with pytest.raises(UserError, match="by this version of xling_tf, but its weights have no names"):
            read_saved_model_weights(folder)
