"""SentEval's transfer tasks (Conneau and Kiela 2018): classifiers on frozen vectors."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers, data
from xling_tf.evaluators.classification import SOURCE
from xling_tf.evaluators.data import Rows
from xling_tf.evaluators.encoding import Encode, Evaluator, as_embedder
from xling_tf.evaluators.sts import correlations

_FOLDS = 10  # SentEval, for data without a test set
_INNER_FOLDS = 2  # SentEval: 10; 2, 3 and 5 choose equally well: 80.9, 80.7 and 80.9% (CR)
_HELD_OUT = 10  # one in ten training rows is in the network's development part
_RELATEDNESS_HELD_OUT = 5  # one in five training rows is in the development part


class TransferClassification:
    """Accuracy of SentEval's two classifiers: "logistic" regression and a "network".

    Examples are (label, sentence) or (label, sentence, sentence). Without a test set, accuracies are means of
    10-fold cross-validation. `dev`, or else a part of the training set, chooses the regularisation.
    """

    def __init__(
        self,
        train: Rows,
        dev: Rows = (),
        test: Rows = (),
        *,
        name: str,
        hidden: int = classifiers.NETWORK["hidden"],
        seed: int = 0,
    ) -> None:
        self.name = name
        parts = {"train": train, "dev": dev, "test": test}
        self._parts = {part: classifiers.by_text(rows) for part, rows in parts.items() if rows}
        self.pairs = _pairs(test or train)
        least = 1 if dev else _HELD_OUT if test else _HELD_OUT + 2  # folds within folds
        classifiers.require_trained(name, train, (*dev, *test), least)
        counts = {"num_train": len(train), "num_dev": len(dev), "num_test": len(test)}
        self.protocol: Mapping[str, Any] = {"seed": seed, "hidden": hidden, **counts}
        self._fits: Mapping[str, Callable[..., classifiers.Predict]] = {
            "logistic": partial(classifiers.fit_logistic, folds=_INNER_FOLDS, seed=seed),
            "network": partial(classifiers.fit_network, folds=_HELD_OUT, hidden=hidden, seed=seed),
        }
        self._seed = seed

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "logistic/accuracy" and "network/accuracy"."""
        sets = classifiers.encode_rows(as_embedder(encode).encode_raw, {"": self._parts})[""]
        jobs = [
            classifiers.Job(fit, train, dev, {f"{name}/accuracy": test})
            for train, dev, test in _folds(sets, self._seed)
            for name, fit in self._fits.items()
        ]
        return classifiers.mean_accuracies(jobs)


