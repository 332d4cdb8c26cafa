"""Recipes trained side by side: every trial once, its scores in a table and a chart."""

import json

import charts
import pytest
from programs import ROOT, run_python, the_error

from xling_tf.errors import UserError

PROGRAM = str(ROOT / "training" / "sweep.py")
RECIPES = (
    "--recipe=whole: pair=smoke training.dev_batches=1",
    "--recipe=one layer: pair=smoke encoder.num_layers=1 training.dev_batches=1",
)


@pytest.mark.slow
def test_every_trial_is_run_once_and_its_scores_are_kept(tmp_path):
    flags = [PROGRAM, "--minutes=0.03", "--output=swept", *RECIPES]
    run = run_python(tmp_path, *flags)
    assert run.status == 0, run.errors
    kept = tmp_path / "swept" / "results.jsonl"
    lines = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert sorted(line["recipe"] for line in lines) == ["one layer", "whole"]
    assert all(0 <= line["scores"]["task/inference"] <= 1 and line["steps"] for line in lines)
    again = run_python(tmp_path, *flags)
    assert (again.status, again.output) == (0, run.output)
    assert len(kept.read_text("utf-8").splitlines()) == 2


def test_a_recipe_that_cannot_be_read_is_told_before_any_training(tmp_path):
    assert the_error(run_python(tmp_path, PROGRAM, "--recipe=a: pair=smoke text.size=1"))
    assert not list(tmp_path.iterdir())


def test_a_chart_has_the_medians_of_the_seeds_of_each_recipe(tmp_path):
    path = tmp_path / "results.jsonl"
    trials = [("a", 1, 0.2), ("a", 1, 0.4), ("a", 1, 0.9), ("a", 3, 0.5), ("b", 1, 0.1)]
    lines = [{"recipe": recipe, "minutes": m, "scores": {"sts": sts}} for recipe, m, sts in trials]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    medians = charts.sweep_points(path)["sts"]
    assert medians.to_dict() == {("a", 1): 0.4, ("a", 3): 0.5, ("b", 1): 0.1}
    assert [title for title, _ in charts.sweep_curves(path)] == ["sts"]
    path.write_text('{"recipe": "a"}\n', "utf-8")
    with pytest.raises(UserError, match=r"must be a file of training/sweep\.py"):
        charts.sweep_points(path)


def test_each_training_has_a_gpu_with_a_share_of_the_cores_or_else_a_core(tmp_path):
    code = (
        f"import json, os, sys; sys.path.insert(0, {str(ROOT)!r}); from training import sweep; "
        "os.sched_getaffinity = lambda _: {0, 1, 2}\n"
        "for os.environ['CUDA_VISIBLE_DEVICES'] in ('3,5', ''): print(json.dumps(sweep._devices()))"
    )
    run = run_python(tmp_path, "-c", code)
    gpus, cores = map(json.loads, run.output.splitlines())
    assert gpus == [[[0, 2], "3"], [[1], "5"]]
    assert cores == [[[0], ""], [[1], ""], [[2], ""]]
