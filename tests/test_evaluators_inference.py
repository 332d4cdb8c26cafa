"""Natural language inference: what a head and a probe score, whatever the layout of the data."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from encode_functions import random_vectors
from evaluation_data import write_table

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.encoding import NotApplicableError, System
from xling_tf.evaluators.inference import SUITE, TWO_WAY_LABELS, InferenceProbe, ZeroShotInference


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


def predicting(label_of: Callable[[str, str], str]) -> System:
    """A head that is sure of the label that it is told to give a pair."""

    def infer(premises: list[str], hypotheses: list[str]) -> np.ndarray:
        labels = map(label_of, premises, hypotheses)
        return np.array([[0.8 if label == it else 0.1 for label in NLI_LABELS] for it in labels])

    return System(name="with a head", sentences=random_vectors(), inference=infer)


def test_scores_of_four_pairs() -> None:
    gold = ["entailment", "entailment", "neutral", "contradiction"]
    answers = dict(zip("abcd", ["entailment", "neutral", "neutral", "neutral"], strict=True))
    pairs = [(text, "h", label) for text, label in zip("abcd", gold, strict=True)]
    scores = ZeroShotInference(pairs, name="four")(predicting(lambda p, _: answers[p]))
    # F1 is 2 hits / (gold + predicted): 2/(2+1), 2/(1+3) and 0/(1+0); their mean is 7/18.
    recalls = {"entailment/recall": 1 / 2, "neutral/recall": 1, "contradiction/recall": 0}
    assert scores == pytest.approx({"accuracy": 2 / 4, "macro_f1": 7 / 18, **recalls, "num_pairs": 4})


def test_where_labels_are_two_neutral_and_contradiction_are_one() -> None:
    answers = dict(zip("abcd", [*NLI_LABELS, "entailment"], strict=True))
    pairs = [(text, "h", TWO_WAY_LABELS[text != "a"]) for text in "abcd"]
    evaluator = ZeroShotInference(pairs, name="two-way")
    scores = evaluator(predicting(lambda premise, _: answers[premise]))
    assert scores["accuracy"] == 3 / 4
    assert scores["entailment/recall"] == 1
    assert scores["not_entailment/recall"] == pytest.approx(2 / 3)


def test_a_head_that_gives_something_else_and_other_labels_are_told() -> None:
    with pytest.raises(UserError, match="must have pairs labelled"):
        ZeroShotInference([("a", "b", "neutral"), ("a", "b", "not_entailment")], name="x")
    evaluator = ZeroShotInference(make_pairs(1), name="x")
    for output in (np.ones([3, 2]), np.full([3, 3], np.nan)):
        system = System(name="x", sentences=by_label, inference=lambda *pairs, output=output: output)
        with pytest.raises(UserError, match=r"finite numbers of shape \[3, 3\]"):
            evaluator(system)


def test_a_probe_reads_what_the_vectors_hold_in_every_language() -> None:
    tests = {f"made-up.{language}": make_pairs(10, language) for language in ("es", "fr")}
    probe = InferenceProbe(make_pairs(30), tests, name="probe")
    scores = probe(by_label)
    spanish = {"made-up.es/accuracy": 1.0, "made-up.es/num_pairs": 30.0}
    french = {"made-up.fr/accuracy": 1.0, "made-up.fr/num_pairs": 30.0}
    assert scores == {"accuracy": 1.0, **spanish, **french}
    assert probe(by_label) == scores
    with pytest.raises(NotApplicableError, match="no head for inference"):
        ZeroShotInference(make_pairs(1), name="x")(by_label)


def test_a_probe_learns_nothing_from_premises_that_it_is_tested_on() -> None:
    train = make_pairs(30)
    seen = [(f" {pair[0].upper()}", *pair[1:]) for pair in train[:60]]
    probe = InferenceProbe(train, {"a": seen}, name="probe")
    assert probe.protocol["num_train"] == 30
    assert InferenceProbe(train, {"a": seen}, name="x", max_train=12).protocol["num_train"] == 12
    with pytest.raises(UserError, match="0 are left of 60"):
        InferenceProbe(train[:60], {"a": seen}, name="probe")


def find(folder: Path) -> tuple[dict[str, Dataset], dict[str, str]]:
    found = list(SUITE.find(folder, 0))
    datasets = {item.name: item for item in found if isinstance(item, Dataset)}
    return datasets, {item.name: item.expected for item in found if isinstance(item, Missing)}


def write_nli(path: Path, pairs: Sequence[tuple[str, str, str]]) -> Path:
    rows = [(label, premise, hypothesis) for premise, hypothesis, label in pairs]
    return write_table(path, "label premise hypothesis", *rows)


def test_tables_are_found_and_read_when_they_are_needed(tmp_path: Path) -> None:
    pairs = [*make_pairs(1, "zh"), ("a", "b", "-")]
    write_nli(tmp_path / "nli/ocnli.zh.dev.tsv", pairs)
    write_nli(tmp_path / "nli/rte3.fr.tsv.gz", [("a", "b", "not_entailment")])
    datasets, missing = find(tmp_path)
    assert [datasets[name].load().protocol for name in ("ocnli.zh.dev", "rte3.fr")] == [
        {"labels": list(NLI_LABELS), "num_pairs": 3, "num_left_out": 1},
        {"labels": list(TWO_WAY_LABELS), "num_pairs": 1, "num_left_out": 0},
    ]
    assert "nli/snli.en.test.tsv" in missing["snli.en.test"]
    assert "<name>.en.train" in missing["probe"]


def test_the_probe_learns_from_training_sets_or_else_from_snli_dev(tmp_path: Path) -> None:
    folder = tmp_path / "nli"
    small = write_nli(folder / "snli.en.dev.tsv", make_pairs(5))
    test = write_nli(folder / "xnli.es.dev.tsv", make_pairs(5, "es"))
    probe = find(tmp_path)[0]["probe"]
    assert probe.files == (small, test)
    assert probe.load().protocol["num_train"] == 15
    names = {"accuracy", "xnli.es.dev/accuracy", "xnli.es.dev/num_pairs"}
    assert set(probe.load()(by_label)) == names

    train = write_nli(folder / "mine.en.train.tsv", make_pairs(7, "more"))
    also = write_nli(folder / "rte.en.train.tsv", [("so", "and so", label) for label in TWO_WAY_LABELS])
    write_nli(folder / "mine.es.train.tsv", make_pairs(7, "es"))
    datasets, _ = find(tmp_path)
    assert set(datasets) == {"snli.en.dev", "xnli.es.dev", "probe"}
    assert datasets["probe"].files == (train, also, small, test)
    assert datasets["probe"].load().protocol["num_train"] == 21
