"""The benchmarks, but for the server's."""

import json
from zlib import crc32

import benchmark_mining
import pytest
from programs import ROOT, run_python

from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError


def test_others_are_recombined_and_have_no_translations_among_them_or_the_hidden():
    # By their letters, "A?" is "a": of the pairs with it, none is taken; nor is the third, which shares "c".
    pairs = [("A?", "b"), ("c", "d"), ("c", "e"), ("f", "g"), ("h", "i")]
    sources, targets = benchmark_mining.without_translations(pairs, {"a"})
    taken = {*sources, *targets}
    assert [len(taken & {*pair}) for pair in pairs] == [0, 1, taken & {"c"} == {"c"}, 1, 1]
    assert ({*sources} <= {"c", "f", "h"}, {*targets} <= {"d", "g", "i"}) == (True, True)
    texts = benchmark_mining.recombined(["a b c d", "e f g h", "i j"])
    first = [next(texts) for _ in range(5)]
    assert first[:3] == ["a b c d", "e f g h", "i j"]
    assert {*first[3:]} == {"a b g h", "e f c d"}
    with pytest.raises(UserError, match="without translations; give fewer --sentences"):
        list(texts)


def test_the_threshold_is_chosen_on_one_half_and_measured_on_the_other():
    hidden = [TranslationPair(text, text.upper()) for text in "abcdef"]
    first, second = ([t for t in "abcdef" if crc32(t.encode()) % 2 == half] for half in range(2))
    # In the first half, pairs above 1.5 are right and those below wrong.
    mined = [(1.6, text, text.upper()) for text in first] + [(1.4, first[0], "X")]
    # In the second, one is found, a wrong one has a margin above the threshold, the others are missing.
    mined += [(1.7, second[0], second[0].upper()), (1.65, second[1], "Y"), (1.7, "x", "y"), (1.1, "z", "w")]
    figures = benchmark_mining.precision_and_recall(mined, hidden)
    assert 1.4 <= figures["threshold"] <= 1.6
    assert (figures["precision"], figures["recall"]) == (50.0, round(100 / len(second), 1))
    assert figures["pairs_of_others"] == 1


