"""Cleaning of noisy bitexts: rules, margins, thresholds, files."""

from pathlib import Path

import numpy as np
import pytest

from xling_tf.bulk.bitext_cleaning import clean_bitext
from xling_tf.compressed import unpacked
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
OPTIONS = {"source": "en", "target": "es", "threshold": 0.0}


def encode(texts: list[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts], np.float32)


def clean(folder: Path, threshold: float) -> tuple[dict[str, int], list[tuple[str, ...]]]:
    noisy, output = folder / "noisy.tsv", folder / "out" / "clean.tsv"
    lines = ["\t".join(pair) for pair in PAIRS] + ["one", "a\tb\tc", "\tb"]
    noisy.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    counts = clean_bitext(encode, noisy, output, **{**OPTIONS, "threshold": threshold})
    return counts, [
        tuple(line.split("\t")) for line in output.read_text(encoding="utf-8").splitlines()
    ]


def test_margins_and_faults(tmp_path):
    reasons = ("same on both sides", "numbers differ", "another language", "empty column")
    faults = {f"dropped: {reason}": 1 for reason in reasons} | {"dropped: not 2 columns": 2}
    # Cosines of the three pairs without a fault: .8 0 .6 / .6 1 0 / .36 .6 .64. The mean of each
    # row and column: 1.4, 1.6, 1.6 and 1.76, 1.6, 1.24, thirds.
    margins = {0: 0.8 * 6 / (1.4 + 1.76), 4: 1 * 6 / (1.6 + 1.6), 5: 0.64 * 6 / (1.6 + 1.24)}
    for place, margin in margins.items():
        for threshold, is_kept in ((margin - 1e-5, True), (margin + 1e-5, False)):
            counts, kept = clean(tmp_path, threshold)
            assert (PAIRS[place] in kept) == is_kept
            assert kept == [PAIRS[row] for row, value in margins.items() if value >= threshold]
            assert counts == {"kept": len(kept), "dropped: low margin": 3 - len(kept), **faults}


def test_a_pair_that_just_reaches_the_threshold_is_kept(tmp_path):
    # Of one pair with equal vectors, the cosine is 1, and so is the mean over its only neighbour:
    # margin 1.
    noisy, output = tmp_path / "noisy.tsv", tmp_path / "clean.tsv"
    noisy.write_text("\t".join(PAIRS[4]) + "\n", encoding="utf-8")
    for threshold, kept in ((1.0, 1), (1.001, 0)):
        counts = clean_bitext(encode, noisy, output, **{**OPTIONS, "threshold": threshold})
        assert counts == {"kept": kept, "dropped: low margin": 1 - kept}


@pytest.mark.parametrize("ending", [".gz", ".GZ", ".xz", ".bz2", ".lzma", ".zst", ""])
def test_the_output_is_compressed_as_its_name_says(tmp_path, ending):
    noisy, output = tmp_path / "noisy.tsv", tmp_path / f"clean.en-es.tsv{ending}"
    noisy.write_text("\t".join(PAIRS[0]) + "\n", encoding="utf-8")
    clean_bitext(encode, noisy, output, **OPTIONS)
    with output.open("rb") as file:
        assert b"".join(unpacked(file, output)).decode() == "\t".join(PAIRS[0]) + "\n"
    assert (output.read_bytes()[:3] == b"The") == (not ending)


@pytest.mark.parametrize(
    "name", ["c.csv", "c.jsonl", "c.en-es.parquet", "c.CSV.gz", "c.tsv.zip", "c.xlsx"]
)
def test_names_of_other_formats_are_refused_before_the_work(tmp_path, name):
    (tmp_path / "noisy.tsv").write_text("\t".join(PAIRS[0]) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"name it \.tsv"):
        clean_bitext(None, tmp_path / "noisy.tsv", tmp_path / name, **OPTIONS)
    assert not (tmp_path / name).exists()


def test_other_files_are_refused(tmp_path):
    path, output = tmp_path / "one.tsv", tmp_path / "out.tsv"
    path.write_text("one column\n", encoding="utf-8")
    with pytest.raises(
        UserError, match="must hold rows of source, target, but has no usable record"
    ):
        clean_bitext(encode, path, output, **OPTIONS)
    with pytest.raises(UserError, match=r"a language code .* got 'spanish'"):
        clean_bitext(encode, path, output, **{**OPTIONS, "target": "spanish"})
    assert not output.exists()
    with pytest.raises(UserError, match="must be a file, but is a folder"):
        clean_bitext(encode, path, tmp_path, **OPTIONS)


def test_swapped_sides_are_an_error(tmp_path):
    (tmp_path / "x.tsv").write_text("".join(f"{b}\t{a}\n" for a, b in PAIRS[:1] + PAIRS[4:]) * 9)
    with pytest.raises(UserError, match=r"es in the first column and en .*give es as `source`"):
        clean_bitext(encode, tmp_path / "x.tsv", tmp_path / "y.tsv", **OPTIONS)
