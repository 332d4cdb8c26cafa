import json
import socket
import threading

import pytest

from xling_tf.errors import UserError
from xling_tf.trainer.cluster import Cluster, read_cluster

WORKERS = {"worker": ["a:1", "b:2", "c:3"]}


def read(cluster, task):
    return read_cluster({"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})})


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "  \n"}])
def test_without_tf_config_one_process_is_alone_and_the_chief(environment):
    cluster = read_cluster(environment)
    assert cluster.names == ("worker 0",)
    assert cluster.is_chief
    cluster.wait_for_others(seconds=0)


@pytest.mark.parametrize("index", [2, "2"])
def test_the_first_worker_is_the_chief(index):
    cluster = read(WORKERS, {"type": "worker", "index": index})
    assert cluster == (("worker 0", "worker 1", "worker 2"), ("a:1", "b:2", "c:3"), 2)
    assert not cluster.is_chief
    assert read(WORKERS, {"type": "worker", "index": 0}).is_chief


def test_a_job_named_chief_comes_first():
    cluster = read({"worker": ["b:1"], "chief": ["a:1"]}, {"type": "worker", "index": 0})
    assert cluster == (("chief 0", "worker 0"), ("a:1", "b:1"), 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "JSON"),
        ("[]", "cluster to be an object, got None"),
        ('{"cluster": {"worker": ["a:1"]}}', "task to be an object, got None"),
        ('{"task": {"type": "worker", "index": 0}}', "cluster to be an object, got None"),
    ],
)
def test_what_is_no_tf_config_is_refused(text, said):
    with pytest.raises(UserError) as caught:
        read_cluster({"TF_CONFIG": text})
    assert f"TF_CONFIG expects {said}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("cluster", "task", "said"),
    [
        (WORKERS, {"type": "worker", "index": 3}, "task.index from 0 to 2, got 3"),
        (WORKERS, {"type": "worker", "index": -1}, "task.index from 0 to 2, got -1"),
        (WORKERS, {"type": "worker"}, "task.index from 0 to 2, got None"),
        (WORKERS, {"type": "evaluator", "index": 0}, "task.type to be worker, got 'evaluator'"),
        (WORKERS, {"index": 0}, "task.type to be a string, got None"),
        ({}, {"type": "worker", "index": 0}, "cluster.worker (and perhaps cluster.chief), got []"),
        ({"worker": "a:1"}, {"type": "worker", "index": 0}, "cluster.worker to be a list"),
        ({"worker": []}, {"type": "worker", "index": 0}, "an address of its own"),
        ({**WORKERS, "ps": ["d:4"]}, {"type": "worker", "index": 0}, "got ['ps', 'worker']"),
        ({**WORKERS, "chief": ["d:4", "e:5"]}, {"type": "worker", "index": 0}, "one chief"),
        ({"worker": ["a:1", "a:1"]}, {"type": "worker", "index": 0}, "an address of its own"),
        ({"worker": ["a:1", "b"]}, {"type": "worker", "index": 0}, "host:2222, got 'b'"),
        ({"worker": ["a:1", "b:0"]}, {"type": "worker", "index": 0}, "host:2222, got 'b:0'"),
        ({"worker": ["a:1", 7]}, {"type": "worker", "index": 0}, "host:2222, got 7"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(cluster, task, said):
    with pytest.raises(UserError) as caught:
        read(cluster, task)
    assert said in str(caught.value)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [free.getsockname()[1] for free in sockets]
    for free in sockets:
        free.close()
    return ports


def test_nobody_goes_on_before_all_have_come():
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(3))
    names = ("worker 0", "worker 1", "worker 2")
    # The first two keep waiting, so each must be seen by those who come later.
    threads = [
        threading.Thread(target=Cluster(names, addresses, rank).wait_for_others) for rank in (0, 1)
    ]
    for thread in threads:
        thread.start()
    threads[0].join(timeout=0.5)
    assert all(thread.is_alive() for thread in threads)
    with socket.create_server(("127.0.0.1", int(addresses[2].rpartition(":")[2]))):
        for thread in threads:
            thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)


def test_who_is_missing_is_named():
    addresses = tuple(f"127.0.0.1:{port}" for port in free_ports(2))
    with pytest.raises(UserError) as caught:
        Cluster(("worker 0", "worker 1"), addresses, 0).wait_for_others(seconds=0)
    assert f"worker 1 at {addresses[1]} cannot be reached" in str(caught.value)


def test_a_port_that_is_taken_is_told():
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = Cluster(("worker 0", "worker 1"), (f"127.0.0.1:{port}", "127.0.0.1:1"), 0)
        with pytest.raises(UserError, match=f"port {port}"):
            cluster.wait_for_others()
