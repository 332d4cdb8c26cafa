"""SentEval's transfer tasks (Conneau and Kiela 2018): what a classifier finds in frozen vectors."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_file, read_table
from xling_tf.evaluators.encoding import Encode, Evaluator
from xling_tf.evaluators.sts import correlations

_FOLDS = 10  # SentEval, of sets without a test set
_INNER_FOLDS = 2  # SentEval: 10; two choose as well: 80.9, 80.7 and 80.9% with 2, 3 and 5 (CR)
_HELD_OUT = 10  # one part in so many of the training set, for the network
_RELATEDNESS_HELD_OUT = 5  # likewise, for relatedness

Example = tuple[str, ...]  # a label (of relatedness a number) and one or two sentences


class TransferClassification:
    """Accuracy of SentEval's two classifiers: "logistic" regression and a "network".

    Without a test set it is the mean of 10-fold cross-validation. `dev`, or else a part of the training
    set, chooses the regularisation.

    Args:
        train, dev, test: Examples: (label, sentence), or all (label, sentence, sentence).
        name: What results call this evaluator.
        positive: The label whose F1 is reported too, as SentEval does for MRPC.
        hidden: Units of the network's hidden layer: 50 in SentEval's example, 128 in Yu et al. 2018.
        seed: Of the folds and of the network.

    Raises:
        UserError: A label of the development or test set is not in the training set.

    Example:
        >>> evaluator = TransferClassification([("0", "a"), ("1", "b")] * 100, name="letters")
        >>> evaluator(lambda texts: np.array([[t == "a"] for t in texts]))["logistic/accuracy"]
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
        self._train, self._dev, self._test = map(classifiers.by_text, (train, dev, test))
        self.pairs = _pairs(test or train)
        self._positive = positive
        classifiers.require_trained(name, train, (*dev, *test))
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "folds": None if test else _FOLDS,
            "logistic": classifiers.LOGISTIC | {"inner_folds": None if dev else _INNER_FOLDS},
            "network": classifiers.NETWORK | {"hidden": hidden, "held_out": None if dev else 1 / _HELD_OUT},
            **{"num_train": len(train), "num_dev": len(dev), "num_test": len(test)},
        }
        self._fits: Mapping[str, Callable[..., classifiers.Predict]] = {
            "logistic": partial(classifiers.fit_logistic, folds=_INNER_FOLDS, seed=seed),
            "network": partial(classifiers.fit_network, folds=_HELD_OUT, hidden=hidden, seed=seed),
        }
        self._seed = seed

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "logistic/accuracy" and "network/accuracy", of a positive label ".../f1" too."""
        parts = (self._train, self._dev, self._test)
        labels = [np.array([label for label, *_ in part]) for part in parts]
        train, dev, test = zip(_features(encode, parts), labels, strict=True)
        if not self._test:
            fold = partial(classifiers.cross_validated, *train, folds=_FOLDS, seed=self._seed)
            return {f"{name}/accuracy": fold(fit) for name, fit in self._fits.items()}

        def scores_of(name: str) -> dict[str, float]:
            predict = self._fits[name](*train, dev=dev if self._dev else None)
            scores = {f"{name}/accuracy": classifiers.accuracy(predict, *test)}
            if self._positive is not None:
                scores[f"{name}/f1"] = classifiers.f1(test[1], predict(test[0]), self._positive)
            return scores

        of_logistic, of_network = classifiers.in_threads(scores_of, self._fits)
        return {**of_logistic, **of_network}


class TransferRelatedness:
    """Correlation of learnt with given scores (SICK-R; the STS Benchmark, supervised).

    A score between two whole numbers is a distribution over these two (Tai et al. 2015, sec. 4.2), which
    a softmax on SentEval's pair features learns, and predicts the mean of. Unlike SentEval, which stops
    early on squared error, it minimises cross-entropy with a regularisation that `dev` chooses.

    Args:
        train, dev, test: Scored pairs: (score, sentence, sentence); without `dev`, a fifth of `train`.
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
        self._train, self._dev, self._test = map(classifiers.by_text, (train, dev, test))
        self.pairs = _pairs(test)
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
            split = train_test_split(self._train, test_size=share, random_state=seed)
            self._train, self._dev = split
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "logistic": classifiers.LOGISTIC,
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
        with classifiers.single_threaded():
            for model in classifiers.logistic_path(*(column[weights > 0] for column in soft)):
                fit = correlations(model.predict_proba(dev_x) @ model.classes_, dev_y)[0]
                if fit > best:
                    best, predicted = fit, model.predict_proba(test_x) @ model.classes_
        pearson, spearman = correlations(predicted, test_y)
        error = float(np.mean(np.square(predicted - test_y)))
        return {"pearson": pearson, "spearman": spearman, "mean_squared_error": error}


def _pairs(examples: Sequence[Example]) -> list[tuple[str, str]]:
    return [(example[1], example[2]) for example in examples if len(example) == 3]


def _features(encode: Encode, parts: Sequence[Sequence[Example]]) -> list[np.ndarray]:
    """For each set the vectors of its sentences, `[n, dim]`, or the features of its pairs."""
    width = len(parts[0][0]) - 1
    columns = [[example[1 + n] for example in part] for part in parts for n in range(width)]
    vectors = classifiers.encode_columns(encode, columns)
    if width == 1:
        return vectors
    return list(map(classifiers.pair_features, vectors[::2], vectors[1::2]))


_TEXT = ("label", "text")
_PAIR = ("sentence1", "sentence2")
_SPLITS = ("train", "dev", "test")
_PARAPHRASE = partial(TransferClassification, positive="1")


def _all(stem: str) -> dict[str, str]:
    return {split: f"{stem}.{split}" for split in _SPLITS}


# Of each task the tables, by split; their columns, the label first; and the evaluator.
_Task = tuple[dict[str, str], tuple[str, ...], Callable[..., Evaluator]]
_WHOLE = ("MR", "CR", "SUBJ", "MPQA")
_TASKS: dict[str, _Task] = {
    **{name: ({"train": f"senteval/{name}"}, _TEXT, TransferClassification) for name in _WHOLE},
    "TREC": (_all("senteval/TREC"), _TEXT, TransferClassification),
    "SST2": (_all("senteval/SST2"), _TEXT, TransferClassification),
    "SST5": (_all("senteval/SST5"), _TEXT, TransferClassification),
    "MRPC": (_all("senteval/MRPC"), ("label", *_PAIR), _PARAPHRASE),
    "SICK-E": (_all("senteval/SICK"), ("entailment", *_PAIR), TransferClassification),
    "SICK-R": (_all("senteval/SICK"), ("relatedness", *_PAIR), TransferRelatedness),
    "STSB": (_all("sts/stsb.en"), ("score", *_PAIR), TransferRelatedness),
    # Learnt on the training pairs alone: for who has no test set, and the papers give both figures.
    "STSB.dev": (
        {"train": "sts/stsb.en.train", "test": "sts/stsb.en.dev"},
        ("score", *_PAIR),
        TransferRelatedness,
    ),
}


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    for name, (tables, columns, _) in _TASKS.items():
        found = {split: find_file(folder, f"{stem}.tsv") for split, stem in tables.items()}
        paths = {split: path for split, path in found.items() if path}
        if tables.keys() - {"dev"} <= paths.keys():
            load = partial(_load, name, paths, seed)
            yield Dataset(name=name, files=tuple(paths.values()), load=load)
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
