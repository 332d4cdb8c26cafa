"""SentEval's transfer tasks (Conneau and Kiela 2018): what a classifier finds in frozen vectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import (
    LOGISTIC,
    NETWORK,
    Array,
    Predict,
    accuracy,
    cross_validated,
    encode_columns,
    f1,
    fit_logistic,
    fit_network,
    in_threads,
    logistic_path,
    pair_features,
    require_trained,
    single_threaded,
)
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_file, read_table
from xling_tf.evaluators.encoding import Encode, Evaluator

_FOLDS = 10  # SentEval, of sets without a test set
_INNER_FOLDS = 2  # SentEval: 10; two choose as well: 80.9, 80.7 and 80.9% with 2, 3 and 5 (CR)
_HELD_OUT = 10  # one part in so many of the training set, for the network
_RELATEDNESS_HELD_OUT = 5  # likewise, for relatedness
_CONSTANT = 1e-6  # predictions that vary by rounding alone correlate with nothing

Example = tuple[str, ...]  # a label (of relatedness a number) and one or two sentences


class TransferClassification:
    """Accuracy of SentEval's two classifiers: "logistic" regression and a "network".

    Without a test set it is the mean of 10-fold cross-validation. Regularisation is chosen on the
    development set, or where there is none on a part of the training set.

    Args:
        train: Examples (label, sentence), or all (label, sentence, sentence).
        dev, test: Likewise.
        name: What results call this evaluator.
        positive: The label whose F1 is reported too, as SentEval does for MRPC.
        hidden: Units of the network's hidden layer: 50 in SentEval's example, 128 in Yu et al. 2018.
        seed: Of the folds and of the network.

    Raises:
        UserError: A label of the development or test set is not in the training set.

    Example:
        >>> evaluator = TransferClassification([("0", "a"), ("1", "b")] * 100, name="letters")
        >>> scores = evaluator(lambda texts: np.array([[t == "a", t == "b"] for t in texts]))
        >>> scores["logistic/accuracy"]
        1.0
    """

    def __init__(
        self,
        train: Sequence[Example],
        dev: Sequence[Example] = (),
        test: Sequence[Example] = (),
        *,
        name: str,
        positive: str | None = None,
        hidden: int = 50,
        seed: int = 0,
    ) -> None:
        self.name = name
        self._train, self._dev, self._test = map(_sorted, (train, dev, test))
        self._positive = positive
        require_trained(name, train, (*dev, *test))
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "folds": None if test else _FOLDS,
            "logistic": LOGISTIC | {"inner_folds": None if dev else _INNER_FOLDS},
            "network": NETWORK | {"hidden": hidden, "held_out": None if dev else 1 / _HELD_OUT},
            "num_train": len(train),
            "num_dev": len(dev),
            "num_test": len(test),
        }
        self._fits: Mapping[str, Callable[..., Predict]] = {
            "logistic": partial(fit_logistic, folds=_INNER_FOLDS, seed=seed),
            "network": partial(fit_network, folds=_HELD_OUT, hidden=hidden, seed=seed),
        }
        self._seed = seed

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "logistic/accuracy" and "network/accuracy", of a positive label ".../f1" too."""
        parts = (self._train, self._dev, self._test)
        labels = [np.array([label for label, *_ in part]) for part in parts]
        train, dev, test = zip(_features(encode, parts), labels, strict=True)
        if not self._test:
            return {
                f"{name}/accuracy": cross_validated(*train, fit, folds=_FOLDS, seed=self._seed)
                for name, fit in self._fits.items()
            }

        def scores_of(name: str) -> dict[str, float]:
            predict = self._fits[name](*train, dev=dev if self._dev else None)
            scores = {f"{name}/accuracy": accuracy(predict, *test)}
            if self._positive is not None:
                scores[f"{name}/f1"] = f1(test[1], predict(test[0]), self._positive)
            return scores

        return {
            key: score for part in in_threads(scores_of, self._fits) for key, score in part.items()
        }