class TransferRelatedness:
    """Correlation of predicted and given scores of relatedness (SICK-R; the STS Benchmark, supervised).

    A score between two integers is a distribution over these two (Tai et al. 2015, sec. 4.2). A softmax over
    SentEval's pair features learns it, and predicts its mean. SentEval stops early on the squared error;
    here the cross-entropy is minimised, and `dev`, or else a fifth of `train`, chooses the regularisation.
    Examples are (score, sentence, sentence).
    """

    def __init__(self, train: Rows, dev: Rows = (), test: Rows = (), *, name: str, seed: int = 0) -> None:
        self.name = name
        self._parts = {
            part: classifiers.by_text(rows) for part, rows in (("train", train), ("dev", dev), ("test", test))
        }
        self.pairs = _pairs(test)
        if not dev and len(train) > 1:
            from sklearn.model_selection import train_test_split

            self._parts["train"], self._parts["dev"] = train_test_split(
                self._parts["train"], test_size=1 / _RELATEDNESS_HELD_OUT, random_state=seed
            )
        for rows in self._parts.values():
            try:
                scores = np.unique([float(score) for score, *_ in rows])
            except ValueError:
                scores = np.array([np.nan])
            if len(scores) < 2 or not np.isfinite(scores).all():
                raise UserError(f"{name} needs numbers as scores, two different ones in each set; correct it")
        counts = {f"num_{part}": len(rows) for part, rows in self._parts.items()}
        self.protocol: Mapping[str, Any] = {"seed": seed, **counts}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "pearson" and "spearman", which are 0 for constant predictions."""
        sets = classifiers.encode_rows(as_embedder(encode).encode_raw, {"": self._parts})[""]
        (train_x, train_y), (dev_x, dev_y), (test_x, test_y) = (
            (x, y.astype(np.float64)) for x, y in sets.values()
        )
        # Each row occurs twice, with the integers below and above its score as labels, and their weights.
        below = np.floor(train_y)
        weights = np.concatenate([1 - (train_y - below), train_y - below])
        labels = np.concatenate([below, below + 1]).astype(np.int64)
        soft = (np.concatenate([train_x, train_x]), labels, weights)
        best, predicted = -np.inf, test_y
        with classifiers.single_threaded():
            for model in classifiers.logistic_path(*(column[weights > 0] for column in soft)):
                correlation, _ = correlations(model.predict_proba(dev_x) @ model.classes_, dev_y)
                if correlation > best:
                    best, predicted = correlation, model.predict_proba(test_x) @ model.classes_
        pearson, spearman = correlations(predicted, test_y)
        return {"pearson": pearson, "spearman": spearman}


class CrossLingualTransfer:
    """Accuracy of SentEval's logistic regression, within and across languages.

    It learns in English and is tested in each language (Rücklé et al. 2018, sec. 5.1 and Table 3), and it
    learns in the language itself. Without parts "train" and "test", rows with the same number translate each
    other, and are cross-validated in the same folds in all languages.

    Args:
        rows: (label, sentence) or (label, sentence, sentence), by language and split: "train", "dev" (or
            else a part of the training set) and "test", or "".
    """

    def __init__(self, rows: Mapping[str, Mapping[str, Rows]], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._seed = seed
        is_split = all({"train", "test"} <= splits.keys() for splits in rows.values())
        if not is_split and any("" not in splits for splits in rows.values()):
            raise UserError(f"{name} must have parts train and test in each language, or no parts in any")
        self._rows = {
            code: rows[code] if is_split else {"": rows[code][""]}
            for code in sorted(rows, key=lambda code: (code != SOURCE, code))
        }
        counts = {code: sum(map(len, splits.values())) for code, splits in self._rows.items()}
        self.protocol: Mapping[str, Any] = {"seed": seed, "num_rows": counts}
        if is_split:
            for splits in self._rows.values():
                least = 1 if "dev" in splits else _INNER_FOLDS
                classifiers.require_trained(name, splits["train"], splits["test"], least)
        else:
            if len({tuple(label for label, *_ in splits[""]) for splits in rows.values()}) > 1:
                raise UserError(f"{name} must have equal labels in every language, row by row; correct it")
            classifiers.require_trained(name, next(iter(rows.values()))[""], (), _FOLDS)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "logistic/en-<language>/accuracy" and "logistic/<language>/accuracy"."""
        fit = partial(classifiers.fit_logistic, folds=_INNER_FOLDS, seed=self._seed)
        encoded = classifiers.encode_rows(as_embedder(encode).encode_raw, self._rows)
        folds = {code: _folds(sets, self._seed) for code, sets in encoded.items()}
        jobs = []
        for source in folds:
            targets = [*folds] if source == SOURCE else [source]
            names = {code: f"logistic/{classifiers.pair_name(source, code)}/accuracy" for code in targets}
            for number, (train, dev, _) in enumerate(folds[source]):
                tests = {name: folds[code][number][-1] for code, name in names.items()}
                jobs.append(classifiers.Job(fit, train, dev, tests))
        return classifiers.mean_accuracies(jobs)


def _folds(
    sets: Mapping[str, classifiers.Labelled], seed: int
) -> list[tuple[classifiers.Labelled, classifiers.Labelled | None, classifiers.Labelled]]:
    """The training, development and test part: those that are given, or those of each fold without `dev`."""
    if "test" in sets:
        return [(sets["train"], sets.get("dev"), sets["test"])]
    rows = next(iter(sets.values()))
    return [(train, None, test) for train, test in classifiers.stratified_splits(*rows, _FOLDS, seed)]


