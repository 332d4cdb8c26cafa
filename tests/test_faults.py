"""Programs where something is wrong around them: a full disk, folders that are read-only, LANG=C,
Ctrl-C.

Each behaves alike: one line that says how to go on, nothing half-written, and the same command
ends as if nothing had happened.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from programs import ONE_TASK, ROOT
from raw_files import read_files
from test_mining import random_sides, write_sides
from testing import tiny_config, tiny_model

pytestmark = pytest.mark.slow

# Not ASCII, in inputs' names and contents.
NAME = "ñandú 日本"
SETTINGS = (
    *("encoder.kind=static", "tokenizer.ngram_sizes=", "training.checkpoint_minutes=0.001"),
    *("tasks.translation_ranking.examples_per_batch=16", *ONE_TASK),
)
# An output that is larger than this disk, in KiB.
DISK = {"train": 200, "fine_tune": 200, "encode": 40, "mine": 40, "export": 200}


@pytest.fixture(scope="module")
def commands(tmp_path_factory) -> Mapping[str, Sequence[str]]:
    """The command of each program; OUTPUT stands for the path of its output."""
    inputs = tmp_path_factory.mktemp("inputs") / NAME
    inputs.mkdir()
    model = inputs / "modelo español"
    settings = ("encoder.kind=static", "tokenizer.num_oov_buckets=1", "tokenizer.ngram_sizes=")
    tiny_model(tiny_config(*settings), ["<empty>", "año", "the", "日"]).export(model)
    texts, pairs = inputs / "textos ñ.txt", inputs / "preguntas ñ.csv"
    texts.write_text("".join(f"El año {row} 日本\n" for row in range(4000)), "utf-8")
    rows = "".join(f"¿Qué año {row}?,Respuesta ñ {row}\n" for row in range(300))
    pairs.write_text(f"question,answer\n{rows}", "utf-8")
    sides = write_sides(inputs, random_sides(1500), rows=100)
    flags = {
        "training/main.py": [
            *("--preset=smoke", "--steps=40", "--run_dir=OUTPUT/run", "--output=OUTPUT/model"),
            *(f"--set={setting}" for setting in SETTINGS),
        ],
        "export/encode.py": [f"--model={model}", f"--input={texts}", "--output=OUTPUT"],
        "data/mine.py": [
            *map(str, sides),
            *("--output=OUTPUT/mined.tsv", "--threshold=1"),
        ],
        "export/main.py": [f"--model={model}", "--to=onnx", "--output=OUTPUT/model"],
        "examples/fine_tune.py": [str(model), str(pairs), "OUTPUT/model", "30"],
    }
    names = ("train", "encode", "mine", "export", "fine_tune")
    return {
        name: [sys.executable, str(ROOT / path), *arguments]
        for name, (path, arguments) in zip(names, flags.items(), strict=True)
    }


PROGRAMS = pytest.mark.parametrize("program", ["train", "encode", "mine", "export", "fine_tune"])


def start(command: Sequence[str], output: Path | str, **options) -> subprocess.Popen:
    words = [word.replace("OUTPUT", str(output)) for word in command]
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, **pipes, **options)


def run(command: Sequence[str], output: Path | str, **options) -> tuple[int, str]:
    """The status of a command, and what it printed to standard error but for log lines."""
    with start(command, output, **options) as process:
        _, errors = process.communicate(timeout=600)
    return process.returncode, without_log(errors)


def without_log(errors: bytes) -> str:
    lines = errors.decode("utf-8", "replace").splitlines()
    # Programs show absl's lines with the time, a library's user sees them as absl writes them.
    # The tiny model knows few of the words, and finds few of the texts.
    known = r"\d+% of the pieces|\w+: the model does not know|the start finds|no pairs to fit"
    log = rf"[\d:]{{8}} (?!WARNING|ERROR)|WARNING:absl:|[\d:]{{8}} WARNING ({known}|stopped at)"
    return "\n".join(line for line in lines if not re.match(log, line))


def results(folder: Path) -> dict[str, bytes]:
    """The files that a program has written; of those that change with the time, the names alone."""
    changing = r"\.(pb|json|jsonl|md|svg|npz)$|/(events|step-)|lock$|\.run/"
    return {
        re.sub(r"step-\d+|\d{10,}", "N", path): b"" if re.search(changing, path) else data
        for path, data in read_files(folder).items()
    }


def leftovers(folder: Path) -> list[str]:
    return [path for path in read_files(folder) if path.endswith(".tmp") or ".tmp/" in path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a file system of 4 KiB, which `resize` makes larger."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk]).returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def resize(disk: Path, kib: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kib}k", disk], check=True)


@PROGRAMS
def test_a_full_disk_is_one_line_and_the_same_command_goes_on(program, commands, small_disk):
    resize(small_disk, DISK[program])
    status, errors = run(commands[program], small_disk / "out")
    *warnings, error = errors.splitlines()
    assert status == 2, errors
    assert re.match("error: .*(the disk is full; make room, and |free space on that disk)", error)
    assert all("WARNING checkpoint" in line for line in warnings)  # training goes on without
    assert not leftovers(small_disk)
    resize(small_disk, 1 << 16)
    status, errors = run(commands[program], small_disk / "out")
    assert status == 0, errors


@pytest.fixture
def read_only(small_disk: Path) -> Path:
    """A folder where nobody can write, whatever the user's rights."""
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    return small_disk