ONE_ROUND = f"""
import runpy, sys
sys.path.insert(0, {str(ROOT)!r})
from evaluation import workloads
workloads.ROUNDS = 1
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def figures_of(folder, name, *flags):
    """Runs a benchmark, and reads its results."""
    program = str(ROOT / "evaluation" / f"benchmark_{name}.py")
    run = run_python(folder, "-c", ONE_ROUND, program, *flags, "--output=x/figures.json")
    assert run.status == 0, run.errors
    return json.loads((folder / "x" / "figures.json").read_text("utf-8"))


@pytest.mark.slow
def test_search_in_fewer_bytes(hub_folder, tmp_path):
    texts = SAMPLE_FOLDER / "parallel" / "everyday.en-es.tsv"
    flags = [f"--model={hub_folder}", f"--texts={texts}", "--queries=20"]
    figures = figures_of(tmp_path, "vectors", *flags)
    exact, *others = figures["models"]["tiny"]
    # Eight dimensions: 32 bytes of floats, 8 of int8, 1 of bits, and those of bits with their refinement.
    assert (exact["dim"], exact["bytes_per_vector"], exact["recall_at_10"]) == (8, 32, 1.0)
    assert {row["bytes_per_vector"] for row in others} == {8, 1, 9, 33}
    assert all(0 < row["recall_at_10"] <= 1 for row in others)


@pytest.mark.slow
def test_speeds_are_compared_with_the_fastest_of_the_others(hub_folder, tmp_path):
    python = tmp_path / "python"
    # The ONNX file encodes 0.002 sentences per second, the others 0.001. bfloat16 is not measured if the
    # training found it no faster: without hardware for it, a step of PyTorch takes hours.
    names = ["training: s-t, float32", "encoding: s-t, float32", "encoding: s-t, bfloat16", "encoding: s-t"]
    names += ["one sentence: s-t", "published CNN: ONNX", "published CNN: e5"]
    python.write_text(
        f"#!/bin/sh\necho '{json.dumps(names)}'\n"
        'while read -r work; do case "$work" in *bfloat16) exit 1;; *ONNX*) s=1000;; *) s=2000;; esac\n'
        """printf '{"sentences": 2, "seconds": %s}\\n' "$s"; done\n"""
    )
    python.chmod(0o755)
    flags = ["--preset=smoke", "--steps=4", f"--python={python}", f"--model={hub_folder}"]
    figures = figures_of(tmp_path, "speed", *flags)
    assert 0 < figures["encoding"]["fraction_of_ceiling"] < 1
    figures = figures["sentences_per_second"]
    assert set(figures) == {"training", "encoding", "one sentence", "average of words", "published CNN"}
    ratio = "ratio to the fastest of the others"
    assert set(figures["encoding"]) == {"xling_tf, float32", "s-t, float32", "s-t", ratio}
    published = figures["published CNN"]
    assert published["ONNX"] == 2 * published["e5"] == 0.002
    assert published[ratio] == pytest.approx(published["xling_tf, float32"] / 0.002)
    (tmp_path / "texts.txt").write_text("a b\n\nhola\n", encoding="utf-8")
    flags = [*flags[2:3], f"--model={hub_folder},{hub_folder}", f"--peer={tmp_path}", "--texts=texts.txt"]
    figures = figures_of(tmp_path, "speed", *flags)["sentences_per_second"]
    assert figures["others"].keys() == {hub_folder.name}
    for name in ("encoding", "one sentence"):
        assert figures[name].keys() == {"xling_tf", "s-t", ratio}
        assert figures[name][ratio] == pytest.approx(figures[name]["xling_tf"] / 0.001)


@pytest.mark.slow
def test_what_runs_first_on_a_gpu_runs_on_a_cpu(tmp_path):
    figures = {}
    for part in ("device", "replicas", "loss"):  # the others take minutes, and share their code
        output = tmp_path / f"{part}.json"
        program = ROOT / "evaluation" / "benchmark_gpu.py"
        run = run_python(tmp_path, str(program), f"--part={part}", f"--output={output}", timeout=600)
        assert run.status == 0, run.errors
        figures[part] = json.loads(output.read_text("utf-8"))
        assert "error" not in json.dumps(figures[part])
    # The same batches, and weights of the same seed, on one replica and on two.
    losses = [figures["replicas"][count]["loss_after_these_steps"] for count in "12"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert figures["loss"]["200"] < figures["loss"]["1"]


@pytest.mark.slow
def test_a_part_that_crashes_or_hangs_loses_no_figures(tmp_path):
    part = tmp_path / "part.py"
    part.write_text(
        "import sys, time, os\nname, output = (flag.partition('=')[2] for flag in sys.argv[1:])\n"
        "open(output, 'w').write('{\"first\": 1}')\nprint('the reason', flush=True)\n"
        "os.abort() if name == 'crashes' else time.sleep(60)\n"
    )
    # In a process of its own: two programs define the same flags.
    run_parts = (
        f"import json, sys\nfrom pathlib import Path\nsys.path.insert(0, {str(ROOT / 'evaluation')!r})\n"
        f"import benchmark_gpu\nbenchmark_gpu.__file__, folder = {str(part)!r}, Path({str(tmp_path)!r})\n"
        "for name in ('crashes', 'hangs'):\n"
        "    print(json.dumps(benchmark_gpu._run_part(name, folder, 2, {})))\n"
    )
    run = run_python(tmp_path, "-c", run_parts)
    assert run.status == 0, run.errors
    reasons = ("ended with status -6", "stopped after 2 seconds")
    for line, reason in zip(run.output.splitlines(), reasons, strict=True):
        figures = json.loads(line)
        assert (figures["first"], figures["error"]) == (1, [reason, "the reason"])
