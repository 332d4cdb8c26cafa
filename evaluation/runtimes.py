"""Compares an exported model in TensorFlow with what was made of it for LiteRT and ONNX Runtime.

    python export/main.py --model exported/en-es --litert exported/en-es-litert --onnx exported/en-es-onnx
    python evaluation/runtimes.py --model exported/en-es --litert exported/en-es-litert \
        --onnx exported/en-es-onnx --texts sentences.txt --output evaluation/results/runtimes-en-es.json

Each of the three has a process of its own, for its memory and its start; they encode in turn, while the
others wait, so that the ratios of their speeds hold on a busy machine too.
"""

import importlib.metadata
import json
import multiprocessing
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import psutil
from absl import app, flags

from xling_tf.errors import UserError, one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.files import provenance, replacing
from xling_tf.sentence_encoder import SentenceEncoder

_MODEL = flags.DEFINE_string("model", None, "Folder of the exported model.", required=True)
_LITERT = flags.DEFINE_string("litert", None, "Folder of it for LiteRT.", required=True)
_ONNX = flags.DEFINE_string("onnx", None, "Folder of it for ONNX Runtime.", required=True)
_TEXTS = flags.DEFINE_string("texts", None, "File of sentences, a line each.", required=True)
_COUNT = flags.DEFINE_integer("count", 2000, "Sentences taken of it.", lower_bound=1)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Times that speeds are measured.", lower_bound=1)
_OUTPUT = flags.DEFINE_string("output", None, "Where the figures are written; without it, nowhere.")

_opened: dict[str, Any] = {}  # of a process of its own: the one encoder there


def main(argv: list[str]) -> None:
    """Runs the comparison, prints its figures and writes them."""
    del argv
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        text = json.dumps(_compare(_read_texts()), indent=2)
        print(text)
        if _OUTPUT.value:
            with replacing(Path(_OUTPUT.value)) as temporary:
                temporary.write_text(text + "\n", encoding="utf-8")


def _read_texts() -> list[str]:
    try:
        lines = Path(_TEXTS.value).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--texts must be a file of UTF-8 text, a sentence a line, but cannot be read: {error}"
        ) from error
    return [line for line in lines if line.strip()][: _COUNT.value]


def _compare(texts: Sequence[str]) -> Mapping[str, Any]:
    folders = {"tensorflow": _MODEL.value, "litert": _LITERT.value, "onnx": _ONNX.value}
    own = multiprocessing.get_context("spawn")
    pools = {name: ProcessPoolExecutor(1, mp_context=own) for name in folders}
    figures = {name: pools[name].submit(_open, name, folders[name]).result() for name in pools}
    first = {name: pool.submit(_encode, texts).result() for name, pool in pools.items()}
    rounds = [
        {name: pool.submit(_encode, texts).result()[1] for name, pool in pools.items()}
        for _ in range(_REPEATS.value)
    ]
    expected = first["tensorflow"][0]
    for name, pool in pools.items():
        figures[name] |= {
            **pool.submit(_memory).result(),
            "sentences_per_second": len(texts) / statistics.median(r[name] for r in rounds),
            "speed_to_tensorflow": statistics.median(r["tensorflow"] / r[name] for r in rounds),
            "largest_difference": float(np.abs(first[name][0] - expected).max()),
            # SentencePiece's versions cut some runs of one character in another of equally likely ways.
            "texts_with_other_tokens": int((np.abs(first[name][0] - expected).max(1) > 1e-4).sum()),
            "least_cosine": float((first[name][0] * expected).sum(axis=1).min()),
        }
        pool.shutdown()
    return {"texts": len(texts), **figures, **_provenance(folders)}


def _open(name: str, folder: str) -> dict[str, float]:
    """Opens an encoder in this process, and says what that took."""
    begin = time.perf_counter()
    if name == "tensorflow":
        with quiet_start():
            _opened["encoder"] = SentenceEncoder.load(folder)
    else:
        from xling_tf.hub.runtimes import load

        _opened["encoder"] = load(folder)
    _opened["encoder"].encode(["one"])
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {
        "seconds_to_first_vector": time.perf_counter() - begin,
        "disk_mib": sum(path.stat().st_size for path in files) / 2**20,
    }


def _encode(texts: Sequence[str]) -> tuple[np.ndarray, float]:
    """Vectors of the texts, and the seconds that they took."""
    begin = time.perf_counter()
    vectors = _opened["encoder"].encode(texts)
    return vectors, time.perf_counter() - begin


def _memory() -> dict[str, float]:
    return {"resident_mib": psutil.Process().memory_info().rss / 2**20}


def _provenance(folders: Mapping[str, str]) -> Mapping[str, Any]:
    """Where folders and files lie is nobody's business."""
    places = {*folders.values(), _TEXTS.value}
    words = [word.rpartition("=") for word in sys.argv]
    named = [
        f"{flag}{sign}DIR/{Path(value).name}" if value in places else f"{flag}{sign}{value}"
        for flag, sign, value in words
    ]
    command = shlex.join(["python", *named])
    versions = {name: importlib.metadata.version(name) for name in ("ai-edge-litert", "onnxruntime")}
    found = provenance()
    return {**found, "command": command, "versions": found["versions"] | versions}


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
