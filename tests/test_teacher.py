"""A teacher's vectors: each text is encoded once; and teachers that are refused."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from encode_functions import Counting, random_vectors
from testing import DIM, make_examples, rows_of, tiny_config

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder
from xling_tf.settings import apply_overrides
from xling_tf.trainer import teacher as module
from xling_tf.trainer.context import plan_tasks
from xling_tf.trainer.input_pipeline import TaskExamples
from xling_tf.trainer.teacher import Teacher, open_teachers, with_vectors

SPANISH, FRENCH = "distillation_en-es", "distillation_en-fr"
CONFIG = tiny_config(
    "tasks.distillation.weight=1",
    "tasks.distillation.teacher=python:encode_functions:constant",
    "data.targets=es,fr",
)
TASKS = [task for task in plan_tasks(CONFIG, CONFIG.data) if task.teacher]


def with_targets(sources: list[str]) -> TaskExamples:
    """Half of the sources for training, the others held out."""
    half = len(sources) // 2
    parts = (sources[:half], sources[half:])
    return TaskExamples(*(make_examples(part, ["x"] * len(part)) for part in parts))


# 11 distinct sources: "number 3" to "number 6" and "a" are in both languages' corpora.
EXAMPLES = {
    SPANISH: with_targets([*(f"number {n}" for n in range(7)), "a", "a", "ñu 猫"]),
    FRENCH: with_targets([*(f"number {n}" for n in range(3, 9)), "a"]),
    "inference": with_targets(["a premise", "another one"]),
}


def make_teacher(encode: Callable[[list[str]], np.ndarray], checksum: str = "one") -> Teacher:
    return Teacher(
        Embedder(name="teacher", sentences=encode, checksum=checksum), DIM, is_fixed=True
    )


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Four texts at a time."""
    monkeypatch.setattr(module, "_CHUNK", 4)


@pytest.fixture
def encode():
    return Counting(random_vectors(dim=DIM))


def require_right(examples: Mapping[str, TaskExamples], encode: Counting) -> None:
    """Every example of the distillation tasks has its own source's vector, in any order."""
    for name in (SPANISH, FRENCH):
        for part in examples[name]:
            sources = [row[0] for row in rows_of(part)]
            expected = encode.encode(sources)
            assert part.vectors.shape == expected.shape
            for order in (np.arange(len(part)), np.array([2, 0, 2]), np.arange(0)):
                np.testing.assert_allclose(part.vectors[order], expected[order], atol=5e-4)


def test_each_distinct_source_is_encoded_once(encode, tmp_path):
    teacher = make_teacher(encode)
    examples = with_vectors(TASKS, EXAMPLES, teacher, tmp_path)
    require_right(examples, encode)
    assert len(encode.texts) == len(set(encode.texts)) == 11
    assert list(examples) == list(EXAMPLES)
    assert examples["inference"] is EXAMPLES["inference"]
    # Neither are they in a restart, nor in another run with the same folder.
    require_right(with_vectors(TASKS, EXAMPLES, teacher, tmp_path), encode)
    assert len(encode.texts) == 11
    # Another teacher has vectors of its own.
    other = Counting(random_vectors(dim=DIM, seed=2))
    require_right(with_vectors(TASKS, EXAMPLES, make_teacher(other, "two"), tmp_path), other)
    assert len(other.texts) == 11


# Beyond what half precision holds, and what squares of single precision do, at either end.
@pytest.mark.parametrize("size", [1e5, 1e30, 1e-9, 1e-30])
def test_vectors_of_any_length_are_learnt_from(size, tmp_path):
    def encode(texts: list[str]) -> np.ndarray:
        return np.tile([3 * size, 4 * size, *[0.0] * (DIM - 2)], (len(texts), 1))

    examples = with_vectors(TASKS, EXAMPLES, make_teacher(encode), tmp_path)
    vectors = examples[SPANISH].train.vectors[np.arange(2)]
    assert vectors == pytest.approx(np.tile([0.6, 0.8, *[0] * (DIM - 2)], (2, 1)), abs=5e-4)


@pytest.mark.parametrize("value", [0.0, np.inf, np.nan])
def test_a_vector_that_cannot_be_learnt_is_told_with_its_text(value, encode, tmp_path):
    def damaged(texts: list[str]) -> np.ndarray:
        vectors = encode(texts).astype(float)
        vectors[[text == "number 5" for text in texts]] = value
        return vectors

    with pytest.raises(UserError, match=r"^teacher must return .*first 'number 5'"):
        with_vectors(TASKS, EXAMPLES, make_teacher(damaged), tmp_path)


def test_a_teacher_of_another_width_is_refused_with_what_to_do():
    ((name, teacher),) = open_teachers(TASKS, "en").items()
    # Nothing but its name tells a function from another one, and it gives 4 numbers.
    assert (teacher.system.checksum, teacher.dim) == (name, 4)
    TASKS[0].require_teacher("it", 4, 4)
    with pytest.raises(UserError, match=r"student's, 8, .*score_scale=20"):
        TASKS[0].require_teacher("it", 4, 8)
    scaled = apply_overrides(CONFIG, ["tasks.distillation.score_scale=20"])
    plan_tasks(scaled, scaled.data)[-1].require_teacher("it", 4, 8)


def test_a_teacher_of_other_languages_is_refused(monkeypatch):
    description = {"config": {"info": {"languages": ["fi", "sv"]}}}
    system = Embedder(name="school", sentences=random_vectors(dim=DIM), description=description)
    monkeypatch.setattr(module, "open_embedder", lambda name: system)
    with pytest.raises(UserError, match=r"must know data\.source, 'en', .* knows fi, sv"):
        open_teachers(TASKS, "en")
