import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from programs import ROOT, run_python
from served_models import put_export

PROGRAM = str(ROOT / "export" / "serve.py")
# A count that takes seconds.
LONG = 150_000


class Serving(NamedTuple):
    """A server that runs, and where."""

    process: subprocess.Popen
    url: str
    models: Path

    def count(self, steps: int) -> httpx.Response:
        body = {"signature_name": "count", "inputs": steps}
        return httpx.post(f"{self.url}/v1/models/m:predict", json=body, timeout=60)

    def version(self) -> float:
        body = {"instances": [""]}
        return httpx.post(f"{self.url}/v1/models/m:predict", json=body).json()["predictions"][0]

    def event(self, name: str, **fields: object) -> dict:
        """The next line of the log with an event, and these fields."""
        for line in self.process.stdout:
            told = json.loads(line)
            if told["event"] == name and fields.items() <= told.items():
                return told
        raise AssertionError(f"no {name}")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One server for all tests of this file; the last one ends it."""
    models = tmp_path_factory.mktemp("models") / "m"
    models.mkdir()
    put_export(models / "1", 1)
    command = [sys.executable, PROGRAM, f"--model=m={models}", "--port=0", "--log_level=DEBUG"]
    command.append("--file_system_poll_wait_seconds=0.1")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        serving = Serving(process, "", models)
        told = serving.event("serving")
        assert told["host"] == "127.0.0.1"
        yield serving._replace(url=f"http://127.0.0.1:{told['port']}")
        process.kill()


def test_a_new_version_takes_over(serving: Serving) -> None:
    assert serving.version() == 1
    put_export(serving.models / "2", 2)
    serving.event("unloaded", version=1)
    assert serving.version() == 2


def test_a_request_is_a_line_without_what_it_says(serving: Serving) -> None:
    httpx.post(f"{serving.url}/v1/models/m:predict", json={"instances": ["secret"]})
    told = serving.event("request", status=200)
    assert told.keys() == {"time", "level", "event", "action", "model", "version", "status", "ms"}
    assert told["model"] == "m"


def test_a_taken_port_is_told(serving: Serving, tmp_path: Path) -> None:
    port = serving.url.rpartition(":")[2]
    run = run_python(tmp_path, PROGRAM, f"--model=m={serving.models}", f"--port={port}")
    assert (run.status, run.output) == (2, "")
    assert run.errors.count("\n") == 1
    assert f"--host 127.0.0.1 and --port {port} are expected to be free" in run.errors
    assert "Address already in use" in run.errors


def test_at_its_end_it_answers_what_has_come(serving: Serving) -> None:
    """The last test: the server is gone after it."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(serving.count, LONG)
        while not serving_is_busy(serving):
            assert not answer.done()
        for _ in range(20):  # As where a process group and its leader are both told.
            serving.process.send_signal(signal.SIGTERM)
        serving.event("draining", signal="SIGTERM")
        assert answer.result().json() == {"outputs": LONG}
    serving.event("stopped")
    assert serving.process.wait(60) == 0
    host, port = serving.url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def serving_is_busy(serving: Serving) -> bool:
    """Whether it calls the model: one call has begun that has not ended."""
    page = httpx.get(f"{serving.url}/monitoring/prometheus/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    begun = lines[':tensorflow:serving:batching_session:queuing_latency_count{model_name="m"}']
    latency = (
        ':tensorflow:serving:runtime_latency_count{API="predict",model_name="m",runtime="TF2"}'
    )
    return float(begun) > float(lines[latency])


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--model=en-es"], "--model is expected as name=path"),
        ([], "--model name=path is expected at least once"),
        (["--model=m=nowhere"], "--model m=nowhere is expected to name .*no such path"),
    ],
    ids=["no path", "no model", "nowhere"],
)
def test_a_mistake_is_one_line(tmp_path: Path, flags: list[str], told: str) -> None:
    run = run_python(tmp_path, PROGRAM, "--port=0", *flags)
    assert run.status == 2
    (line,) = run.errors.splitlines()
    assert told.split(".*")[0] in line
    assert told.split(".*")[-1] in line
