"""Natural language inference in languages that no inference was learnt in."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import Array, encode_columns, f1, fit_logistic, pair_features
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_tables, read_table
from xling_tf.evaluators.encoding import Encode, NotApplicableError, as_system

TWO_WAY_LABELS = ("entailment", "not_entailment")
# Bowman et al. 2015, sec. 2.2: the annotators of a pair did not agree, and it is not to be used.
_NO_LABEL = "-"
_MAX_TRAIN = 10_000
_DEV_PARTS = 10  # one part in so many of what is learnt from chooses the regularisation
_SMALL_TRAIN = "snli.en.dev"  # what the probe learns from where there is no training set
# Chidambaram et al. 2019, table 4.
_WELL_KNOWN = (
    *("snli.en.test", "snli_x.es.test", "snli_x.fr.test"),
    *(f"xnli.{language}.test" for language in ("de", "en", "es", "fr", "zh")),
)


class LabelledPair(NamedTuple):
    """A premise, a hypothesis and the name of their relation."""

    premise: str
    hypothesis: str
    label: str


class InferenceSet(NamedTuple):
    """What a table holds.

    Attributes:
        pairs: In order of their texts, whatever their order in the file.
        labels: Those that the pairs may have: `NLI_LABELS` or `TWO_WAY_LABELS`.
        num_left_out: Pairs without a label, whose annotators did not agree.
    """

    pairs: list[LabelledPair]
    labels: tuple[str, ...]
    num_left_out: int


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
        return _scores(self._data, np.array(NLI_LABELS)[np.argmax(probabilities, axis=1)])


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

        Returns:
            "accuracy", the mean over the test sets, and "<set>/accuracy" and "<set>/num_pairs" of each.
        """
        x = _features(encode, self._train)
        y = np.array([pair.label for pair in self._train])
        num_dev = len(y) // _DEV_PARTS
        predict = fit_logistic(x[num_dev:], y[num_dev:], dev=(x[:num_dev], y[:num_dev]))
        scores = {}
        for name, data in self._tests.items():
            of_set = _scores(data, predict(_features(encode, data.pairs)))
            scores[f"{name}/accuracy"] = of_set["accuracy"]
            scores[f"{name}/num_pairs"] = of_set["num_pairs"]
        accuracies = [score for name, score in scores.items() if name.endswith("/accuracy")]
        return {"accuracy": float(np.mean(accuracies)), **scores}


def _features(encode: Encode, pairs: Sequence[LabelledPair]) -> Array:
    """Features of the pairs: `[n, 4 * dim]`."""
    columns = [[pair.premise for pair in pairs], [pair.hypothesis for pair in pairs]]
    u, v = encode_columns(encode, columns)
    return np.concatenate([u, v, pair_features(u, v)], axis=1)


def _scores(data: InferenceSet, predicted: Array) -> dict[str, float]:
    """Compares predictions out of `NLI_LABELS` with the labels of the data."""
    if data.labels == TWO_WAY_LABELS:
        predicted = np.where(predicted == TWO_WAY_LABELS[0], *TWO_WAY_LABELS)
    gold = np.array([pair.label for pair in data.pairs])
    recalls = {
        f"{label}/recall": float(np.sum((gold == label) & (predicted == label)))
        / max(1, int(np.sum(gold == label)))
        for label in data.labels
    }
    return {
        "accuracy": float(np.mean(gold == predicted)),
        "macro_f1": float(np.mean([f1(gold, predicted, label) for label in data.labels])),
        **recalls,
        "num_pairs": float(len(gold)),
    }


def read_inference(path: Path) -> InferenceSet:
    """Reads a table with the columns label, premise and hypothesis.

    Args:
        path: Text or, by its name, gzip; the label is one of `NLI_LABELS` or, in the whole file, of
            `TWO_WAY_LABELS`, or "-" where there is none.

    Raises:
        UserError: A column is missing, or a label is another one.
    """
    rows = read_table(path, ("premise", "hypothesis", "label"))
    pairs = sorted(LabelledPair(*row) for row in rows if row[-1] != _NO_LABEL)
    present = {pair.label for pair in pairs}
    labels = TWO_WAY_LABELS if TWO_WAY_LABELS[1] in present else NLI_LABELS
    if not pairs or present - set(labels):
        raise UserError(
            f"{path} must have pairs labelled {', '.join(NLI_LABELS)}, or only "
            f"{' and '.join(TWO_WAY_LABELS)}, but its labels are "
            f"{', '.join(map(repr, sorted(present))) or 'missing'}; correct the file"
        )
    return InferenceSet(pairs, labels, len(rows) - len(pairs))


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Yields each set for the trained head, and all of them for one probe."""
    paths = {
        ".".join(filter(None, (name, language, split))): path
        for name, tables in find_tables(folder / "nli").items()
        for language, splits in tables.items()
        for split, path in splits.items()
    }
    paths = dict(sorted(paths.items()))
    tests = {name: path for name, path in paths.items() if not name.endswith(".train")}
    for name, path in tests.items():
        yield Dataset(name=name, files=(path,), load=partial(_load_zero_shot, name, path))
    for name in _WELL_KNOWN:
        if name not in paths:
            yield Missing(name=name, expected=_expected(name))
    train = [path for name, path in paths.items() if name.endswith(".en.train")]
    if not train and _SMALL_TRAIN in tests:
        train = [tests.pop(_SMALL_TRAIN)]
    if train and tests:
        load = partial(_load_probe, train, tests, seed)
        yield Dataset(name="probe", files=(*train, *tests.values()), load=load)
    else:
        learnt = f"{_expected('<name>.en.train')} or {_SMALL_TRAIN} to learn from"
        yield Missing(name="probe", expected=f"{learnt}, and another set to classify")


def _expected(name: str) -> str:
    return f"nli/{name}.tsv (label TAB premise TAB hypothesis, under a line with these names)"


def _load_zero_shot(name: str, path: Path) -> ZeroShotInference:
    return ZeroShotInference(read_inference(path), name=name)


def _load_probe(train: Sequence[Path], tests: Mapping[str, Path], seed: int) -> InferenceProbe:
    # Pairs of two-way sets that are not entailed may be either of the two other labels.
    sets = [data for data in map(read_inference, train) if data.labels == NLI_LABELS]
    pairs = [pair for data in sets for pair in data.pairs]
    tested = {name: read_inference(path) for name, path in tests.items()}
    return InferenceProbe(pairs, tested, name="probe", seed=seed)


SUITE = Suite(
    name="nli",
    title="Natural language inference, learnt in English",
    source="Chidambaram et al. 2019, sec. 4.1, table 4",
    find=_find,
)
