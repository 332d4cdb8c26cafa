"""Cleaning of noisy bitexts: rules, margins, thresholds, files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xling_tf.bulk.bitext_cleaning import clean_bitext
from xling_tf.errors import UserError

PAIRS = [
    ("The weather is very nice today.", "El tiempo es muy bueno hoy."),
    ("The weather is very nice today.", "The weather is very nice today."),
    ("He was born in the year 1984.", "Nació en el año 1985."),
    ("Where is the railway station?", "Wo ist denn hier bitte der Bahnhof?"),
    ("We have two dogs and a cat.", "Tenemos dos perros y un gato."),
    ("My sister lives in a house.", "Quiero comer una manzana."),
]
# Directions of what sentences mean; the last pair's differ.
VECTORS = {
    PAIRS[0][0]: [1.0, 0.0, 0.0],
    PAIRS[0][1]: [0.8, 0.6, 0.0],
    PAIRS[4][0]: [0.0, 1.0, 0.0],
    PAIRS[4][1]: [0.0, 1.0, 0.0],
    PAIRS[5][0]: [0.0, 0.6, 0.8],
    PAIRS[5][1]: [0.6, 0.0, 0.8],
}


def encode(texts: list[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts], np.float32)


def clean(
    folder: Path, *, pairs: Sequence[tuple[str, str]] = PAIRS, **options: Any
) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    noisy, output = folder / "noisy.tsv", folder / "out" / "clean.tsv"
    noisy.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    options = {"threshold": 0.0, "source": "en", "target": "es", **options}
    counts = clean_bitext(encode, noisy, output, **options)
    return counts, [tuple(line.split("\t")) for line in output.read_text(encoding="utf-8").splitlines()]


def test_margins_and_faults(tmp_path):
    counts, kept = clean(tmp_path, threshold=2.0, scores=tmp_path / "scores.tsv")
    scores = [line.split("\t") for line in (tmp_path / "scores.tsv").read_text(encoding="utf-8").splitlines()]
    assert [tuple(pair) for _, _, *pair in scores] == PAIRS
    assert [fault for _, fault, *_ in scores] == [
        *("", "same on both sides", "numbers differ", "another language", "", "")
    ]
    # Cosines of the three pairs without a fault: .8 0 .6 / .6 1 0 / .36 .6 .64. The mean of each row and
    # column: 1.4, 1.6, 1.6 and 1.76, 1.6, 1.24, thirds.
    margins = [float(margin) for margin, *_ in scores]
    expected = {0: 0.8 * 6 / (1.4 + 1.76), 4: 1 * 6 / (1.6 + 1.6), 5: 0.64 * 6 / (1.6 + 1.24)}
    assert [margins[row] for row in expected] == pytest.approx([*expected.values()], abs=1e-5)
    assert kept == []
    reasons = ("same on both sides", "numbers differ", "another language")
    faults = {f"dropped: {reason}": 1 for reason in reasons}
    assert counts == {"kept": 0, "dropped: low margin": 3, **faults}
    counts, kept = clean(tmp_path, threshold=1.4)
    assert kept == [PAIRS[0], PAIRS[4]]
    assert counts == {"kept": 2, "dropped: low margin": 1, **faults}
    assert clean(tmp_path, best=1)[1] == [PAIRS[4]]
    assert clean(tmp_path, best=1, threshold=1.9)[1] == []
    assert clean(tmp_path, best=5)[1] == [PAIRS[0], PAIRS[4], PAIRS[5]]
    # Of equal margins, the first are kept; pairs with a fault never are.
    for best in (1, 2, 3):
        counts, kept = clean(tmp_path, pairs=[PAIRS[1], *[PAIRS[4]] * 3], best=best, threshold=-np.inf)
        assert (len(kept), counts["kept"], counts["dropped: low margin"]) == (best, best, 3 - best)


def test_lines_that_are_no_pairs_are_counted(tmp_path):
    counts, kept = clean(tmp_path, pairs=[PAIRS[4], ("one",), ("a", "b", "c"), ("", "b")])
    assert kept == [PAIRS[4]]
    assert counts.pop("dropped: not 2 columns") == 2
    assert counts == {"kept": 1, "dropped: low margin": 0, "dropped: empty column": 1}


def test_other_files_are_refused(tmp_path):
    (tmp_path / "one.tsv").write_text("one column\n", encoding="utf-8")
    options = {"source": "en", "target": "es", "threshold": 0.0}
    with pytest.raises(UserError, match="must hold rows of source, target, but has no usable record"):
        clean_bitext(encode, tmp_path / "one.tsv", tmp_path / "out.tsv", **options)
    with pytest.raises(UserError, match="cannot be read"):
        clean_bitext(encode, tmp_path / "none.tsv", tmp_path / "out.tsv", **options)
    with pytest.raises(UserError, match=r"a language code .* got 'spanish'"):
        clean_bitext(encode, tmp_path / "one.tsv", tmp_path / "out.tsv", **{**options, "target": "spanish"})
    assert not (tmp_path / "out.tsv").exists()
    with pytest.raises(UserError, match="must be a file, but is a folder"):
        clean_bitext(encode, tmp_path / "one.tsv", tmp_path, **options)
    for scores in ("one.tsv", "out.tsv"):
        with pytest.raises(UserError, match="besides the input and the output"):
            clean_bitext(
                encode, tmp_path / "one.tsv", tmp_path / "out.tsv", scores=tmp_path / scores, **options
            )
