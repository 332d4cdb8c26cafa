"""Natural language inference: scores of a head, and the data layout."""

import numpy as np
import pytest
from encode_functions import random_vectors
from evaluation_data import write_table

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Embedder, NotApplicableError
from xling_tf.evaluators.inference import SUITE, ZeroShotInference


def head(infer):
    return Embedder(name="with a head", sentences=random_vectors(), inference=infer)


def test_scores_of_four_pairs():
    # The head's answers are neutral but for the first pair's entailment.
    gold = ["entailment", "entailment", "neutral", "contradiction"]
    pairs = [(text, "h", label) for text, label in zip("abcd", gold, strict=True)]
    assert NLI_LABELS[:2] == ("entailment", "neutral")
    infer = head(lambda premises, _: np.array([[p == "a", 0.5, 0] for p in premises]))
    assert ZeroShotInference(pairs, name="four")(infer) == {"accuracy": 2 / 4, "num_pairs": 4}


def test_invalid_probabilities_and_labels_are_reported():
    with pytest.raises(UserError, match="must have labels"):
        ZeroShotInference([("a", "b", "neutral"), ("a", "b", "maybe")], name="x")
    evaluator = ZeroShotInference([("a", "b", label) for label in NLI_LABELS], name="x")
    for output in (np.ones([3, 2]), np.full([3, 3], np.nan)):
        with pytest.raises(UserError, match=r"finite numbers of shape \[3, 3\]"):
            evaluator(head(lambda *pairs, output=output: output))


def test_every_set_but_those_for_training_is_found(tmp_path):
    for name in ("snli.en.dev", "xnli.es.dev", "mine.fr", "mine.en.train"):
        write_table(tmp_path / f"nli/{name}.tsv", "label premise hypothesis", ("neutral", "a", "b"))
    found = {dataset.name: dataset for dataset in SUITE.find(tmp_path, 0)}
    assert set(found) == {"snli.en.dev", "xnli.es.dev", "mine.fr"}
    with pytest.raises(NotApplicableError, match="no head for inference"):
        found["mine.fr"].load()(random_vectors())
