"""evaluation/load.py on the tiny model."""

import json
import shlex
import shutil
import sys

import pandas as pd
import pytest
from load import summary
from programs import ROOT, run_python

PROGRAM = str(ROOT / "evaluation" / "load.py")
BRIEF = ("--clients=2", "--sentences=2", "--rounds=1", "--seconds=1")
with_wrk = pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")


def test_the_table_compares_within_rounds():
    # In round one the first way makes 100 a second and the second 50; then 10 and 20; then 40 and 40:
    # ratios 0.5, 2 and 1, whose median is 1, and rates 50, 20 and 40, whose median is 40.
    rates = {"a": [100, 10, 40], "b": [50, 20, 40]}
    rounds = [
        {"round": number, "how": how, "clients": 1, "sentences_per_request": 32, "seconds": 1.0}
        | {"requests": rates[how][number], "p50_ms": 1, "p99_ms": 2, "max_ms": number, "errors": 1}
        for number in range(3)
        for how in rates
    ]
    first, second = summary(pd.DataFrame(rounds)).to_dict("records")
    assert (first["how"], first["to_first"], second["to_first"]) == ("a", 1, 1)
    assert (second["requests_per_second"], second["sentences_per_second"]) == (40, 40 * 32)
    assert (second["max_ms"], second["errors"]) == (2, 3)


@pytest.mark.slow
@with_wrk
def test_servers_are_measured_in_turn_and_one_that_does_not_start_is_an_error(hub_folder, tmp_path):
    program = shlex.join([sys.executable, str(ROOT / "export" / "serve.py"), f"--model=tiny={hub_folder}"])
    for peer, output in ((f"{program} --port={{port}}", "new/load.json"), ("false {port}", "failed.json")):
        flags = [*BRIEF, f"--peer={peer}", f"--output={output}"]
        run = run_python(tmp_path, PROGRAM, f"--model={hub_folder}", *flags)
    assert (run.status, "does not answer" in run.errors) == (2, True)
    assert not (tmp_path / "failed.json").exists()
    figures = json.loads((tmp_path / "new" / "load.json").read_text("utf-8"))
    rows = {row["how"]: row for row in figures["rows"]}
    assert rows.keys() == figures["servers"].keys() == {"server", "peer"}
    for row in rows.values():
        assert row["errors"] == 0
        assert row["sentences_per_second"] == 2 * row["requests_per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert rows["server"]["to_first"] == 1
    assert all(server["mib_after_load"] > 50 for server in figures["servers"].values())
