import tensorflow as tf
from programs import read_lines
from raw_files import small_disk

from xling_tf.trainer.log import StepResult, TrainingLog


def result(step):
    return StepResult(step, "quick_thought_en", 2.0, 0.5, 3.0, 0.1, 6, 20, 0.5)


def train(folder, steps):
    with TrainingLog(folder, steps[0]) as log:
        for step in steps:
            log.report(result(step), 0.1)


def steps_of(folder):
    return [line["step"] for line in read_lines(folder / "metrics.jsonl")]


def tensorboard(folder):
    """Tag, step and value of all that TensorBoard is given."""
    events = [
        tf.compat.v1.Event.FromString(record.numpy())
        for path in (folder / "tensorboard").glob("events*")
        for record in tf.data.TFRecordDataset(str(path))
    ]
    return [(v.tag, e.step, v.simple_value) for e in events for v in e.summary.value]


def test_each_step_is_a_line_and_a_restart_drops_those_that_are_repeated(tmp_path):
    train(tmp_path, range(10))
    assert read_lines(tmp_path / "metrics.jsonl") == [result(step)._asdict() for step in range(10)]
    assert ("loss/quick_thought_en", 2, 2.0) in tensorboard(tmp_path)
    train(tmp_path, range(6, 8))
    assert steps_of(tmp_path) == list(range(8))
    # A line that a kill has cut comes again, too.
    path = tmp_path / "metrics.jsonl"
    path.write_text(path.read_text()[:-2])
    train(tmp_path, range(7, 9))
    assert steps_of(tmp_path) == list(range(9))


def test_a_small_loss_is_not_shown_as_zero(tmp_path):
    with TrainingLog(tmp_path, 0) as log:
        log._report = (states := []).append
        log.report(result(0)._replace(loss=0.00412), 0.1)
        log.report(result(1)._replace(loss=0.00412), 0.1)
    assert all(state.endswith("loss of quick thought en 0.00412") for state in states)
    assert len(states) == 2


def test_a_full_disk_is_told_once_and_does_not_stop_the_training(tmp_path, caplog):
    with (
        caplog.at_level("WARNING", logger="absl"),
        small_disk(1000),
        TrainingLog(tmp_path, 0) as log,
    ):
        for step in range(20):
            log.report(result(step), 0.1)
    assert [r.getMessage()[:43] for r in caplog.records] == [
        "the log of the training cannot be written ("
    ]
    # The lines before, and perhaps a part of the next, which a restart drops.
    train(tmp_path, range(2, 4))
    assert steps_of(tmp_path) == [0, 1, 2, 3]
