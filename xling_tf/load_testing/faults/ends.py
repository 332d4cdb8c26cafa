"""Ends of the process under load, wanted and unwanted, and a disk that takes no byte."""

import resource
import time
from contextlib import ExitStack
from pathlib import Path

from xling_tf.load_testing.arriving_versions import put_wreck
from xling_tf.load_testing.crowd import Crowd, predictions
from xling_tf.load_testing.faults.scenario import Finding, Stage
from xling_tf.load_testing.faults.versions import LOAD_FAILURES
from xling_tf.load_testing.server_process import ServerProcess, wait_until

_CLIENTS = 8
_WAIT_SECONDS = 120
# What a client sees of a server that is not there, or dies before it has answered.
_GONE = {"ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected", "BrokenPipeError"}


def killed(stage: Stage, seconds: float) -> tuple[Finding, ServerProcess]:
    """SIGKILL under load, and the same command again; the new server is left running."""
    with ExitStack() as stack, stage.start() as first:
        first_ready = first.wait_until_ready()
        crowd = stack.enter_context(Crowd(first.port, predictions(stage.model), _CLIENTS))
        time.sleep(seconds)
        first.kill()
        dead = time.monotonic()
        server = stack.enter_context(stage.start(port=first.port))
        ready = server.wait_until_ready()
        alive = time.monotonic()
        time.sleep(seconds)
        crowd.stop()
        stack.pop_all()
    answered = [a.sent + a.seconds for a in crowd.answers if a.sent > dead and a.outcome == "200"]
    finding = Finding(
        "kill -9",
        f"SIGKILL while {_CLIENTS} clients ask, and the same command again",
        "whole answers or broken connections, no other; when it is ready again, every answer is 200",
        {
            "outcomes": crowd.outcomes(),
            "seconds_until_ready": {"first": round(first_ready, 1), "again": round(ready, 1)},
            "seconds_without_answers": round(min(answered, default=0.0) - dead, 1),
            "afterwards": crowd.outcomes(alive),
        },
        {
            "200 or no connection": crowd.outcomes().keys() <= {"200", *_GONE},
            "only 200 afterwards": crowd.outcomes(alive).keys() == {"200"},
        },
    )
    return finding, server


def terminated(stage: Stage, server: ServerProcess, seconds: float) -> Finding:
    """SIGTERM under load; the server is gone after it."""
    time.sleep(1)  # Until the last lines of the log are written.
    logged = _num_answered(server)
    with Crowd(server.port, predictions(stage.model, 32), _CLIENTS) as crowd:
        time.sleep(seconds)
        signalled = time.monotonic()
        status = server.terminate()
        gone = time.monotonic()
    logged = _num_answered(server) - logged
    outcomes = crowd.outcomes()
    lost = [a for a in crowd.answers if not a.expected and a.sent < signalled]
    return Finding(
        "SIGTERM",
        f"SIGTERM while {_CLIENTS} clients ask",
        "every request sent before the signal is answered with 200, every answer that the log tells of "
        "has arrived, and the process ends with status 0",
        {
            "outcomes": outcomes,
            "answers_in_log": logged,
            "sent_before_and_lost": len(lost),
            "seconds_to_end": round(gone - signalled, 2),
            "exit_status": status,
        },
        {
            "200 or no connection": outcomes.keys() <= {"200", *_GONE},
            "nothing lost": not lost and logged == outcomes.get("200"),
            "status 0": status == 0,
        },
    )


def full_disk(stage: Stage, seconds: float) -> Finding:
    """No byte of the log can be written, no file can grow, and a version arrives cut short."""
    with stage.start(Path("/dev/full")) as server:
        server.wait_until_ready()
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, 0))
        good = stage.newest()
        with Crowd(server.port, predictions(stage.model), _CLIENTS) as crowd:
            put_wreck(stage.export, stage.versions, good + 1)
            refused = wait_until(lambda: stage.metric(server, LOAD_FAILURES) == 1, _WAIT_SECONDS)
            time.sleep(seconds)
        status = server.terminate()
    return Finding(
        "full disk",
        "standard output and error are /dev/full, no file may have a byte once it is ready "
        f"(RLIMIT_FSIZE), and the copy of version {good + 1} ends halfway",
        "every request is answered with 200 by the version before; the process ends at SIGTERM",
        {"outcomes": crowd.outcomes(), "exit_status": status},
        {
            "only 200": not crowd.unexpected(),
            "cut version refused": refused,
            "ends": status is not None and status >= 0,
        },
    )


def _num_answered(server: ServerProcess) -> int:
    """Predictions that the server says to have answered with 200."""
    lines = server.events("request")
    return sum(line["status"] == 200 and line["action"] == "predict" for line in lines)
