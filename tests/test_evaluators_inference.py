"""Natural language inference: scores of a head, and the data layout."""

from collections.abc import Callable

import numpy as np
import pytest
from encode_functions import random_vectors
from evaluation_data import write_table

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder, NotApplicableError
from xling_tf.evaluators.inference import SUITE, ZeroShotInference


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
    evaluator = ZeroShotInference([("a", "b", label) for label in NLI_LABELS], name="x")
    for output in (np.ones([3, 2]), np.full([3, 3], np.nan)):
        system = Embedder(
            name="x", sentences=random_vectors(), inference=lambda *pairs, output=output: output
        )
        with pytest.raises(UserError, match=r"finite numbers of shape \[3, 3\]"):
            evaluator(system)


def test_every_set_but_those_for_training_is_found(tmp_path):
    for name in ("snli.en.dev", "xnli.es.dev", "mine.fr", "mine.en.train"):
        write_table(tmp_path / f"nli/{name}.tsv", "label premise hypothesis", ("neutral", "a", "b"))
    found = {dataset.name: dataset for dataset in SUITE.find(tmp_path, 0)}
    assert set(found) == {"snli.en.dev", "xnli.es.dev", "mine.fr"}
    evaluator = found["mine.fr"].load()
    assert evaluator(predicting(lambda *_: "neutral")) == {"accuracy": 1.0, "num_pairs": 1.0}
    with pytest.raises(NotApplicableError, match="no head for inference"):
        evaluator(random_vectors())
