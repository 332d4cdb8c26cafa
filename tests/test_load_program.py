"""evaluation/load.py on the tiny model."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from programs import ROOT, run_python, the_error

PROGRAM = str(ROOT / "evaluation" / "load.py")
with_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


@pytest.mark.slow
@with_wrk
def test_the_load_table_is_measured_and_written(hub_folder: Path, tmp_path: Path) -> None:
    flags = ["--clients=2", "--sentences=2", "--rounds=1", "--seconds=0.3"]
    run = run_python(tmp_path, PROGRAM, f"--model={hub_folder}", *flags, "--output=new/load.json")
    assert run.status == 0, run.errors
    figures = json.loads((tmp_path / "new" / "load.json").read_text("utf-8"))
    rows = {(row["how"], row["clients"]): row for row in figures["rows"]}
    assert rows.keys() == {
        ("in process", 1),
        ("in process", 8),
        ("server", 2),
        ("server without batching", 2),
    }
    for row in rows.values():
        assert row["errors"] == 0
        assert row["sentences_per_second"] == 2 * row["requests_per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert rows["in process", 1]["to_first"] == 1
    assert run.output.count("\n| 2 | ") == 4
    assert figures["model"] == "tiny"
    assert str(hub_folder.parent) not in json.dumps(figures)
    assert not list((tmp_path / "new").glob(".*"))


@pytest.mark.slow
@with_wrk
@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full and prlimit")
def test_every_fault_is_borne(hub_folder: Path, tmp_path: Path) -> None:
    flags = ["--faults", "--seconds=1", "--output=faults.json"]
    run = run_python(tmp_path, PROGRAM, f"--model={hub_folder}", *flags, timeout=900)
    assert run.status == 0, run.output + run.errors
    figures = json.loads((tmp_path / "faults.json").read_text("utf-8"))
    assert figures["passed"]
    assert [finding["name"] for finding in figures["findings"]] == [
        "kill -9",
        "new version",
        "corrupt version",
        "disconnects",
        "slow-loris",
        "queue overflow",
        "memory",
        "SIGTERM",
        "full disk",
    ]


@pytest.mark.slow
@with_wrk
def test_a_short_soak_sees_what_it_expects(hub_folder: Path, tmp_path: Path) -> None:
    flags = ["--soak_minutes=0.5", "--output=soak.json"]
    run = run_python(tmp_path, PROGRAM, f"--model={hub_folder}", *flags)
    figures = json.loads((tmp_path / "soak.json").read_text("utf-8"))
    # Half a minute is too short to tell whether memory grows.
    assert run.status == (not figures["memory"]["flat"]), run.errors
    assert figures["unexpected"] == {}
    assert figures["outcomes"].keys() == {"200", "400", "404"}
    assert figures["versions_served"] > 2
    assert figures["load_failures"] == 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--model=nowhere"], "nowhere has no saved_model.pb"),
        (["--model=nowhere", "--faults", "--soak_minutes=1"], "one at a time, got both"),
    ],
    ids=["no model", "both"],
)
def test_a_mistake_is_one_line(tmp_path: Path, flags: list[str], told: str) -> None:
    assert told in the_error(run_python(tmp_path, PROGRAM, *flags))


def test_without_wrk_it_is_told_before_anything_starts(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    monkeypatch.setenv("PATH", os.devnull)
    assert "wrk is expected on the PATH" in the_error(run_python(tmp_path, PROGRAM, "--model=."))
