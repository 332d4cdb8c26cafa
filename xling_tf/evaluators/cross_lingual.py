"""Labels learnt in one language and told in another: zero- and few-shot, and in random subsamples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers
from xling_tf.evaluators.data import Dataset, Missing, Suite, Tables, find_tables, read_table
from xling_tf.evaluators.encoding import Encode

SOURCE = "en"  # the language that both papers learn labels in
_DEV_SHARE = 0.1  # of the training set; Chidambaram et al. 2019, sec. 4.2
_PERCENTAGES = (10, 20, 40, 80, 100)  # Table 6
# Whether the languages' rows translate each other, of the new tasks of Rücklé et al. 2018, Table 1; those of
# SentEval, translated, do.
_ALIGNED = {"AM": True, "AC": True, "CLS": False}
_NUM_RUNS = 50  # sec. 4.1, and the settings of the authors' published experiments
_PART = 0.2  # of the rows to choose by, and to test on
# The authors choose one of five learning rates by the mean score of all runs on their dev parts; this
# one of five strengths of regularisation, each four times the one before, by a few runs.
_STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0)
_NUM_TUNING_RUNS = 5
_COLUMNS = ("label", "text")

Labelled = Sequence[tuple[str, ...]]  # labels and texts
_Set = tuple[np.ndarray, np.ndarray]  # vectors and labels


class CrossLingualClassification:
    """Zero-shot and few-shot accuracy in each language (Chidambaram et al. 2019, Tables 5 and 6).

    A network of two layers of tanh units is trained on nine tenths of the English examples (the others
    are for development), on these and a part of a target language's, and on that part alone. Larger
    parts contain smaller ones, and each has its share of every label. Without English examples only the
    classifier of all examples in each target language is left.

    Args:
        train, test: (label, text) rows, by language.
        dev: Such rows in English; the classifier is then trained on all of `train`.
        name: What results call this evaluator.
        seed: Of the networks and of the parts.

    Raises:
        UserError: A label of the test sets has no examples to train on.
    """

    def __init__(
        self,
        train: Mapping[str, Labelled],
        test: Mapping[str, Labelled],
        dev: Labelled = (),
        *,
        name: str,
        seed: int = 0,
    ) -> None:
        self.name = name
        for language, rows in test.items():
            learnt = train.get(SOURCE if SOURCE in train else language, ())
            classifiers.require_trained(name, learnt, rows)
        # Sorted, since parts are drawn by number.
        self._train = {language: classifiers.by_text(train[language]) for language in sorted(train)}
        self._test = {language: classifiers.by_text(test[language]) for language in sorted(test)}
        self._dev = classifiers.by_text(dev)
        if SOURCE in train and not dev:
            from sklearn.model_selection import train_test_split

            rows = self._train[SOURCE]
            labels = [label for label, _ in rows]
            self._train[SOURCE], self._dev = train_test_split(
                rows, test_size=_DEV_SHARE, stratify=labels, random_state=seed
            )
        self._seed = seed
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "source": SOURCE if SOURCE in train else None,
            "percentages": _PERCENTAGES if SOURCE in train else (100,),
            "network": classifiers.TANH,
            "num_train": {language: len(rows) for language, rows in self._train.items()},
            "num_dev": len(self._dev),
            "num_test": {language: len(rows) for language, rows in self._test.items()},
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns accuracies on the test sets.

        Those of the English classifier are "zero_shot/<language>/accuracy", ".../macro_f1" and
        "zero_shot/dev/accuracy"; "few_shot/<language>/<percent>/accuracy" is that of one that saw this
        share of the language's own examples too, "monolingual/..." of one that saw nothing else.
        """
        sets = _encoded(encode, [*self._train.values(), *self._test.values(), self._dev])
        train = dict(zip(self._train, sets, strict=False))
        test = dict(zip(self._test, sets[len(train) :], strict=False))
        jobs = {"zero_shot": train[SOURCE]} if SOURCE in train else {}
        for language, percent in product(test, self.protocol["percentages"]):
            if language in train and language != SOURCE:
                x, y = train[language]
                rows = _part(y, percent, self._seed)
                if SOURCE in train:
                    source_x, source_y = train[SOURCE]
                    jobs[f"few_shot/{language}/{percent}"] = (
                        np.concatenate([source_x, x[rows]]),
                        np.concatenate([source_y, y[rows]]),
                    )
                jobs[f"monolingual/{language}/{percent}"] = x[rows], y[rows]

        def fit(rows: _Set) -> classifiers.Predict:
            return classifiers.fit_tanh_network(*rows, seed=self._seed)

        scores = {}
        for job, predict in zip(jobs, classifiers.in_threads(fit, jobs.values()), strict=True):
            if job != "zero_shot":
                scores[f"{job}/accuracy"] = classifiers.accuracy(predict, *test[job.split("/")[1]])
                continue
            for language, (x, y) in test.items():
                scores[f"{job}/{language}/accuracy"] = classifiers.accuracy(predict, x, y)
                scores[f"{job}/{language}/macro_f1"] = classifiers.f1(y, predict(x))
            scores[f"{job}/dev/accuracy"] = classifiers.accuracy(predict, *sets[-1])
        return scores


