"""Natural language inference in languages that no inference was learnt in."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.classification.classifiers import Predict, fit_logistic, pair_features
from xling_tf.evaluators.classification.nli_files import (
    TWO_WAY_LABELS,
    InferenceFile,
    InferenceSet,
    LabelledPair,
    find_inference_files,
)
from xling_tf.evaluators.data import Dataset, Missing, Suite
from xling_tf.evaluators.encoding import Encode, NotApplicableError, as_system, encode_checked

_MAX_TRAIN = 10_000
_DEV_PARTS = 10  # one part in so many of what is learnt from chooses the regularisation
# What the probe learns from where there is no training set.
_SMALL_TRAIN = "snli.en.dev"

_TABLE = "nli/{name}.tsv (label TAB premise TAB hypothesis, under a line with these names)"
_XNLI = f"{_TABLE} or, as published, XNLI-1.0/xnli.test.tsv"
# The sets of Chidambaram et al. 2019, table 4, and their layouts.
_WELL_KNOWN = {
    "snli.en.test": f"{_TABLE} or, as published, snli_1.0/snli_1.0_test.jsonl",
    **dict.fromkeys(("snli_x.es.test", "snli_x.fr.test"), _TABLE),
    **{f"xnli.{language}.test": _XNLI for language in ("de", "en", "es", "fr", "zh")},
}


class ZeroShotInference:
    """Accuracy of the head that a system was trained with, whatever the language of the pairs.

    The head learnt from English pairs (Chidambaram et al. 2019, sec. 4.1, table 4). Where the data
    knows only entailment and not_entailment, the head's two other labels are the latter.

    Args:
        data: The labelled pairs.
        name: What results call this evaluator.

    Example:
        >>> from xling_tf.evaluators.encoding import System
        >>> def infer(premises, hypotheses):
        ...     return np.array([[p == h, 0, p != h] for p, h in zip(premises, hypotheses)])
        >>> pairs = [LabelledPair("a", "a", "entailment"), LabelledPair("a", "b", "contradiction")]
        >>> evaluator = ZeroShotInference(InferenceSet(pairs, NLI_LABELS, 0), name="letters")
        >>> evaluator(System(name="equal", sentences=len, inference=infer))["accuracy"]
        1.0
    """

    def __init__(self, data: InferenceSet, *, name: str) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "labels": list(data.labels),
            "num_pairs": len(data.pairs),
            "num_left_out": data.num_left_out,
        }
        self._data = data

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Classifies the pairs.

        Args:
            encode: A system with a head for inference.

        Returns:
            "accuracy", "macro_f1", "<label>/recall" of each label, and "num_pairs".

        Raises:
            NotApplicableError: The system has no head for inference.
            UserError: The head gave something else than three probabilities for each pair.
        """
        infer = as_system(encode).inference
        if infer is None:
            raise NotApplicableError("it has no head for inference")
        premises, hypotheses, _ = map(list, zip(*self._data.pairs, strict=True))
        probabilities = np.asarray(infer(premises, hypotheses), np.float64)
        expected = (len(premises), len(NLI_LABELS))
        if probabilities.shape != expected or not np.isfinite(probabilities).all():
            raise UserError(
                f"a head for inference must give finite numbers of shape {list(expected)} for "
                f"{len(premises)} pairs, but gave shape {list(probabilities.shape)}"
                f"{'' if np.isfinite(probabilities).all() else ' with infinity or NaN'}; look for "
                "the cause in its training or its inference function"
            )
        predicted = np.array(NLI_LABELS)[np.argmax(probabilities, axis=1)]
        return _scores(self._data, predicted)


