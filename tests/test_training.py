"""The training program: what a run leaves; a killed or stopped one continues and ends like it."""

import json
import re
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT, Run, read_lines, run_program, run_python, train_until

import xling_tf
from xling_tf.errors import UserError

STEPS = 100
# Two tasks, so that the restart must find its place in the cycle and in each one's batches.
SETTINGS = (
    "tasks.response_prediction.weight=0",
    "tasks.quick_thought.weight=0",
    "encoder.num_layers=1",
    "tasks.translation_ranking.examples_per_batch=16",
    "tasks.inference.examples_per_batch=16",
)
FLAGS = ("--preset=smoke", f"--steps={STEPS}", *(f"--set={setting}" for setting in SETTINGS))
SIGNATURES = {
    "serving_default",
    "default",
    "raw",
    "question_encoder",
    "response_encoder",
    "inference",
}


def checkpoints(run_dir: Path) -> list[str]:
    """The names in the folder of checkpoints, oldest first."""
    return sorted(path.name for path in run_dir.glob("checkpoints/*"))


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """A run that nothing disturbs."""
    return run_program(tmp_path_factory.mktemp("smoke"), "training/main.py", *FLAGS)


def test_a_smoke_run_prints_a_table_and_nothing_alarming(smoke):
    assert not [line for line in smoke.errors.splitlines() if not re.match(r"[\d:]{8} INFO ", line)]
    lines = smoke.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    score = r"retrieval/en-es/all +en-es/precision_at_1 +[01]\.\d+$"
    assert any(re.match(score, line) for line in lines)
    assert "exported/smoke" in smoke.output.rstrip().splitlines()[-1]


def test_results_hold_scores_corpora_versions_machine_and_config(smoke):
    results = smoke.results
    assert (results["preset"], results["steps"]) == ("smoke", STEPS)
    assert re.match(
        rf"python \S*training/main.py --preset=smoke --steps={STEPS} ", results["command"]
    )
    assert results["corpora"]["parallel/everyday.en-es"] > 100
    assert {"minutes", "num_parameters", "versions", "machine"} <= set(results)
    task = results["scores"]["task/translation_ranking_en-es"]
    assert set(task) == {"loss", "accuracy", "num_examples"}
    # Held-out translations are scored on the way, at least at the last step.
    assert results["curve"][-1][0] == STEPS
    assert all(0 < score <= 1 for _, score in results["curve"])


def test_the_run_folder_holds_metrics_checkpoints_and_tensorboard(smoke):
    records = read_lines(smoke.run_dir / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(STEPS))
    assert {record["task"] for record in records} == {"translation_ranking_en-es", "inference"}
    assert np.isfinite([record["loss"] for record in records]).all()
    assert checkpoints(smoke.run_dir) == [f"step-{STEPS:09d}"]
    assert list((smoke.run_dir / "tensorboard").glob("events*"))
    assert list(smoke.folder.rglob(".*")) == []  # no temporary file stays


def test_in_python_the_same_training_continues_and_returns_the_model(smoke, tmp_path):
    run_dir = shutil.copytree(smoke.run_dir, tmp_path / "run")
    arguments = {"steps": STEPS, "settings": SETTINGS, "run_dir": run_dir}
    encoder = xling_tf.train("smoke", output=tmp_path / "model", **arguments)
    assert json.loads((run_dir / "results.json").read_text("utf-8"))["steps"] == STEPS
    name, metric = "retrieval/en-es/all", "en-es/precision_at_1"
    assert encoder.scores[name][metric] == pytest.approx(smoke.results["scores"][name][metric])
    expected = xling_tf.load(smoke.model).encode("Hola")
    np.testing.assert_allclose(encoder.encode("Hola"), expected, atol=1e-5)
    assert (tmp_path / "model" / "losses.svg").is_file()
    with pytest.raises(UserError, match="another `run_dir`"):
        xling_tf.train("smoke", output=tmp_path / "model", steps=STEPS, run_dir=run_dir)


