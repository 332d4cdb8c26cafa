r"""Measures what an average of words loses by fewer numbers, bits and megabytes.

    python evaluation/benchmarks/sizes.py --model exported/multilingual-mini \
        --run_dir runs/multilingual-mini --data DATA

Each export is scored on the translations that the training held out, and, with --data, on STS
Benchmark in the languages that DATA/eval/sts has.
"""

import multiprocessing
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import run_benchmark
from xling_tf.client.word_averages import WEIGHTS, read_tensors
from xling_tf.corpora.store import CorpusStore
from xling_tf.exporters.base import export
from xling_tf.files import folder_bytes
from xling_tf.sentence_encoder import load
from xling_tf.trainer.validation import main_scores, score_encoder

_MODEL = flags.DEFINE_string("model", None, "The exported average of words.", required=True)
_RUN_DIR = flags.DEFINE_string("run_dir", None, "Run folder of its training.", required=True)
_DATA = flags.DEFINE_string("data", None, "Folder of evaluation data.")
flags.DEFINE_string("output", "evaluation/results/wheel-sizes.json", "Results file.")

# Numbers of a vector, bits of a number, and megabytes at most.
_SIZES = (
    *((384, bits, megabytes) for bits in (8, 4) for megabytes in (200.0, 40.0, 19.0, 10.0)),
    (128, 4, 19.0),
    (64, 4, 19.0),
)


def measure() -> dict[str, Any]:
    """Returns the size and the scores of each export, and of the model itself."""
    sizes = {
        f"{dim} numbers of {bits} bits, {megabytes:g} MB": (dim, bits, megabytes)
        for dim, bits, megabytes in _SIZES
    }
    context = multiprocessing.get_context("spawn")
    # A process each: TensorFlow keeps the memory of a model that it has exported.
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1) as pool:
        return {
            name: pool.submit(_scored, _MODEL.value, _RUN_DIR.value, _DATA.value, size).result()
            for name, size in {"SavedModel": None, **sizes}.items()
        }


def _scored(
    model: str, run_dir: str, data: str | None, size: tuple[int, int, float] | None
) -> dict[str, Any]:
    """Returns the size and the scores of an export; of the model itself without `size`."""
    corpora = CorpusStore(Path(run_dir) / "corpora").corpora
    languages = [code for pair in {c.languages for c in corpora} for code in pair.split("-")]
    languages = list(dict.fromkeys(["en", *sorted(languages)]))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(model)
        if size:
            dim, bits, megabytes = size
            folder = Path(temporary, "exported")
            export(model, "numpy", folder, dim=dim, bits=bits, megabytes=megabytes)
        stored = {}
        if size:
            words = read_tensors(folder / WEIGHTS)["words"]
            stored = {"words": len(words), "numbers": words.shape[1] * 8 // size[1]}
        encode = load(folder).encode
        scores = score_encoder(encode, languages, corpora, Path(data) if data else None)
        return {"megabytes": folder_bytes(folder) / 1e6, **stored, **_summary(scores)}


def _summary(scores: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Returns P@1 by language as the mean of both directions, its mean, and STS Benchmark's."""
    precisions, similarity = main_scores(scores)
    retrieval = {code: float(np.mean(both)) for code, both in precisions.items()}
    means = {"retrieval": float(np.mean([*retrieval.values()]))}
    if similarity:
        means["similarity"] = float(np.mean([*similarity.values()]))
    return {**means, "by language": retrieval, "by data set": similarity}


if __name__ == "__main__":
    run_benchmark(measure, "data")
