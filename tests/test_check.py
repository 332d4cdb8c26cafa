"""export/check.py: a model that is broken in one way fails the check for it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_checks as program
import pytest
import tensorflow as tf
from programs import ROOT, run_python, the_error

PROGRAM = str(ROOT / "export" / "check.py")
ROWS, DIM = 64, 4
CALL = (tf.TensorSpec(None, tf.string), tf.TensorSpec([], tf.bool))
TEXTS = tf.TensorSpec([None], tf.string, name="inputs")


class Whole(tf.train.Checkpoint):
    """Means of hashed words at unit length; every text has at least one word."""

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

    def serve(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": self(inputs)}


class NoNumber(Whole):
    """Gives texts that are only whitespace vectors of NaN."""

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
    """Traced for a tensor when it is saved, and again for each list."""

    @tf.function
    def __call__(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.finish(self.encode(tf.reshape(inputs, [-1])))


class HalfStuck(Whole):
    """One of its variables gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = tf.Variable([1.0] * DIM)
        self.variables = self.trainable_variables = [self.table, self.bias]

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        return super().encode(texts) + tf.stop_gradient(self.bias)


class OtherVectors(Whole):
    def serve(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": -self(inputs)}


class NeedsPython(Whole):
    def finish(self, vectors: tf.Tensor) -> tf.Tensor:
        finished = tf.numpy_function(lambda array: array, [vectors], tf.float32)
        return tf.math.l2_normalize(tf.ensure_shape(finished, [None, DIM]), axis=1)


def save(make: Callable[[], Whole], folder: Path) -> program.Subject:
    """Saves a module, to be checked with few texts and calls."""
    module = make()
    signature = tf.function(module.serve).get_concrete_function(TEXTS)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": signature})
    return program.Subject(folder, num_texts=100, num_calls=20)


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (NoNumber, program.encodes_any_string_to_a_unit_vector),
        (DependsOnBatch, program.gives_a_text_one_vector),
        (ListsAlone, program.takes_every_form_of_call),
        (Retracing, program.neither_retraces_nor_grows),
        (HalfStuck, program.is_fine_tuned_by_a_keras_layer),
        (OtherVectors, program.has_signatures_that_can_be_served),
        pytest.param(NeedsPython, program.loads_in_a_bare_process, marks=pytest.mark.slow),
    ],
)
def test_a_module_that_breaks_a_contract_fails_its_check(make, check, tmp_path):
    outcome = program.run_check(check, save(make, tmp_path / "model"))
    assert outcome["status"] == "failed"
    assert outcome["text"].startswith("AssertionError: expected ") or make is ListsAlone


@pytest.mark.slow
def test_the_program_reports_and_ends_with_its_status(tmp_path):
    save(DependsOnBatch, tmp_path / "bad")
    done = run_python(tmp_path, PROGRAM, "--sentences=100", "bad")
    assert done.status == 1, done.errors
    statuses = dict(re.findall(r"^(\w+) +[\d.]+ s  ([^:]+):", done.output, re.MULTILINE)[::-1])
    assert statuses.keys() == {"passed", "failed"}
    assert "expected the vectors of a batch" in done.output
    assert "nowhere" in the_error(run_python(tmp_path, PROGRAM, "nowhere"))
