"""evaluation/load.py on the tiny model."""

import json
import shutil

import pandas as pd
import pytest
from load import serving, summary
from programs import ROOT, run_python

from xling_tf.errors import UserError


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


def test_a_server_that_does_not_start_is_an_error():
    with pytest.raises(UserError, match="does not answer"), serving("tiny", ["false", "{port}"]):
        pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("wrk") is None, reason="wrk is not installed")
def test_a_server_is_measured(hub_folder, tmp_path):
    flags = ["--clients=2", "--sentences=2", "--rounds=1", "--seconds=1", "--output=new/load.json"]
    run = run_python(tmp_path, str(ROOT / "evaluation" / "load.py"), f"--model={hub_folder}", *flags)
    assert run.status == 0, run.errors
    figures = json.loads((tmp_path / "new" / "load.json").read_text("utf-8"))
    (row,) = figures["rows"]
    assert (row["how"], row["errors"], row["to_first"]) == ("server", 0, 1)
    assert row["sentences_per_second"] == 2 * row["requests_per_second"] > 0
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert figures["servers"]["server"]["mib_after_load"] > 50