def test_the_exported_model_loads_with_its_card_and_config(smoke):
    model = tf.saved_model.load(str(smoke.model))
    vectors = model(["Hola", "Hello", ""]).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert set(model.signatures) == SIGNATURES
    card = (smoke.model / "README.md").read_text(encoding="utf-8")
    parts = (
        "`smoke`",
        "parallel/everyday",
        "retrieval/en-es/all",
        "(losses.svg)",
        f"{STEPS} steps, in ",
    )
    assert all(part in card for part in parts)
    config = json.loads((smoke.model / "config.json").read_text(encoding="utf-8"))
    assert config == smoke.results["model"]


def run(
    folder: Path, *, stop: signal.Signals | None = None, at: int = STEPS
) -> tuple[Run, list[dict], list[str]]:
    """Runs the command, signalled after `at` steps; returns its end, metrics and checkpoints."""
    run_dir = folder / "runs" / "smoke"

    def ready() -> bool:
        return len(read_lines(run_dir / "metrics.jsonl")) >= at and len(checkpoints(run_dir)) > 1

    (ended,) = train_until(
        ready, stop, [folder], [*FLAGS, "--set=training.checkpoint_minutes=0.002"]
    )
    return ended, read_lines(run_dir / "metrics.jsonl"), checkpoints(run_dir)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The same command killed in the first stage, stopped in the second, and run to its end."""
    folder = tmp_path_factory.mktemp("resume")
    killed = run(folder, stop=signal.SIGKILL, at=8)
    stopped = run(folder, stop=signal.SIGTERM, at=40)
    return {"killed": killed, "stopped": stopped, "finished": run(folder)}


# In processes of their own; test_static.py has restarts within one.
@pytest.mark.slow
def test_after_a_kill_it_continues_at_the_newest_checkpoint(stages):
    (_, before, saved), (ended, after, _) = stages["killed"], stages["stopped"]
    step = int(saved[-1].removeprefix("step-"))
    assert 0 < step <= len(before)
    assert f"continuing at step {step}," in ended.errors
    assert after[:step] == before[:step]


@pytest.mark.slow
def test_sigterm_stops_with_a_checkpoint_and_says_what_to_do(stages):
    ended, metrics, saved = stages["stopped"]
    steps = len(metrics)
    assert ended.status == 1
    assert 40 <= steps < STEPS
    assert saved[-1] == f"step-{steps:09d}"
    assert f"stopped at step {steps}; the same command continues" in ended.errors
    assert "Traceback" not in ended.errors


@pytest.mark.slow
def test_the_loss_curve_and_the_scores_are_those_of_an_undisturbed_run(stages, smoke):
    ended, curve, last = stages["finished"]
    assert ended.status == 0, ended.errors
    assert last[-1] == checkpoints(smoke.run_dir)[-1]
    expected = read_lines(smoke.run_dir / "metrics.jsonl")
    assert [line["step"] for line in curve] == list(range(STEPS))
    for key in ("step", "task", "sentences", "learning_rate"):
        assert [line[key] for line in curve] == [line[key] for line in expected]
    for key in ("loss", "gradient_norm"):
        values = [[line[key] for line in lines] for lines in (curve, expected)]
        # Threads add numbers up in another order, which a hundred steps magnify.
        np.testing.assert_allclose(*values, rtol=5e-4, atol=1e-5)
    scores, expected = ended.results["scores"], smoke.results["scores"]
    assert scores.keys() == expected.keys()
    for suite, values in expected.items():
        # One of the 35 held-out pairs may fall the other way on a tie.
        assert scores[suite] == pytest.approx(values, abs=0.03), suite


def test_a_teacher_that_does_not_exist_is_told_before_all_work(tmp_path):
    for teacher in ("nowhere", "exported/nothing"):
        flags = ("--preset=static", f"--teacher={teacher}", "--dry_run", "--set=data.sample=true")
        run = run_python(tmp_path, str(ROOT / "training/main.py"), *flags)
        assert (run.status, f"{teacher!r} does not exist" in run.errors) == (2, True)
    assert not list(tmp_path.iterdir())
