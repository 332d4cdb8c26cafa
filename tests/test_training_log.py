import json

import pytest
import tensorflow as tf

from xling_tf.trainer import log as training_log
from xling_tf.trainer.log import StepResult, TrainingLog


def result(step, **changes):
    values = {
        "step": step,
        "task": "quick_thought_en",
        "loss": 2.0,
        "accuracy": 0.5,
        "gradient_norm": 3.0,
        "learning_rate": 0.1,
        "sentences": 6,
        "seconds": 0.5,
    }
    return StepResult(**{name: {**values, **changes}[name] for name in StepResult._fields})


def train(folder, steps):
    with TrainingLog(folder, first_step=steps[0], progress=0.0) as log:
        for step in steps:
            log.report(result(step), 0.1)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def steps_of(folder):
    return [line["step"] for line in lines(folder)]


def test_each_step_is_a_line(tmp_path):
    train(tmp_path, range(3))
    assert lines(tmp_path) == [result(step)._asdict() for step in range(3)]


def test_a_restart_drops_the_steps_that_are_repeated(tmp_path):
    train(tmp_path, range(10))
    train(tmp_path, range(6, 8))
    assert steps_of(tmp_path) == list(range(8))


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_line_that_a_kill_has_cut_is_dropped(tmp_path, cut):
    train(tmp_path, range(5))
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:-cut])
    train(tmp_path, range(4, 6))
    assert steps_of(tmp_path) == list(range(6))


def test_tensorboard_gets_the_losses(tmp_path):
    train(tmp_path, range(3))
    (path,) = (tmp_path / "tensorboard").glob("events*")
    events = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]
    found = [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for event in events
        for value in event.summary.value
        if value.tag == "loss/quick_thought_en"
    ]
    assert found == [(0, 2.0), (1, 2.0), (2, 2.0)]


def test_scores_are_lines_of_their_own_and_a_restart_keeps_those_up_to_its_step(tmp_path, caplog):
    scores = {"inference": {"loss": 1.5, "accuracy": 0.5, "num_examples": 8.0}}
    with caplog.at_level("INFO", logger="absl"):
        with TrainingLog(tmp_path, first_step=0, progress=0.0) as log:
            for steps in (2, 4, 6):
                log.report_scores(steps, scores)
        # From the checkpoint after 4 steps.
        with TrainingLog(tmp_path, first_step=4, progress=0.0) as log:
            log.report_scores(8, scores)
    found = [json.loads(line) for line in (tmp_path / "dev.jsonl").read_text().splitlines()]
    assert found == [{"step": step, "scores": scores} for step in (2, 4, 8)]
    assert caplog.messages[0] == "step 2, held-out loss: i 1.500"
    events = [
        tf.compat.v1.Event.FromString(record.numpy())
        for path in (tmp_path / "tensorboard").glob("events*")
        for record in tf.data.TFRecordDataset(str(path))
    ]
    tags = [value.tag for event in events for value in event.summary.value]
    assert tags.count("dev_loss/inference") == tags.count("dev_accuracy/inference") == 4


def test_without_a_terminal_a_line_stands_for_the_bar(tmp_path, monkeypatch, caplog, capsys):
    monkeypatch.setattr(training_log, "_SECONDS_BETWEEN_LINES", -1.0)
    with (
        caplog.at_level("INFO", logger="absl"),
        TrainingLog(tmp_path, first_step=0, progress=0.0) as log,
    ):
        log.report(result(0, loss=2.0), 0.25)
        log.report(result(1, loss=4.0), 0.5)
    # Smoothed by 0.9: 0.9 * 2 + 0.1 * 4 = 2.2.
    assert "25% step 1," in caplog.text
    assert "50% step 2," in caplog.text
    assert "loss: qt-en 2.20" in caplog.text
    assert capsys.readouterr().out == ""
