"""The benchmark program."""

import json
import time

import benchmark
import numpy as np
import pytest
from encode_functions import Counting, constant
from programs import ROOT, run_python

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder

PROGRAM = ROOT / "evaluation" / "benchmark.py"


def test_texts_are_new_and_of_the_given_length():
    seen = Counting(constant)
    benchmark.ResourceUsage((1, 3), (1, 4))(seen)
    assert len(set(seen.texts)) == len(seen.texts)
    assert {len(text.split()) for text in seen.texts} == {1, 3}
    usage = benchmark.ResourceUsage((1,), (1,))
    scores = usage(Embedder(name="served", sentences=constant, description={"url": "x", "device": "one GPU"}))
    assert set(scores) == {"length_1/batch_1/sentences_per_second", "length_1/batch_1/milliseconds"}
    assert usage.protocol["device"] == "one GPU"


def test_memory_growth_includes_temporary_memory_of_a_call():
    def wasteful(texts):
        block = np.ones(50 * 2**20 if len(texts) > 1 else 1, np.uint8)  # 50 MiB
        time.sleep(0.05)
        return constant(texts) * block[0]

    scores = benchmark.ResourceUsage((1,), (1, 2))(wasteful)
    small, large = (scores[f"length_1/batch_{batch}/memory_growth_mib"] for batch in (1, 2))
    assert small < 10
    assert 49 <= large < 80


def test_texts_are_recombined_until_there_are_no_more():
    texts = benchmark._recombined(["a b c d", "e f g h", "i j"])
    first = [next(texts) for _ in range(5)]
    assert first[:3] == ["a b c d", "e f g h", "i j"]
    assert {*first[3:]} == {"a b g h", "e f c d"}
    for few in (texts, benchmark._recombined(["今天下雨"])):
        with pytest.raises(UserError, match="without translations; give fewer --sentences"):
            list(few)


def figures_of(folder, kind, *flags):
    """Runs the program, and reads its results."""
    run = run_python(folder, str(PROGRAM), kind, *flags, "--output=x/figures.json")
    assert run.status == 0, run.errors
    return json.loads((folder / "x" / "figures.json").read_text("utf-8"))


@pytest.mark.slow
def test_search_in_fewer_bytes(hub_folder, tmp_path):
    flags = [f"--model={hub_folder}", "--corpus=everyday", "--queries=20"]
    figures = figures_of(tmp_path, "vectors", *flags)
    exact, *others = figures["models"]["tiny"]
    # Eight dimensions: 32 bytes of floats, 8 of int8, 1 of bits, and those of bits with their refinement.
    assert (exact["dim"], exact["bytes_per_vector"], exact["recall_at_10"]) == (8, 32, 1.0)
    assert {row["bytes_per_vector"] for row in others} == {8, 1, 9, 33}
    assert all(0 < row["recall_at_10"] <= 1 for row in others)


@pytest.mark.slow
def test_peers_are_compared_with_the_fastest_of_them(hub_folder, tmp_path):
    peers = tmp_path / "python"
    # The ONNX file encodes 0.002 sentences per second, the others 0.001. bfloat16 is not measured if the
    # training found it no faster: without hardware for it, a step of PyTorch takes hours.
    peers.write_text(
        "#!/bin/sh\necho ready\n"
        'while read -r work; do case "$work" in *bfloat16) exit 1;; *ONNX*) s=1000;; *) s=2000;; esac\n'
        """printf '{"sentences": 2, "seconds": %s}\\n' "$s"; done\n"""
    )
    peers.chmod(0o755)
    flags = ["--preset=smoke", "--steps=4", f"--python={peers}", f"--model={hub_folder}"]
    figures = figures_of(tmp_path, "peers", *flags)["sentences_per_second"]
    assert set(figures) == {"training", "encoding", "one sentence", "average of words", "published CNN"}
    ratio = "ratio to the fastest of the others"
    assert set(figures["encoding"]) == {"xling_tf, float32", "sentence-transformers, float32", ratio}
    published = figures["published CNN"]
    assert published["its ONNX in 8 bits"] == 2 * published["multilingual-e5-small in C"] == 0.002
    assert published[ratio] == pytest.approx(published["xling_tf, float32"] / 0.002)
    texts = tmp_path / "texts.txt"
    texts.write_text("a b\n\nhola\n", encoding="utf-8")
    flags = [f"--python={peers}", f"--model={hub_folder}", f"--peer={tmp_path}", f"--texts={texts}"]
    flags += [f"--others={hub_folder}"]
    figures = figures_of(tmp_path, "imported", *flags)["sentences_per_second"]
    assert set(figures) == {"encoding", "one sentence", "others"}
    assert figures.pop("others").keys() == {hub_folder.name}
    for rates in figures.values():
        assert rates["sentence-transformers"] == 0.001
        assert rates[ratio] == pytest.approx(rates["xling_tf"] / 0.001)


@pytest.mark.slow
def test_what_runs_first_on_a_gpu_runs_on_a_cpu(tmp_path):
    output = tmp_path / "gpu.json"
    program = ROOT / "evaluation" / "benchmark_gpu.py"
    run = run_python(tmp_path, str(program), "--minutes=15", f"--output={output}", timeout=900)
    assert run.status == 0, run.errors
    figures = json.loads(output.read_text("utf-8"))
    parts = [figures[name] for name in ("device", "steps", "batches", "encoding", "replicas", "loss")]
    assert not [part for part in parts if "error" in json.dumps(part)]
    # The same batches, and weights of the same seed: on two replicas, and in another process.
    losses = [figures["replicas"][count]["loss_after_these_steps"] for count in "12"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    for part in ("loss", "loss_on_cpu"):
        figures[part].pop("seconds")
    assert figures["loss"] == pytest.approx(figures["loss_on_cpu"], rel=1e-3, abs=0.01)
    assert figures["loss"]["200"] < figures["loss"]["1"]


@pytest.mark.slow
def test_a_part_that_crashes_or_hangs_loses_no_figures(tmp_path, monkeypatch):
    part = tmp_path / "part.py"
    part.write_text(
        "import sys, time, os\nname, output = (flag.partition('=')[2] for flag in sys.argv[1:])\n"
        "open(output, 'w').write('{\"first\": 1}')\nprint('the reason', flush=True)\n"
        "os.abort() if name == 'crashes' else time.sleep(60)\n"
    )
    import benchmark_gpu

    monkeypatch.setattr(benchmark_gpu, "__file__", str(part))
    for name, reason in (("crashes", "ended with status -6"), ("hangs", "stopped after 2 seconds")):
        figures = benchmark_gpu._run_part(name, tmp_path, 2, {})
        assert (figures["first"], figures["error"]) == (1, [reason, "the reason"])
