"""A teacher's vectors: each text encoded once, shards of the stated size, killed and gone on."""

import dataclasses
import logging as std_logging
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from encode_functions import Counting, random_vectors
from programs import ONE_TASK, SHORT, train
from testing import DIM, TINY, find_task, make_examples, tiny_model

from xling_tf.config import apply_overrides
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import System
from xling_tf.trainer import teacher as module
from xling_tf.trainer.input_pipeline import TaskExamples
from xling_tf.trainer.teacher import Teacher, open_teacher, with_vectors

SPANISH, FRENCH = "distillation_en-es", "distillation_en-fr"
CONFIG = apply_overrides(
    TINY,
    [
        *(
            "tasks.distillation.weight=1",
            "tasks.distillation.teacher=python:encode_functions:constant",
        ),
        "data.targets=es,fr",
    ],
)
TASKS = tiny_model(CONFIG).tasks


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
    return Teacher("teacher", encode, checksum, DIM)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four texts a shard, two at a time."""
    monkeypatch.setattr(module, "SHARD_SIZE", 4)
    monkeypatch.setattr(module, "_MAX_ROWS", 2)


@pytest.fixture
def encode() -> Counting:
    return Counting(random_vectors(dim=DIM))


def require_right(examples: Mapping[str, TaskExamples], encode: Counting) -> None:
    """Every example of the distillation tasks has its own source's vector, in any order."""
    for name in (SPANISH, FRENCH):
        for part in examples[name]:
            sources = [record[0] for record in part.records]
            expected = encode.encode(sources).astype(np.float16)
            assert part.vectors is not None
            assert part.vectors.shape == expected.shape
            for order in (np.arange(len(part)), np.array([2, 0, 2]), np.arange(0)):
                np.testing.assert_array_equal(part.vectors_of(order), expected[order])
                assert part.vectors_of(order).dtype == np.float16


def test_each_distinct_source_is_encoded_once_the_longest_first(
    encode: Counting, tmp_path: Path
) -> None:
    examples = with_vectors(TASKS, EXAMPLES, make_teacher(encode), tmp_path / "teacher")
    require_right(examples, encode)
    assert len(encode.texts) == len(set(encode.texts)) == 11
    lengths = [len(text) for text in encode.texts]
    assert lengths == sorted(lengths, reverse=True)
    assert max(len(batch) for batch in encode.batches) == 2
    assert list(examples) == list(EXAMPLES)
    assert examples["inference"] is EXAMPLES["inference"]


def test_shards_are_half_precision_and_of_the_size_that_is_told(
    encode: Counting, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch
) -> None:
    with caplog.at_level(std_logging.INFO, logger="absl"):
        with_vectors(TASKS, EXAMPLES, make_teacher(encode), tmp_path / "teacher")
    shards = [np.load(path) for path in sorted(tmp_path.glob("teacher/shard-*.npy"))]
    assert [shard.shape for shard in shards] == [(4, DIM), (4, DIM), (3, DIM)]
    assert {shard.dtype for shard in shards} == {np.dtype(np.float16)}
    # 11 * 8 numbers of 2 bytes; a file's header has 128.
    sizes = [path.stat().st_size for path in tmp_path.glob("teacher/shard-*.npy")]
    assert sum(sizes) == 11 * DIM * 2 + 3 * 128
    assert f"teacher encodes 11 source sentences: 0 MB in {tmp_path / 'teacher'}" in caplog.messages


def test_what_is_there_is_not_encoded_again(encode: Counting, tmp_path: Path) -> None:
    folder = tmp_path / "teacher"
    with_vectors(TASKS, EXAMPLES, make_teacher(encode), folder)
    again = Counting(encode.encode)
    require_right(with_vectors(TASKS, EXAMPLES, make_teacher(again), folder), again)
    assert again.batches == []


