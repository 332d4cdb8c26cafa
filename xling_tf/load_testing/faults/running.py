"""All scenarios, one after another, most of them around the same server."""

import time
from collections.abc import Callable, Iterator

from xling_tf.load_testing.crowd import Crowd, predictions
from xling_tf.load_testing.faults.clients import disconnects, overflow, slow_loris
from xling_tf.load_testing.faults.ends import full_disk, killed, terminated
from xling_tf.load_testing.faults.scenario import Finding, Stage
from xling_tf.load_testing.faults.versions import corrupt_version, new_version
from xling_tf.load_testing.server_process import ServerProcess

# Of the memory after the first new version. That one is loaded beside the version that is served, and
# TensorFlow's allocator for oneDNN keeps for later tensors what the two took (TF_ENABLE_ONEDNN_OPTS=0
# gives it back to the system, and computes more slowly).
MEMORY_BOUND = 0.25

_Scenario = Callable[[Stage, ServerProcess, float], Finding]
_SCENARIOS: tuple[_Scenario, ...] = (
    corrupt_version,
    disconnects,
    slow_loris,
    overflow,
)


def run_faults(stage: Stage, seconds: float) -> Iterator[Finding]:
    """Runs all scenarios.

    Args:
        stage: Where they play.
        seconds: That the load lasts before and after each fault.

    Raises:
        UserError: The server does not start.
    """
    finding, server = killed(stage, seconds)
    yield finding
    with server:
        started = _settled_mib(stage, server, seconds)
        yield new_version(stage, server, seconds)
        before = _settled_mib(stage, server, seconds)
        for scenario in _SCENARIOS:
            yield scenario(stage, server, seconds)
        after = _settled_mib(stage, server, seconds)
        yield Finding(
            "memory",
            "all of the above but kill -9 to one process",
            f"it holds at most {MEMORY_BOUND:.0%} more than after the new version",
            {
                "at_start_mib": round(started, 1),
                "after_new_version_mib": round(before, 1),
                "at_end_mib": round(after, 1),
            },
            {"bounded": after <= before * (1 + MEMORY_BOUND)},
        )
        yield terminated(stage, server, seconds)
    yield full_disk(stage, seconds)


def _settled_mib(stage: Stage, server: ServerProcess, seconds: float) -> float:
    """Memory after some load."""
    with Crowd(server.port, predictions(stage.model, 32), 4):
        time.sleep(seconds)
    return server.resident_mib()
