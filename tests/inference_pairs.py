"""Made-up pairs for natural language inference, and systems that know their labels."""

from collections.abc import Callable

import numpy as np
from encode_functions import random_vectors

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.evaluators.encoding import System

Infer = Callable[[list[str], list[str]], np.ndarray]


def make_pairs(count: int, language: str = "en") -> list[tuple[str, str, str]]:
    """Three pairs, one of each label, for each of so many premises."""
    return [
        (f"{language} premise {number}", f"{language} {number} so {label}", label)
        for number in range(count)
        for label in NLI_LABELS
    ]


def told(hypothesis: str) -> str:
    """The label that a made-up hypothesis ends in."""
    return hypothesis.split()[-1]


def by_label(texts: list[str]) -> np.ndarray:
    """Vectors in which a linear classifier finds the label of a made-up hypothesis."""
    return np.array([[label == told(text) for label in NLI_LABELS] for text in texts], float)


def with_head(infer: Infer) -> System:
    """A system that has only its head."""
    return System(name="with a head", sentences=random_vectors(), inference=infer)


def predicting(label_of: Callable[[str, str], str]) -> System:
    """A head that is sure of the label that it is told to give a pair."""
    return with_head(
        lambda premises, hypotheses: np.array(
            [
                [0.8 if label == label_of(*pair) else 0.1 for label in NLI_LABELS]
                for pair in zip(premises, hypotheses, strict=True)
            ]
        )
    )
