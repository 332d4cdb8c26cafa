"""A soak: steady load of all kinds while versions arrive, with the server's memory sampled."""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.load_testing.arriving_versions import put_version
from xling_tf.load_testing.crowd import Crowd
from xling_tf.load_testing.mixed_requests import mixed_requests
from xling_tf.load_testing.server_process import ServerProcess, wait_until

# Of the time, at the start: TensorFlow's and the allocator's pools fill, the first versions come.
WARM_UP = 0.2
# MiB a minute while no version comes; and of the memory, between the first and the last third after
# the warm-up, in which several versions have come. TensorFlow keeps a little of each.
STEADY_BOUND = 1.0
GROWTH_BOUND = 0.1
_CLIENTS = 4
_PAUSE_SECONDS = 0.01
_VERSIONS = 10
_SAMPLES = 600


class Sample(NamedTuple):
    """Memory at a time.

    Attributes:
        seconds: Since the beginning.
        mib: Resident.
        version: That was served, or on its way.
    """

    seconds: float
    mib: float
    version: int


def soak(
    server: ServerProcess,
    model: str,
    export: Path,
    versions: Path,
    seconds: float,
    report: Callable[[str], None],
) -> dict[str, Any]:
    """Loads a server for so long.

    Args:
        server: Is ready, and serves the folder of versions.
        model: Its name there.
        export: The model, which is copied to new versions.
        versions: Where version 1 lies.
        seconds: For how long.
        report: Is told of each version that has come.

    Returns:
        Requests by outcome, the versions that came, and what the memory did (`memory_course`).
    """
    samples: list[Sample] = []
    came = 1
    begin = time.monotonic()
    requests = mixed_requests(server, model)
    with Crowd(server.port, requests, _CLIENTS, _PAUSE_SECONDS) as crowd:
        while (now := time.monotonic() - begin) < seconds:
            samples.append(Sample(now, server.resident_mib(), came))
            if now > came * seconds / (_VERSIONS + 1):
                came += 1
                _arrive(server, model, export, versions, came)
                report(f"{now:.0f} s: version {came}, {samples[-1].mib:.0f} MiB")
            time.sleep(seconds / _SAMPLES)
        outcomes, unexpected = crowd.outcomes(), crowd.unexpected()
    memory = memory_course(samples, WARM_UP * seconds)
    load_failures = len(server.events("load_failed"))
    return {
        "passed": memory["flat"] and not unexpected and not load_failures,
        "seconds": seconds,
        "clients": _CLIENTS,
        "requests": sum(outcomes.values()),
        "outcomes": outcomes,
        "unexpected": unexpected,
        "versions_served": came,
        "load_failures": load_failures,
        "p50_ms": crowd.percentile_ms(50),
        "p99_ms": crowd.percentile_ms(99),
        "memory": memory,
    }


def memory_course(samples: Sequence[Sample], warm_up: float) -> dict[str, Any]:
    """What memory did after a warm-up.

    Args:
        samples: In order.
        warm_up: Seconds that are left out.

    Returns:
        `steady_mib_a_minute`, the median over the versions of the growth in the second half of each one's
        time; `growth`, from the first third to the last, versions included; whether both are `flat`.

    Example:
        >>> course = memory_course([Sample(s, 100 + s / 30, 1) for s in range(601)], 60)
        >>> course["steady_mib_a_minute"], course["flat"]
        (2.0, False)
        >>> memory_course([Sample(s, 100, 1) for s in range(601)], 60)["flat"]
        True
    """
    later = [sample for sample in samples if sample.seconds >= warm_up]
    mib = np.array([sample.mib for sample in later])
    first, *_, last = (float(np.median(third)) for third in np.array_split(mib, 3))
    growth = (last - first) / float(np.median(mib))
    steady = float(np.median(_slopes(later)))
    return {
        "before_load_mib": round(samples[0].mib, 1),
        "after_warm_up_mib": round(later[0].mib, 1),
        "end_mib": round(later[-1].mib, 1),
        "largest_mib": round(max(sample.mib for sample in samples), 1),
        "first_third_mib": round(first, 1),
        "last_third_mib": round(last, 1),
        "growth": round(growth, 4),
        "growth_bound": GROWTH_BOUND,
        "steady_mib_a_minute": round(steady, 3),
        "steady_bound": STEADY_BOUND,
        "flat": growth <= GROWTH_BOUND and steady <= STEADY_BOUND,
        "samples": [
            [round(sample.seconds), round(sample.mib, 1), sample.version]
            for sample in samples[:: max(1, len(samples) // 60)]
        ],
    }


def _slopes(samples: Sequence[Sample]) -> list[float]:
    """MiB a minute, in the second half of each version's time."""
    slopes = []
    for version in sorted({sample.version for sample in samples}):
        own = [sample for sample in samples if sample.version == version]
        half = own[len(own) // 2 :]
        if len(half) > 1:
            seconds, mib = [s.seconds for s in half], [s.mib for s in half]
            slopes.append(float(np.polyfit(seconds, mib, 1)[0]) * 60)
    return slopes


def _arrive(server: ServerProcess, model: str, export: Path, versions: Path, number: int) -> None:
    """A version comes, and the one before it goes once it is served."""
    put_version(export, versions, number)
    gauge = f'xling_tf_serving_available_version{{model_name="{model}"}}'
    wait_until(lambda: server.metrics()[gauge] == number, 120)
    shutil.rmtree(versions / str(number - 1))