@PROGRAMS
def test_a_home_and_a_working_folder_that_are_read_only_and_another_encoding(
    program, commands, read_only, tmp_path
):
    language = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    if program == "fine_tune":  # a library cannot change the encoding of its process
        language = {}
    options = {"cwd": read_only, "env": {**os.environ, **language, "HOME": str(read_only)}}
    status, errors = run(commands[program], tmp_path / "ñ", **options)
    assert (status, errors) == (0, "")
    run(commands[program], tmp_path / "usual ñ")
    assert results(tmp_path / "ñ") == results(tmp_path / "usual ñ")
    # An output that cannot be written is one line.
    status, errors = run(commands[program], read_only / "out", **options)
    assert (status, errors.count("\n")) == (2, 0), errors
    assert re.match("error: .* must be a writable folder, but is not: ", errors)


# Log lines, or files, at which a program is interrupted.
STAGES = {
    "train": ("reading", "deciding", "making the graphs", "exporting and", "evaluating"),
    "encode": ("encoding",),
    "mine": ("mining",),
    "export": ("exporting",),
    "fine_tune": ("scoring the start", "making the graphs"),
}


@pytest.mark.parametrize(
    ("program", "stage"), [(name, stage) for name, stages in STAGES.items() for stage in stages]
)
def test_ctrl_c_is_one_line_that_says_how_to_go_on(program, stage, commands, tmp_path):
    with start(commands[program], tmp_path / "out") as process:
        assert process.stderr
        printed = b""
        while f"INFO {stage}".encode() not in printed:
            printed += (line := process.stderr.readline())
            assert line, printed.decode()
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=600)
    errors = without_log(rest)
    if "_get_module_lock" in errors or "SystemError: <built-in function __import__>" in errors:
        pytest.skip("Python lost the signal: it came in a callback, or within an import in C++")
    assert errors.count("\n") == 0, errors
    # A training first writes a checkpoint; the last step may be done by then.
    is_training = program in ("train", "fine_tune")
    is_stopped = is_training and process.returncode == 1 and b"stopped at step" in rest
    is_interrupted = process.returncode == 130 and errors.startswith("interrupted; ")
    assert is_stopped or is_interrupted, errors
    assert b"the same command " in rest
    assert not leftovers(tmp_path)
    status, errors = run(commands[program], tmp_path / "out")
    assert status == 0, errors
