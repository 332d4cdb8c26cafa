"""Measures training and encoding beside the machine's matrix products and other libraries, by
turns.

    python evaluation/benchmarks/speed.py --data DIR

Exported models, on the same sentences:

    python evaluation/benchmarks/speed.py --model exported/a,exported/b --texts FILE

And other libraries, whose environment it makes; an import beside its origin, with --preset
e5-best --data DIR also its training:

    make peers ARGS="--data DIR"
    make peers ARGS="--model exported/minilm --peer FOLDER --texts FILE"
"""

import json
import statistics
import sys
import tempfile
import timeit
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import (
    MAX_TEXTS,
    RANKING_ALONE,
    ROUNDS,
    flops_per_token,
    peers,
    read_pairs,
    read_texts,
    run_benchmark,
    seconds_of,
)
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.presets import get_preset
from xling_tf.program import quiet_start
from xling_tf.savedmodel.saved_models import model_name
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.settings import apply_overrides

_PRESET = flags.DEFINE_string(
    "preset", "multi-task", "Preset, which is trained on translation ranking alone."
)
_STEPS = flags.DEFINE_integer("steps", 30, "Number of measured steps.", lower_bound=2)
_DATA = flags.DEFINE_string("data", str(SAMPLE_FOLDER), "Folder of corpora.")
_SOURCE = flags.DEFINE_string("source", "en", "Source language.")
_TARGET = flags.DEFINE_string("target", "es", "Target language.")
_PYTHON = flags.DEFINE_string("python", None, "Interpreter of other libraries, by make peers.")
_MODEL = flags.DEFINE_string(
    "model", None, "Published CNN beside its ONNX file; or models, separated by commas."
)
_PEER = flags.DEFINE_string("peer", None, "Folder of --model for sentence-transformers.")
_TEXTS = flags.DEFINE_string("texts", None, "With --model: file of sentences, a line each.")
flags.DEFINE_string("output", "evaluation/results/peers.json", "Results file.")

_WARM_UP_STEPS = 5
# Functions that return sentences per second, by workload and system.
_Workloads = Mapping[str, Mapping[str, Callable[[], float]]]


def measure() -> dict[str, Any]:
    """Measures models that are given, or models that are trained first."""
    if _PEER.value and not (_TEXTS.value and _MODEL.value and _PYTHON.value):
        raise UserError("--peer needs --texts, --model and --python; give all of them")
    if _TEXTS.value and not _MODEL.value:
        raise UserError("--texts needs --model: one model, or several with commas between them")
    with quiet_start():
        import tensorflow  # noqa: F401
    if _PEER.value and _MODEL.value and _TEXTS.value:
        return _measure_imported(_PEER.value, _MODEL.value, _TEXTS.value)
    if _MODEL.value and _TEXTS.value:
        return _measure_models(_MODEL.value.split(","), _TEXTS.value)
    return _measure_trained()


def _measure_models(folders: Sequence[str], file: str) -> dict[str, Any]:
    texts = read_texts(file)
    models = {model_name(folder): _all(SentenceEncoder(folder), texts) for folder in folders}
    return {"texts": len(texts), "sentences_per_second": _compare({"encoding": models}, {}, ())}


def _measure_imported(peer: str, folder: str, file: str) -> dict[str, Any]:
    from xling_tf.trainer.resolution import matmul_gflops

    texts = read_texts(file)
    model = SentenceEncoder(folder)
    ours = {
        "encoding": {"xling_tf": _all(model, texts)},
        "one sentence": {"xling_tf": _each(model, texts)},
    }
    pairs = _sample() if get_preset(_PRESET.value).initial.model else []
    inputs = {"texts": texts, "pairs": pairs, "model": str(Path(peer).absolute())}
    with tempfile.TemporaryDirectory() as work:
        if pairs:
            start = f"initial.model={folder}"
            ours["training"] = {"xling_tf": lambda: _training_rate(pairs, work, start)}
        # Without hardware for bfloat16, a step of PyTorch takes hours.
        is_faster = matmul_gflops("bfloat16") > 1.2 * matmul_gflops("float32")
        figures = _compare(ours, inputs, ("float32", "bfloat16")[: 1 + is_faster])
    return {"texts": len(texts), "sentences_per_second": figures}


def _sample() -> list[tuple[str, str]]:
    """The translations in a data folder, in random order."""
    pairs = read_pairs(_DATA.value, (_SOURCE.value, _TARGET.value), MAX_TEXTS)
    np.random.default_rng(0).shuffle(pairs)
    return pairs


def _training_rate(pairs: Sequence[tuple[str, str]], folder: str, *settings: str) -> float:
    """Trains in a folder of that folder, and returns sentences per second."""
    trained = _train(pairs, Path(tempfile.mkdtemp(dir=folder), "model"), *settings)
    return float(trained["sentences"] / trained["seconds"])