class TransferRelatedness:
    """Correlation of learnt with given scores (SICK-R; the STS Benchmark, supervised).

    A score between two whole numbers is a distribution over these two (Tai et al. 2015, sec. 4.2), which
    a softmax on SentEval's pair features learns, and predicts the mean of. Unlike SentEval, which stops
    early on squared error, it minimises cross-entropy with a regularisation that `dev` chooses.

    Args:
        train: Scored pairs: (score, sentence, sentence).
        dev: Chooses the regularisation; a fifth of the training pairs where there is none.
        test: Scored pairs.
        name: What results call this evaluator.
        seed: Of that fifth.

    Raises:
        UserError: A score is no number, or the scores of a set do not differ.
    """

    def __init__(
        self,
        train: Sequence[Example],
        dev: Sequence[Example],
        test: Sequence[Example],
        *,
        name: str,
        seed: int = 0,
    ) -> None:
        self.name = name
        self._train, self._dev, self._test = map(_sorted, (train, dev, test))
        for part in filter(None, (train, dev, test)):
            came = sorted({score for score, *_ in part})
            try:
                scores = np.unique([float(score) for score in came])
            except ValueError:
                scores = np.array([np.nan])
            if len(scores) < 2 or not np.isfinite(scores).all():
                raise UserError(
                    f"{name} must score its pairs with numbers, two different ones in each set, but one "
                    f"has scores from {came[0]!r} to {came[-1]!r}; correct the data"
                )
        if not dev:
            from sklearn.model_selection import train_test_split

            share = 1 / _RELATEDNESS_HELD_OUT
            self._train, self._dev = train_test_split(
                self._train, test_size=share, random_state=seed
            )
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "logistic": LOGISTIC,
            "held_out": None if dev else 1 / _RELATEDNESS_HELD_OUT,
            "num_train": len(self._train),
            "num_dev": len(self._dev),
            "num_test": len(self._test),
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson" and "spearman" (0 for constant predictions) and "mean_squared_error"."""
        parts = (self._train, self._dev, self._test)
        train_y, dev_y, test_y = (np.array([float(score) for score, *_ in part]) for part in parts)
        train_x, dev_x, test_x = _features(encode, parts)
        # Each row under the whole number below its score and under the one above, with their weights.
        below = np.floor(train_y)
        weights = np.concatenate([1 - (train_y - below), train_y - below])
        labels = np.concatenate([below, below + 1]).astype(np.int64)
        soft = (np.concatenate([train_x, train_x]), labels, weights)
        best, predicted = -np.inf, test_y
        with single_threaded():
            for model in logistic_path(*(column[weights > 0] for column in soft)):
                fit = _correlations(model.predict_proba(dev_x) @ model.classes_, dev_y)[0]
                if fit > best:
                    best, predicted = fit, model.predict_proba(test_x) @ model.classes_
        pearson, spearman = _correlations(predicted, test_y)
        error = float(np.mean(np.square(predicted - test_y)))
        return {"pearson": pearson, "spearman": spearman, "mean_squared_error": error}


def _sorted(examples: Sequence[Example]) -> list[Example]:
    """In an order of their own, since rows are drawn and dealt to folds by number."""
    return sorted(examples, key=lambda example: (example[1:], example[0]))


def _features(encode: Encode, parts: Sequence[Sequence[Example]]) -> list[Array]:
    """For each set the vectors of its sentences, `[n, dim]`, or the features of its pairs."""
    width = len(parts[0][0]) - 1
    columns = [[example[1 + n] for example in part] for part in parts for n in range(width)]
    vectors = encode_columns(encode, columns)
    return vectors if width == 1 else list(map(pair_features, vectors[::2], vectors[1::2]))


def _correlations(predicted: Array, gold: Array) -> tuple[float, float]:
    if np.ptp(predicted) < _CONSTANT:
        return 0.0, 0.0
    return (
        float(stats.pearsonr(predicted, gold).statistic),
        float(stats.spearmanr(predicted, gold).statistic),
    )


_TEXT = ("label", "text")
_PAIR = ("sentence1", "sentence2")
_SPLITS = ("train", "dev", "test")
_SICK = {split: f"senteval/SICK.{split}" for split in _SPLITS}
_STSB = {split: f"sts/stsb.en.{split}" for split in _SPLITS}
_PARAPHRASE = partial(TransferClassification, positive="1")
# Of each task the tables, by split; their columns, the label first; and the evaluator.
_TASKS: dict[str, tuple[dict[str, str], tuple[str, ...], Callable[..., Evaluator]]] = {
    **{
        name: ({"train": f"senteval/{name}"}, _TEXT, TransferClassification)
        for name in ("MR", "CR", "SUBJ", "MPQA")
    },
    **{
        name: (
            {split: f"senteval/{name}.{split}" for split in _SPLITS},
            _TEXT,
            TransferClassification,
        )
        for name in ("TREC", "SST2", "SST5")
    },
    "MRPC": ({s: f"senteval/MRPC.{s}" for s in _SPLITS}, ("label", *_PAIR), _PARAPHRASE),
    "SICK-E": (_SICK, ("entailment", *_PAIR), TransferClassification),
    "SICK-R": (_SICK, ("relatedness", *_PAIR), TransferRelatedness),
    "STSB": (_STSB, ("score", *_PAIR), TransferRelatedness),
    # Learnt on the training pairs alone: for who has no test set, and the papers give both figures.
    "STSB.dev": (
        {"train": _STSB["train"], "test": _STSB["dev"]},
        ("score", *_PAIR),
        TransferRelatedness,
    ),
}


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    for name, (tables, columns, _) in _TASKS.items():
        found = {split: find_file(folder, f"{stem}.tsv") for split, stem in tables.items()}
        paths = {split: path for split, path in found.items() if path}
        if tables.keys() - {"dev"} <= paths.keys():
            yield Dataset(
                name=name, files=tuple(paths.values()), load=partial(_load, name, paths, seed)
            )
        else:
            files = ", ".join(f"{stem}.tsv" for stem in tables.values())
            header = " TAB ".join(columns)
            yield Missing(name=name, expected=f"{files} ({header} under a line with these names)")


def _load(name: str, paths: Mapping[str, Path], seed: int) -> Evaluator:
    _, columns, make = _TASKS[name]
    sets: dict[str, list[Example]] = {split: [] for split in _SPLITS}
    for split, path in paths.items():
        sets[split] = read_table(path, columns)
        if not sets[split]:
            raise UserError(f"{path} has no examples; fetch it again or take it away")
    return make(**sets, name=name, seed=seed)


SUITE = Suite(
    name="senteval",
    title="SentEval's transfer tasks",
    source="Chidambaram et al. 2019, Table 1; Yang et al. 2019, Table 8; Yu et al. 2018, Table 1",
    find=_find,
)
