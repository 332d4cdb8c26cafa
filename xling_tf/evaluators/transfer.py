"""SentEval's transfer tasks (Conneau and Kiela 2018): classifiers on frozen vectors."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers, data
from xling_tf.evaluators.classification import SOURCE
from xling_tf.evaluators.data import Rows
from xling_tf.evaluators.encoding import Encode, as_embedder

_FOLDS = 10  # SentEval, for data without a test set
_INNER_FOLDS = 2  # SentEval: 10; 2, 3 and 5 choose equally well: 80.9, 80.7 and 80.9% (CR)
_HELD_OUT = 10  # one in ten training rows is in the network's development part


class TransferClassification:
    """Accuracy of SentEval's two classifiers: "logistic" regression and a "network".

    Examples are (label, sentence). Without a test set, accuracies are means of 10-fold
    cross-validation. `dev`, or else a part of the training set, chooses the regularisation.
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
        least = 1 if dev else _HELD_OUT if test else _HELD_OUT + 2  # folds within folds
        classifiers.require_trained(name, train, (*dev, *test), least)
        counts = {f"num_{part}": len(rows) for part, rows in parts.items()}
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


class CrossLingualTransfer:
    """Accuracy of SentEval's logistic regression, within and across languages.

    It learns in English and is tested in each language (Rücklé et al. 2018, sec. 5.1 and Table 3),
    and it learns in the language itself. Without parts "train" and "test", rows with the same
    number translate each other, and are cross-validated in the same folds in all languages.

    Args:
        rows: (label, sentence), by language and split: "train", "dev" (or else a part of the
            training set) and "test", or "".
    """

    def __init__(self, rows: Mapping[str, Mapping[str, Rows]], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._seed = seed
        is_split = all({"train", "test"} <= splits.keys() for splits in rows.values())
        if not is_split and any("" not in splits for splits in rows.values()):
            raise UserError(
                f"{name} must have parts train and test in each language, or no parts in any"
            )
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
                raise UserError(
                    f"{name} must have equal labels in every language, row by row; correct it"
                )
            classifiers.require_trained(name, next(iter(rows.values()))[""], (), _FOLDS)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "logistic/en-<language>/accuracy" and "logistic/<language>/accuracy"."""
        fit = partial(classifiers.fit_logistic, folds=_INNER_FOLDS, seed=self._seed)
        encoded = classifiers.encode_rows(as_embedder(encode).encode_raw, self._rows)
        folds = {code: _folds(sets, self._seed) for code, sets in encoded.items()}
        jobs = []
        for source in folds:
            targets = [*folds] if source == SOURCE else [source]
            names = {c: f"logistic/{classifiers.pair_name(source, c)}/accuracy" for c in targets}
            for number, (train, dev, _) in enumerate(folds[source]):
                tests = {name: folds[code][number][-1] for code, name in names.items()}
                jobs.append(classifiers.Job(fit, train, dev, tests))
        return classifiers.mean_accuracies(jobs)


def _folds(
    sets: Mapping[str, classifiers.Labelled], seed: int
) -> list[tuple[classifiers.Labelled, classifiers.Labelled | None, classifiers.Labelled]]:
    """Training, development and test part: those given, or each fold's without `dev`."""
    if "test" in sets:
        return [(sets["train"], sets.get("dev"), sets["test"])]
    rows = next(iter(sets.values()))
    return [(train, None, t) for train, t in classifiers.stratified_splits(*rows, _FOLDS, seed)]


# SentEval's tasks, and the parts that each needs; "" is all rows, which are cross-validated.
_TASKS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("MR", "CR", "SUBJ", "MPQA"), ("",)),
    **dict.fromkeys(("TREC", "SST2"), ("train", "test")),
}


def find(
    folder: Path, seed: int, hidden: int = classifiers.NETWORK["hidden"]
) -> Iterator[data.Dataset]:
    """Finds the data sets of a folder; `hidden` is the number of the network's hidden units."""
    tables, translated = data.tables_in(folder / "senteval"), data.find_tables(folder / "senteval")

    def make_in_english(
        rows: Mapping[str, Mapping[str, Rows]], name: str
    ) -> TransferClassification:
        parts = {part or "train": part_rows for part, part_rows in rows[SOURCE].items()}
        return TransferClassification(**parts, hidden=hidden, name=name, seed=seed)

    make_cross_lingual = partial(CrossLingualTransfer, seed=seed)
    for name, needed in _TASKS.items():
        stems = {part: f"{name}.{part}".rstrip(".") for part in (*needed, "dev")}
        english = {SOURCE: {part: tables[stem] for part, stem in stems.items() if stem in tables}}
        if set(needed) <= english[SOURCE].keys():
            yield data.tables_dataset(name, english, make_in_english)
            if name in translated:
                languages = {**english, **translated[name]}
                yield data.tables_dataset(f"cross-lingual.{name}", languages, make_cross_lingual)
    for name, by_language in data.find_tables(folder / "sentiment").items():
        splits = {c: parts for c, parts in by_language.items() if {"train", "test"} <= parts.keys()}
        if SOURCE in splits and len(splits) > 1:
            yield data.tables_dataset(f"cross-lingual.{name}", splits, make_cross_lingual)


SUITE = data.Suite(
    name="senteval",
    title="SentEval's transfer tasks",
    source=(
        "Chidambaram et al. 2019, Table 1; Yang et al. 2019, Table 8; Yu et al. 2018, Table 1; "
        "Rücklé et al. 2018, Tables 2, 3 and 6"
    ),
    layout=(
        "senteval/<task>[.<language>][.<split>].tsv (label TAB text, so named in line 1; "
        "xling-tf prepare evaluation senteval)"
    ),
    find=find,
)
