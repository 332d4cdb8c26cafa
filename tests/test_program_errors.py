"""What the training program says of a mistake: one line, at once where it can."""

import json
from pathlib import Path
from typing import Any

import pytest
from programs import ONE_TASK, PROGRAM, SHORT, run_python, the_error, train

from xling_tf.config import apply_overrides
from xling_tf.errors import UserError
from xling_tf.presets import get_preset
from xling_tf.trainer.experiment import Run, run_experiment


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pair=en-xx"], ["--pair", "en-es", "paper-en-es", "smoke", "'en-xx'"]),
        (["--set=text.max_token=3"], ["--set text.max_token", "max_tokens"]),
        (["--set=text.max_tokens=long"], ["text.max_tokens", "int", "'long'"]),
        (["--set=text.max_tokens"], ["name=value", "'text.max_tokens'"]),
        (["--set=encoder.num_heads=7"], ["encoder.hidden_dim", "encoder.num_heads", "7"]),
        (
            ["--pair=smoke", "--set=tasks.inference.examples_per_batch=0"],
            ["tasks.inference.examples_per_batch", "0"],
        ),
        (["--piar=smoke"], ["piar", "pair"]),
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


# Stands for what may happen at any time: Ctrl-C while corpora are prepared, say.
_RAISING = """
import runpy, sys, types

def run_experiment(run):
    raise {error}

experiment = types.SimpleNamespace(Run=dict, run_experiment=run_experiment)
sys.modules["xling_tf.trainer.experiment"] = experiment
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_an_interruption_is_one_line_and_the_shells_status(tmp_path: Path) -> None:
    code = _RAISING.format(error="KeyboardInterrupt")
    run = run_python(tmp_path, "-c", code, str(PROGRAM), "--pair=smoke")
    assert (run.status, run.output) == (130, "")
    assert run.errors == "interrupted; the same command continues\n"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    code = _RAISING.format(error="OSError(28, 'No space left on device')")
    line = the_error(run_python(tmp_path, "-c", code, str(PROGRAM), "--pair=smoke"))
    assert line == "error: the disk is full; make room, and the same command continues"


def the_refusal(folder: Path, **changes: Any) -> str:
    """The line that the same mistakes give in this process, which has TensorFlow at hand."""
    settings = [*ONE_TASK, "training.steps=1", *changes.pop("settings", ())]
    arguments = {
        "name": "smoke",
        "config": apply_overrides(get_preset("smoke"), settings),
        "run_dir": folder / "run",
        "output": folder / "model",
    }
    with pytest.raises(UserError) as caught:
        run_experiment(Run(**{**arguments, **changes}))
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


@pytest.mark.slow
def test_a_diverging_training_is_one_line_and_keeps_the_batch(tmp_path: Path) -> None:
    rates = ["--set=optimizer.learning_rate=1e38", "--set=optimizer.warmup=0"]
    run = train(tmp_path, *SHORT, *(f"--set={setting}" for setting in ONE_TASK), *rates)
    line = the_error(run)
    assert "translation_ranking_en-es" in line
    batch = json.loads((run.run_dir / "non_finite_batch.json").read_text(encoding="utf-8"))
    assert batch["task"] == "translation_ranking_en-es"
    assert len(batch["columns"]) == 2
    assert not run.model.exists()