def test_killed_midway_it_goes_on_with_the_shard_that_is_missing(
    encode: Counting, tmp_path: Path
) -> None:
    def killed(texts: list[str]) -> np.ndarray:
        if len(encode.batches) == 3:  # in the middle of the second shard
            raise KeyboardInterrupt
        return encode(texts)

    folder = tmp_path / "teacher"
    with pytest.raises(KeyboardInterrupt):
        with_vectors(TASKS, EXAMPLES, make_teacher(killed), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["content.json", "shard-00000.npy"]
    first = (folder / "shard-00000.npy").stat().st_mtime_ns

    again = Counting(encode.encode)
    require_right(with_vectors(TASKS, EXAMPLES, make_teacher(again), folder), again)
    assert sorted([*encode.texts[:4], *again.texts]) == sorted(set(encode.texts + again.texts))
    assert len(again.texts) == 11 - 4
    assert (folder / "shard-00000.npy").stat().st_mtime_ns == first


def test_another_teacher_or_other_texts_begin_anew(
    encode: Counting, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "teacher"
    with_vectors(TASKS, EXAMPLES, make_teacher(encode), folder)
    other = Counting(random_vectors(dim=DIM, seed=2))
    with caplog.at_level(std_logging.INFO, logger="absl"):
        examples = with_vectors(TASKS, EXAMPLES, make_teacher(other, "two"), folder)
    require_right(examples, other)
    assert len(other.texts) == 11
    assert f"{folder} is of another teacher or of other texts: it begins anew" in caplog.messages

    fewer = {**EXAMPLES, FRENCH: EXAMPLES[SPANISH]}  # without "number 7" and "number 8"
    again = Counting(other.encode)
    require_right(with_vectors(TASKS, fewer, make_teacher(again, "two"), folder), again)
    assert len(again.texts) == 9
    assert len(list(folder.glob("shard-*"))) == 3


def test_without_a_folder_vectors_last_as_long_as_the_process(
    encode: Counting, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    require_right(with_vectors(TASKS, EXAMPLES, make_teacher(encode), None), encode)
    assert not list(tmp_path.iterdir())


def test_without_translations_nothing_is_encoded(encode: Counting, tmp_path: Path) -> None:
    others = {"inference": EXAMPLES["inference"]}
    tasks = [find_task(tiny_model(CONFIG), "inference")]
    assert with_vectors(tasks, others, make_teacher(encode), tmp_path / "teacher") == others
    assert encode.batches == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.0, "must give a vector with a direction for every text, but 1 of 2 have zero only"),
        (np.nan, "must give a finite vector for every text, but 1 of 2 have infinity or NaN in it"),
        (1e6, "must give a vector that float16 holds .* 1 of 2 have numbers beyond 65504"),
    ],
)
def test_a_vector_that_cannot_be_learnt_is_told_with_its_text(
    value: float, said: str, encode: Counting, tmp_path: Path
) -> None:
    def spoilt(texts: list[str]) -> np.ndarray:
        vectors = encode(texts)
        vectors[[text == "number 5" for text in texts]] = value
        return vectors

    with pytest.raises(UserError, match=f"{said}, first 'number 5'"):
        with_vectors(TASKS, EXAMPLES, make_teacher(spoilt), tmp_path / "teacher")


def test_a_teacher_of_another_width_is_refused_with_what_to_do() -> None:
    # The function gives 4 numbers, the tiny student has 8.
    with pytest.raises(UserError) as told:
        open_teacher(CONFIG, None)
    assert str(told.value) == (
        "a teacher's vectors must have as many numbers as the student's, 8, but those of "
        "python:encode_functions:constant have 4: --set encoder.hidden_dim=4 --set "
        "tasks.tower_dims=5,4 fits the student to it"
    )
    fitting = apply_overrides(CONFIG, ["encoder.hidden_dim=4", "tasks.tower_dims=5,4"])
    teacher = open_teacher(fitting, None)
    assert teacher is not None
    # Nothing but its name tells a function from another one.
    assert teacher.checksum == teacher.name == "python:encode_functions:constant"
    assert teacher.dim == 4


def test_without_distillation_no_teacher_is_opened() -> None:
    assert open_teacher(TINY, None) is None


def test_a_teacher_that_is_none_is_told() -> None:
    config = apply_overrides(CONFIG, ["tasks.distillation.teacher=exported/nothing"])
    with pytest.raises(UserError, match="'exported/nothing' is none of these, nor a folder"):
        open_teacher(config, None)


def test_other_runs_take_vectors_from_the_cache(
    encode: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = System(name="s", sentences=encode, checksum="x")
    monkeypatch.setattr(module, "open_system", lambda specification: system)
    cache = tmp_path / "cache"
    for run, texts in (("one", 11), ("two", 0)):
        encode.batches.clear()
        teacher = open_teacher(CONFIG, cache)
        assert teacher is not None
        encode.batches.clear()  # of the probe
        require_right(with_vectors(TASKS, EXAMPLES, teacher, tmp_path / run), encode)
        assert len(encode.texts) == texts
    # Of what has no checksum nothing is kept: it may have changed.
    system = dataclasses.replace(system, checksum=None)
    monkeypatch.setattr(module, "open_system", lambda specification: system)
    teacher = open_teacher(CONFIG, cache)
    assert teacher is not None
    assert teacher.sentences is system


@pytest.mark.slow
def test_the_flag_trains_exports_and_keeps_the_vectors(tmp_path: Path) -> None:
    # A teacher as wide as the student of the smoke preset.
    (tmp_path / "school.py").write_text(
        "import zlib\nimport numpy as np\n\n"
        "def encode(texts):\n"
        "    seeds = [zlib.crc32(text.encode()) for text in texts]\n"
        "    return np.stack([np.random.default_rng(s).standard_normal(64) for s in seeds])\n"
    )
    others = (f"--set={setting}" for setting in ONE_TASK)
    run = train(tmp_path, *SHORT, "--steps=8", "--teacher=python:school:encode", *others)
    assert run.status == 0, run.errors
    assert {"task/translation_ranking_en-es", "task/distillation_en-es"} <= set(
        run.results["scores"]
    )
    distillation = run.results["config"]["tasks"]["distillation"]
    assert (distillation["teacher"], distillation["weight"]) == ("python:school:encode", 1)
    (shard,) = run.run_dir.glob("teacher/shard-*.npy")
    vectors = np.load(shard)
    assert vectors.dtype == np.float16
    assert vectors.shape[1] == 64
    assert f"python:school:encode encodes {len(vectors)} source sentences" in run.errors
