"""What a process needs to load a model."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tensorflow.core.protobuf import saved_model_pb2

from xling_tf.conformance.outcome import Measured, require
from xling_tf.conformance.subject import Subject
from xling_tf.files import SAVED_MODEL

_TEXT = "tensorflow_text"
# Run with the folder and the names of the graph's operations: prints what was needed and the shape.
# What TensorFlow has not imported itself by then cannot be imported any more, Keras included.
_BARE = """
import sys
folder, operations = sys.argv[1], sys.argv[2].split(",")
import tensorflow as tf
from tensorflow.python.framework import op_def_registry
def unknown():
    return [name for name in operations if op_def_registry.get(name) is None]
needed = "tensorflow"
if unknown():
    import tensorflow_text
    needed = "tensorflow_text"
assert not unknown(), f"operations that neither TensorFlow nor tensorflow-text has: {unknown()}"
allowed = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
allowed -= {"keras", "tf_keras", "tensorflow_hub", "xling_tf", "sentencepiece"}
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"the model needs the module {name}")
sys.meta_path.insert(0, Refuse())
for name in [name for name in sys.modules if name.partition(".")[0] not in allowed]:
    sys.modules[name] = None  # importing it fails
model = tf.saved_model.load(folder)
texts = tf.constant(["Hola", "", "What?"])
if callable(model):
    vectors = model(texts)
else:
    name = next(n for n in ("serving_default", "default", "question_encoder") if n in model.signatures)
    signature = model.signatures[name]
    (vectors,) = signature(**{next(iter(signature.structured_input_signature[1])): texts}).values()
print(needed, *vectors.shape)
"""


def it_loads_in_a_bare_process(subject: Subject) -> Measured:
    """A process with TensorFlow alone loads and calls it; with tensorflow-text where its graph needs that.

    Whether it does is seen from the operations in the graph. No other module of site-packages can be
    imported: not this package, not Keras, not TensorFlow Hub. A card beside the model names
    tensorflow-text where that is needed.

    Source: the pages of the published modules ("import tensorflow_text" for the multilingual ones).
    """
    operations = ",".join(sorted(set(_operations(subject.folder))))
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [sys.executable, "-c", _BARE, str(subject.folder.resolve()), operations],
            cwd=elsewhere,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    last = (done.stderr.strip().splitlines() or ["no message"])[-1][:300]
    require(
        done.returncode == 0,
        "a process with TensorFlow (and tensorflow-text) alone to load and call it",
        f"it ended with status {done.returncode}: {last}",
    )
    needed, *shape = done.stdout.split()[-3:]
    require(shape[:1] == ["3"], "3 vectors of 3 texts", f"the shape is {', '.join(shape)}")
    _require_told(subject.folder / "README.md", needed)
    return {"needs": needed}


def _operations(folder: Path) -> Iterator[str]:
    """Names of the operations in the graph of a SavedModel, and of those in its functions."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((folder / SAVED_MODEL).read_bytes())
    for graph in saved.meta_graphs:
        for operation in graph.meta_info_def.stripped_op_list.op:
            yield operation.name


def _require_told(card: Path, needed: str) -> None:
    if needed != _TEXT or not card.is_file():
        return
    require(
        _TEXT in card.read_text(encoding="utf-8").replace("-", "_"),
        "a card that names tensorflow-text, which the model needs",
        "README.md does not",
    )
