"""Triplets: how often a text is nearer to the right text than to the wrong one.

`make evaluator NAME=...` copies this module. Rewrite the copy, beginning with this docstring.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.errors import UserError
from xling_tf.evaluators import data
from xling_tf.evaluators.encoding import Encode, encode_units


class TripletAccuracy:
    """Accuracy of cosines on triplets of a text, a right and a wrong one. Ties count as errors.

    Args:
        triplets: Rows of text, right and wrong.
        name: The name of the data set, for results and errors.

    Raises:
        UserError: There are no triplets.

    Examples:
        The cosines of "a" are 1 to "A" and 0 to "b"; of "b", 0 to "a" and 0 to "A", a tie.

        >>> vectors = {"a": [1, 0], "A": [2, 0], "b": [0, 1]}
        >>> encode = lambda texts: np.array([vectors[text] for text in texts])
        >>> TripletAccuracy([("a", "A", "b"), ("b", "a", "A")], name="toy")(encode)
        {'accuracy': 0.5, 'num_triplets': 2.0}
    """

    def __init__(self, triplets: Sequence[tuple[str, ...]], *, name: str) -> None:
        if not triplets:
            raise UserError(f"{name} must have triplets, but is empty; correct it or remove it")
        self.name = name
        self._columns = [list(column) for column in zip(*triplets, strict=True)]
        # All that changes the scores, besides the encoder and the files.
        self.protocol: Mapping[str, Any] = {"num_triplets": len(triplets)}

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "accuracy", which reports show because it comes first, and "num_triplets"."""
        text, right, wrong = (encode_units(encode, column) for column in self._columns)
        is_right = np.sum(text * right, axis=1) > np.sum(text * wrong, axis=1)
        return {"accuracy": float(np.mean(is_right)), "num_triplets": float(len(is_right))}


def _find(folder: Path, seed: int) -> Iterator[data.Dataset]:
    """Finds the data sets of a folder; `seed` is for evaluators that draw random numbers."""

    def load(path: Path) -> TripletAccuracy:
        name = data.stem_of(path)
        rows = data.read_table(path, ("text", "right", "wrong"))
        return TripletAccuracy(data.without_blanks(name, rows)[0], name=name)

    for name, path in data.tables_in(folder / "triplets").items():
        yield data.Dataset(name=name, files=(path,), load=partial(load, path))


SUITE = data.Suite(
    name="triplets",
    title="The right one of two texts",
    source="the paper, its section and table",
    layout="triplets/<name>.<language>.tsv (columns text, right, wrong)",
    find=_find,
)
