"""Runs the training program as users do."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "training" / "main.py"
# The Python with torch, which cannot be in one process with TensorFlow (`make .peers/.installed`).
PEERS = ROOT / ".peers" / "bin" / "python"
# The one with older packages on top of it, for loaders of exports.
LOADERS = ROOT / ".peers" / "loaders" / "bin" / "python"
# Translation ranking alone, in one stage.
ONE_TASK = (
    *(f"tasks.{task}.weight=0" for task in ("response_prediction", "quick_thought", "inference")),
    "stages.average.share=0",
)


class Run(NamedTuple):
    """The result of a program."""

    status: int
    output: str
    errors: str
    folder: Path

    @property
    def model(self) -> Path:
        return self.folder / "exported" / "smoke"

    @property
    def run_dir(self) -> Path:
        return self.folder / "runs" / "smoke"

    @property
    def results(self) -> dict:
        return json.loads((self.run_dir / "results.json").read_text(encoding="utf-8"))


def train_until(
    ready: Callable[[], bool],
    stop: signal.Signals | None,
    folders: Sequence[Path],
    flags: Sequence[str],
    environments: Sequence[Mapping[str, str]] = ({},),
) -> list[Run]:
    """Runs training/main.py in all folders at once; sends the last a signal once it is `ready`."""
    processes = []
    for folder, environment in zip(folders, environments, strict=True):
        folder.mkdir(exist_ok=True)
        with (folder / "errors.txt").open("w", encoding="utf-8") as errors:
            command, more = [sys.executable, str(PROGRAM), *flags], {**os.environ, **environment}
            pipes = {"stdout": subprocess.DEVNULL, "stderr": errors}
            processes.append(subprocess.Popen(command, cwd=folder, env=more, **pipes))
    try:
        while stop is not None and all(process.poll() is None for process in processes):
            if ready():
                processes[-1].send_signal(stop)
                break
            time.sleep(0.02)
        statuses = [process.wait(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    errors = [(folder / "errors.txt").read_text("utf-8") for folder in folders]
    return [
        Run(status, "", told, at)
        for status, told, at in zip(statuses, errors, folders, strict=True)
    ]


def run_and_kill(command: Sequence[str], path: Path) -> None:
    """Runs a command in the folder above a path's, and kills it once the path exists."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=path.parents[1], **quiet) as process:
        while not path.exists():
            assert process.poll() is None
            time.sleep(0.001)
        process.kill()
    assert process.returncode == -signal.SIGKILL


def run_python(
    folder: Path,
    *arguments: str,
    python: str | Path = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Runs Python in `folder`."""
    done = subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env=environment,
    )
    return Run(done.returncode, done.stdout, done.stderr, folder)


def run_program(folder: Path, program: str, *flags: str) -> Run:
    """Runs a program, by its path in the checkout, in `folder`; it must succeed."""
    run = run_python(folder, str(ROOT / program), *flags)
    assert run.status == 0, run.errors
    return run


def run_peers(folder: Path, code: str, *arguments: str) -> str:
    """Runs code that needs `PEERS` in `folder`, returns its output; skips the test without them."""
    if not PEERS.exists():
        pytest.skip("needs make .peers/.installed")
    (folder / "with_peers.py").write_text(code)
    run = run_python(folder, "with_peers.py", *arguments, python=PEERS)
    assert run.status == 0, run.errors
    return run.output


def the_error(run: Run) -> str:
    """The one line of a program's error."""
    assert run.status == 2
    assert run.output == ""
    assert "Traceback" not in run.errors
    (line,) = (line for line in run.errors.splitlines() if not re.match(r"[\d:]{8} INFO ", line))
    assert line.startswith("error: ")
    return line


def read_lines(path: Path) -> list[dict]:
    """The complete lines of a JSON lines file, which may be in writing or not exist yet."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
