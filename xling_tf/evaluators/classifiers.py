"""Classifiers on frozen vectors `[n, dim]`: SentEval's two, and Chidambaram et al.'s (2019)."""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from xling_tf.client.batches import available_cpus
from xling_tf.errors import UserError, library
from xling_tf.evaluators.data import Rows
from xling_tf.evaluators.encoding import Array, Encode, encode_checked

Predict = Callable[[Array], Array]
Labelled = tuple[Array, Array]  # vectors `[n, dim]` and labels `[n]`


class Job(NamedTuple):
    """A classifier to fit, and the sets to test it on, by the names of their scores."""

    fit: Callable[..., Predict]
    train: Labelled
    dev: Labelled | None  # chooses the regularisation; None: a part of the training set does
    tests: Mapping[str, Labelled]


# The slope at which a solver stops, relative to the size of the features. For unit vectors of 512
# dimensions it is scikit-learn's default, 1e-4, which would leave features ten times as small
# unfitted.
_TOLERANCE = 1e-4 * 512**0.5
# SentEval's grids of the inverse regularisation strength and of the network's weight decay
# (senteval/tools/validation.py).
LOGISTIC: dict[str, Any] = {"C": tuple(2.0**power for power in range(-2, 4))}
# senteval/tools/classifier.py with the stopping rule of its quick setting. The other setting (every
# 4 epochs, patience 5) takes three times as long for 80.0 instead of 80.1% (CR).
NETWORK: dict[str, Any] = {
    "hidden": 50,
    "weight_decay": tuple(10.0**power for power in range(-5, -1)),
    "batch": 64,
    "rate": 1e-3,
    "epochs_a_check": 2,
    "patience": 3,
    "max_epochs": 200,
}
# Chidambaram et al. 2019, sec. 4.2.
TANH: dict[str, Any] = {
    "hidden": (512, 512),
    "batch": 16,
    "rate": 5e-4,
    "rate_decay_per_epoch": 0.9,
    "epochs": 20,
}


def encode_rows(
    encode: Encode, sets: Mapping[str, Mapping[str, Rows]]
) -> dict[str, dict[str, Labelled]]:
    """Encodes sets of (label, text) rows; each distinct text of all sets is encoded once."""
    texts = [*dict.fromkeys(t for parts in sets.values() for r in parts.values() for _, t in r)]
    encoded = encode_checked(encode, texts).astype(np.float32)
    row_of = {text: row for row, text in enumerate(texts)}

    def labelled(rows: Rows) -> Labelled:
        return encoded[[row_of[text] for _, text in rows]], np.array([label for label, _ in rows])

    return {n: {part: labelled(rows) for part, rows in parts.items()} for n, parts in sets.items()}