def _pairs(examples: Rows) -> list[tuple[str, str]]:
    return [(example[1], example[2]) for example in examples if len(example) == 3]


_PAIR = ("sentence1", "sentence2")


_TEXT = ("label", "text")


def _stems(stem: str) -> dict[str, str]:
    return {split: f"{stem}.{split}" for split in ("train", "dev", "test")}


# The papers give the score of the development set too, which is all that many folders have.
_STSB_DEV = {"train": "sts/stsb.en.train", "test": "sts/stsb.en.dev"}
# The tables of each task by split; their columns, the label first; and the evaluator.
_TASKS: dict[str, tuple[Mapping[str, str], tuple[str, ...], Callable[..., Evaluator]]] = {
    **{n: ({"train": f"senteval/{n}"}, _TEXT, TransferClassification) for n in ("MR", "CR", "SUBJ", "MPQA")},
    **{n: (_stems(f"senteval/{n}"), _TEXT, TransferClassification) for n in ("TREC", "SST2", "SST5")},
    "MRPC": (_stems("senteval/MRPC"), ("label", *_PAIR), TransferClassification),
    "SICK-E": (_stems("senteval/SICK"), ("entailment", *_PAIR), TransferClassification),
    "SICK-R": (_stems("senteval/SICK"), ("relatedness", *_PAIR), TransferRelatedness),
    "STSB": (_stems("sts/stsb.en"), ("score", *_PAIR), TransferRelatedness),
    "STSB.dev": (_STSB_DEV, ("score", *_PAIR), TransferRelatedness),
}


def find(folder: Path, seed: int, hidden: int = classifiers.NETWORK["hidden"]) -> Iterator[data.Dataset]:
    """Finds the data sets of a folder; `hidden` is the number of the network's hidden units."""
    listed = {
        f"{kind}/{stem}": path
        for kind in ("senteval", "sts")
        for stem, path in data.tables_in(folder / kind).items()
    }

    def paths_of(stems: Mapping[str, str]) -> dict[str, Path]:
        return {split: listed[stem] for split, stem in stems.items() if stem in listed}

    def make_in_english(rows: Mapping[str, Mapping[str, Rows]], name: str) -> Evaluator:
        make = _TASKS[name][-1]
        settings = {"hidden": hidden} if make is TransferClassification else {}
        return make(**rows[SOURCE], **settings, name=name, seed=seed)

    for name, (stems, columns, _) in _TASKS.items():
        paths = paths_of(stems)
        if stems.keys() - {"dev"} <= paths.keys():
            yield data.tables_dataset(name, {SOURCE: paths}, make_in_english, columns)

    # SentEval's tasks in other languages, and sentiment.
    make_cross_lingual = partial(CrossLingualTransfer, seed=seed)
    for name, languages in data.find_tables(folder / "senteval").items():
        if name in _TASKS:
            stem = f"senteval/{name}"
            splits = {SOURCE: paths_of({"": stem, **_stems(stem)}), **languages}
            yield data.tables_dataset(f"cross-lingual.{name}", splits, make_cross_lingual, _TASKS[name][1])
    for name, languages in data.find_tables(folder / "sentiment").items():
        splits = {code: parts for code, parts in languages.items() if {"train", "test"} <= parts.keys()}
        if SOURCE in splits and len(splits) > 1:
            yield data.tables_dataset(f"cross-lingual.{name}", splits, make_cross_lingual)


SUITE = data.Suite(
    name="senteval",
    title="SentEval's transfer tasks",
    source="Chidambaram et al. 2019, Table 1; Yang et al. 2019, Table 8; Yu et al. 2018, Table 1; Rücklé et "
    "al. 2018, Tables 2, 3 and 6",
    layout="senteval/<task>[.<language>][.<split>].tsv (label TAB text, or label, sentence1 and sentence2, "
    "so named in line 1; data/convert.py --format senteval)",
    find=find,
)
