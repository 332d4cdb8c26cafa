"""Measures time and memory by sentence length and batch size (Yang et al. 2019, sec. 7 and figure
2).

    python evaluation/benchmarks/resources.py --model exported/en-es
"""

import itertools
import statistics
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import MIB, resident_bytes, run_benchmark, seconds_of
from xling_tf.program import quiet_start
from xling_tf.sentence_encoder import SentenceEncoder

_SIZES = (1, 4, 16, 64, 256)  # words of a sentence, and sentences of a batch
# Common words: most encoders have a token for each.
_WORDS = "a all and as at be but by can do for from go have he in it make not of on one out say see"


def usage(
    encode: Callable[[list[str]], Any], lengths: Sequence[int], batches: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Measures the median call of each length and batch, and how memory grows in the first one.

    Every sentence ends in a new number, so that no cache of texts has it. A batch is encoded once
    to warm up, then until three calls and 0.3 seconds are reached, or 20 calls or 4 seconds.
    """
    rng, numbers = np.random.default_rng(0), itertools.count(1000)

    def compose(length: int, batch: int) -> list[str]:
        words = rng.choice(_WORDS.split(), [batch, length - 1]).tolist()
        return [" ".join([*row, str(next(numbers))]) for row in words]

    encode(compose(1, 1))  # loading and compiling do not count
    before = resident_bytes()
    figures = {}
    # From few words to many: memory that is kept after a large batch would hide a small one's.
    for length, batch in sorted(itertools.product(lengths, batches), key=np.prod):
        peak = _peak_bytes(partial(encode, compose(length, batch)))
        times: list[float] = []
        while len(times) < 20 and sum(times) < 4 and (len(times) < 3 or sum(times) < 0.3):
            times.append(seconds_of(partial(encode, compose(length, batch))))
        figures[f"{batch} of {length} words"] = {
            "milliseconds": 1000 * statistics.median(times),
            "sentences_per_second": batch / statistics.median(times),
            "memory_growth_mib": max(0, peak - before) / MIB,
        }
    return figures


def _peak_bytes(call: Callable[[], object]) -> int:
    """The largest memory use during a call."""
    peak, is_over = resident_bytes(), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_over.wait(0.002):
            peak = max(peak, resident_bytes())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        call()
    finally:
        is_over.set()
        watcher.join()
    return max(peak, resident_bytes())


def measure() -> dict[str, Any]:
    """Measures the exported model."""
    with quiet_start():
        encoder = SentenceEncoder(flags.FLAGS.model)
    return usage(encoder.encode, _SIZES, _SIZES)


if __name__ == "__main__":
    flags.DEFINE_string(
        "model", None, "The exported model, as xling_tf.load takes it.", required=True
    )
    flags.DEFINE_string("output", "evaluation/results/resources.json", "Results file.")
    run_benchmark(measure, extra="evaluation")
