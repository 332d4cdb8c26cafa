"""Natural language inference, learned in English and tested in other languages."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.split import normalised
from xling_tf.errors import UserError
from xling_tf.evaluators.classifiers import (
    Array,
    encode_columns,
    fit_logistic,
    pair_features,
    require_trained,
)
from xling_tf.evaluators.data import Dataset, Suite, read_table, tables_in
from xling_tf.evaluators.encoding import Encode, as_embedder

_NO_LABEL = "-"  # the annotators did not agree (Bowman et al. 2015, sec. 2.2)
_MAX_TRAIN = 10_000
_DEV_PARTS = 10  # one in ten training pairs is for choosing the regularisation
_SMALL_TRAIN = "snli.en.dev"  # trains the probe if there is no training set
_COLUMNS = ("premise", "hypothesis", "label")

Pairs = Sequence[tuple[str, ...]]  # premise, hypothesis and label


class ZeroShotInference:
    """Accuracy of the head that an encoder was trained with, in any language.

    The head has learned from English pairs (Chidambaram et al. 2019, sec. 4.1, table 4). Pairs (premise,
    hypothesis, label) with the label "-" are left out.
    """

    def __init__(self, pairs: Pairs, *, name: str) -> None:
        self.name = name
        self._pairs = _labelled(pairs, name)
        self.pairs = [pair[:2] for pair in self._pairs]
        self.protocol: Mapping[str, Any] = {"num_left_out": len(pairs) - len(self._pairs)}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy" and "num_pairs"."""
        premises, hypotheses, _ = map(list, zip(*self._pairs, strict=True))
        probabilities = np.asarray(as_embedder(encode).infer(premises, hypotheses), np.float64)
        expected = (len(premises), len(NLI_LABELS))
        if probabilities.shape != expected or not np.isfinite(probabilities).all():
            raise UserError(f"a head for inference must give finite numbers of shape {list(expected)}")
        return _scores(self._pairs, np.array(NLI_LABELS)[np.argmax(probabilities, axis=1)])


class InferenceProbe:
    """Accuracy, in each language, of a classifier that was trained on vectors of English pairs.

    It needs no trained head: logistic regression on (u, v, |u - v|, u * v) of frozen vectors, the features
    of the head (Chidambaram et al. 2019, sec. 2.2; Conneau et al. 2017, InferSent, sec. 3.1). English pairs
    whose premise is in a test set are left out; of the others, 10,000 are sampled, and a tenth chooses the
    regularisation.
    """

    def __init__(self, train: Pairs, tests: Mapping[str, Pairs], *, name: str, seed: int = 0) -> None:
        self.name = name
        self._tests = {test: _labelled(pairs, test) for test, pairs in tests.items()}
        self.pairs = [pair[:2] for pairs in self._tests.values() for pair in pairs]
        tested = {normalised(premise) for premise, _ in self.pairs}
        unseen = [pair for pair in sorted(set(train)) if normalised(pair[0]) not in tested]
        order = np.random.default_rng(seed).permutation(len(unseen))[:_MAX_TRAIN]
        self._train = [unseen[index] for index in order]
        self.protocol: Mapping[str, Any] = {
            "seed": seed,
            "num_train": len(self._train),
            "num_left_out": {n: len(pairs) - len(self._tests[n]) for n, pairs in tests.items()},
        }
        if len(self._train) < _DEV_PARTS:
            left = f"{len(self._train)} are left of {len(train)}"
            raise UserError(f"{name} learns from pairs whose premises no test set has, but {left}")
        self._num_dev = len(self._train) // _DEV_PARTS
        require_trained(name, [pair[::-1] for pair in self._train[self._num_dev :]], ())

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy", the mean over the test sets, and "<set>/accuracy" and "<set>/num_pairs"."""
        x, y = _features(encode, self._train), np.array([label for *_, label in self._train])
        num_dev = self._num_dev
        predict = fit_logistic(x[num_dev:], y[num_dev:], dev=(x[:num_dev], y[:num_dev]))
        scores: dict[str, float] = {}
        for name, pairs in self._tests.items():
            set_scores = _scores(pairs, predict(_features(encode, pairs)))
            scores |= {f"{name}/{score}": value for score, value in set_scores.items()}
        accuracies = [scores[f"{name}/accuracy"] for name in self._tests]
        return {"accuracy": float(np.mean(accuracies)), **scores}


def _labelled(pairs: Pairs, name: str) -> list[tuple[str, ...]]:
    """The pairs that have a label, sorted by their texts."""
    labelled = sorted(pair for pair in pairs if pair[-1] != _NO_LABEL)
    unknown = {label for *_, label in labelled} - set(NLI_LABELS)
    if not labelled or unknown:
        raise UserError(f"{name} must have labels {NLI_LABELS}, but has {sorted(unknown) or 'none'}")
    return labelled


def _features(encode: Encode, pairs: Pairs) -> Array:
    """Features of the pairs: `[n, 4 * dim]`."""
    u, v = encode_columns(encode, list(zip(*pairs, strict=True))[:2])
    return np.concatenate([u, v, pair_features(u, v)], axis=1)


def _scores(pairs: Pairs, predicted: Array) -> dict[str, float]:
    gold = np.array([label for *_, label in pairs])
    return {"accuracy": float(np.mean(gold == predicted)), "num_pairs": float(len(gold))}


def _find(folder: Path, seed: int) -> Iterator[Dataset]:
    """Yields each set for the trained head, and all of them for one probe."""
    paths = {
        name: path
        for name, path in tables_in(folder / "nli").items()
        if re.fullmatch(rf"[^.]+\.{LANGUAGE}(?:\.[a-z_]+)?", name)
    }
    tests = {name: path for name, path in paths.items() if not name.endswith(".train")}

    def load(name: str) -> ZeroShotInference:
        return ZeroShotInference(read_table(tests[name], _COLUMNS), name=name)

    for name, path in tests.items():
        yield Dataset(name=name, files=(path,), load=partial(load, name))
    train = [path for name, path in paths.items() if name.endswith(".en.train")]
    probe_tests = dict(tests)
    if not train and _SMALL_TRAIN in tests:
        train = [probe_tests.pop(_SMALL_TRAIN)]

    def load_probe() -> InferenceProbe:
        pairs = [pair for path in train for pair in _labelled(read_table(path, _COLUMNS), path.name)]
        sets = {name: read_table(path, _COLUMNS) for name, path in probe_tests.items()}
        return InferenceProbe(pairs, sets, name="probe", seed=seed)

    if train and probe_tests:
        yield Dataset(name="probe", files=(*train, *probe_tests.values()), load=load_probe)


SUITE = Suite(
    name="nli",
    title="Natural language inference, learned in English",
    source="Chidambaram et al. 2019, sec. 4.1, table 4",
    layout="nli/<name>.<language>[.<split>].tsv (label TAB premise TAB hypothesis, under a line with these "
    f"names); the probe needs <name>.en.train or {_SMALL_TRAIN}, and another set",
    find=_find,
)
