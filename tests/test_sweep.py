"""Recipes trained side by side: every trial once, its scores in a table."""

import json

import pytest
from programs import ROOT, run_python, the_error
from raw_files import write_files

PROGRAM = str(ROOT / "training" / "sweep.py")


def run_code(folder, code):
    """Runs code that sees the program as `sweep`, and returns the JSON values that it prints."""
    begin = f"import json, os, sys; sys.path.insert(0, {str(ROOT)!r}); from training import sweep\n"
    run = run_python(folder, "-c", begin + code)
    assert run.status == 0, run.errors
    return [json.loads(line) for line in run.output.splitlines()]


@pytest.mark.slow
def test_every_trial_is_run_once_and_its_scores_are_kept(tmp_path):
    recipes = ("--recipe=whole: pair=smoke", "--recipe=one layer: pair=smoke encoder.num_layers=1")
    flags = [PROGRAM, "--minutes=0.03", "--output=swept", *recipes]
    run = run_python(tmp_path, *flags)
    assert run.status == 0, run.errors
    kept = tmp_path / "swept" / "results.jsonl"
    lines = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert sorted(line["recipe"] for line in lines) == ["one layer", "whole"]
    assert all(0 <= line["scores"]["task/inference"] <= 1 and line["steps"] for line in lines)
    again = run_python(tmp_path, *flags)
    assert (again.status, again.output) == (0, run.output)
    assert len(kept.read_text("utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    ("recipes", "message"),
    [(["a: pair=smoke text.size=1"], "text.size"), (["a b: pair=smoke", "a-b: pair=smoke"], "another name")],
)
def test_recipes_that_cannot_be_trained_are_refused_before_any_training(recipes, message, tmp_path):
    assert message in the_error(run_python(tmp_path, PROGRAM, *(f"--recipe={recipe}" for recipe in recipes)))
    assert not list(tmp_path.iterdir())


def test_the_table_has_the_medians_of_the_seeds_of_each_recipe(tmp_path):
    trials = [("a", 1, 0.2), ("a", 1, 0.4), ("a", 1, 0.9), ("a", 3, 0.5), ("b", 1, 0.1)]
    lines = [{"recipe": recipe, "minutes": m, "scores": {"sts": sts}} for recipe, m, sts in trials]
    (text,) = run_code(tmp_path, f"print(json.dumps(sweep.table({lines})))")
    assert text.splitlines()[-1].split() == ["sts", "0.400", "0.500", "0.100"]


def test_each_training_has_a_gpu_with_a_share_of_the_cores_or_else_a_core(tmp_path):
    (tmp_path / "nvidia-smi").touch(0o755)
    code = """
os.environ["PATH"] = f"{os.getcwd()}:/bin"
os.sched_getaffinity = lambda _: {0, 1, 2}
for os.environ["CUDA_VISIBLE_DEVICES"] in ("3,5", ""):
    print(json.dumps(sweep._devices()))
del os.environ["CUDA_VISIBLE_DEVICES"]
for listing in ("NVIDIA-SMI has failed.", "GPU 0: H100 (UUID: 1)\\n  MIG 1g Device 0: (UUID: 2)"):
    open("nvidia-smi", "w").write(f"#!/bin/sh\\necho '{listing}'\\n")
    print(json.dumps(sweep._devices()))
"""
    cores = [[[0], ""], [[1], ""], [[2], ""]]
    # Of nvidia-smi's lines, only those about GPUs count.
    assert run_code(tmp_path, code) == [[[[0, 2], "3"], [[1], "5"]], cores, cores, [[[0, 1, 2], "0"]]]


def test_a_training_that_fails_does_not_stop_the_others_and_a_cut_result_is_made_again(tmp_path):
    code = """
from pathlib import Path
def train(trial, data, output, device):
    if trial.recipe == "bad":
        raise sweep.UserError("it failed")
    return {**sweep.asdict(trial), "scores": {"sts": 0.5}}
sweep._train_and_evaluate = train
trials = [sweep.Trial(recipe, "smoke", (), 1.0, 1) for recipe in ("bad", "a", "b", "c")]
for _ in range(2):
    results, failures = sweep._run(trials, None, Path("."))
    lines = Path("results.jsonl").read_text().splitlines()
    print(json.dumps([sorted(r["recipe"] for r in results), failures, len(lines)]))
    Path("results.jsonl").write_text("\\n".join(lines)[:-9])  # as a full disk leaves it
"""
    assert run_code(tmp_path, code) == [[["a", "b", "c"], ["it failed"], 3]] * 2


def test_only_data_sets_that_are_there_are_evaluated(tmp_path):
    write_files(tmp_path, {"eval/senteval/CR.tsv": "label\ttext\n1\ta\n0\tb\n"})
    code = "from pathlib import Path\nfor f in 'ab', 'eval': print(json.dumps(sweep._datasets(Path(f))))"
    assert run_code(tmp_path, code) == [[], ["senteval/CR"]]
