r"""Compares a model with its exports to LiteRT, ONNX Runtime and JavaScript.

    python evaluation/benchmarks/runtimes.py --model exported/en-es --litert DIR --onnx DIR \
        --texts FILE
    python evaluation/benchmarks/runtimes.py --model exported/multilingual-static --npm DIR \
        --texts FILE

Each has its own process, in which its memory and start are measured. TensorFlow, LiteRT and ONNX
Runtime take turns to encode, so that the ratios of their speeds hold on a busy machine too. Node's
speed is in seconds of its core. An npm package has other numbers in its vectors than the model, so
that cosines are compared: those of each text and the next.
"""

import importlib.metadata
import json
import multiprocessing
import statistics
import subprocess
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
_LITERT = flags.DEFINE_string("litert", None, "Folder of its LiteRT export.")
_ONNX = flags.DEFINE_string("onnx", None, "Folder of its ONNX export.")
_NPM = flags.DEFINE_string("npm", None, "Folder of its npm package, unpacked.")
_TEXTS = flags.DEFINE_string("texts", None, "File of sentences, a line each.", required=True)
flags.DEFINE_string("output", "evaluation/results/runtimes.json", "Results file.")

# Encodes the texts of standard input with the package in a folder, some times over.
_NODE = """
import { readFileSync } from "node:fs";
const started = performance.now();
const { load } = await import(process.argv[1] + "/index.js");
const model = await load();
model.encode("one");
const seconds_to_first_vector = (performance.now() - started) / 1000;
const texts = JSON.parse(readFileSync(0, "utf8"));
const rounds = [];
let vectors;
for (let i = 0; i < Number(process.argv[2]); i++) {
  const before = process.cpuUsage().user;
  vectors = model.encode(texts);
  rounds.push(texts.length / ((process.cpuUsage().user - before) / 1e6));
}
const cosines = texts.slice(1).map((_, i) => model.similarity(vectors[i], vectors[i + 1]));
const resident_mib = process.memoryUsage().rss / 2 ** 20;
const node = process.version;
console.log(JSON.stringify({ seconds_to_first_vector, resident_mib, rounds, cosines, node }));
"""

_opened: dict[str, Any] = {}  # the encoder of a child process


def measure() -> dict[str, Any]:
    """Returns sizes, speeds and memory, and how far the vectors are from the model's."""
    texts = read_texts(_TEXTS.value)
    given = {"tensorflow": _MODEL.value, "litert": _LITERT.value, "onnx": _ONNX.value}
    folders = {name: folder for name, folder in given.items() if folder}
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
    if _NPM.value:
        figures["npm"] = _measure_npm(Path(_NPM.value).resolve(), texts, expected)
    versions = {n: importlib.metadata.version(n) for n in ("ai-edge-litert", "onnxruntime")}
    return {"texts": len(texts), **figures, "runtime_versions": versions}


def _measure_npm(folder: Path, texts: Sequence[str], expected: np.ndarray) -> dict[str, Any]:
    """Returns the figures of the npm package in Node."""
    command = ["node", "--input-type=module", "-e", _NODE, str(folder), str(ROUNDS)]
    run = subprocess.run(
        command, input=json.dumps(texts), text=True, check=True, capture_output=True
    )
    found = json.loads(run.stdout)
    first, *others = found.pop("rounds")
    cosines = np.sum(expected[:-1] * expected[1:], axis=1)
    difference = np.abs(np.array(found.pop("cosines")) - cosines)
    return {
        **found,
        "disk_mib": folder_bytes(folder) / MIB,
        "sentences_per_second_of_a_core": {"first": first, "later": statistics.median(others)},
        "mean_difference_of_cosines": float(difference.mean()),
        "largest_difference_of_cosines": float(difference.max()),
    }


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
