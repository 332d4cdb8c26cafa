"""Natural language inference in languages that no inference was learnt in."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import Array, encode_columns, fit_logistic, pair_features
from xling_tf.evaluators.data import LANGUAGE, Dataset, Missing, Suite, read_table, tables_in
from xling_tf.evaluators.encoding import Encode, NotApplicableError, as_system

TWO_WAY_LABELS = ("entailment", "not_entailment")
_NO_LABEL = "-"  # the annotators did not agree (Bowman et al. 2015, sec. 2.2)
_MAX_TRAIN = 10_000
_DEV_PARTS = 10  # one part in so many of what is learnt from chooses the regularisation
_SMALL_TRAIN = "snli.en.dev"  # what the probe learns from where there is no training set
# Chidambaram et al. 2019, table 4.
_WELL_KNOWN = (
    *("snli.en.test", "snli_x.es.test", "snli_x.fr.test"),
    *(f"xnli.{language}.test" for language in ("de", "en", "es", "fr", "zh")),
)
_COLUMNS = ("premise", "hypothesis", "label")
_LAYOUT = "nli/{}.tsv (label TAB premise TAB hypothesis, under a line with these names)"

Pairs = Sequence[tuple[str, ...]]  # premise, hypothesis and label


class ZeroShotInference:
    """Accuracy of the head that a system was trained with, whatever the language of the pairs.

    The head learnt from English pairs (Chidambaram et al. 2019, sec. 4.1, table 4). Where the data
    knows only entailment and not_entailment, the head's two other labels are the latter.

    Args:
        pairs: (premise, hypothesis, label) rows; those labelled "-" are left out.
        name: What results call this evaluator.

    Raises:
        UserError: There are no pairs, or a label is unknown.
    """

    def __init__(self, pairs: Pairs, *, name: str) -> None:
        self.name = name
        self._pairs = _labelled(pairs, name)
        self.pairs = [pair[:2] for pair in self._pairs]
        self.protocol: Mapping[str, Any] = {
            "labels": list(_labels_of(self._pairs)),
            "num_pairs": len(self._pairs),
            "num_left_out": len(pairs) - len(self._pairs),
        }

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy", "macro_f1", "<label>/recall" of each label, and "num_pairs"."""
        infer = as_system(encode).inference
        if infer is None:
            raise NotApplicableError("it has no head for inference")
        premises, hypotheses, _ = map(list, zip(*self._pairs, strict=True))
        probabilities = np.asarray(infer(premises, hypotheses), np.float64)
        expected = (len(premises), len(NLI_LABELS))
        finite = np.isfinite(probabilities).all()
        if probabilities.shape != expected or not finite:
            raise UserError(
                f"a head for inference must give finite numbers of shape {list(expected)}, but gave "
                f"shape {list(probabilities.shape)}{'' if finite else ' with infinity or NaN'}; look "
                "for the cause in its training or its inference function"
            )
        return _scores(self._pairs, np.array(NLI_LABELS)[np.argmax(probabilities, axis=1)])


class InferenceProbe:
    """Accuracy, in each language, of a classifier that was trained on English vectors.

    It needs no trained head: logistic regression on (u, v, |u - v|, u * v) of frozen vectors, the
    features of the head (Chidambaram et al. 2019, sec. 2.2; Conneau et al. 2017, InferSent, sec. 3.1).

    Args:
        train: English pairs with three labels. Those whose premise a test set has as well are left out.
        tests: The pairs to classify, by name.
        name: What results call this evaluator.
        max_train: More training pairs than this are sampled.
        seed: Of the sample, and of the tenth by which the regularisation is chosen.

    Raises:
        UserError: Too few training pairs are left.
    """

    def __init__(
        self,
        train: Pairs,
        tests: Mapping[str, Pairs],
        *,
        name: str,
        max_train: int = _MAX_TRAIN,
        seed: int = 0,
    ) -> None:
        self.name = name
        self._tests = {test: _labelled(pairs, test) for test, pairs in tests.items()}
        self.pairs = [pair[:2] for pairs in self._tests.values() for pair in pairs]
        tested = {normalised(premise) for premise, _ in self.pairs}
        unseen = [pair for pair in sorted(set(train)) if normalised(pair[0]) not in tested]
        order = np.random.default_rng(seed).permutation(len(unseen))[:max_train]
        self._train = [unseen[index] for index in order]
        self.protocol: Mapping[str, Any] = {
            "features": "u, v, |u - v|, u * v",
            "classifier": "logistic regression",
            "max_train": max_train,
            "seed": seed,
            "num_train": len(self._train),
            "num_left_out": {n: len(pairs) - len(self._tests[n]) for n, pairs in tests.items()},
        }
        if len(self._train) < _DEV_PARTS:
            raise UserError(
                f"{name} must have English pairs to learn from whose premises no test set has, "
                f"but {len(self._train)} are left of {len(train)}; give it others"
            )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy", the mean of the test sets, and "<set>/accuracy" and "<set>/num_pairs"."""
        x, y = _features(encode, self._train), np.array([label for *_, label in self._train])
        num_dev = len(y) // _DEV_PARTS
        predict = fit_logistic(x[num_dev:], y[num_dev:], dev=(x[:num_dev], y[:num_dev]))
        scores: dict[str, float] = {}
        for name, pairs in self._tests.items():
            of_set = _scores(pairs, predict(_features(encode, pairs)))
            scores |= {f"{name}/{score}": of_set[score] for score in ("accuracy", "num_pairs")}
        accuracies = [scores[f"{name}/accuracy"] for name in self._tests]
        return {"accuracy": float(np.mean(accuracies)), **scores}


