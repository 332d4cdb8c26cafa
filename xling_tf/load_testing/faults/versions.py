"""Versions that arrive under load, a good one and a corrupt one."""

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from xling_tf.load_testing.arriving_versions import put_version, put_wreck
from xling_tf.load_testing.crowd import Crowd, predictions
from xling_tf.load_testing.faults.scenario import Finding, Stage
from xling_tf.load_testing.sentences import bodies
from xling_tf.load_testing.server_process import ServerProcess, wait_until
from xling_tf.load_testing.wrk import Measured, drive

LOAD_FAILURES = "xling_tf_serving_load_failures_total"
_AVAILABLE = "xling_tf_serving_available_version"
_CLIENTS = 8
_LOAD_SECONDS = 120


def new_version(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """A good version takes over while wrk asks; it asks on until that has happened."""
    old = stage.newest()
    url = f"{server.url}/v1/models/{stage.model}:predict"

    def ask() -> Measured:
        return drive(url, bodies(1), _CLIENTS, seconds, statuses=True)

    begin = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        arrived = pool.submit(_arrive, stage, server, old + 1)
        runs = [ask()]
        while not arrived.done():
            runs.append(ask())
    runs.append(ask())
    unloaded = wait_until(lambda: _state(stage, server, old)[0] == "END", _LOAD_SECONDS)
    statuses = {key: sum(run.statuses.get(key, 0) for run in runs) for key in runs[0].statuses}
    failures = sum(run.failures for run in runs)
    return Finding(
        "new version",
        f"version {old + 1} copied beside version {old} while {_CLIENTS} clients of wrk ask",
        "every request is answered with 200; the old version is unloaded",
        {
            "statuses": statuses,
            "failures": failures,
            "seconds_until_served": round(arrived.result() - begin, 1),
            "max_ms": max(run.max_ms for run in runs),
        },
        {
            "only 200": set().union(*(run.statuses for run in runs)) == {"200"} and not failures,
            "new version served": stage.metric(server, _AVAILABLE) == old + 1,
            "old version unloaded": unloaded,
        },
    )


def corrupt_version(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """A version whose weights are cut short arrives while clients ask."""
    good = stage.newest()
    wreck = good + 1
    failures = stage.metric(server, LOAD_FAILURES)
    with Crowd(server.port, predictions(stage.model), _CLIENTS) as crowd:
        put_wreck(stage.export, stage.versions, wreck)
        counted = wait_until(
            lambda: stage.metric(server, LOAD_FAILURES) == failures + 1, _LOAD_SECONDS
        )
        time.sleep(seconds)
    state, code, message = _state(stage, server, wreck)
    served, logged = stage.metric(server, _AVAILABLE), server.events("load_failed")
    _arrive(stage, server, wreck + 1)
    shutil.rmtree(stage.versions / str(wreck))
    return Finding(
        "corrupt version",
        f"version {wreck} with half of its weights' file, while {_CLIENTS} clients ask; then a good one",
        "the old version answers every request; metric, log and status tell of the wreck; the good "
        "one is served",
        {
            "outcomes": crowd.outcomes(),
            "status": {"state": state, "error_code": code, "error_message": message},
            "log": logged[-1] if logged else None,
        },
        {
            "only 200": not crowd.unexpected(),
            "old version goes on": served == good,
            "metric": counted,
            "status": (state, code) == ("END", code) and code != "OK" and bool(message),
            "log": any(event.get("version") == wreck for event in logged),
            "good version served": stage.metric(server, _AVAILABLE) == wreck + 1,
        },
    )


def _arrive(stage: Stage, server: ServerProcess, version: int) -> float:
    """A version arrives; returns when it was served, by `time.monotonic`."""
    put_version(stage.export, stage.versions, version)
    wait_until(lambda: stage.metric(server, _AVAILABLE) == version, _LOAD_SECONDS)
    return time.monotonic()


def _state(stage: Stage, server: ServerProcess, version: int) -> tuple[str, str, str]:
    """A version's state, error code and error message."""
    told = json.loads(server.ask(f"/v1/models/{stage.model}/versions/{version}").body)
    (status,) = told["model_version_status"]
    return status["state"], status["status"]["error_code"], status["status"]["error_message"]
