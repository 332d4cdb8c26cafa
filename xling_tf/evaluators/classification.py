"""Cross-lingual classification: labels learned in English and predicted in other languages."""

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import as_user_error
from xling_tf.evaluators import classifiers, data
from xling_tf.evaluators.encoding import Encode

SOURCE = "en"  # the language in which the papers learn labels
_DEV_SHARE = 0.1  # of the training set; Chidambaram et al. 2019, sec. 4.2
_PERCENTAGES = (10, 20, 40, 80, 100)  # Table 6


class CrossLingualClassification:
    """Zero-shot and few-shot accuracy in each language (Chidambaram et al. 2019, Tables 5 and 6).

    A network with two layers of tanh units is trained on nine tenths of the English examples (the
    others are for development); on these and a part of the examples of a target language; and on
    that part alone. Larger parts contain smaller ones, and all have the labels in the same
    proportions.

    Rows are (label, text) by language, English among them, and split: "train", "test", and "dev"
    for English, with which all of its training rows are for training.
    """

    def __init__(
        self, rows: Mapping[str, Mapping[str, data.Rows]], *, name: str, seed: int = 0
    ) -> None:
        self.name = name
        self._train, self._test = (
            {
                code: classifiers.by_text(rows[code][split])
                for code in sorted(rows)
                if split in rows[code]
            }
            for split in ("train", "test")
        )
        for language, test in self._test.items():
            classifiers.require_trained(name, self._train[SOURCE], test)
            classifiers.require_trained(name, self._train.get(language, self._train[SOURCE]), ())
        if "dev" not in rows[SOURCE]:
            from sklearn.model_selection import train_test_split

            labels = [label for label, _ in self._train[SOURCE]]
            fault = (
                f"{name} needs more {SOURCE} rows of each label, to put some aside ({{error}}); "
                "give more"
            )
            with as_user_error(fault, ValueError):
                self._train[SOURCE], _ = train_test_split(
                    self._train[SOURCE], test_size=_DEV_SHARE, stratify=labels, random_state=seed
                )
        self._seed = seed
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "percentages": _PERCENTAGES,
            "num_train": {code: len(language_rows) for code, language_rows in self._train.items()},
            "num_test": {code: len(language_rows) for code, language_rows in self._test.items()},
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns accuracies on the test sets.

        "zero_shot/<language>/accuracy" is that of the English classifier,
        "few_shot/<language>/<percent>/accuracy" that of a classifier that learned from this share
        of the language's examples too, "monolingual/..." that of one that learned from nothing
        else.
        """
        sets = classifiers.encode_rows(encode, {"train": self._train, "test": self._test})
        train, test = sets["train"], sets["test"]
        fit = partial(classifiers.fit_tanh_network, seed=self._seed)
        tests = {f"zero_shot/{language}/accuracy": rows for language, rows in test.items()}
        jobs = [classifiers.Job(fit, train[SOURCE], None, tests)]
        for language, percent in product(test, _PERCENTAGES):
            if language in train and language != SOURCE:
                x, y = train[language]
                rows = _part(y, percent, self._seed)
                part = x[rows], y[rows]
                tests = {f"monolingual/{language}/{percent}/accuracy": test[language]}
                jobs.append(classifiers.Job(fit, part, None, tests))
                joint_x, joint_y = map(np.concatenate, zip(train[SOURCE], part, strict=True))
                tests = {f"few_shot/{language}/{percent}/accuracy": test[language]}
                jobs.append(classifiers.Job(fit, (joint_x, joint_y), None, tests))
        return classifiers.mean_accuracies(jobs)


def _part(y: np.ndarray, percent: int, seed: int) -> np.ndarray:
    """The first share of each label's rows, in an order that is the same for every percentage."""
    order = np.random.default_rng(seed).permutation(len(y))
    rows_of = (order[y[order] == label] for label in np.unique(y))
    return np.sort(np.concatenate([rows[: -(-len(rows) * percent // 100)] for rows in rows_of]))


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    make = partial(CrossLingualClassification, seed=seed)
    for name, tables in data.find_tables(folder / "sentiment").items():
        if "train" in tables.get(SOURCE, ()) and any("test" in s for s in tables.values()):
            yield data.tables_dataset(name, tables, make)


SUITE = data.Suite(
    name="classification",
    title="Zero-shot and few-shot classification",
    source="Chidambaram et al. 2019, sec. 4.2, Tables 5 and 6",
    layout="sentiment/<name>.<language>.<train or test>.tsv (label TAB text, so named in line 1)",
    find=_find,
)
