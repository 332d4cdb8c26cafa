"""The suite in processes of its own, what is printed and written, and the program."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import conformance_models as models
import pytest
import tensorflow as tf

import xling_tf
from xling_tf.conformance import running
from xling_tf.conformance.memory import MIB
from xling_tf.conformance.outcome import FAILED, PASSED, SKIPPED, Outcome
from xling_tf.conformance.report import format_outcome, format_summary, has_failed, write_json
from xling_tf.conformance.running import run_suite
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.suite import CHECKS, run_check
from xling_tf.errors import UserError

PROGRAM = Path(__file__).resolve().parents[1] / "export" / "check.py"

# In place of a worker: tells the names that it was given, until one is that of a check it dies of.
_DYING = """
import json, os, signal, sys
for name in sys.argv[4:]:
    if name == "b":
        print("about to die", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    print(json.dumps([name, "passed", "", {}, 1.0]), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").write_bytes(b"")
    return tmp_path / "model"


def test_a_crash_fails_a_check_and_the_others_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_WORKER", [sys.executable, "-c", _DYING])
    monkeypatch.setattr(running, "GROUPS", (("a", "b", "c"), ("d",)))
    outcomes = list(run_suite(folder, sentences=1, calls=1))
    assert [(o.check, o.status) for o in outcomes] == [
        *(("a", PASSED), ("b", FAILED), ("c", PASSED), ("d", PASSED)),
    ]
    assert f"ended with status {-signal.SIGSEGV}: about to die" in outcomes[1].text


def test_a_worker_that_says_nothing_fails_its_checks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_WORKER", [sys.executable, "-c", ""])
    monkeypatch.setattr(running, "GROUPS", (("a", "b"),))
    outcomes = list(run_suite(folder, sentences=1, calls=1))
    assert [outcome.check for outcome in outcomes if outcome.status == FAILED] == ["a", "b"]


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"folder of a SavedModel is expected, .* has no saved_mod"):
        list(run_suite(tmp_path, sentences=1, calls=1))


def test_an_error_of_the_model_is_a_failure(folder: Path) -> None:
    outcome = run_check("vectors_have_unit_length", Subject(folder))
    assert outcome.status == FAILED
    assert outcome.text.startswith("expected no error, but UserError came: the folder of an exp")


def test_the_peak_of_memory_is_seen() -> None:
    done = _measured("100 * 2**20", seconds=0.5, bound="1000 * 2**20")
    assert float(done.stdout) / MIB == pytest.approx(100, abs=5)


def test_what_is_hopeless_is_stopped_before_the_machine_is_full() -> None:
    done = _measured("40 * 2**20", seconds=60, bound="10 * 2**20")
    assert done.returncode == 1
    assert "MiB in use, 10 are the bound" in done.stderr


def test_outcomes_are_told_in_full() -> None:
    failed = Outcome("it_is_good", FAILED, "expected good, but bad came", {}, 61.26)
    skipped = Outcome("it_is_new", SKIPPED, "pandas is not installed", {}, 0.0)
    passed = Outcome("it_is_fast", PASSED, "", {"difference": 2.5e-7, "calls": 2000}, 1.0)
    assert format_outcome(failed).splitlines() == [
        "failed     61.3 s  it is good",
        "                   expected good, but bad came",
    ]
    assert format_outcome(passed).endswith(" difference 2.5e-07, calls 2000")
    assert format_summary("m", [failed, skipped, passed]) == "m: 1 passed, 1 failed, 1 skipped"
    assert has_failed([failed, passed])
    assert not has_failed([skipped, passed])


def test_the_file_names_models_and_machine_and_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "home" / "en-es"
    monkeypatch.setattr(sys, "argv", ["export/check.py", str(folder)])
    outcome = Outcome("it_loads", FAILED, f"expected peace, but {folder}/x came", {}, 1.23)
    write_json(tmp_path / "new" / "out.json", {folder: [outcome]})
    content = json.loads((tmp_path / "new" / "out.json").read_text(encoding="utf-8"))
    assert content["command"] == "python export/check.py en-es"
    assert content["machine"]["cpus"] >= 1
    assert content["machine"]["memory_gib"] > 0
    assert content["versions"]["tensorflow"] == tf.__version__
    assert content["versions"]["xling_tf"] == xling_tf.__version__
    assert content["models"] == [
        {
            "model": "en-es",
            "checks": [
                {
                    "check": "it_loads",
                    "status": "failed",
                    "text": "expected peace, but en-es/x came",
                    "measured": {},
                    "seconds": 1.2,
                }
            ],
        }
    ]


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_misuse_is_one_line_and_status_2(tmp_path: Path) -> None:
    done = run("--sentences", "0", tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert "sentences" in line


@pytest.mark.slow
def test_the_program_tells_what_is_wrong_and_ends_with_its_status(tmp_path: Path) -> None:
    good = models.save(models.Whole, tmp_path / "good")
    bad = models.save(models.NotNormalized, tmp_path / "bad")
    done = run("--sentences", "100", good, "--json", tmp_path / "good.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"good: {len(CHECKS) - 1} passed, 0 failed, 1 skipped" in done.stdout
    done = run("--sentences", "100", good, bad, "--json", tmp_path / "both.json")
    assert done.returncode == 1
    assert "expected length 1 within 1e-05" in done.stdout
    models_of_file = json.loads((tmp_path / "both.json").read_text())["models"]
    assert [model["model"] for model in models_of_file] == ["good", "bad"]
    failed = [c["check"] for c in models_of_file[1]["checks"] if c["status"] == "failed"]
    assert "vectors_have_unit_length" in failed


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["nowhere"]])
def test_the_program_asks_for_a_folder(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")


@pytest.mark.slow
def test_a_model_that_needs_python_fails_in_a_bare_process(tmp_path: Path) -> None:
    class NeedsPython(models.Whole):
        def finish(self, vectors: tf.Tensor) -> tf.Tensor:
            finished = tf.numpy_function(lambda array: array, [vectors], tf.float32)
            return tf.math.l2_normalize(tf.ensure_shape(finished, [None, models.DIM]), axis=1)

    folder = models.save(NeedsPython, tmp_path / "model")
    outcome = run_check("it_loads_in_a_bare_process", Subject(folder))
    assert outcome.status == FAILED
    assert "alone to load and call it, but it ended with status 1" in outcome.text


def _measured(size: str, seconds: float, bound: str) -> subprocess.CompletedProcess[str]:
    """Takes so many bytes for so long, in a process where nothing else gives back memory meanwhile."""
    code = (
        "import numpy, time\n"
        "from xling_tf.conformance.memory import peak_bytes\n"
        "def take():\n"
        f"    kept = numpy.ones({size}, numpy.uint8)\n"
        f"    time.sleep({seconds})\n"
        f"print(peak_bytes(take, {bound}))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROGRAM.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
