"""A killed or stopped training continues by the same command, and ends like an undisturbed run."""

import signal
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from programs import Run as Finished
from programs import read_lines, train_until

from xling_tf.files import read_json
from xling_tf.presets import get_preset
from xling_tf.settings import apply_overrides
from xling_tf.trainer.experiment import Run, run_experiment

# Trainings in processes of their own; test_static.py has restarts within one.
pytestmark = pytest.mark.slow

STEPS = 100
# Two tasks, so that the restart must find its place in the cycle and in each one's batches.
SETTINGS = (
    *("tasks.response_prediction.weight=0", "tasks.quick_thought.weight=0", "encoder.num_layers=1"),
    *("tasks.translation_ranking.examples_per_batch=16", "tasks.inference.examples_per_batch=16"),
    "training.checkpoint_minutes=0.002",
)
FLAGS = ("--preset=smoke", f"--steps={STEPS}", *(f"--set={setting}" for setting in SETTINGS))


class Stage(NamedTuple):
    """What one of the runs in a row left behind."""

    ended: Finished
    metrics: list[dict]
    checkpoints: list[str]


def checkpoints(run_dir: Path) -> list[str]:
    """The names in the folder of checkpoints, oldest first."""
    return sorted(path.name for path in run_dir.glob("checkpoints/*"))


def run(folder: Path, *, stop: signal.Signals | None = None, at: int = STEPS) -> Stage:
    """Runs the command, and sends it a signal once it has trained `at` steps."""
    run_dir = folder / "runs" / "smoke"

    def ready() -> bool:
        return len(read_lines(run_dir / "metrics.jsonl")) >= at and len(checkpoints(run_dir)) > 1

    (ended,) = train_until(ready, stop, [folder], FLAGS)
    return Stage(ended, read_lines(run_dir / "metrics.jsonl"), checkpoints(run_dir))


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The same command: killed in the first phase, asked to stop in the second, and let to its end."""
    folder = tmp_path_factory.mktemp("resume")
    killed, stopped = run(folder, stop=signal.SIGKILL, at=8), run(folder, stop=signal.SIGTERM, at=40)
    return {"killed": killed, "stopped": stopped, "finished": run(folder)}


def test_after_a_kill_it_continues_at_the_newest_checkpoint(stages):
    before, after = stages["killed"], stages["stopped"]
    step = int(before.checkpoints[-1].removeprefix("step-"))
    assert 0 < step <= len(before.metrics)
    assert f"continuing at step {step}," in after.ended.errors
    assert after.metrics[:step] == before.metrics[:step]


def test_sigterm_stops_with_a_checkpoint_and_says_what_to_do(stages):
    stopped = stages["stopped"]
    steps = len(stopped.metrics)
    assert stopped.ended.status == 1
    assert 40 <= steps < STEPS
    assert stopped.checkpoints[-1] == f"step-{steps:09d}"
    assert f"stopped at step {steps}; the same command continues" in stopped.ended.errors
    assert "Traceback" not in stopped.ended.errors


def test_the_loss_curve_and_the_scores_are_those_of_an_undisturbed_run(stages, tmp_path):
    config = apply_overrides(get_preset("smoke"), [*SETTINGS, f"training.steps={STEPS}"])
    undisturbed = tmp_path / "run"
    run_experiment(Run(name="smoke", config=config, run_dir=undisturbed, output=tmp_path / "model"))
    ended, curve, last = stages["finished"]
    assert ended.status == 0, ended.errors
    assert last[-1] == checkpoints(undisturbed)[-1]
    expected = read_lines(undisturbed / "metrics.jsonl")
    assert [line["step"] for line in curve] == list(range(STEPS))
    for key in ("step", "task", "sentences", "learning_rate"):
        assert [line[key] for line in curve] == [line[key] for line in expected]
    for key in ("loss", "gradient_norm"):
        values = [[line[key] for line in lines] for lines in (curve, expected)]
        np.testing.assert_allclose(*values, rtol=1e-4, atol=1e-5)
    scores, expected = ended.results["scores"], read_json(undisturbed / "results.json")["scores"]
    assert scores.keys() == expected.keys()
    for suite, values in expected.items():
        # One of the 35 held-out pairs may fall the other way on a tie.
        assert scores[suite] == pytest.approx(values, abs=0.03), suite
