"""What the tests of the server serve: tiny SavedModels, laid out as models, versions and wrecks."""

import atexit
import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import tensorflow as tf


class _Lengths(tf.Module):
    """The lengths of texts plus the version's number, so that an answer tells who gave it."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = tf.Variable(float(version))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def lengths(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        good = tf.debugging.assert_none_equal(inputs, "bad", message="the text is bad")
        with tf.control_dependencies([good]):
            return {"outputs": tf.cast(tf.strings.length(inputs), tf.float32) + self.version}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)])
    def count(self, steps: tf.Tensor) -> dict[str, tf.Tensor]:
        """Counts to a number, which takes as long as that is."""
        counted = tf.while_loop(lambda i: i < steps, lambda i: [i + 1], [tf.constant(0, tf.int64)])
        return {"counted": counted[0]}


@cache
def _exported(version: int) -> Path:
    folder = Path(mkdtemp()) / str(version)
    atexit.register(shutil.rmtree, folder.parent)
    model = _Lengths(version)
    tf.saved_model.save(
        model, str(folder), signatures={"serving_default": model.lengths, "count": model.count}
    )
    return folder


def put_export(folder: Path, version: int, *, wrecked: bool = False) -> Path:
    """An export, or one whose weights are cut off, whole at once, in place of the one that is there."""
    arriving = folder.with_name(f".{folder.name}.arriving")
    shutil.copytree(_exported(version), arriving)
    if wrecked:
        next(arriving.glob("variables/*.data*")).write_bytes(b"")
    if folder.exists():
        folder.rename(folder.with_name(f".{folder.name}.leaving"))
    arriving.rename(folder)
    shutil.rmtree(folder.with_name(f".{folder.name}.leaving"), ignore_errors=True)
    return folder