def _measure_trained() -> dict[str, Any]:
    import tensorflow as tf

    from xling_tf.model import Model
    from xling_tf.trainer.resolution import matmul_gflops

    # More pairs than are measured, so that the word tables are as large as in use.
    pairs = _sample()
    sample = pairs[: MAX_TEXTS // 2]
    texts = [text for pair in sample for text in pair]
    # A shared machine is slow at times: its best rate is the limit.
    limits = {dtype: matmul_gflops(dtype) for dtype in ("float32", "bfloat16")}
    with tempfile.TemporaryDirectory() as folder:
        paths = {"encoding": Path(folder, "trained")}
        steps = _train(pairs, paths["encoding"])
        if _PYTHON.value:
            paths["average of words"] = Path(folder, "average")
            _train(pairs, paths["average of words"], "encoder.kind=static")
        if _MODEL.value:
            paths["published CNN"] = Path(_MODEL.value)
        trained = Model.from_pretrained(paths["encoding"])
        # bfloat16 only if training finds it faster.
        dtypes = ("float32", "bfloat16")[: 1 + (steps["precision"] == "mixed_bfloat16")]
        # On GPUs, models encode in float32 alone.
        encoding = dtypes[:1] if tf.config.list_physical_devices("GPU") else dtypes
        models = {
            name: {f"xling_tf, {dtype}": SentenceEncoder(path, dtype) for dtype in encoding}
            for name, path in paths.items()
        }
        ours = {
            "training": {"xling_tf": lambda: _training_rate(pairs, folder)},
            "one sentence": {"xling_tf": _each(models["encoding"]["xling_tf, float32"], texts)},
            **{
                name: {system: _all(model, texts) for system, model in systems.items()}
                for name, systems in models.items()
            },
        }
        figures = _compare(
            ours, {"texts": texts, "pairs": sample, "shape": trained.encoder_settings}, dtypes
        )
    limits = {dtype: max(limit, matmul_gflops(dtype)) for dtype, limit in limits.items()}
    tokens = trained.tokenizer.tokenize(texts).flat_values.shape[0]
    flops, shares = flops_per_token(trained.encoder_settings) / 1e9, {}
    for name, system, dtype, per_sentence in (
        ("training", "xling_tf", dtypes[-1], 3 * flops * steps["tokens"] / steps["sentences"]),
        ("encoding", "xling_tf, float32", "float32", flops * tokens / len(texts)),
    ):
        gflops = figures[name][system] * per_sentence
        shares[name] = {
            "dtype": dtype,
            "gflops": gflops,
            "fraction_of_ceiling": gflops / limits[dtype],
        }
    counts = {"texts": len(texts), "tokens": tokens, "ceiling_gflops": limits}
    return {**counts, **(shares if flops else {}), "sentences_per_second": figures}


def _train(pairs: Sequence[tuple[str, str]], output: Path, *settings: str) -> dict[str, Any]:
    """Trains and exports the preset: its steps' sentences, tokens, seconds and precision."""
    from xling_tf.trainer.context import Run
    from xling_tf.trainer.experiment import run_experiment
    from xling_tf.trainer.fine_tuning import PairCorpus

    languages = _SOURCE.value, _TARGET.value
    data = (f"data.source={languages[0]}", f"data.targets={languages[1]}")
    budget = ("training.minutes=0", f"training.steps={_WARM_UP_STEPS + _STEPS.value}")
    config = apply_overrides(get_preset(_PRESET.value), [*RANKING_ALONE, *data, *budget, *settings])
    with tempfile.TemporaryDirectory() as run_dir:
        run = Run(
            name=_PRESET.value,
            config=config,
            corpora=[PairCorpus.from_pairs(pairs, languages)],
            run_dir=Path(run_dir),
            output=output,
        )
        results = run_experiment(run)
        lines = Path(run_dir, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    if not results:
        raise UserError("the training was stopped; the same command starts again")
    before, *measured = [json.loads(line) for line in lines][_WARM_UP_STEPS - 1 :]
    totals = {unit: sum(step[unit] for step in measured) for unit in ("sentences", "tokens")}
    took = measured[-1]["seconds"] - before["seconds"]
    return {**totals, "seconds": took, "precision": results["precision"]}


def _all(model: SentenceEncoder, texts: list[str]) -> Callable[[], float]:
    """Encodes all sentences, repeatedly for at least 0.2 seconds, and returns the rate."""

    def rate() -> float:
        times, seconds = timeit.Timer(partial(model.encode, texts)).autorange()
        return times * len(texts) / seconds

    return rate


def _each(model: SentenceEncoder, texts: list[str]) -> Callable[[], float]:
    """Encodes one sentence at a time, and returns the rate of the median."""
    return lambda: (
        1 / statistics.median(seconds_of(partial(model.encode, text)) for text in texts[:200])
    )


def _compare(ours: _Workloads, inputs: Mapping[str, Any], dtypes: Sequence[str]) -> dict[str, Any]:
    """Runs our workloads and other libraries' same ones in turn; returns the median rates."""
    rates: defaultdict[str, defaultdict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def measure_all(names: Sequence[str], rate: Callable[[str], float]) -> None:
        for _ in range(ROUNDS):
            for workload, systems in ours.items():
                for system, measured in systems.items():
                    rates[workload][system].append(measured())
                for name in names:
                    theirs, _, system = name.partition(": ")
                    if theirs == workload and name.partition(", ")[2] in ("", *dtypes):
                        rates[workload][system].append(rate(name))

    if _PYTHON.value:
        with peers(_PYTHON.value, inputs) as (names, rate):
            measure_all(names, rate)
    else:
        measure_all((), lambda name: 0.0)
    figures = {
        workload: {system: statistics.median(values) for system, values in by_system.items()}
        for workload, by_system in rates.items()
    }
    for workload, medians in figures.items():
        if others := medians.keys() - ours[workload].keys():
            best = max(medians[system] for system in ours[workload])
            medians["ratio to the fastest of the others"] = best / max(medians[o] for o in others)
    return figures


if __name__ == "__main__":
    run_benchmark(measure, extra="tensorflow")
