"""Measures alignment on documents whose groups are known, made of a manual's translations.

python evaluation/benchmarks/alignment.py --model exported/use-multilingual --data DIR

Sentences are merged, split, dropped and swapped with their neighbours at random. With --gold, a
folder with dev.de, dev.fr and dev.defr of Text+Berg, it is aligned too. --model is repeatable.
"""

import re
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # works in a checkout without installation

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import write_figures
from xling_tf.corpora.readers import read_parallel
from xling_tf.program import run
from xling_tf.search.alignment import AlignedGroup, align

Group = tuple[tuple[int, ...], tuple[int, ...]]

_MANUALS = ("gnome_help", "debian-reference", "debian-handbook", "gimp-help", "libreoffice-help")
_TARGETS = ("de", "es", "fr", "zh")
_PAIRS, _FIRST = 120, 100  # pairs of a document, after the first ones, which are headings
_MIN_CHARACTERS = 15  # of a source
_MERGED, _SPLIT, _DROPPED, _SWAPPED = 0.08, 0.08, 0.04, 0.02  # probabilities, on each side
_BREAK = re.compile(r"(?<=[,;:)])\s+|(?<=[，；：、）])")


def noisy_document(
    pairs: Sequence[tuple[str, str]], rng: np.random.Generator
) -> tuple[list[str], list[str], list[Group]]:
    """Returns two texts that differ at random, and their groups."""
    sides: tuple[list[str], list[str]] = ([], [])
    groups: list[Group] = []
    rest = [*pairs]
    while rest:
        kinds = rng.random(2) if len(rest) > 1 else np.ones(2)
        taken = 2 if min(kinds) < _MERGED or kinds[0] > 1 - _SWAPPED else 1
        texts = [[pair[side] for pair in rest[:taken]] for side in (0, 1)]
        rest = rest[taken:]
        if taken == 2 and kinds[0] > 1 - _SWAPPED:
            texts[1].reverse()
        elif taken == 2:
            merged = int(kinds[1] < kinds[0])
            texts[merged] = [" ".join(texts[merged])]
        elif rng.random() < 2 * _SPLIT:
            side = int(rng.integers(2))
            texts[side] = _split(texts[side][0])
        elif rng.random() < 2 * _DROPPED:
            texts[int(rng.integers(2))] = []
        starts = [len(side) for side in sides]
        for document, new in zip(sides, texts, strict=True):
            document += new
        rows = [range(start, len(side)) for start, side in zip(starts, sides, strict=True)]
        groups.append((tuple(rows[0]), tuple(rows[1])))
    return *sides, groups


def _split(text: str) -> list[str]:
    """Splits a text at the comma, or the like, that is nearest to its middle."""
    places = [place.start() for place in _BREAK.finditer(text)]
    place = min(places, key=lambda place: abs(place - len(text) / 2), default=0)
    parts = [text[:place].strip(), text[place:].strip()]
    return [text] if min(map(len, parts)) < _MIN_CHARACTERS / 2 else parts


def strict_scores(aligned: Sequence[AlignedGroup], gold: Sequence[Group]) -> dict[str, float]:
    """Computes strict precision, with omissions, recall of groups of translations, and their F1."""
    found = {(tuple(group.source), tuple(group.target)) for group in aligned}
    precision = len(found & {*gold}) / len(found)
    translated = {group for group in gold if all(group)}
    recall = len(found & translated) / len(translated)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return {"precision": precision, "recall": recall, "f1": f1}


def calibration_error(aligned: Sequence[AlignedGroup], gold: Sequence[Group]) -> float:
    """Computes the mean difference of probability and share of right groups in ten bins."""
    right = np.array([(tuple(group.source), tuple(group.target)) in gold for group in aligned])
    probabilities = np.array([group.probability for group in aligned])
    bins = np.minimum((10 * probabilities).astype(int), 9)
    differences = np.bincount(bins, probabilities - right)
    return float(np.abs(differences).sum() / len(aligned))


def documents(data: Path) -> dict[str, tuple[list[str], list[str], list[Group]]]:
    """Returns the noisy documents of the manuals in a folder by their names."""
    made = {}
    for number, (manual, target) in enumerate(
        (manual, target) for manual in _MANUALS for target in _TARGETS
    ):
        if not (path := data / "parallel" / f"{manual}.en-{target}.tsv.gz").exists():
            continue
        pairs = (pair for pair, _ in read_parallel(path) if len(pair.source) >= _MIN_CHARACTERS)
        chosen = [(pair.source, pair.target) for pair in islice(pairs, _FIRST, _FIRST + _PAIRS)]
        made[f"{manual}.en-{target}"] = noisy_document(chosen, np.random.default_rng(number))
    return made


def text_and_berg(folder: Path) -> tuple[list[str], list[str], list[Group]]:
    """Reads the development part of Text+Berg as Vecalign's repository has it."""
    sides = [(folder / f"dev.{code}").read_text("utf-8").split("\n")[:-1] for code in ("de", "fr")]
    groups: list[Group] = []
    for line in (folder / "dev.defr").read_text("utf-8").splitlines():
        rows = [tuple(map(int, re.findall(r"\d+", side))) for side in line.split(":")]
        groups.append((rows[0], rows[1]))
    return sides[0], sides[1], groups


def measure() -> dict[str, Any]:
    """Returns the scores of every model and document, and their means over the manuals."""
    from xling_tf.sentence_encoder import SentenceEncoder

    values = flags.FLAGS
    sets = documents(Path(values.data))
    if values.gold:
        sets["text+berg.de-fr"] = text_and_berg(Path(values.gold))
    return {Path(name).name: _figures(SentenceEncoder(name), sets) for name in values.model}


def _figures(model: Any, sets: dict[str, tuple[list[str], list[str], list[Group]]]) -> Any:
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for name, (source, target, gold) in sets.items():
        for encode_groups in (True, False):
            begin = time.perf_counter()
            aligned = align(source, target, model, encode_groups=encode_groups)
            seconds = time.perf_counter() - begin
            kind = "encoded" if encode_groups else "sums"
            scores = {
                **strict_scores(aligned, gold),
                "calibration_error": calibration_error(aligned, gold),
                "seconds": seconds,
            }
            figures.setdefault(kind, {})[name] = {k: round(v, 4) for k, v in scores.items()}
    for by_document in figures.values():
        made = [row for name, row in by_document.items() if "text+berg" not in name]
        means = {k: float(np.mean([row[k] for row in made])) for k in ("f1", "calibration_error")}
        by_document["mean"] = {k: round(v, 4) for k, v in means.items()}
    return figures


if __name__ == "__main__":
    flags.DEFINE_multi_string("model", None, "Exported model. Repeatable.", required=True)
    flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
    flags.DEFINE_string("gold", None, "Folder of Text+Berg's development part.")
    flags.DEFINE_string("output", "evaluation/results/alignment.json", "Results file.")
    run(
        lambda: write_figures(flags.FLAGS.output, measure),
        "the same command starts again",
    )
