"""One whole smoke run of the training program, and what it leaves behind."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import SHORT, Run, the_error, train

import xling_tf

SIGNATURES = {"serving_default", "default", "question_encoder", "response_encoder", "inference"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(tmp_path_factory.mktemp("smoke"), *SHORT)


def test_a_smoke_run_succeeds_and_prints_a_table_and_how_to_use_the_model(smoke: Run) -> None:
    assert smoke.status == 0, smoke.errors
    lines = smoke.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    assert any(
        re.match(r"retrieval/en-es/all +en-es/precision_at_1 +[01]\.\d+$", line) for line in lines
    )
    assert "exported/smoke" in lines[-1]
    assert "load" in lines[-1]


def test_a_smoke_run_says_nothing_alarming(smoke: Run) -> None:
    for line in smoke.errors.splitlines():
        assert re.match(r"[\d:]{8} INFO ", line), line


def test_results_hold_scores_corpora_versions_machine_and_config(smoke: Run) -> None:
    results = smoke.results
    assert (results["preset"], results["steps"]) == ("smoke", 30)
    assert results["minutes"] > 0
    assert re.match(r"python \S*training/main.py --pair=smoke --steps=30 ", results["command"])
    assert results["num_parameters"] > 1000
    assert results["corpora"]["parallel/everyday.en-es"] > 100
    assert results["versions"]["tensorflow"] == tf.__version__
    assert results["versions"]["xling_tf"] == xling_tf.__version__
    assert results["machine"]["cpus"] >= 1
    assert results["config"]["training"]["precision"] == "float32"
    retrieval = results["scores"]["retrieval/en-es/all"]
    for direction in ("en-es", "es-en"):
        precisions = [retrieval[f"{direction}/precision_at_{k}"] for k in (1, 3, 10)]
        assert precisions == sorted(precisions)
        assert 0 <= precisions[0] <= precisions[2] <= 1
    task = results["scores"]["task/translation_ranking_en-es"]
    assert set(task) == {"loss", "accuracy", "num_examples"}


def test_the_run_folder_holds_metrics_checkpoints_and_tensorboard(smoke: Run) -> None:
    lines = (smoke.run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["step"] for record in records] == list(range(30))
    tasks = [record["task"] for record in records]
    assert tasks[:5] == ["translation_ranking_en-es"] * 5
    assert set(tasks) == {
        "translation_ranking_en-es",
        "response_prediction_en",
        "response_prediction_es",
        "quick_thought_en",
        "quick_thought_es",
        "inference",
    }
    assert np.isfinite([record["loss"] for record in records]).all()
    (checkpoint,) = (smoke.run_dir / "checkpoints").iterdir()
    assert checkpoint.name == "step-000000030"
    (events,) = (smoke.run_dir / "tensorboard").iterdir()
    tags = {
        value.tag
        for event in tf.compat.v1.train.summary_iterator(str(events))
        for value in event.summary.value
    }
    assert {"loss/translation_ranking_en-es", "accuracy/inference", "learning_rate"} <= tags


def test_the_exported_model_loads_with_its_card_and_config(smoke: Run) -> None:
    model = tf.saved_model.load(str(smoke.model))
    vectors = model(["Hola", "Hello", ""]).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert set(model.signatures) == SIGNATURES
    card = (smoke.model / "README.md").read_text(encoding="utf-8")
    assert "preset\n`smoke`" in card or "preset `smoke`" in card
    assert "parallel/everyday.en-es" in card
    assert "retrieval/en-es/all" in card
    config = json.loads((smoke.model / "config.json").read_text(encoding="utf-8"))
    assert config == smoke.results["config"]


def test_the_finished_command_again_only_evaluates_and_exports(smoke: Run) -> None:
    scores, metrics = smoke.results["scores"], (smoke.run_dir / "metrics.jsonl").read_bytes()
    before = (smoke.model / "saved_model.pb").stat().st_mtime_ns
    again = train(smoke.folder, *SHORT)
    assert again.status == 0, again.errors
    assert "continuing at step 30" in again.errors
    assert (smoke.run_dir / "metrics.jsonl").read_bytes() == metrics
    assert (smoke.model / "saved_model.pb").stat().st_mtime_ns > before
    for suite, values in scores.items():
        assert again.results["scores"][suite] == pytest.approx(values, abs=1e-4), suite


def test_a_started_run_without_a_budget_is_one_line(smoke: Run) -> None:
    line = the_error(train(smoke.folder, *SHORT, "--steps=0", timeout=60))
    assert "--steps" in line


def test_list_names_every_preset_with_its_description(tmp_path: Path) -> None:
    listing = train(tmp_path, "--list")
    assert (listing.status, listing.errors) == (0, "")
    lines = listing.output.splitlines()
    assert {"en-es", "paper-en-es", "smoke"} <= {line.split()[0] for line in lines}
    assert all(len(line.split()) > 3 for line in lines)