def _labelled(pairs: Pairs, name: str) -> list[tuple[str, ...]]:
    """The pairs that have a label, sorted by their texts."""
    kept = sorted(pair for pair in pairs if pair[-1] != _NO_LABEL)
    unknown = {label for *_, label in kept} - set(_labels_of(kept))
    if not kept or unknown:
        raise UserError(
            f"{name} must have pairs labelled {', '.join(NLI_LABELS)}, or only "
            f"{' and '.join(TWO_WAY_LABELS)}, but has {sorted(unknown) or 'none'}; correct the data"
        )
    return kept


def _labels_of(pairs: Pairs) -> tuple[str, ...]:
    return TWO_WAY_LABELS if any(pair[-1] == TWO_WAY_LABELS[1] for pair in pairs) else NLI_LABELS


def _features(encode: Encode, pairs: Pairs) -> Array:
    """Features of the pairs: `[n, 4 * dim]`."""
    u, v = encode_columns(encode, list(zip(*pairs, strict=True))[:2])
    return np.concatenate([u, v, pair_features(u, v)], axis=1)


def _scores(pairs: Pairs, predicted: Array) -> dict[str, float]:
    """Compares predictions out of `NLI_LABELS` with the pairs' own labels."""
    from sklearn.metrics import precision_recall_fscore_support

    labels = _labels_of(pairs)
    if labels == TWO_WAY_LABELS:
        predicted = np.where(predicted == TWO_WAY_LABELS[0], *TWO_WAY_LABELS)
    gold = np.array([label for *_, label in pairs])
    _, recalls, f1, _ = precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    return {
        "accuracy": float(np.mean(gold == predicted)),
        "macro_f1": float(np.mean(f1)),
        **{f"{label}/recall": float(recall) for label, recall in zip(labels, recalls, strict=True)},
        "num_pairs": float(len(gold)),
    }


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Yields each set for the trained head, and all of them for one probe."""
    paths = {
        name: path
        for name, path in tables_in(folder / "nli").items()
        if re.fullmatch(rf"[^.]+\.{LANGUAGE}(?:\.[a-z_]+)?", name)
    }
    tests = {name: path for name, path in paths.items() if not name.endswith(".train")}
    for name, path in tests.items():
        yield Dataset(name=name, files=(path,), load=partial(_load_zero_shot, name, path))
    for name in _WELL_KNOWN:
        if name not in paths:
            yield Missing(name=name, expected=_LAYOUT.format(name))
    train = [path for name, path in paths.items() if name.endswith(".en.train")]
    if not train and _SMALL_TRAIN in tests:
        train = [tests.pop(_SMALL_TRAIN)]
    if train and tests:
        load = partial(_load_probe, train, tests, seed)
        yield Dataset(name="probe", files=(*train, *tests.values()), load=load)
    else:
        learnt = f"{_LAYOUT.format('<name>.en.train')} or {_SMALL_TRAIN} to learn from"
        yield Missing(name="probe", expected=f"{learnt}, and another set to classify")


def _load_zero_shot(name: str, path: Path) -> ZeroShotInference:
    return ZeroShotInference(read_table(path, _COLUMNS), name=name)


def _load_probe(train: Sequence[Path], tests: Mapping[str, Path], seed: int) -> InferenceProbe:
    sets = [_labelled(read_table(path, _COLUMNS), path.name) for path in train]
    # Pairs of two-way sets that are not entailed may be either of the two other labels.
    pairs = [pair for those in sets if _labels_of(those) == NLI_LABELS for pair in those]
    tested = {name: read_table(path, _COLUMNS) for name, path in tests.items()}
    return InferenceProbe(pairs, tested, name="probe", seed=seed)


SUITE = Suite(
    name="nli",
    title="Natural language inference, learnt in English",
    source="Chidambaram et al. 2019, sec. 4.1, table 4",
    find=_find,
)