class InferenceProbe:
    """Accuracy, in each language, of a classifier that was trained on English vectors.

    Unlike a trained head, it can be had for every encoder: logistic regression on (u, v, |u - v|, u * v)
    of frozen vectors, the features of the head (Chidambaram et al. 2019, sec. 2.2; Conneau et al.
    2017, InferSent, sec. 3.1).

    Args:
        train: English pairs with three labels. Those whose premise a test set has as well are left out.
        tests: The sets to classify, by name.
        name: What results call this evaluator.
        max_train: More training pairs than this are sampled.
        seed: Of the sample, and of the tenth by which the regularisation is chosen.

    Raises:
        UserError: Too few training pairs are left.
    """

    def __init__(
        self,
        train: Sequence[LabelledPair],
        tests: Mapping[str, InferenceSet],
        *,
        name: str,
        max_train: int = _MAX_TRAIN,
        seed: int = 0,
    ) -> None:
        self.name = name
        tested = {normalised(pair.premise) for data in tests.values() for pair in data.pairs}
        unseen = [pair for pair in sorted(set(train)) if normalised(pair.premise) not in tested]
        order = np.random.default_rng(seed).permutation(len(unseen))[:max_train]
        self._train = [unseen[index] for index in order]
        self._tests = dict(tests)
        self.protocol: Mapping[str, Any] = {
            "features": "u, v, |u - v|, u * v",
            "classifier": "logistic regression",
            "max_train": max_train,
            "seed": seed,
            "num_train": len(self._train),
            "num_left_out": {name: data.num_left_out for name, data in tests.items()},
        }
        if len(self._train) < _DEV_PARTS:
            raise UserError(
                f"{name} must have English pairs to learn from whose premises no test set has, "
                f"but {len(self._train)} are left of {len(train)}; give it others"
            )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Trains the classifier on the system's English vectors, and classifies all pairs.

        Args:
            encode: The system.

        Returns:
            "accuracy", the mean over the test sets, and "<set>/accuracy" and "<set>/num_pairs" of each.

        Raises:
            UserError: The system gave something else than a finite vector for each text.
        """
        predict = self._fitted(encode)
        scores = {}
        for name, data in self._tests.items():
            of_set = _scores(data, predict(_features(encode, data.pairs)))
            scores[f"{name}/accuracy"] = of_set["accuracy"]
            scores[f"{name}/num_pairs"] = of_set["num_pairs"]
        accuracies = [score for name, score in scores.items() if name.endswith("/accuracy")]
        return {"accuracy": float(np.mean(accuracies)), **scores}

    def _fitted(self, encode: Encode) -> Predict:
        x = _features(encode, self._train)
        y = np.array([pair.label for pair in self._train])
        num_dev = len(y) // _DEV_PARTS
        dev = (x[:num_dev], y[:num_dev])
        return fit_logistic(x[num_dev:], y[num_dev:], dev=dev, seed=self.protocol["seed"])


def _features(encode: Encode, pairs: Sequence[LabelledPair]) -> NDArray[np.float32]:
    """Features of the pairs: [n, 4 * dim]."""
    texts = sorted({text for pair in pairs for text in (pair.premise, pair.hypothesis)})
    vectors = encode_checked(encode, texts).astype(np.float32)
    row_of = {text: row for row, text in enumerate(texts)}
    u = vectors[[row_of[pair.premise] for pair in pairs]]
    v = vectors[[row_of[pair.hypothesis] for pair in pairs]]
    return np.concatenate([u, v, pair_features(u, v)], axis=1)


def _scores(data: InferenceSet, predicted: NDArray[np.str_]) -> dict[str, float]:
    """Compares predictions out of `NLI_LABELS` with the labels of the data."""
    if data.labels == TWO_WAY_LABELS:
        predicted = np.where(predicted == TWO_WAY_LABELS[0], *TWO_WAY_LABELS)
    gold = np.array([pair.label for pair in data.pairs])
    hits = {label: np.sum((gold == label) & (predicted == label)) for label in data.labels}
    num_gold = {label: max(1, np.sum(gold == label)) for label in data.labels}
    f1 = [2 * hits[label] / (num_gold[label] + np.sum(predicted == label)) for label in data.labels]
    return {
        "accuracy": float(np.mean(gold == predicted)),
        "macro_f1": float(np.mean(f1)),
        **{f"{label}/recall": float(hits[label] / num_gold[label]) for label in data.labels},
        "num_pairs": float(len(gold)),
    }


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Yields each set for the trained head, and all of them for one probe."""
    files = {file.name: file for file in find_inference_files(folder)}
    train = [file for file in files.values() if (file.language, file.split) == ("en", "train")]
    if not train and _SMALL_TRAIN in files:
        train = [files[_SMALL_TRAIN]]
    tests = [file for file in files.values() if file.split != "train"]
    for file in tests:
        yield Dataset(name=file.name, files=(file.path,), load=partial(_load_zero_shot, file))
    for name, layout in _WELL_KNOWN.items():
        if name not in files:
            yield Missing(name=name, expected=layout.format(name=name))
    tests = [file for file in tests if file not in train]
    if train and tests:
        paths = tuple(dict.fromkeys(file.path for file in (*train, *tests)))
        yield Dataset(name="probe", files=paths, load=partial(_load_probe, train, tests, seed))
    else:
        learnt = f"{_TABLE.format(name='<name>.en.train')} or {_SMALL_TRAIN} to learn from"
        yield Missing(name="probe", expected=f"{learnt}, and another set to classify")


def _load_zero_shot(file: InferenceFile) -> ZeroShotInference:
    return ZeroShotInference(file.read(), name=file.name)


def _load_probe(
    train: Sequence[InferenceFile], tests: Sequence[InferenceFile], seed: int
) -> InferenceProbe:
    # Pairs of two-way sets that are not entailed may be either of the two other labels.
    read = [file.read() for file in train]
    pairs = [pair for data in read if data.labels == NLI_LABELS for pair in data.pairs]
    return InferenceProbe(
        pairs, {file.name: file.read() for file in tests}, name="probe", seed=seed
    )


SUITE = Suite(
    name="nli",
    title="Natural language inference, learnt in English",
    source="Chidambaram et al. 2019, sec. 4.1, table 4",
    find=_find,
)
