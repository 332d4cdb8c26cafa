"""Measures training and encoding on this machine's GPU. Run this first on a new GPU.

    python evaluation/benchmarks/gpu.py --minutes 10 --output gpu.json

Each part has a process of its own and a share of the minutes: if it crashes or hangs, the others
and its own first figures remain. What fails is reported in place of its figures. Weights are
random, and the texts are the built-in sample, recombined. Without a GPU, the same runs with small
sizes.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from absl import flags

from evaluation.benchmarks.workloads import write_figures
from xling_tf.files import read_json
from xling_tf.program import quiet_start, run

# Functions of gpu_parts.py, each with its share of the minutes, and changes of the environment.
_PARTS: Mapping[str, tuple[float, Mapping[str, str]]] = {
    "device": (0.07, {}),
    "steps": (0.25, {}),
    "batches": (0.17, {}),
    "encoding": (0.16, {}),
    "peers": (0.13, {}),
    "replicas": (0.12, {}),
    "loss": (0.05, {}),
    "loss_on_cpu": (0.05, {"CUDA_VISIBLE_DEVICES": "-1"}),
}
_MINUTES = flags.DEFINE_float("minutes", 10, "Limit of all parts together.", lower_bound=0.1)
_PART = flags.DEFINE_enum("part", None, [*_PARTS], "Runs one part in this process.")
_OUTPUT = flags.DEFINE_string("output", "evaluation/results/gpu.json", "Results file.")


def main() -> None:
    """Runs all parts, or the one that --part names."""
    if _PART.value:
        with quiet_start():
            from evaluation.benchmarks import gpu_parts

        gpu_parts.PARTS[_PART.value](gpu_parts.Figures(Path(_OUTPUT.value)))
        return
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for part, (share, environment) in _PARTS.items():
            figures[part] = _run_part(part, Path(folder), 60 * share * _MINUTES.value, environment)
            write_figures(_OUTPUT.value, lambda: figures)


def _run_part(
    part: str, folder: Path, seconds: float, environment: Mapping[str, str]
) -> dict[str, Any]:
    """Runs a part in a process of its own, and ends it after some seconds; returns its figures."""
    path, log, begin = folder / f"{part}.json", folder / f"{part}.log", time.monotonic()
    command = [sys.executable, __file__, f"--part={part}", f"--output={path}"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
        try:
            reason = f"ended with status {status}" if (status := process.wait(seconds)) else ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the processes that it has started too
            reason = f"stopped after {process.wait() and seconds:.0f} seconds"
    figures: dict[str, Any] = read_json(path) if path.exists() else {}
    if reason:
        figures["error"] = [reason, *log.read_text("utf-8", "replace").splitlines()[-8:]]
    return {**figures, "seconds": round(time.monotonic() - begin, 1)}


if __name__ == "__main__":
    run(main, "the same command starts again", extra="tensorflow")
