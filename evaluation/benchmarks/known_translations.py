r"""Measures the margins that known translations choose: the precision that pairs then have.

python evaluation/benchmarks/known_translations.py --model exported/use-multilingual \
        --input DIR/parallel/tatoeba.en-de.tsv.gz --input data/raw/pairs.en-eu/applications.tsv

Of each file's pairs, 300 are known and 500 are hidden; of others, one side each is among the texts.
No two texts are alike, but others may still be near-translations, which count as wrong.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # works in a checkout without installation

import numpy as np
from absl import flags, logging
from numpy.typing import NDArray

from evaluation.benchmarks.mining import without_translations
from evaluation.benchmarks.workloads import run_benchmark
from xling_tf.client.known_translations import as_known
from xling_tf.client.neighbours import nearest
from xling_tf.client.search import MIN_MARGIN, NUM_NEIGHBOURS, best_pairs, margin_by_known
from xling_tf.corpora.readers import read_parallel
from xling_tf.errors import UserError

_KNOWN, _HIDDEN, _ROUNDS = 300, 500, 4
_CHARACTERS = range(15, 200)
_PRECISIONS = (0.5, 0.7, 0.9)


def measure() -> dict[str, Any]:
    """Returns the precision and recall by file and wanted precision, means of four rounds."""
    from xling_tf.sentence_encoder import SentenceEncoder

    values = flags.FLAGS
    model = SentenceEncoder(values.model)
    figures: dict[str, Any] = {"known": _KNOWN, "hidden": _HIDDEN}
    for path in map(Path, values.input):
        pairs = [p for p, _ in read_parallel(path) if len(p.source) in _CHARACTERS]
        order = np.random.default_rng(0).permutation(len(pairs))
        kept = [(pairs[n].source, pairs[n].target) for n in order[: 2 * (_KNOWN + _HIDDEN)]]
        rest = [(pairs[n].source, pairs[n].target) for n in order[2 * (_KNOWN + _HIDDEN) :]]
        others = without_translations(rest, {text for pair in kept for text in pair})
        size = min(values.sentences, *map(len, others))
        sides = [
            (model.encode([pair[side] for pair in kept]), model.encode(others[side][:size]))
            for side in (0, 1)
        ]
        rounds = [_round(sides, len(kept), seed) for seed in range(_ROUNDS)]
        figures[path.name] = {"others": size, "rounds": rounds}
        logging.info("%s: %s", path.name, figures[path.name])
    return figures


def _round(
    sides: list[tuple[NDArray[np.float32], NDArray[np.float32]]], count: int, seed: int
) -> dict[str, Any]:
    """Returns what the default margin and the chosen ones give for one choice of known pairs."""
    chosen = np.random.default_rng(seed).permutation(count)[: _KNOWN + _HIDDEN]
    first, second = (np.concatenate([kept[chosen], others]) for kept, others in sides)
    forward = [nearest(first, second, NUM_NEIGHBOURS)]
    backward = [nearest(second, first, NUM_NEIGHBOURS)]
    pairs = best_pairs(forward, backward)
    is_other = np.minimum(pairs.firsts, pairs.seconds) >= _KNOWN
    is_right = is_other & (pairs.firsts == pairs.seconds) & (pairs.firsts < _KNOWN + _HIDDEN)

    def scores(margin: float) -> dict[str, float]:
        is_kept = pairs.margins >= margin
        right, kept = (int(np.sum(which & is_kept)) for which in (is_right, is_other))
        return {
            "margin": round(margin, 4),
            "pairs": kept,
            "precision": round(right / max(1, kept), 3),
            "recall": round(right / _HIDDEN, 3),
        }

    results: dict[str, Any] = {"default": scores(MIN_MARGIN)}
    known = as_known([(row, row) for row in range(_KNOWN)])
    for precision in _PRECISIONS:
        try:
            choice = margin_by_known(forward, backward, pairs, known, precision)
        except UserError as error:
            results[f"{precision}"] = str(error)
        else:
            results[f"{precision}"] = scores(choice.margin)
    return results


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "The exported model.", required=True)
    flags.DEFINE_multi_string("input", None, "Files of translations. Repeatable.", required=True)
    flags.DEFINE_integer("sentences", 4000, "Others on each side, at most.", lower_bound=1)
    flags.DEFINE_string("output", "evaluation/results/known.json", "Results file.")
    run_benchmark(measure, extra="tensorflow")
