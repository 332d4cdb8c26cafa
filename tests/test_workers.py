"""Two processes on this machine that train together: killed, restarted, stopped, mismatched."""

import json
import re
import signal
import socket
from pathlib import Path

import keras
import pytest
from programs import ONE_TASK, read_lines, train_until
from programs import Run as Finished
from testing import two_replicas

from xling_tf.errors import UserError
from xling_tf.presets import get_preset
from xling_tf.settings import apply_overrides
from xling_tf.trainer import experiment
from xling_tf.trainer.context import Run
from xling_tf.trainer.distribution import Cluster, Workers, make_strategy, read_cluster

STEPS = 12
SETTINGS = (
    *ONE_TASK,
    "encoder.num_layers=1",
    "tasks.translation_ranking.examples_per_batch=8",
    "training.precision=float32",
    "training.checkpoint_minutes=0.0001",
)


def tf_configs() -> list[str]:
    """Two workers at free ports."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        addresses = [f"127.0.0.1:{free.getsockname()[1]}" for free in (one, other)]
    tasks = ({"type": "worker", "index": index} for index in range(2))
    return [json.dumps({"cluster": {"worker": addresses}, "task": task}) for task in tasks]


def metrics(run_dir: Path) -> list[dict]:
    return read_lines(run_dir / "metrics.jsonl")


def train_together(
    folder: Path, *more: str, stop: signal.Signals | None = None, at: int = 0
) -> list[Finished]:
    """Runs the command as two workers; the second gets a signal once `at` steps are trained."""
    flags = ["--preset=smoke", f"--steps={STEPS}", *map("--set={}".format, SETTINGS), *more]
    environments = [{"TF_CONFIG": tf_config} for tf_config in tf_configs()]
    # Each in a folder of its own, as on machines that share none.
    folders = [folder / "0", folder / "1"]
    run_dir = folders[0] / "runs" / "smoke"
    return train_until(lambda: len(metrics(run_dir)) >= at, stop, folders, flags, environments)


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """The same commands twice: a worker is killed, and all are left alone."""
    folder = tmp_path_factory.mktemp("workers")
    return {
        "killed": train_together(folder, stop=signal.SIGKILL, at=3),
        "finished": train_together(folder),
    }


@pytest.mark.slow
def test_a_lost_worker_ends_the_others_and_the_same_commands_go_on_to_the_end(stages):
    first, second = stages["killed"]
    assert second.status == -signal.SIGKILL
    assert (first.status, "Traceback" in first.errors) == (2, False)
    (line,) = re.findall("^error: (.*)$", first.errors, re.MULTILINE)
    assert "another worker has ended or cannot be reached" in line
    continued = {re.search(r"continuing at step \d+", end.errors)[0] for end in stages["finished"]}
    assert len(continued) == 1
    assert [ended.status for ended in stages["finished"]] == [0, 0]
    assert [line["step"] for line in metrics(stages["finished"][0].run_dir)] == list(range(STEPS))


@pytest.mark.slow
def test_two_workers_train_as_two_replicas_of_one_process_do(stages, tmp_path, monkeypatch):
    config = apply_overrides(get_preset("smoke"), [*SETTINGS, f"training.steps={STEPS}"])
    keras.utils.set_random_seed(7)  # of no consequence: the config's seed counts
    (tmp_path / "run").mkdir()
    run = Run(name="smoke", config=config, run_dir=tmp_path / "run", output=tmp_path / "model")
    monkeypatch.setattr(experiment, "make_strategy", lambda cluster: two_replicas())
    experiment.run_experiment(run)
    lines = metrics(stages["finished"][0].run_dir)
    for line, other in zip(lines, metrics(tmp_path / "run"), strict=True):
        assert (line["sentences"], line["tokens"]) == (other["sentences"], other["tokens"])
        assert line["loss"] == pytest.approx(other["loss"], rel=1e-4)
        assert line["accuracy"] == pytest.approx(other["accuracy"], abs=1e-6)
        assert line["gradient_norm"] == pytest.approx(other["gradient_norm"], rel=1e-3)


@pytest.mark.parametrize(
    ("of_chief", "own", "message"),
    [
        (
            {"a": {"b": (1, 2)}},
            {"a": {"b": (1, 3)}},
            r"has a.b=\(1, 3\), and worker 0 has \(1, 2\)",
        ),
        (
            {"data": {}},
            {"data": {"x.tsv": 5}},
            r"worker 1 has data\.x\.tsv=5, and worker 0 has None",
        ),
    ],
)
def test_what_differs_and_what_the_chief_refuses_is_told_by_all(
    of_chief, own, message, monkeypatch
):
    workers = Workers(make_strategy(), Cluster(("worker 0", "worker 1"), 1))
    monkeypatch.setattr(workers, "gather", lambda facts: [of_chief, facts])
    workers.require_same(of_chief)
    with pytest.raises(UserError, match=message):
        workers.require_same(own)
    monkeypatch.setattr(workers, "gather", lambda _: [(None, "worker 0 refuses")])
    with pytest.raises(UserError, match="worker 0 refuses"):
        workers.from_chief(lambda: 1)


WORKERS = {"worker": ["a:1", "b:2", "c:3"]}


def read(cluster, task):
    return read_cluster({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})})


def test_the_first_worker_is_the_chief_or_a_job_of_that_name():
    alone = read_cluster({"TF_CONFIG": "  \n"})
    assert (alone.names, alone.is_chief) == (("worker 0",), True)
    cluster = read(WORKERS, {"type": "worker", "index": "2"})
    assert cluster == (("worker 0", "worker 1", "worker 2"), 2)
    assert not cluster.is_chief
    assert read(WORKERS, {"type": "worker", "index": 0}).is_chief
    cluster = read({"worker": ["b:1"], "chief": ["a:1"]}, {"type": "worker", "index": 0})
    assert cluster == (("chief 0", "worker 0"), 1)


def test_a_cluster_that_cannot_be_is_refused():
    for cluster, index in (
        (WORKERS, 3),
        (WORKERS, None),
        ({"worker": "a:1"}, 0),
        ({**WORKERS, "ps": ["d:4"]}, 0),
        ({**WORKERS, "chief": ["d:4", "e:5"]}, 0),
        ({"worker": ["a:1", "a:1"]}, 0),
        ({"worker": ["a:1", "b:0"]}, 0),
    ):
        with pytest.raises(UserError, match="TF_CONFIG"):
            read(cluster, {"type": "worker", "index": index})
    with pytest.raises(UserError, match="TF_CONFIG"):
        read_cluster({"TF_CONFIG": "{"})
