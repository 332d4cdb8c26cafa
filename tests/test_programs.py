"""The programs as people run them: one whole smoke run, and every mistake that is told at once."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import xling_tf
from xling_tf.errors import UserError
from xling_tf.experiment import run_experiment
from xling_tf.overrides import apply_overrides
from xling_tf.presets import get_preset

ROOT = Path(__file__).resolve().parents[1]
SIGNATURES = {"serving_default", "default", "question_encoder", "response_encoder"}
# Few and small steps, and every task.
SHORT = (
    "--pair=smoke",
    "--steps=30",
    "--set=training.dev_batches=1",
    "--set=training.precision=float32",
)
ONE_TASK = tuple(
    f"tasks.{task}.weight=0" for task in ("response_prediction", "quick_thought", "inference")
)


class Run(NamedTuple):
    """What a program left behind."""

    status: int
    output: str
    errors: str
    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "exported" / "smoke"

    @property
    def run_dir(self) -> Path:
        return self.folder / "runs" / "smoke"

    @property
    def results(self) -> dict:
        return json.loads((self.run_dir / "results.json").read_text(encoding="utf-8"))


def train(folder: Path, *flags: str, timeout: int = 240) -> Run:
    """Runs training/main.py in `folder`, which is not the checkout's root."""
    command = [sys.executable, str(ROOT / "training" / "main.py"), *flags]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    return Run(done.returncode, done.stdout, done.stderr, folder)


def the_error(run: Run) -> str:
    """The single line in which a program says what is wrong."""
    assert run.status != 0
    assert "Traceback" not in run.errors
    (line,) = (line for line in run.errors.splitlines() if not re.match(r"[\d:]{8} INFO ", line))
    assert line.startswith("error: ")
    return line


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("smoke"), *SHORT)


def test_a_smoke_run_succeeds_and_prints_a_table_and_how_to_use_the_model(smoke: Run) -> None:
    assert smoke.status == 0, smoke.errors
    lines = smoke.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    assert any(re.match(r"retrieval/all +en-es/precision_at_1 +[01]\.\d+$", line) for line in lines)
    assert "exported/smoke" in lines[-1]
    assert "load" in lines[-1]


def test_a_smoke_run_says_nothing_alarming(smoke: Run) -> None:
    for line in smoke.errors.splitlines():
        assert re.match(r"[\d:]{8} INFO ", line), line


def test_results_hold_scores_corpora_versions_machine_and_config(smoke: Run) -> None:
    results = smoke.results
    assert (results["preset"], results["steps"]) == ("smoke", 30)
    assert results["minutes"] > 0
    assert results["num_parameters"] > 1000
    assert results["corpora"]["parallel/everyday.en-es"] > 100
    assert results["versions"]["tensorflow"] == tf.__version__
    assert results["versions"]["xling_tf"] == xling_tf.__version__
    assert results["machine"]["cpus"] >= 1
    assert results["config"]["training"]["precision"] == "float32"
    retrieval = results["scores"]["retrieval/all"]
    for direction in ("en-es", "es-en"):
        precisions = [retrieval[f"{direction}/precision_at_{k}"] for k in (1, 3, 10)]
        assert precisions == sorted(precisions)
        assert 0 <= precisions[0] <= precisions[2] <= 1
    task = results["scores"]["task/translation_ranking"]
    assert set(task) == {"loss", "accuracy", "num_examples"}