class SubsampleValidation:
    """Macro-F1 and accuracy of logistic regression in random subsamples, within and across languages.

    Each run cuts the rows at random in parts to train on (60%), to choose by and to test on (20% each);
    translated rows alike in all languages, so that no test sentence translates one that was trained on
    (Rücklé et al. 2018, sec. 4.1 and 5.1). One strength of regularisation serves all runs; vectors are
    divided by their mean length, so that it means the same for each system.

    Args:
        rows: (label, text) rows, by language.
        name: What results call this evaluator.
        aligned: Whether rows with the same number translate each other.
        num_runs: How many runs.
        seed: Of the cuts.

    Raises:
        UserError: Labels of aligned rows differ, or there are too few rows.
    """

    def __init__(
        self,
        rows: Mapping[str, Labelled],
        *,
        name: str,
        aligned: bool,
        num_runs: int = _NUM_RUNS,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.protocol: Mapping[str, Any] = {
            "aligned": aligned,
            "num_runs": num_runs,
            "dev_share": _PART,
            "test_share": _PART,
            "classifier": "logistic regression",
            "C": _STRENGTHS,
            "num_tuning_runs": min(_NUM_TUNING_RUNS, num_runs),
            "seed": seed,
            "num_rows": {language: len(those) for language, those in rows.items()},
        }
        self._rows = {language: sorted(those) for language, those in rows.items()}
        if aligned:
            labels = [[label for label, _ in those] for those in rows.values()]
            if any(those != labels[0] for those in labels):
                raise UserError(
                    f"{name} must have translations, so equal labels, in rows of the same number, but "
                    f"those in {', '.join(rows)} differ; correct the files"
                )
            columns = zip(*sorted(zip(*rows.values(), strict=True)), strict=True)
            self._rows = dict(zip(rows, map(list, columns), strict=True))
        self._runs: list[dict[str, list[np.ndarray]]] = []
        for run in range(num_runs):
            rng = np.random.default_rng((seed, run))
            orders = [rng.permutation(len(those)) for those in self._rows.values()]
            cuts = [
                np.split(order, [int(_PART * len(order)), 2 * int(_PART * len(order))])
                for order in (orders[:1] * len(orders) if aligned else orders)
            ]  # rows to choose by, to test on and to train on
            self._runs.append(dict(zip(self._rows, cuts, strict=True)))
        for language, those in self._rows.items():
            y = np.array([label for label, _ in those])
            if any(len(set(y[part])) < 2 for run in self._runs for part in run[language]):
                raise UserError(
                    f"{name} must have two labels in each fifth of its rows, but in {language} it has "
                    f"{len(y)} rows, labelled {np.unique(y).tolist()}; give more"
                )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns the means of the runs, each with its "..._stderr".

        "en-<language>/macro_f1" and ".../accuracy" are of training on English and testing on another
        language, "<language>/macro_f1" and ".../accuracy" of doing both in one.
        """
        sets = _encoded(encode, self._rows.values())
        length = float(np.mean(np.concatenate([np.linalg.norm(x, axis=1) for x, _ in sets]))) or 1.0
        data = {code: (x / length, y) for code, (x, y) in zip(self._rows, sets, strict=True)}
        others = [language for language in data if language != SOURCE]
        transfers = {SOURCE: [*others, SOURCE]} if SOURCE in data else {}
        transfers |= {language: [language] for language in others}
        scores = {}
        for source, targets in transfers.items():
            tuning = [
                np.mean(self._scores(data, source, [source], strength, _NUM_TUNING_RUNS)[..., 0])
                for strength in _STRENGTHS
            ]
            values = self._scores(data, source, targets, _STRENGTHS[int(np.argmax(tuning))])
            for place, target in enumerate(targets):
                name = source if source == target else f"{source}-{target}"
                for metric, column in zip(("macro_f1", "accuracy"), values[:, place].T, strict=True):
                    stderr = np.std(column, ddof=1) / np.sqrt(len(column))
                    scores[f"{name}/{metric}"] = float(np.mean(column))
                    scores[f"{name}/{metric}_stderr"] = float(stderr)
        return scores

    def _scores(
        self,
        data: Mapping[str, _Set],
        source: str,
        targets: Sequence[str],
        strength: float,
        tuning_runs: int | None = None,
    ) -> np.ndarray:
        """F1 and accuracy `[runs, targets, 2]` on the test parts, or of some runs on those to choose by."""
        from sklearn.linear_model import LogisticRegression

        def score(parts: Mapping[str, Sequence[np.ndarray]]) -> list[tuple[float, float]]:
            x, y = (array[parts[source][2]] for array in data[source])
            # Newton's method takes half the time of the default solver on thousands of rows.
            predict = LogisticRegression(C=strength, solver="newton-cg").fit(x, y).predict
            scores = []
            for target in targets:
                rows = parts[target][0 if tuning_runs else 1]
                x, y = (array[rows] for array in data[target])
                found = predict(x)
                scores.append((classifiers.f1(y, found), float(np.mean(found == y))))
            return scores

        return np.array(classifiers.in_threads(score, self._runs[:tuning_runs]))


def _encoded(encode: Encode, sets: Iterable[Labelled]) -> list[_Set]:
    sets = list(sets)
    columns = classifiers.encode_columns(encode, [[text for _, text in rows] for rows in sets])
    labels = [np.array([label for label, _ in rows]) for rows in sets]
    return list(zip(columns, labels, strict=True))


def _part(y: np.ndarray, percent: int, seed: int) -> np.ndarray:
    """The first rows of each label in a random order that does not depend on the percentage."""
    order = np.random.default_rng(seed).permutation(len(y))
    rows_of = (order[y[order] == label] for label in np.unique(y))
    return np.sort(np.concatenate([rows[: -(-len(rows) * percent // 100)] for rows in rows_of]))


def _find_reviews(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    found = find_tables(folder / "sentiment")
    for name, tables in found.items():
        if {"train", "test"} <= {split for splits in tables.values() for split in splits}:
            files = tuple(path for splits in tables.values() for path in splits.values())
            yield Dataset(name=name, files=files, load=partial(_load_reviews, name, tables, seed))
    if "cls" not in found:
        layout = "sentiment/cls.<language>.<train or test>.tsv (label TAB text, so named in line 1)"
        yield Missing(name="cls", expected=layout)


def _load_reviews(name: str, tables: Tables, seed: int) -> CrossLingualClassification:
    train, test, dev = (
        {
            code: read_table(splits[split], _COLUMNS)
            for code, splits in tables.items()
            if split in splits and (split != "dev" or code == SOURCE)
        }
        for split in ("train", "test", "dev")
    )
    return CrossLingualClassification(train, test, dev.get(SOURCE, ()), name=name, seed=seed)


def _find_argument(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    found = find_tables(folder / "argument")
    for name in dict.fromkeys([*_ALIGNED, *sorted(found)]):
        # English first, whose rows are trained on.
        tables = sorted(found.get(name, {}).items(), key=lambda item: (item[0] != SOURCE, item[0]))
        paths = {code: splits[""] for code, splits in tables if "" in splits}
        if paths:
            load = partial(_load_argument, name, paths, seed)
            yield Dataset(name=name, files=tuple(paths.values()), load=load)
        else:
            layout = f"argument/{name}.<language>.tsv (label TAB text, so named in line 1)"
            yield Missing(name=name, expected=layout)


def _load_argument(name: str, paths: Mapping[str, Path], seed: int) -> SubsampleValidation:
    rows = {code: read_table(path, _COLUMNS) for code, path in paths.items()}
    return SubsampleValidation(rows, name=name, aligned=_ALIGNED.get(name, True), seed=seed)


CLASSIFICATION = Suite(
    name="classification",
    title="Zero-shot and few-shot classification",
    source="Chidambaram et al. 2019, sec. 4.2, Tables 5 and 6",
    find=_find_reviews,
)
ARGUMENT = Suite(
    name="argument",
    title="Argument mining and reviews, within and across languages",
    source="Rücklé et al. 2018, Tables 2, 3 and 6",
    find=_find_argument,
)