def by_text(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sorts (label, text) rows by text, so that a file's order changes no sample or fold."""
    return sorted(rows, key=lambda row: row[::-1])


def fit_logistic(
    x: Array, y: Array, *, dev: Labelled | None = None, folds: int = 5, seed: int = 0
) -> Predict:
    """Fits logistic regression; `dev` or cross-validation chooses a strength of SentEval's grid."""
    splits = [((x, y), dev)] if dev else stratified_splits(x, y, folds, seed)
    accuracies = [
        [accuracy(model.predict, *held_out) for model in logistic_path(*train)]
        for train, held_out in splits
    ]
    best = LOGISTIC["C"][int(np.argmax(np.mean(accuracies, axis=0)))]
    return next(logistic_path(x, y, (best,))).predict


def logistic_path(x: Array, y: Array, grid: Sequence[float] = LOGISTIC["C"]) -> Iterator[Any]:
    """Yields one model fitted at each strength of the grid; each starts from the one before."""
    from sklearn.linear_model import LogisticRegression

    size = float(np.sqrt(np.mean(np.square(x)))) or 1.0
    model = LogisticRegression(tol=_TOLERANCE * size, max_iter=1000, warm_start=True)
    for strength in grid:
        yield model.set_params(C=strength).fit(x, y)


def fit_network(
    x: Array,
    y: Array,
    *,
    dev: Labelled | None = None,
    folds: int = 10,
    hidden: int = NETWORK["hidden"],
    seed: int = 0,
) -> Predict:
    """Fits SentEval's network of sigmoid units; accuracy on `dev` or a fold chooses weight decay
    and epochs.

    SentEval fits the best settings again on all rows; here the most accurate network is returned as
    it is.
    """
    best = -1.0
    predict: Any = None
    train, held_out = ((x, y), dev) if dev else next(stratified_splits(x, y, folds, seed))
    for decay in NETWORK["weight_decay"]:
        network = _network(train[0], (hidden,), "logistic", NETWORK, seed, decay)
        best_of_decay, patience = -1.0, NETWORK["patience"]
        for _ in range(0, NETWORK["max_epochs"], NETWORK["epochs_a_check"]):
            for _ in range(NETWORK["epochs_a_check"]):
                network.partial_fit(*train, classes=np.unique(y))
            score = accuracy(network.predict, *held_out)
            if score > best:
                best, predict = score, copy.deepcopy(network).predict
            if score > best_of_decay:
                best_of_decay = score
            elif patience:
                patience -= 1
            else:
                break
    return predict


def fit_tanh_network(x: Array, y: Array, *, seed: int = 0) -> Predict:
    """Fits the classifier of Chidambaram et al. 2019, sec. 4.2: two layers of 512 tanh units."""
    network = _network(x, TANH["hidden"], "tanh", TANH, seed)
    for _ in range(TANH["epochs"]):
        network.partial_fit(x, y, classes=np.unique(y))
        # scikit-learn has no schedule for Adam's learning rate but this private attribute.
        network._optimizer.learning_rate_init *= TANH["rate_decay_per_epoch"]
    return network.predict


def _network(
    x: Array, hidden: Sequence[int], activation: str, settings: Any, seed: int, decay: float = 0.0
) -> Any:
    from sklearn.neural_network import MLPClassifier

    batch = min(settings["batch"], len(x))
    alpha = decay * batch  # scikit-learn divides it by the size of a batch
    options = {"alpha": alpha, "batch_size": batch, "learning_rate_init": settings["rate"]}
    return MLPClassifier(hidden, activation, random_state=seed, **options)


def mean_accuracies(jobs: Iterable[Job]) -> dict[str, float]:
    """Runs jobs on all processors, and returns the mean accuracy of tests of the same name."""

    def run(job: Job) -> dict[str, float]:
        predict = job.fit(*job.train, dev=job.dev) if job.dev else job.fit(*job.train)
        return {name: accuracy(predict, *test) for name, test in job.tests.items()}

    results = in_threads(run, jobs)
    names = dict.fromkeys(name for result in results for name in result)
    return {name: float(np.mean([r[name] for r in results if name in r])) for name in names}


def stratified_splits(
    x: Array, y: Array, folds: int, seed: int
) -> Iterator[tuple[Labelled, Labelled]]:
    """Yields each fold's training part and held-out part, decided by the rows' order."""
    from sklearn.model_selection import StratifiedKFold

    for train, test in StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y):
        yield (x[train], y[train]), (x[test], y[test])


def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """Maps a function over items on all processors; each call's linear algebra has one thread."""
    limits = library("threadpoolctl", "scikit-learn", "evaluation").threadpool_limits(1)
    with limits, ThreadPoolExecutor(available_cpus()) as executor:
        return list(executor.map(function, items))


def require_trained(
    name: str, train: Iterable[tuple[str, ...]], test: Iterable[tuple[str, ...]], least: int = 1
) -> None:
    """Raises a `UserError` unless a classifier can learn from `train` and be tested on `test`.

    Every label to test on needs a training row, and two labels need `least`, so that folds have
    both.
    """
    counts = Counter(label for label, _ in train)
    for label, text in test:
        if label not in counts:
            labels = ", ".join(sorted(counts)) or "(none)"
            raise UserError(
                f"{name} is trained on labels {labels}, but {text[:60]!r} is labelled {label!r}"
            )
    if sum(count >= least for count in counts.values()) < 2:
        numbers = ", ".join(f"{c} of {label!r}" for label, c in counts.most_common(2)) or "none"
        raise UserError(
            f"{name} needs {least} training rows of each of two labels, but has {numbers}"
        )


def accuracy(predict: Predict, x: Array, gold: Array) -> float:
    """Returns the share of vectors whose label is predicted."""
    return float(np.mean(predict(x) == gold))


def pair_name(source: str, target: str) -> str:
    """Names languages to train on and to test on: "en-de", or "en" for both."""
    return source if source == target else f"{source}-{target}"
