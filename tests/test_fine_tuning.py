"""Fine-tuning on pairs: what comes out, started again or stopped on the way, and what is refused."""

import itertools
import shutil

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from scipy.stats import spearmanr
from starting_models import TEXTS, export_model, make_model

from xling_tf.corpora.split import held_out
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.systems import open_system
from xling_tf.trainer.fine_tuning import PairCorpus, fine_tune
from xling_tf.trainer.warm_start import StartingPoint

SIGNATURES = {"serving_default", "default", "question_encoder", "response_encoder", "inference"}
PAIRS = [
    (f"{source} {number}", f"{target} {number}")
    for number in range(4)
    for source, target in zip(TEXTS[::2], TEXTS[1::2], strict=True)
]
# Rates that do not depend on the number of steps, so that it may be changed.
SETTINGS = (
    "optimizer.warmup=0",
    "optimizer.decay=constant",
    "optimizer.learning_rate=0.01",
    "training.precision=float32",
)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """A folder with an exported CNN."""
    return export_model(make_model("cnn"), tmp_path_factory.mktemp("start") / "cnn")


@pytest.fixture(scope="module")
def tuned(start, tmp_path_factory):
    """It, fine-tuned for four steps in one go."""
    folder = tmp_path_factory.mktemp("tuned")
    results = tune(start, folder, steps=4)
    return folder, results


def tune(model, folder, **changes):
    arguments = {"pairs": PAIRS, "output": folder / "mine", "run_dir": folder / "run"}
    return fine_tune(model, **{**arguments, "settings": SETTINGS, **changes})


def variables(folder):
    return [v.numpy() for v in tf.saved_model.load(str(folder)).trainable_variables]


@pytest.mark.slow
def test_all_signatures_are_exported_again_and_started_from(start, tuned, tmp_path):
    folder, results = tuned
    loaded, before = tf.saved_model.load(str(folder / "mine")), tf.saved_model.load(str(start))
    assert set(loaded.signatures) == set(before.signatures) == SIGNATURES
    assert results["steps"] == 4
    assert np.abs(loaded(TEXTS) - before(TEXTS)).max() > 1e-3
    # Heads that nothing trained are as they were.
    for name in ("response_tower", "inference_head"):
        for new, old in zip(loaded.heads[name].weights, before.heads[name].weights, strict=True):
            np.testing.assert_array_equal(new, old)
    # It starts again from what came out.
    assert set(StartingPoint.open(folder / "mine").heads) == {"response_tower", "inference_head"}
    settings = (*SETTINGS, "optimizer.embedding_learning_rate=0")
    tune(folder / "mine", tmp_path, steps=1, settings=settings)
    table, *dense = variables(tmp_path / "mine")
    old_table, *old_dense = variables(folder / "mine")
    np.testing.assert_array_equal(table, old_table)
    moved = [np.any(new != old) for new, old in zip(dense, old_dense, strict=True)]
    assert all(moved)


@pytest.mark.slow
def test_what_it_was_trained_on_is_known_and_so_is_what_its_start_was(tuned, tmp_path):
    others = [(f"other {number}", f"otro {number}") for number in range(40)]
    tune(tuned[0] / "mine", tmp_path, pairs=others, steps=1)
    before, after = (TrainedOn.read(folder / "mine") for folder in (tuned[0], tmp_path))
    learnt, more = (np.mean([not held_out(source) for source, _ in pairs]) for pairs in (PAIRS, others))
    assert (before.share_of_pairs(PAIRS), before.share_of_pairs(others)) == (learnt, 0)
    assert (after.share_of_pairs(PAIRS), after.share_of_pairs(others)) == (learnt, more)
    assert 0 < more < 1
    assert open_system(str(tmp_path / "mine")).trained_on.share_of_pairs(PAIRS) == learnt


@pytest.mark.slow
def test_scores_and_wrong_texts_are_learnt_from_a_table(start, tmp_path):
    texts = TEXTS[:6]
    first, second = zip(*itertools.combinations(texts, 2), strict=True)
    table = pd.DataFrame({"first": first, "second": second})
    wanted = np.random.default_rng(1).permutation(len(table))
    results = tune(start, tmp_path, pairs=table.assign(score=wanted / 4), steps=30, keep_weight=0.0)
    (name,) = [name for name in results["scores"] if name.startswith("task/")]
    assert name == "task/graded_similarity_source"
    cosines = [
        np.sum(loaded(list(first)).numpy() * loaded(list(second)).numpy(), axis=1)
        for loaded in (tf.saved_model.load(str(folder)) for folder in (start, tmp_path / "mine"))
    ]
    before, after = (spearmanr(wanted, each).statistic for each in cosines)
    assert after > before + 0.2

    wrong = [*TEXTS[3:], *TEXTS[:3]][: len(PAIRS)]
    triplets = [(*pair, other) for pair, other in zip(PAIRS, itertools.cycle(wrong))]
    results = tune(start, tmp_path / "triplets", pairs=iter(triplets), steps=1)
    assert results["config"]["tasks"]["hard_negatives"] == 1


@pytest.mark.slow
def test_stopped_halfway_it_ends_the_same_without_the_model(start, tuned, tmp_path):
    model = shutil.copytree(start, tmp_path / "model")
    tune(model, tmp_path, steps=2)
    shutil.rmtree(model)
    tune(model, tmp_path, steps=4)
    for new, expected in zip(variables(tmp_path / "mine"), variables(tuned[0] / "mine"), strict=True):
        np.testing.assert_allclose(new, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        (PAIRS[:5] * 3, "at least 8 different pairs are expected, got 5"),
        ([*PAIRS, ("a", " ")], r"pair 13 is expected to be two texts that are not empty"),
        (["ab", *PAIRS], r"pair 1 is expected to be two texts .*got str 'ab'"),
        ([*PAIRS, ("a", 1.0)], r"pair 13 is expected to be two texts"),
        ([*PAIRS, ("a", "b", float("nan"))], r"pair 13 is expected to be two texts"),
        ([*PAIRS, ("a", "b", 1)], "score is expected of all 13 pairs or of none, but 12 have none"),
        ([(*pair, 1) for pair in PAIRS], "scores that differ are expected, but all are 1"),
        ([(*pair, "neutral") for pair in PAIRS], "column 3 has only 1 different values"),
    ],
)
def test_pairs_that_cannot_be_learnt_from_are_refused(pairs, said, tmp_path):
    with pytest.raises(UserError, match=said):
        fine_tune(tmp_path, pairs, output=tmp_path / "mine")


def test_a_file_gives_scores_as_text_and_they_are_learnt_as_scores(tmp_path):
    pairs = [(*pair, str(number % 3 / 2)) for number, pair in enumerate(PAIRS)]
    corpus = PairCorpus.of(pairs, ("en", "es"))
    assert corpus.kind == "similarity"
    assert [pair.label for pair in corpus.pairs] == [0, 50, 100] * (len(PAIRS) // 3)
    # The same pairs in any form are the same training, which goes on where it stopped.
    for form in (np.array(pairs), pd.DataFrame(pairs), iter(pairs)):
        assert PairCorpus.of(form, ("en", "es")).version() == corpus.version()
    with pytest.raises(UserError, match="folder of a model is expected first"):
        fine_tune(PAIRS, tmp_path, output=tmp_path / "mine")
