"""The benchmarks of systems and vectors; that of training is a training and its log."""

import json
import sys
import time

import benchmark
import numpy as np
import pytest
from encode_functions import Counting, constant
from programs import ROOT, run_python

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import System

PROGRAM = ROOT / "evaluation" / "benchmark.py"


def test_every_text_is_new_and_has_its_length_and_memory_elsewhere_is_left_out():
    seen = Counting(constant)
    benchmark.ResourceUsage((1, 3), (1, 4))(seen)
    assert len(set(seen.texts)) == len(seen.texts)
    assert {len(text.split()) for text in seen.texts} == {1, 3}
    description = {"url": "http://localhost:8501", "device": "one GPU"}
    usage = benchmark.ResourceUsage((1,), (1,))
    scores = usage(System(name="served", sentences=constant, description=description))
    assert set(scores) == {"length_1/batch_1/sentences_per_second", "length_1/batch_1/milliseconds"}
    assert usage.protocol["device"] == "one GPU"


def test_only_the_memory_needs_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "psutil", None)
    with pytest.raises(UserError, match="psutil"):
        benchmark.ResourceUsage((1,), (1,))(constant)


def test_memory_growth_sees_what_a_call_uses_for_a_while():
    def wasteful(texts):
        block = np.ones(50 * 2**20 if len(texts) > 1 else 1, np.uint8)  # 50 MiB
        time.sleep(0.05)
        return constant(texts) * block[0]

    scores = benchmark.ResourceUsage((1,), (1, 2))(wasteful)
    small, large = (scores[f"length_1/batch_{batch}/memory_growth_mib"] for batch in (1, 2))
    assert small < 10
    assert 49 <= large < 80


def figures_of(folder, kind, *flags):
    """What the program writes."""
    run = run_python(folder, str(PROGRAM), kind, *flags, "--output=x/figures.json")
    assert run.status == 0, run.errors
    return json.loads((folder / "x" / "figures.json").read_text("utf-8"))


@pytest.mark.slow
def test_vectors_in_fewer_bytes(hub_folder, tmp_path):
    flags = [f"--model={hub_folder}", "--corpus=everyday", "--queries=20"]
    figures = figures_of(tmp_path, "vectors", *flags)
    exact, *others = figures["models"]["tiny"]
    # Eight dimensions: 32 bytes of floats, 8 of int8 and 1 of bits, whose floats find all again.
    assert (exact["dim"], exact["bytes_per_vector"], exact["recall_at_10"]) == (8, 32, 1.0)
    assert {row["bytes_per_vector"] for row in others} == {8, 1}
    assert all(0 < row["recall_at_10"] <= 1 for row in others)


@pytest.mark.slow
def test_training_and_encoding_beside_the_ceiling(tmp_path):
    figures = figures_of(tmp_path, "training", "--pair=smoke", "--steps=4")
    for name in ("training", "encoding"):
        assert figures[name]["sentences_per_second"] > 1
        assert 0 < figures[name]["fraction_of_ceiling"] < 1
        assert figures[name]["tokens_per_second"] > figures[name]["sentences_per_second"]


@pytest.mark.slow
def test_reading_corpora_and_the_memory_of_a_call(hub_folder, tmp_path):
    figures = figures_of(tmp_path, "corpora")
    assert figures["records"] > figures["corpora"] > 1
    assert figures["records_per_core_second"] > 1
    figures = figures_of(tmp_path, "memory", f"--model={hub_folder}", "--sentences=150")
    for peaks in figures["peak_mib_by_sentences"].values():
        assert list(peaks) == ["150"]
        assert peaks["150"] >= figures["resident_mib"] > 100


@pytest.mark.slow
def test_other_libraries_take_turns_and_the_fastest_of_them_counts(hub_folder, tmp_path):
    peers = tmp_path / "python"
    # 0.002 sentences a second of the ONNX file, 0.001 of all others. What the training has found to be no
    # faster, bfloat16, nobody is asked for: without hardware, a step of PyTorch's takes hours.
    peers.write_text(
        "#!/bin/sh\necho ready\n"
        'while read -r work; do case "$work" in *bfloat16) exit 1;; *ONNX*) s=1000;; *) s=2000;; esac\n'
        """printf '{"sentences": 2, "seconds": %s}\\n' "$s"; done\n"""
    )
    peers.chmod(0o755)
    flags = ["--pair=smoke", "--steps=4", f"--python={peers}", f"--model={hub_folder}"]
    figures = figures_of(tmp_path, "peers", *flags)["sentences_per_second"]
    assert set(figures) == {"training", "encoding", "one sentence", "average of words", "published CNN"}
    ratio = "ratio to the fastest of the others"
    assert set(figures["encoding"]) == {"xling_tf, float32", "sentence-transformers, float32", ratio}
    published = figures["published CNN"]
    assert published["its ONNX in 8 bits"] == 2 * published["multilingual-e5-small in C"] == 0.002
    assert published[ratio] == pytest.approx(published["xling_tf, float32"] / 0.002)
