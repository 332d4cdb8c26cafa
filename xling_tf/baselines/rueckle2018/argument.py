"""Argument mining and reviews: classification in random subsamples, within and across languages."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators import classifiers, data
from xling_tf.evaluators.classification import SOURCE
from xling_tf.evaluators.classifiers import Labelled
from xling_tf.evaluators.data import Rows
from xling_tf.evaluators.encoding import Encode, as_embedder

# The only task of Rücklé et al. 2018, Table 1, whose rows do not translate each other.
_NOT_ALIGNED = "CLS"
_NUM_RUNS = 50  # sec. 4.1, and the settings of the authors' published experiments
_PART = 0.2  # the share of the rows for development, and again for testing
# The authors choose one of five learning rates by the mean score of all runs on their development
# parts. Here, a few runs choose one of five strengths of regularisation.
_STRENGTHS = (1.0, 4.0, 16.0, 64.0, 256.0)
_NUM_TUNING_RUNS = 5


class SubsampleValidation:
    """Macro-F1 and accuracy of logistic regression in random samples, within and across languages.

    Each run divides the rows at random into training (60%), development and test parts (20% each).
    Translated rows are divided equally in all languages, so that no test sentence translates a
    training sentence (Rücklé et al. 2018, sec. 4.1 and 5.1). All runs have the same regularisation;
    vectors are divided by their mean length, so that its strength means the same for each encoder.
    If the (label, text) rows of all languages are `aligned`, those with the same number translate
    each other.
    """

    def __init__(
        self,
        rows: Mapping[str, Rows],
        *,
        name: str,
        aligned: bool,
        num_runs: int = _NUM_RUNS,
        seed: int = 0,
    ) -> None:
        self.name = name
        settings = {"aligned": aligned, "num_runs": num_runs, "seed": seed}
        num_rows = {language: len(language_rows) for language, language_rows in rows.items()}
        self.protocol: Mapping[str, Any] = {**settings, "num_rows": num_rows}
        self._rows = {language: sorted(language_rows) for language, language_rows in rows.items()}
        if aligned:
            labels = [[label for label, _ in language_rows] for language_rows in rows.values()]
            if any(language_rows != labels[0] for language_rows in labels):
                raise UserError(
                    f"{name} must have equal labels in every language, row by row; correct it"
                )
            columns = zip(*sorted(zip(*rows.values(), strict=True)), strict=True)
            self._rows = dict(zip(rows, map(list, columns), strict=True))
        # The rows of each run's development, test and training part, by language.
        self._runs: list[dict[str, list[np.ndarray]]] = []
        for run in range(num_runs):
            rng = np.random.default_rng((seed, run))
            orders = [rng.permutation(len(language_rows)) for language_rows in self._rows.values()]
            parts = [
                np.split(order, [int(_PART * len(order)), 2 * int(_PART * len(order))])
                for order in (orders[:1] * len(orders) if aligned else orders)
            ]
            self._runs.append(dict(zip(self._rows, parts, strict=True)))
        for language, language_rows in self._rows.items():
            y = np.array([label for label, _ in language_rows])
            if any(len(set(y[part])) < 2 for run in self._runs for part in run[language]):
                raise UserError(
                    f"{name} needs two labels in each fifth of its rows in {language}; give more"
                )

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns means over the runs.

        "en-<language>/macro_f1" and ".../accuracy" come from training on English and testing in
        another language, "<language>/macro_f1" and ".../accuracy" from training and testing in one.
        """
        sets = classifiers.encode_rows(as_embedder(encode).encode_raw, {"": self._rows})[""]
        length = (
            float(np.mean(np.concatenate([np.linalg.norm(x, axis=1) for x, _ in sets.values()])))
            or 1.0
        )
        vectors = {code: (x / length, y) for code, (x, y) in sets.items()}
        others = [language for language in vectors if language != SOURCE]
        transfers = {SOURCE: [*others, SOURCE]} if SOURCE in vectors else {}
        scores = {}
        for source, targets in (transfers | {language: [language] for language in others}).items():
            tuning = [
                np.mean(self._scores(vectors, source, [source], strength, _NUM_TUNING_RUNS)[..., 0])
                for strength in _STRENGTHS
            ]
            values = self._scores(vectors, source, targets, _STRENGTHS[int(np.argmax(tuning))])
            for index, target in enumerate(targets):
                name = source if source == target else f"{source}-{target}"
                for metric, column in zip(
                    ("macro_f1", "accuracy"), values[:, index].T, strict=True
                ):
                    scores[f"{name}/{metric}"] = float(np.mean(column))
        return scores

    def _scores(
        self,
        vectors: Mapping[str, Labelled],
        source: str,
        targets: Sequence[str],
        strength: float,
        tuning_runs: int | None = None,
    ) -> np.ndarray:
        """F1 and accuracy `[runs, targets, 2]` on test parts, or tuning runs' development parts."""
        from sklearn.linear_model import LogisticRegression
        from sklearn.metrics import f1_score

        def score(parts: Mapping[str, Sequence[np.ndarray]]) -> list[tuple[float, float]]:
            x, y = (array[parts[source][2]] for array in vectors[source])
            # Newton's method takes half the time of the default solver on thousands of rows.
            predict = LogisticRegression(C=strength, solver="newton-cg").fit(x, y).predict
            scores = []
            for target in targets:
                rows = parts[target][0 if tuning_runs else 1]
                x, y = (array[rows] for array in vectors[target])
                predicted = predict(x)
                macro_f1 = f1_score(y, predicted, average="macro", zero_division=0)
                scores.append((float(macro_f1), float(np.mean(predicted == y))))
            return scores

        return np.array(classifiers.in_threads(score, self._runs[:tuning_runs]))


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    def make(rows: Mapping[str, Mapping[str, Rows]], name: str) -> SubsampleValidation:
        unsplit = {language: splits[""] for language, splits in rows.items()}
        return SubsampleValidation(unsplit, name=name, aligned=name != _NOT_ALIGNED, seed=seed)

    for name, languages in sorted(data.find_tables(folder / "argument").items()):
        # English, which is trained on, comes first.
        codes = sorted(languages, key=lambda code: (code != SOURCE, code))
        tables = {code: {"": languages[code][""]} for code in codes if "" in languages[code]}
        if tables:
            yield data.tables_dataset(name, tables, make)


SUITE = data.Suite(
    name="argument",
    title="Argument mining and reviews, within and across languages",
    source="Rücklé et al. 2018, Tables 2, 3 and 6",
    layout=(
        "argument/<AM, AC, CLS or another name>.<language>.tsv (label TAB text, so named in line 1)"
    ),
    find=_find,
)
