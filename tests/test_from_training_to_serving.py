"""The README's five commands from training to a served, queried and monitored model, executed."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from programs import ROOT, run_python

from xling_tf.serving.versions import find_versions

# What a clone has not: what tools make, anywhere, and what programs make, at the top.
MADE_BY_TOOLS = (".git", ".venv", ".*_cache", "__pycache__", "*.egg-info")
MADE_BY_PROGRAMS = ("data/raw", "data/prepared", "runs", "exported", "serving", "build", "dist")
# The preset that the README names, and the one that is trained in half a minute on a sample.
PRESET, SMALL = "en-es", "smoke"
PORT = "8501"


def readme_commands() -> list[str]:
    """The five commands, each of which may go on after a backslash."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Serving\n")[2]
    block = re.search(r"(?:^    .+\n)+", section, re.MULTILINE)
    assert block, "README.md has no commands under '## Serving'"
    return re.sub(r"\\\n\s*", "", re.sub(r"(?m)^    ", "", block[0])).splitlines()


def without_comment(command: str) -> str:
    return re.sub(r"\s+# .*", "", command).strip()


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def wait_for(port: str, server: subprocess.Popen[bytes]) -> None:
    """Waits as a person does who sees the server start."""
    for _ in range(240):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", int(port))) == 0:
                return
        assert server.poll() is None, "the server has ended"
        time.sleep(0.5)
    raise AssertionError("the server does not listen")


def _not_cloned(folder: str, names: list[str]) -> set[str]:
    made = {ROOT / path for path in MADE_BY_PROGRAMS}
    return shutil.ignore_patterns(*MADE_BY_TOOLS)(folder, names) | {
        name for name in names if Path(folder) / name in made
    }


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends it as a shell's `kill %1` does, which tells make and the server, and make tells it again."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, with what is installed here for its .venv."""
    folder = tmp_path_factory.mktemp("clone") / "xling_tf"
    shutil.copytree(ROOT, folder, ignore=_not_cloned)
    binaries = folder / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("python", "pip"):
        (binaries / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        (binaries / name).chmod(0o755)
    # Make's stamps of what is installed keep it from installing.
    for stamp in set(re.findall(r"\.\w+-installed", (ROOT / "Makefile").read_text())):
        (folder / ".venv" / stamp).touch()
    return folder


@pytest.fixture(scope="module")
def said(checkout: Path) -> Iterator[list[str]]:
    """What the five commands print, with another preset and port; the third is left running."""
    port = free_port()
    # Of a make that runs the tests, neither flags nor variables go on to those here.
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS", "MODEL")
    environment = {
        **{name: value for name, value in os.environ.items() if name not in outer},
        "PATH": f"{checkout / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PAIR": SMALL,
        "PORT": port,
    }
    commands = [without_comment(each) for each in readme_commands()]
    told: list[str] = []
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            line = command.replace(PRESET, SMALL).replace(PORT, port)
            log = checkout / f"{len(told)}.log"
            with log.open("w") as output:
                process = subprocess.Popen(
                    ["bash", "-c", line.removesuffix("&")],
                    cwd=checkout,
                    env=environment,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            started.append(process)
            if line.endswith("&"):
                wait_for(port, process)
            else:
                assert process.wait(timeout=900) == 0, f"{line}: {log.read_text()}"
            told.append(log.read_text())
        yield told
    finally:
        for process in started:
            stop(process)


@pytest.mark.slow
def test_there_are_five(said: list[str]) -> None:
    assert len(said) == 5


@pytest.mark.slow
def test_a_model_is_trained_and_published(said: list[str], checkout: Path) -> None:
    trained, published, *_ = said
    assert f"exported/{SMALL}" in trained.splitlines()[-1]
    assert f"serving/{SMALL}/1, " in published
    assert "25 warm-up requests" in published
    assert list(find_versions(checkout / "serving" / SMALL)) == [1]


@pytest.mark.slow
def test_it_answers(said: list[str]) -> None:
    # JSON with a row for each of the sentences asked.
    vectors = np.array(json.loads(said[3][said[3].index("{") :])["predictions"])
    assert len(vectors) >= 1
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_it_is_monitored(said: list[str]) -> None:
    counted = re.findall(rf"^\S*request_count\S*{SMALL}\S* ([\d.e+]+)$", said[4], re.MULTILINE)
    assert sum(map(float, counted)) >= 1, said[4]


@pytest.mark.slow
def test_exports_at_the_same_time_are_versions_one_after_another(
    said: list[str], checkout: Path
) -> None:
    program = [
        sys.executable,
        "export/main.py",
        "--model",
        f"exported/{SMALL}",
        "--serving",
        "apart",
    ]
    running = [
        subprocess.Popen(
            [*program, "--name", name], cwd=checkout, stdout=subprocess.PIPE, text=True
        )
        for name in ("a", "a", "b")
    ]
    told = [each.communicate(timeout=300)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0, 0]
    made = sorted(text.partition(",")[0] for text in told)
    assert made == ["apart/a/1", "apart/a/2", "apart/b/1"]
    text = (checkout / "apart" / "models.config").read_text()
    assert sorted(re.findall(r'^    name: "(.*)"', text, re.MULTILINE)) == ["a", "b"]
    assert not list((checkout / "apart").rglob(".*"))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--serving=s"], ["--model"]),
        (["--model=m"], ["--serving", "--litert", "--onnx"]),
        (["--model=m", "--onnx=o", "--version=2"], ["--version", "--serving"]),
        (["--model=m", "--serving=s", "--version=abc"], ["--version", "'abc'"]),
        (["--model=m", "--serving=s", "--version=0"], ["--version", "0"]),
        (["--model=m", "--serving=s", "--version=-1"], ["--version", "-1"]),
        (["--model=m", "--serving=s", "1"], ["'1'"]),
    ],
)
def test_a_mistake_in_the_flags_is_one_line(
    flags: list[str], said: list[str], tmp_path: Path
) -> None:
    run = run_python(tmp_path, str(ROOT / "export" / "main.py"), *flags)
    assert (run.status, run.output) == (2, "")
    (line,) = run.errors.splitlines()
    assert all(words in line for words in said), line
    assert not list(tmp_path.iterdir())