def test_the_run_folder_holds_metrics_checkpoints_and_tensorboard(smoke: Run) -> None:
    lines = (smoke.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["step"] for record in records] == list(range(30))
    assert {record["task"] for record in records} == {
        "translation_ranking",
        "response_prediction_en",
        "response_prediction_es",
        "quick_thought_en",
        "quick_thought_es",
        "inference",
    }
    assert np.isfinite([record["loss"] for record in records]).all()
    (checkpoint,) = (smoke.run_dir / "checkpoints").iterdir()
    assert checkpoint.name == "step-000000030"
    (events,) = (smoke.run_dir / "tensorboard").iterdir()
    tags = {
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {"loss/translation_ranking", "accuracy/inference", "learning_rate"} <= tags


def test_the_exported_model_loads_with_its_card_and_config(smoke: Run) -> None:
    model = tf.saved_model.load(str(smoke.model))
    vectors = model(["Hola", "Hello", ""]).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert set(model.signatures) == SIGNATURES
    card = (smoke.model / "README.md").read_text(encoding="utf-8")
    assert "preset\n`smoke`" in card or "preset `smoke`" in card
    assert "parallel/everyday.en-es" in card
    assert "retrieval/all" in card
    config = json.loads((smoke.model / "config.json").read_text(encoding="utf-8"))
    assert config == smoke.results["config"]


def test_no_temporary_file_stays(smoke: Run) -> None:
    assert list(smoke.folder.rglob(".*")) == []


def test_the_finished_command_again_only_evaluates_and_exports(smoke: Run) -> None:
    scores, metrics = smoke.results["scores"], (smoke.run_dir / "metrics.jsonl").read_bytes()
    before = (smoke.model / "saved_model.pb").stat().st_mtime_ns
    again = train(smoke.folder, *SHORT)
    assert again.status == 0, again.errors
    assert "continuing at step 30" in again.errors
    assert (smoke.run_dir / "metrics.jsonl").read_bytes() == metrics
    assert (smoke.model / "saved_model.pb").stat().st_mtime_ns > before
    for suite, values in scores.items():
        assert again.results["scores"][suite] == pytest.approx(values, abs=1e-4), suite


def test_a_started_run_without_a_budget_is_one_line(smoke: Run) -> None:
    line = the_error(train(smoke.folder, *SHORT, "--steps=0", timeout=60))
    assert "--steps" in line


def test_list_names_every_preset_with_its_description(tmp_path: Path) -> None:
    listing = train(tmp_path, "--list")
    assert (listing.status, listing.errors) == (0, "")
    lines = listing.output.splitlines()
    assert {"en-es", "paper-en-es", "smoke"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pair=en-xx"], ["--pair", "en-es", "paper-en-es", "smoke", "'en-xx'"]),
        (["--pair=smok"], ["did you mean smoke?"]),
        (["--set=text.max_token=3"], ["--set text.max_token", "max_tokens"]),
        (["--set=txt.max_tokens=3"], ["--set txt.max_tokens", "did you mean text"]),
        (["--set=text.max_tokens.x=3"], ["text.max_tokens.x", "leave out .x"]),
        (["--set=text=3"], ["--set text", "max_tokens"]),
        (["--set=text.max_tokens=long"], ["text.max_tokens", "int", "'long'"]),
        (["--set=text.lowercase=maybe"], ["text.lowercase", "bool", "'maybe'"]),
        (["--set=text.ngram_sizes=3,x"], ["text.ngram_sizes", "'3,x'"]),
        (["--set=text.max_tokens"], ["name=value", "'text.max_tokens'"]),
        (["--set=encoder.num_heads=7"], ["encoder.hidden_dim", "encoder.num_heads", "7"]),
        (["--set=encoder.num_heads=0"], ["encoder.num_heads", "0"]),
        (["--pair=smoke", "--set=text.max_tokens=0"], ["text.max_tokens", "0"]),
        (
            ["--pair=smoke", "--set=tasks.inference.examples_per_batch=0"],
            ["tasks.inference.examples_per_batch", "0"],
        ),
        (["--piar=smoke"], ["piar", "pair"]),
        (["--steps=many"], ["steps", "many"]),
        (["--steps=-1"], ["steps", "-1"]),
        (["smoke"], ["'smoke'"]),
    ],
)
def test_a_mistake_in_the_flags_is_one_line_before_anything_starts(
    flags: list[str], said: list[str], tmp_path: Path
) -> None:
    line = the_error(train(tmp_path, *flags))
    assert all(words in line for words in said), line
    assert not list(tmp_path.iterdir())


def test_a_missing_data_folder_is_one_line(tmp_path: Path) -> None:
    line = the_error(train(tmp_path, "--pair=smoke", "--data=nowhere"))
    assert "nowhere" in line


def the_refusal(folder: Path, **changes: Any) -> str:
    """The line that the same mistakes give in this process, which has TensorFlow at hand."""
    settings = [*ONE_TASK, "training.steps=1", *changes.pop("settings", ())]
    arguments = {
        "name": "smoke",
        "config": apply_overrides(get_preset("smoke"), settings),
        "data": None,
        "run_dir": folder / "run",
        "output": folder / "model",
    }
    with pytest.raises(UserError) as caught:
        run_experiment(**{**arguments, **changes})
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_data_folder_without_corpora_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "empty" in the_refusal(tmp_path, data=tmp_path / "empty")


def test_a_run_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = the_refusal(tmp_path, run_dir=tmp_path / "file" / "run")
    assert "--run_dir" in message
    assert "file/run" in message


def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = the_refusal(tmp_path, output=tmp_path / "file" / "model")
    assert "--output" in message
    assert "file" in message


@pytest.mark.parametrize("output", ["notes", "notes/todo.txt"])
def test_an_output_that_is_no_exported_model_is_refused_and_kept(
    output: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes" / "todo.txt"
    notes.parent.mkdir()
    notes.write_text("mine", encoding="utf-8")
    assert "--output" in the_refusal(tmp_path, output=tmp_path / output)
    assert notes.read_text(encoding="utf-8") == "mine"


def test_no_budget_is_refused(tmp_path: Path) -> None:
    message = the_refusal(tmp_path, settings=["training.steps=0"])
    assert "--minutes" in message
    assert "--steps" in message


def test_a_diverging_training_is_one_line_and_keeps_the_batch(tmp_path: Path) -> None:
    rates = ["--set=optimizer.learning_rate=1e38", "--set=optimizer.warmup=0"]
    run = train(tmp_path, *SHORT, *(f"--set={setting}" for setting in ONE_TASK), *rates)
    line = the_error(run)
    assert "translation_ranking" in line
    batch = json.loads((run.run_dir / "non_finite_batch.json").read_text(encoding="utf-8"))
    assert batch["task"] == "translation_ranking"
    assert len(batch["columns"]) == 2
    assert not run.model.exists()
