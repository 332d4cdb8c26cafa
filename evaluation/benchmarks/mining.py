r"""Measures mining: hides translations among other sentences that have none, and finds them again.

python evaluation/benchmarks/mining.py --model exported/en-es-static --data DIR \
        --texts held_out.en-es.tsv
"""

import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # works in a checkout without installation

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import read_pairs, run_benchmark
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.corpora.line_files import read_every_line
from xling_tf.corpora.readers import read_parallel
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError


def measure() -> dict[str, Any]:
    """Returns the time and memory of encoding and mining, and the precision and recall."""
    values = flags.FLAGS
    languages = values.source, values.target
    hidden = [pair for pair, _ in read_parallel(Path(values.texts))]
    texts = [{pair.source for pair in hidden}, {pair.target for pair in hidden}]
    others = without_translations(
        read_pairs(values.data, languages, sys.maxsize), set.union(*texts)
    )
    figures: dict[str, Any] = {"planted": len(hidden), "sentences": values.sentences}
    with tempfile.TemporaryDirectory() as work:
        for language, known, distractors in zip(languages, texts, others, strict=True):
            sentences = [*known, *itertools.islice(recombined(distractors), values.sentences)]
            np.random.default_rng(1).shuffle(sentences)
            lines = Path(work, f"{language}.txt")
            lines.write_text("".join(f"{text}\n" for text in sentences), encoding="utf-8")
            encode = [f"--model={values.model}", f"--input={lines}", f"--output={work}/{language}"]
            figures[f"encoding {language}"] = _run("export/encode.py", *encode, "--precision=int8")
        source, target = (f"{work}/{language}" for language in languages)
        mine = [
            source,
            target,
            f"--output={work}/mined.tsv",
        ]
        figures["mining"] = _run(
            "data/mine.py", *mine, "--threshold=0", f"--memory={values.memory}"
        )
        rows = [line.split("\t") for _, line in read_every_line(Path(work, "mined.tsv"))][1:]
    return figures | precision_and_recall([(float(row[2]), row[0], row[1]) for row in rows], hidden)


def without_translations(
    pairs: Sequence[tuple[str, str]], excluded: set[str]
) -> tuple[list[str], list[str]]:
    """Takes one side of each pair that shares no text with earlier ones or with those excluded."""
    sides: tuple[list[str], list[str]] = ([], [])
    used = {_normal(text) for text in excluded}
    for pair in sorted(pairs):
        texts = {*map(_normal, pair)}
        if used.isdisjoint(texts):
            side = crc32(pair[0].encode()) % 2
            sides[side].append(pair[side])
        used |= texts
    for texts_of_side in sides:
        np.random.default_rng(0).shuffle(texts_of_side)
    return sides


def _normal(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def recombined(texts: list[str]) -> Iterator[str]:
    """Yields texts, then new ones: the first half of a text of four words or more with another's
    second.

    If there are no more, raises a `UserError`.
    """
    yield from texts
    words = [text.split() for text in texts if len(text.split()) > 3]
    seen, rng = {*texts}, np.random.default_rng(0)
    count = -1
    while words and len(seen) > count:
        count = len(seen)
        for first, second in rng.integers(len(words), size=(10_000, 2)).tolist():
            first_half, second_half = words[first], words[second]
            half = " ".join(
                [*first_half[: len(first_half) // 2], *second_half[len(second_half) // 2 :]]
            )
            if half not in seen:
                seen.add(half)
                yield half
    raise UserError(
        f"--data gives only {len(seen)} sentences without translations; give fewer --sentences"
    )


def _run(program: str, *arguments: str) -> dict[str, float]:
    """Runs a program; its seconds and its peak memory."""
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, str(ROOT / program), *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise UserError(f"{program} failed with the error above; correct it")
    return {
        "seconds": round(time.monotonic() - start),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime),
        "peak_gib": round(usage.ru_maxrss / 2**20, 2),
    }


def precision_and_recall(
    mined: list[tuple[float, str, str]], hidden: list[TranslationPair]
) -> dict[str, Any]:
    """Chooses the threshold on one half of the hidden sentences, and measures it on the other."""
    # Nobody knows which other pairs are right: templates and near-translations are among them.
    right = {(pair.source, pair.target) for pair in hidden}
    sources, targets = ({*side} for side in zip(*right, strict=True))
    by_half: list[list[tuple[float, bool]]] = [[], []]
    for score, source, target in mined:
        if source in sources or target in targets:
            by_half[crc32(source.encode()) % 2].append((score, (source, target) in right))
    num_right = Counter(crc32(source.encode()) % 2 for source, _ in right)

    def measure(half: int, threshold: float) -> tuple[float, float, float]:
        hits = [is_right for score, is_right in by_half[half] if score >= threshold]
        precision, recall = sum(hits) / max(1, len(hits)), sum(hits) / max(1, num_right[half])
        return 2 * precision * recall / max(1e-9, precision + recall), precision, recall

    threshold = max(np.arange(1.0, 2.0, 0.01).tolist(), key=lambda threshold: measure(0, threshold))
    f1, precision, recall = (round(100 * value, 1) for value in measure(1, threshold))
    others = (s for s, source, target in mined if source not in sources and target not in targets)
    return {
        **{"threshold": round(threshold, 2), "precision": precision, "recall": recall, "f1": f1},
        "pairs_of_others": sum(score >= threshold for score in others),
    }


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "The exported model.", required=True)
    flags.DEFINE_string("texts", None, "File of the pairs to hide.", required=True)
    flags.DEFINE_string("data", str(SAMPLE_FOLDER), "Folder of corpora from which the others come.")
    flags.DEFINE_string("source", "en", "Language of the first texts.")
    flags.DEFINE_string("target", "es", "Language of the second texts.")
    flags.DEFINE_integer("sentences", 100_000, "Number of others on each side.", lower_bound=1)
    flags.DEFINE_float("memory", 4, "GiB to use.")
    flags.DEFINE_string("output", "evaluation/results/mining.json", "Results file.")
    run_benchmark(measure, extra="bulk")
