"""Measures time and memory by sentence length and batch size (Yang et al. 2019, sec. 7 and figure 2).

    python evaluation/benchmark_resources.py --model exported/en-es

The suite `resources` of the model's results, where evaluation/report.py finds it, has the figures.
"""

import itertools
import statistics
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works in a checkout without installation

import numpy as np
from absl import flags

from evaluation.workloads import MIB, resident_bytes, seconds_of
from xling_tf.evaluators.data import Dataset
from xling_tf.evaluators.encoding import Encode, as_embedder, encode_checked
from xling_tf.program import format_table, quiet_start, run

_SIZES = (1, 4, 16, 64, 256)
# Common words: most encoders have a token for each.
_WORDS = "a all and as at be but by can do for from go have he in it make not of on one out say see"


class ResourceUsage:
    """Time and memory of encoding batches of sentences of one length; depends on the machine.

    Every sentence ends in a new number, so that no cache of texts has it. A batch is encoded once to warm
    up, then until three calls and 0.3 seconds are reached, or 20 calls or 4 seconds.

    Args:
        lengths: Sentence lengths in words.
        batches: Batch sizes.
        seed: Seed of the sentences.
    """

    name = "figure2"
    protocol: Mapping[str, Any]

    def __init__(self, lengths: Sequence[int], batches: Sequence[int], seed: int = 0) -> None:
        self.protocol = {"lengths_in_words": list(lengths), "batches": list(batches), "seed": seed}
        # From few words to many: memory that is kept after a large batch would hide that of a small one.
        self._cells = sorted(itertools.product(lengths, batches), key=np.prod)
        self._rng = np.random.default_rng(seed)
        self._numbers = itertools.count(1000)

    def __call__(self, encode: Encode) -> dict[str, float]:
        """Returns "length_<n>/batch_<m>/sentences_per_second", ".../milliseconds" of the median call, and
        ".../memory_growth_mib" of this process during the first call, if the model is in it.
        """
        description = as_embedder(encode).description
        self.protocol = {**self.protocol, "device": description.get("device", "unknown")}
        encode_checked(encode, self._compose(1, 1))  # loading and compiling do not count
        before = resident_bytes()
        scores: dict[str, float] = {}
        for length, batch in self._cells:
            cell, texts = f"length_{length}/batch_{batch}", self._compose(length, batch)
            peak = _peak_bytes(partial(encode_checked, encode, texts))
            times: list[float] = []
            while len(times) < 20 and sum(times) < 4 and (len(times) < 3 or sum(times) < 0.3):
                times.append(seconds_of(partial(encode, self._compose(length, batch))))
            median = statistics.median(times)
            scores[f"{cell}/sentences_per_second"] = batch / median
            scores[f"{cell}/milliseconds"] = 1000 * median
            if "url" not in description:
                scores[f"{cell}/memory_growth_mib"] = max(0, peak - before) / MIB
        return scores

    def _compose(self, length: int, batch: int) -> list[str]:
        words = self._rng.choice(_WORDS.split(), [batch, length - 1]).tolist()
        return [" ".join([*row, str(next(self._numbers))]) for row in words]


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


def main() -> None:
    """Adds the figures to the model's results."""
    from xling_tf.evaluators.embedders import open_embedder
    from xling_tf.evaluators.running import evaluate_embedder

    with quiet_start():
        embedder = open_embedder(flags.FLAGS.model)
    output = Path(flags.FLAGS.output or f"runs/evaluation/{embedder.name}.json")
    dataset = Dataset(name="figure2", files=(), load=partial(ResourceUsage, _SIZES, _SIZES))
    datasets = {"resources/figure2": dataset}
    results = evaluate_embedder(embedder, datasets, output, missing={}, folder=Path.cwd(), seed=0)
    print(format_table({"figure2": results["scores"]["resources"]["figure2"]}))


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Model, as evaluation/main.py takes it.", required=True)
    flags.DEFINE_string("output", None, "Results file; default runs/evaluation/<name>.json.")
    run(main, "the same command starts again", extra="evaluation")
