"""What is off in every preset: all of it at once, from the corpora to the exported model."""

import json

import numpy as np
import pytest

from xling_tf.overrides import apply_overrides
from xling_tf.presets import get_preset
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.trainer.experiment import run_experiment


def dev_lines(folder):
    lines = (folder / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.slow
def test_a_preset_with_every_option(tmp_path):
    settings = [
        *("training.steps=8", "training.dev_steps=2", "training.patience=3"),
        *("training.dev_batches=1", "optimizer.clip_norm=1", "optimizer.average_decay=0.9"),
        *("optimizer.decay=cosine", "tasks.translation_ranking.examples_per_batch=8"),
        *("tasks.translation_ranking.candidates=20", "training.precision=float32"),
    ]
    results = run_experiment(
        name="smoke",
        config=apply_overrides(get_preset("smoke"), settings),
        data=None,
        run_dir=tmp_path / "run",
        output=tmp_path / "model",
    )
    losses = {
        line["step"]: np.mean(
            [
                scores["loss"]
                for task, scores in line["scores"].items()
                if task.startswith("translation_ranking")
            ]
        )
        for line in dev_lines(tmp_path / "run")
    }
    assert sorted(losses) == [2, 4, 6, 8]
    best = min(losses, key=losses.get)
    assert results["exported_step"] == best
    newest = sorted((tmp_path / "run" / "checkpoints" / "best").iterdir())[-1]
    assert newest.name == f"step-{best:09d}"
    # What was evaluated at the end is what was best: the same examples, the same weights.
    of_end = [
        scores["loss"]
        for suite, scores in results["scores"].items()
        if suite.startswith("task/translation_ranking")
    ]
    assert np.mean(of_end) == pytest.approx(losses[best], rel=1e-3)
    vectors = SentenceEncoder.load(tmp_path / "model").encode(["Hola", "Hello"])
    assert np.isfinite(vectors).all()
