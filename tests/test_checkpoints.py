import logging as std_logging
import shutil

import pytest
import tensorflow as tf
from raw_files import flipped, small_disk

from xling_tf.errors import UserError
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints

WEIGHTS = "model.safetensors"


def make(folder, **more):
    vector, number = tf.Variable([0.0] * 50), tf.Variable(0)
    return Checkpoints(folder, {"vector": vector}, {"number": number, **more}), (vector, number)


def save_three(folder):
    """Checkpoints of steps 10, 20, 30, whose variables hold the step."""
    checkpoints, (vector, number) = make(folder)
    for step in (10, 20, 30):
        vector.assign([float(step)] * 50)
        number.assign(step)
        checkpoints.save(step, {"step": step, "seconds": step / 4})
    return checkpoints


def restored(folder):
    checkpoints, (vector, number) = make(folder)
    state = checkpoints.restore()
    return state, vector.numpy()[0], number.numpy()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


DAMAGES = [
    lambda path: (path / WEIGHTS).write_bytes(flipped((path / WEIGHTS).read_bytes())),
    lambda path: (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:100]),
    lambda path: (path / "optimizer.safetensors").write_bytes(b""),
    lambda path: (path / "state.json").write_text('{"step": 9}'),
    lambda path: [file.unlink() for file in path.iterdir()],
    # Whole, but that of another step.
    lambda path: (shutil.rmtree(path), shutil.copytree(path.with_name("step-000000020"), path)),
    lambda path: (shutil.rmtree(path), path.write_text("")),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_falls_back_and_says_so(tmp_path, damage, caplog):
    save_three(tmp_path)
    damage(tmp_path / "step-000000030")
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        assert restored(tmp_path) == ({"step": 20, "seconds": 5.0}, 20, 20)
    assert "step-000000030 cannot be read" in caplog.text
    assert "step-000000030.damaged" in caplog.text
    assert names(tmp_path) == ["step-000000020", "step-000000030.damaged"]


def of_more_variables(path):
    variables = {"vector": tf.Variable([0.0] * 50), "added": tf.Variable(0.0)}
    Checkpoints(path.parent, variables, {"number": tf.Variable(0)}).restore()


def without_rights(path):
    (path / WEIGHTS).unlink()
    (path / WEIGHTS).mkdir()  # an OSError that is no damage, also for root, who may read everything
    restored(path.parent)


@pytest.mark.parametrize("restore", [of_more_variables, without_rights])
def test_whole_checkpoints_that_cannot_be_used_stop_the_run_and_stay(tmp_path, restore):
    save_three(tmp_path)
    with pytest.raises(UserError, match=r"step-000000030.*(fit|opened).*; (use|make)"):
        restore(tmp_path / "step-000000030")
    assert names(tmp_path) == ["step-000000020", "step-000000030"]


def test_what_a_kill_leaves_is_ignored(tmp_path):
    checkpoints = save_three(tmp_path)
    leftover = tmp_path / ".step-000000040.123.tmp"
    leftover.mkdir()
    (leftover / "state.json").write_text('{"step": 40}')
    (tmp_path / ".step-000000050.previous").mkdir()
    (tmp_path / "notes.txt").write_text("of the user")
    assert restored(tmp_path) == ({"step": 30, "seconds": 7.5}, 30, 30)
    checkpoints.save(40, {"step": 40})
    assert {"step-000000030", "step-000000040"} <= set(names(tmp_path))
    assert "step-000000020" not in names(tmp_path)


def test_a_full_disk_is_told_and_leaves_the_old_checkpoints(tmp_path):
    checkpoints = save_three(tmp_path)
    message = r"step-000000040 cannot be .*newest is step-000000030"
    with small_disk(100), pytest.raises(CheckpointError, match=message):
        checkpoints.save(40, {"step": 40})
    assert names(tmp_path) == ["step-000000020", "step-000000030"]
