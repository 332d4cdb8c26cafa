"""export/check.py: whole modules pass each check, a module broken in one way fails that one."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from programs import ROOT, run_python, the_error

PROGRAM = ROOT / "export" / "check.py"
_SPEC = importlib.util.spec_from_file_location("check", PROGRAM)
program: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(program)

CHECKS = {check.__name__: check for check in program.CHECKS}
ROWS, DIM = 64, 4
CALL = (tf.TensorSpec(None, tf.string), tf.TensorSpec([], tf.bool))
TEXTS = tf.TensorSpec([None], tf.string, name="inputs")


class Whole(tf.train.Checkpoint):
    """Means of hashed words, of unit length; a text without words has the mean of the row of none."""

    def __init__(self) -> None:
        super().__init__()
        table = tf.random.stateless_normal([ROWS, DIM], seed=[1, 2])
        self.table = tf.Variable(table, name="table")
        self.variables = [self.table]
        self.trainable_variables = [self.table]
        self.regularization_losses: list[Any] = []

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        words = tf.strings.split(tf.strings.join(["< ", texts]))
        ids = words.with_values(tf.strings.to_hash_bucket_fast(words.values, ROWS))
        return tf.reduce_mean(tf.gather(self.table, ids), axis=1)

    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return tf.math.l2_normalize(vectors, axis=1)

    @tf.function(input_signature=CALL)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))

    def signatures(self) -> dict[str, Any]:
        return {"serving_default": signature(lambda inputs: {"outputs": self(inputs)})}


def signature(function: Callable[..., Any], spec: tf.TensorSpec = TEXTS) -> Any:
    return tf.function(function).get_concrete_function(spec)


class NotNormalized(Whole):
    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return 2 * tf.math.l2_normalize(vectors, axis=1)


class NoNumber(Whole):
    """Texts that start with a NUL or a blank have no words that it sees."""

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        seen = tf.strings.length(tf.strings.strip(texts)) > 0
        return super().encode(texts) / tf.cast(seen, tf.float32)[:, None]


class DependsOnBatch(Whole):
    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        return tf.math.l2_normalize(vectors + tf.reduce_sum(vectors, axis=0), axis=1)


class ListsAlone(Whole):
    @tf.function(input_signature=[TEXTS, CALL[1]])
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(inputs))


class Retracing(Whole):
    """Traced for a tensor when it is saved, and for each list anew when that is passed."""

    @tf.function
    def __call__(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))


class LostVariables(tf.Module):
    """A `tf.Module`: its `variables` are a property of Python, which is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = Whole()

    @tf.function(input_signature=CALL)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        return self.whole(inputs)

    def signatures(self) -> dict[str, Any]:
        return self.whole.signatures()


class HalfStuck(Whole):
    """No gradient comes through to one of its variables."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = tf.Variable([1.0] * DIM)
        self.variables = self.trainable_variables = [self.table, self.bias]

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        return super().encode(texts) + tf.stop_gradient(self.bias)


def serving(
    function: Callable[[Whole, tf.Tensor], dict[str, tf.Tensor]] | None,
    spec: tf.TensorSpec = TEXTS,
) -> Callable[[], Whole]:
    """Makes whole modules with another signature `serving_default`, or without one."""

    class Signed(Whole):
        def signatures(self) -> dict[str, Any]:
            if function is None:
                return {}
            return {"serving_default": signature(lambda texts: function(self, texts), spec)}

    return Signed


def save(make: Callable[[], Any], folder: Path) -> Any:
    """Writes a module as a SavedModel to be checked with few texts and calls."""
    module = make()
    tf.saved_model.save(module, str(folder), signatures=module.signatures())
    return program.Subject(folder, num_texts=100, num_calls=20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return save(Whole, tmp_path_factory.mktemp("whole") / "model")


@pytest.mark.parametrize("name", CHECKS)
def test_an_export_of_ours_passes(name: str, hub_folder: Path) -> None:
    subject = program.Subject(hub_folder, num_texts=300, num_calls=100)
    outcome = program.run_check(CHECKS[name], subject)
    assert (outcome["status"], outcome["text"]) == ("passed", "")
    assert outcome["measured"]


SIGNATURES = "has_the_published_signatures"
BROKEN: dict[str, tuple[str, Callable[[], Any]]] = {
    "not of unit length": ("encodes_any_string_to_a_unit_vector", NotNormalized),
    "no number": ("encodes_any_string_to_a_unit_vector", NoNumber),
    "depends on the batch": ("gives_a_text_one_vector", DependsOnBatch),
    "takes lists alone": ("takes_every_form_of_call", ListsAlone),
    "retraces": ("neither_retraces_nor_grows", Retracing),
    "variables are lost": ("is_fine_tuned_by_a_keras_layer", LostVariables),
    "a variable without gradient": ("is_fine_tuned_by_a_keras_layer", HalfStuck),
    "no signature": (SIGNATURES, serving(None)),
    "another output": (SIGNATURES, serving(lambda model, texts: {"vectors": model(texts)})),
    "other vectors": (SIGNATURES, serving(lambda model, texts: {"outputs": -model(texts)})),
    "another input": (
        SIGNATURES,
        serving(lambda model, texts: {"outputs": model(texts)}, tf.TensorSpec([None], tf.string)),
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_module_that_breaks_a_contract_fails_its_check(how: str, tmp_path: Path) -> None:
    name, make = BROKEN[how]
    outcome = program.run_check(CHECKS[name], save(make, tmp_path / "model"))
    assert outcome["status"] == "failed"
    assert outcome["text"].startswith("expected ") or how == "takes lists alone"


def test_growing_memory_fails(whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([10, 100])
    monkeypatch.setattr(program, "_peak_mib", lambda: next(peaks))
    outcome = program.run_check(CHECKS["neither_retraces_nor_grows"], whole)
    assert "expected 64" in outcome["text"]


@pytest.mark.slow
def test_the_program_reports_and_ends_with_its_status(tmp_path: Path, hub_folder: Path) -> None:
    save(NotNormalized, tmp_path / "bad")
    flags = ("--sentences=100", "--json=both.json")
    done = run_python(tmp_path, str(PROGRAM), *flags, str(hub_folder), "bad")
    assert done.status == 1, done.errors
    models = json.loads((tmp_path / "both.json").read_text())["models"]
    assert [model["model"] for model in models] == [hub_folder.name, "bad"]
    failed = [[c["check"] for c in m["checks"] if c["status"] == "failed"] for m in models]
    assert failed == [[], ["encodes_any_string_to_a_unit_vector"]]
    assert "expected vectors of length 1" in done.output
    assert "nowhere" in the_error(run_python(tmp_path, str(PROGRAM), "nowhere"))


@pytest.mark.slow
def test_a_model_that_needs_python_fails_in_a_bare_process(tmp_path: Path) -> None:
    class NeedsPython(Whole):
        def finish(self, vectors: tf.Tensor) -> tf.Tensor:
            finished = tf.numpy_function(lambda array: array, [vectors], tf.float32)
            return tf.math.l2_normalize(tf.ensure_shape(finished, [None, DIM]), axis=1)

    subject = save(NeedsPython, tmp_path / "model")
    assert program.run_check(program.loads_in_a_bare_process, subject)["status"] == "failed"
