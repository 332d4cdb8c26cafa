"""Natural language inference, learned in English and tested in other languages."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Rows, Suite, read_table, tables_in, without_blanks
from xling_tf.evaluators.encoding import Encode, as_embedder

_NO_LABEL = "-"  # the annotators did not agree (Bowman et al. 2015, sec. 2.2)


class ZeroShotInference:
    """Accuracy of the head that an encoder was trained with, in any language.

    The head has learned from English pairs (Chidambaram et al. 2019, sec. 4.1, table 4). Pairs
    (premise, hypothesis, label) with the label "-" are left out.
    """

    def __init__(self, pairs: Rows, *, name: str) -> None:
        self.name = name
        self._pairs = sorted(pair for pair in pairs if pair[-1] != _NO_LABEL)
        unknown = {label for *_, label in self._pairs} - set(NLI_LABELS)
        if not self._pairs or unknown:
            raise UserError(
                f"{name} must have labels {NLI_LABELS}, but has {sorted(unknown) or 'none'}"
            )
        self.pairs = [pair[:2] for pair in self._pairs]
        self.protocol: Mapping[str, Any] = {"num_left_out": len(pairs) - len(self._pairs)}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy" and "num_pairs"."""
        premises, hypotheses, gold = map(list, zip(*self._pairs, strict=True))
        probabilities = np.asarray(as_embedder(encode).infer(premises, hypotheses), np.float64)
        expected = (len(premises), len(NLI_LABELS))
        if probabilities.shape != expected or not np.isfinite(probabilities).all():
            raise UserError(f"an inference head must give finite numbers of shape {list(expected)}")
        predicted = np.array(NLI_LABELS)[np.argmax(probabilities, axis=1)]
        return {
            "accuracy": float(np.mean(predicted == np.array(gold))),
            "num_pairs": float(len(gold)),
        }


def _find(folder: Path, seed: int) -> Iterator[Dataset]:
    def load(name: str, path: Path) -> ZeroShotInference:
        table = read_table(path, ("label", "premise", "hypothesis"))
        (rows,) = without_blanks(name, table, texts=slice(1, None))
        return ZeroShotInference([(*texts, label) for label, *texts in rows], name=name)

    for name, path in tables_in(folder / "nli").items():
        if re.fullmatch(rf"[^.]+\.{LANGUAGE}(?:\.(?!train$)[a-z_]+)?", name):
            yield Dataset(name=name, files=(path,), load=partial(load, name, path))


SUITE = Suite(
    name="nli",
    title="Natural language inference, learned in English",
    source="Chidambaram et al. 2019, sec. 4.1, table 4",
    layout=(
        "nli/<name>.<language>[.<split>].tsv (label TAB premise TAB hypothesis, under a line "
        "with these names)"
    ),
    find=_find,
)
