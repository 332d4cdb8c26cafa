"""The benchmarks; of the server by `wrk`."""

import json
import shutil
from zlib import crc32

import pandas as pd
import pytest
from benchmarks.mining import precision_and_recall, recombined, without_translations
from benchmarks.mixed_load import memory_growth
from benchmarks.server import serving, summary
from programs import ROOT, run_program, run_python

from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError


def test_others_are_recombined_and_have_no_translations_among_them_or_the_hidden():
    # By their letters, "A?" is "a": of the pairs with it, none is taken; nor is the third, which
    # shares "c".
    pairs = [("A?", "b"), ("c", "d"), ("c", "e"), ("f", "g"), ("h", "i")]
    sources, targets = without_translations(pairs, {"a"})
    taken = {*sources, *targets}
    assert [len(taken & {*pair}) for pair in pairs] == [0, 1, taken & {"c"} == {"c"}, 1, 1]
    assert ({*sources} <= {"c", "f", "h"}, {*targets} <= {"d", "g", "i"}) == (True, True)
    texts = recombined(["a b c d", "e f g h", "i j"])
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
    # In the second, one is found, a wrong one has a margin above the threshold, the others are
    # missing.
    mined += [
        (1.7, second[0], second[0].upper()),
        (1.65, second[1], "Y"),
        (1.7, "x", "y"),
        (1.1, "z", "w"),
    ]
    figures = precision_and_recall(mined, hidden)
    assert 1.4 <= figures["threshold"] <= 1.6
    assert (figures["precision"], figures["recall"]) == (50.0, round(100 / len(second), 1))
    assert figures["pairs_of_others"] == 1


@pytest.mark.slow
def test_what_runs_first_on_a_gpu_runs_on_a_cpu(tmp_path):
    figures = {}
    for part in ("replicas", "loss"):  # the others take minutes, or share their code
        output = tmp_path / f"{part}.json"
        run_program(
            tmp_path, "evaluation/benchmarks/gpu.py", f"--part={part}", f"--output={output}"
        )
        figures[part] = json.loads(output.read_text("utf-8"))
        assert "error" not in json.dumps(figures[part])
    # The same batches, and weights of the same seed, on one replica and on two.
    losses = [figures["replicas"][count]["loss_after_these_steps"] for count in "12"]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    assert figures["loss"]["200"] < figures["loss"]["1"]


def test_the_table_compares_within_rounds():
    # In round one the first way makes 100 a second and the second 50; then 10 and 20; then 40 and
    # 40: ratios 0.5, 2 and 1, whose median is 1, and rates 50, 20 and 40, whose median is 40.
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
    run_program(tmp_path, "evaluation/benchmarks/server.py", f"--model={hub_folder}", *flags)
    figures = json.loads((tmp_path / "new" / "load.json").read_text("utf-8"))
    (row,) = figures["rows"]
    assert (row["how"], row["errors"], row["to_first"]) == ("server", 0, 1)
    assert row["sentences_per_second"] == 2 * row["requests_per_second"] > 0
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert figures["servers"]["server"]["mib_after_load"] > 50


def test_memory_that_swings_or_falls_does_not_grow():
    # Nine samples in ten are 100 MiB; one in ten is a moment with twice as much.
    assert memory_growth([(s, 100 + 100 * (s % 10 == 0)) for s in range(100)], 20) == 0
    # The first tenth of the 80 samples after 20 seconds is 121 to 128, the last 193 to 200.
    growth = memory_growth([(s, 101 + s) for s in range(100)], 20)
    assert growth == pytest.approx(196.5 / 124.5 - 1)
    assert memory_growth([(0, 500), (10, 100), (11, 90)], 5) == pytest.approx(-0.1)
    with pytest.raises(UserError, match="memory_minutes"):
        memory_growth([(0, 100), (1, 100)], 1)


@pytest.mark.slow
def test_memory_is_measured_under_mixed_load(hub_folder, tmp_path):
    flags = ["--memory_minutes=0.3", "--output=memory.json"]
    run = run_python(
        tmp_path, str(ROOT / "evaluation/benchmarks/server.py"), f"--model={hub_folder}", *flags
    )
    assert run.status in (0, 1), run.errors  # Memory is not yet steady after seconds.
    figures = json.loads((tmp_path / "memory.json").read_text("utf-8"))
    assert {"200", "400", "404", "405", "413", "left"} <= figures["outcomes"].keys()
    assert not [outcome for outcome in figures["outcomes"] if "instead" in outcome]
    assert len(figures["mib"]) > 10
