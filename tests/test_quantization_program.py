import json

import pytest
from programs import ROOT, run_python, the_error

PROGRAM = str(ROOT / "evaluation" / "quantization.py")
SAMPLE = f"--data={ROOT / 'xling_tf' / 'corpora' / 'sample'}"


@pytest.mark.slow
def test_every_way_that_suits_the_dimensions_is_measured(hub_folder, tmp_path):
    flags = [f"--model={hub_folder}", SAMPLE, "--corpus=everyday", "--queries=20"]
    run = run_python(tmp_path, PROGRAM, *flags, "--output=figures/quantization.json")
    assert run.status == 0, run.errors
    figures = json.loads((tmp_path / "figures" / "quantization.json").read_text("utf-8"))
    exact, *others = figures["models"]["tiny"]
    # Eight dimensions: 32 bytes of floats, 8 of int8 and 1 of bits, whose floats find all again.
    assert (exact["dim"], exact["bytes_per_vector"], exact["recall_at_10"]) == (8, 32, 1.0)
    assert {row["bytes_per_vector"] for row in others} == {8, 1}
    assert all(0 < row["recall_at_10"] <= 1 for row in others)
    assert figures["queries"] == 20
    assert figures["machine"]["cpus"] >= 1


def test_an_unknown_corpus_is_told_before_a_model_is_loaded(tmp_path):
    run = run_python(tmp_path, PROGRAM, "--model=none", SAMPLE, "--corpus=novels")
    assert "--corpus must be one of everyday" in the_error(run)
    assert "got 'novels'" in run.errors
