r"""Compares a model with its exports to LiteRT and ONNX Runtime.

    python evaluation/benchmarks/runtimes.py --model exported/en-es --litert DIR --onnx DIR \
        --texts FILE

Each of the three has its own process, in which its memory and start are measured. They take turns
to encode, so that the ratios of their speeds hold on a busy machine too.
"""

import importlib.metadata
import multiprocessing
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import MIB, ROUNDS, read_texts, resident_bytes, run_benchmark
from xling_tf.files import folder_bytes
from xling_tf.sentence_encoder import SentenceEncoder

_MODEL = flags.DEFINE_string("model", None, "The exported model.", required=True)
_LITERT = flags.DEFINE_string("litert", None, "Folder of its LiteRT export.", required=True)
_ONNX = flags.DEFINE_string("onnx", None, "Folder of its ONNX export.", required=True)
_TEXTS = flags.DEFINE_string("texts", None, "File of sentences, a line each.", required=True)
flags.DEFINE_string("output", "evaluation/results/runtimes.json", "Results file.")

_opened: dict[str, Any] = {}  # the encoder of a child process


def measure() -> dict[str, Any]:
    """Returns the sizes, speeds and memory of the three, and how far their vectors are apart."""
    texts = read_texts(_TEXTS.value)
    folders = {"tensorflow": _MODEL.value, "litert": _LITERT.value, "onnx": _ONNX.value}
    context = multiprocessing.get_context("spawn")
    pools = {name: ProcessPoolExecutor(1, mp_context=context) for name in folders}
    figures = {name: pools[name].submit(_open, folders[name]).result() for name in pools}
    first = {name: pool.submit(_encode, texts).result() for name, pool in pools.items()}
    rounds = [
        {name: pool.submit(_encode, texts).result()[1] for name, pool in pools.items()}
        for _ in range(ROUNDS)
    ]
    expected = first["tensorflow"][0]
    for name, pool in pools.items():
        difference = np.abs(first[name][0] - expected)
        figures[name] |= {
            "resident_mib": pool.submit(resident_bytes).result() / MIB,
            "sentences_per_second": len(texts) / statistics.median(r[name] for r in rounds),
            "speed_to_tensorflow": statistics.median(r["tensorflow"] / r[name] for r in rounds),
            "largest_difference": float(difference.max()),
            # SentencePiece's versions split some runs of one character differently; the splits are
            # equally likely.
            "texts_with_other_tokens": int((difference.max(axis=1) > 1e-4).sum()),
            "least_cosine": float((first[name][0] * expected).sum(axis=1).min()),
        }
        pool.shutdown()
    versions = {n: importlib.metadata.version(n) for n in ("ai-edge-litert", "onnxruntime")}
    return {"texts": len(texts), **figures, "runtime_versions": versions}


def _open(folder: str) -> dict[str, float]:
    """Opens an encoder here; returns the time until its first vector and its size on disk."""
    begin = time.perf_counter()
    _opened["encoder"] = SentenceEncoder(folder)
    _opened["encoder"].encode(["one"])
    return {
        "seconds_to_first_vector": time.perf_counter() - begin,
        "disk_mib": folder_bytes(Path(folder)) / MIB,
    }


def _encode(texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """Returns the vectors of the texts, and the seconds that they took."""
    begin = time.perf_counter()
    vectors = _opened["encoder"].encode(texts)
    return vectors, time.perf_counter() - begin


if __name__ == "__main__":
    run_benchmark(measure, extra="evaluation")
