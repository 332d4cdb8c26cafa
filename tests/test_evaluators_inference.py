"""Natural language inference: scores of a head and a probe, and the data layouts."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from encode_functions import random_vectors
from evaluation_data import write_table

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset
from xling_tf.evaluators.encoding import Embedder, NotApplicableError
from xling_tf.evaluators.inference import SUITE, InferenceProbe, ZeroShotInference


def make_pairs(count: int, language: str = "en") -> list[tuple[str, str, str]]:
    """Three pairs, one of each label, for each of so many premises."""
    return [
        (f"{language} premise {number}", f"{language} {number} so {label}", label)
        for number in range(count)
        for label in NLI_LABELS
    ]


def by_label(texts: list[str]) -> np.ndarray:
    """Vectors in which a linear classifier finds the label that a made-up hypothesis ends in."""
    return np.array([[label == text.split()[-1] for label in NLI_LABELS] for text in texts], float)


def predicting(label_of: Callable[[str, str], str]) -> Embedder:
    """A head that gives a pair the label that a function returns."""

    def infer(premises: list[str], hypotheses: list[str]) -> np.ndarray:
        labels = map(label_of, premises, hypotheses)
        return np.array([[0.8 if label == it else 0.1 for label in NLI_LABELS] for it in labels])

    return Embedder(name="with a head", sentences=random_vectors(), inference=infer)


def test_scores_of_four_pairs():
    gold = ["entailment", "entailment", "neutral", "contradiction"]
    answers = dict(zip("abcd", ["entailment", "neutral", "neutral", "neutral"], strict=True))
    pairs = [(text, "h", label) for text, label in zip("abcd", gold, strict=True)]
    scores = ZeroShotInference(pairs, name="four")(predicting(lambda p, _: answers[p]))
    assert scores == {"accuracy": 2 / 4, "num_pairs": 4}


def test_invalid_probabilities_and_labels_are_reported():
    with pytest.raises(UserError, match="must have labels"):
        ZeroShotInference([("a", "b", "neutral"), ("a", "b", "maybe")], name="x")
    evaluator = ZeroShotInference(make_pairs(1), name="x")
    for output in (np.ones([3, 2]), np.full([3, 3], np.nan)):
        system = Embedder(name="x", sentences=by_label, inference=lambda *pairs, output=output: output)
        with pytest.raises(UserError, match=r"finite numbers of shape \[3, 3\]"):
            evaluator(system)


def test_a_probe_finds_labels_in_vectors_of_every_language():
    tests = {f"made-up.{language}": make_pairs(10, language) for language in ("es", "fr")}
    probe = InferenceProbe(make_pairs(30), tests, name="probe")
    scores = probe(by_label)
    of_each = {f"made-up.{language}/accuracy": 1.0 for language in ("es", "fr")}
    assert scores == {"accuracy": 1.0, **of_each} | {f"made-up.{code}/num_pairs": 30 for code in ("es", "fr")}
    with pytest.raises(NotApplicableError, match="no head for inference"):
        ZeroShotInference(make_pairs(1), name="x")(by_label)


def test_a_probe_does_not_learn_from_premises_of_its_test_sets():
    train = make_pairs(30)
    seen = [(f" {pair[0].upper()}", *pair[1:]) for pair in train[:60]]
    probe = InferenceProbe(train, {"a": seen}, name="probe")
    assert probe.protocol["num_train"] == 30
    with pytest.raises(UserError, match="0 are left of 60"):
        InferenceProbe(train[:60], {"a": seen}, name="probe")


def find(folder: Path) -> dict[str, Dataset]:
    return {dataset.name: dataset for dataset in SUITE.find(folder, 0)}


def write_nli(path: Path, pairs: Sequence[tuple[str, str, str]]) -> Path:
    rows = [(label, premise, hypothesis) for premise, hypothesis, label in pairs]
    return write_table(path, "label premise hypothesis", *rows)


def test_the_probe_learns_from_training_sets_or_else_from_snli_dev(tmp_path):
    folder = tmp_path / "nli"
    small = write_nli(folder / "snli.en.dev.tsv", make_pairs(5))
    test = write_nli(folder / "xnli.es.dev.tsv", make_pairs(5, "es"))
    probe = find(tmp_path)["probe"]
    assert probe.files == (small, test)
    assert probe.load().protocol["num_train"] == 15
    assert set(probe.load()(by_label)) == {"accuracy", "xnli.es.dev/accuracy", "xnli.es.dev/num_pairs"}

    train = write_nli(folder / "mine.en.train.tsv", make_pairs(7, "more"))
    write_nli(folder / "mine.es.train.tsv", make_pairs(7, "es"))
    datasets = find(tmp_path)
    assert set(datasets) == {"snli.en.dev", "xnli.es.dev", "probe"}
    assert datasets["probe"].files == (train, small, test)
    assert datasets["probe"].load().protocol["num_train"] == 21
