"""The parts of evaluation/benchmarks/gpu.py, which runs each in a process of its own."""

import itertools
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from absl import flags

from evaluation.benchmarks.workloads import (
    RANKING_ALONE,
    ROUNDS,
    flops_per_token,
    peers,
    seconds_of,
)
from xling_tf.config import TOKENIZERS, ModelInfo
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.corpora.store import transient_store
from xling_tf.encoders.base import encoder_settings
from xling_tf.errors import one_line
from xling_tf.files import write_json
from xling_tf.model import Model
from xling_tf.presets import get_preset
from xling_tf.processes import start_tensorflow
from xling_tf.sentence_encoder import load
from xling_tf.settings import apply_overrides
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.experiment import make_tasks
from xling_tf.trainer.fine_tuning import PairCorpus
from xling_tf.trainer.input_pipeline import task_examples
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.resolution import matmul_gflops

_ROOT = Path(__file__).resolve().parents[2]
_GPUS = start_tensorflow().config.list_physical_devices("GPU")  # leaves memory to the peers
_BATCH, _LARGE = (256, (2048, 16384)) if _GPUS else (16, (64,))
_DTYPES = ("float32", "bfloat16") if _GPUS else ("float32",)
_PIECES = ("tokenizer.kind=sentencepiece", "tokenizer.num_pieces=8000", "tokenizer.max_tokens=128")
# Presets and settings; the last model has the sizes of multilingual-e5-small.
_MODELS: Mapping[str, tuple[str, ...]] = {
    "static": ("static",),
    "en-es": ("multi-task", "encoder.num_layers=3"),
    "cnn": ("multilingual", "data.targets=es", *_PIECES),
    "bert": ("multi-task", "encoder.kind=bert", *_PIECES),
}
_SECONDS = 3.0 if _GPUS else 0.5  # of a measurement of speed


class Figures(dict[str, Any]):
    """Figures by name, which are written to a file as they are measured."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def measure(self, name: str, measurement: Callable[..., Any], *arguments: Any) -> None:
        """Adds the result of a measurement, or the error that it ends with."""
        try:
            self[name] = measurement(*arguments)
        except Exception as error:  # the next measurement may succeed
            self[name] = {"error": f"{type(error).__name__}: {one_line(error)}"}
        write_json(self._path, self)


@cache
def _pairs() -> list[tuple[str, str]]:
    """Translations of one to four sentences of the sample."""
    lines = (SAMPLE_FOLDER / "parallel" / "everyday.en-es.tsv").read_text("utf-8").splitlines()
    sides = np.array([line.split("\t")[:2] for line in lines]).T
    rng = np.random.default_rng(0)
    rows = [
        rng.integers(len(lines), size=rng.integers(1, 5)) for _ in range(40_000 if _GPUS else 3000)
    ]
    return [(" ".join(sides[0, row]), " ".join(sides[1, row])) for row in rows]


def _make(
    name: str, batch: int, precision: str, devices: Sequence[str] = ()
) -> tuple[Trainer, Model]:
    """Makes an untrained model and its training on translation ranking, a replica per device."""
    preset, *settings = _MODELS[name]
    settings += [*RANKING_ALONE, f"tasks.translation_ranking.examples_per_batch={batch}"]
    settings += ["training.steps=1000000", "training.minutes=0", "optimizer.warmup=0"]
    if name == "bert" and not _GPUS:
        settings.append("encoder.num_layers=2")
    config = apply_overrides(get_preset(preset), settings)
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(precision)
    store = transient_store([PairCorpus.from_pairs(_pairs(), ("en", "es"))])
    texts = store.training_texts_by_language()
    tokenizer = TOKENIZERS.implementation_of(config.tokenizer).fit(config.tokenizer, texts)
    workers = Workers(tf.distribute.MirroredStrategy([*devices]) if devices else make_strategy())
    with workers.strategy.scope():
        info = ModelInfo(languages=("en", "es"), similarity=config.similarity)
        model = Model(tokenizer, encoder_settings(config.encoder, tokenizer), info)
        tasks, _ = make_tasks(config, config.data, model)
    examples = {t: parts.train for t, parts in task_examples(tasks, store.corpora, {}).items()}
    made: dict[str, Any] = {
        "tasks": tasks,
        "config": config,
        "examples": examples,
        "workers": workers,
    }
    return Trainer(model=model, run_dir=Path(flags.FLAGS.output).parent, **made), model


def _train(trainer: Trainer, count: int) -> list[Any]:
    """Starts steps as `Trainer.train` does, then waits for them; returns their results."""
    steps = []
    for _ in range(count):
        steps.append(trainer._train_step(trainer._stage()))
        trainer.step += 1
    return trainer._read(steps)


def _speed(name: str, batch: int, devices: Sequence[str] = ()) -> dict[str, Any]:
    """Milliseconds of the first step and the median of the next, one after the other; then the
    speed with several steps at once, and its share of the speed of matrix products.
    """
    trainer, model = _make(name, batch, "mixed_bfloat16" if _GPUS else "float32", devices)
    single = [1000 * seconds_of(lambda: _train(trainer, 1)) for _ in range(19 if _GPUS else 2)]
    (result,) = _train(trainer, 1)
    results: list[Any] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < _SECONDS:
        results += _train(trainer, 8 if _GPUS else 1)
    seconds = time.perf_counter() - begin
    tokens = sum(result.tokens for result in results) / seconds
    gflops = 3e-9 * tokens * flops_per_token(model.encoder_settings)
    return {
        "milliseconds": {"first": single[0], "next": statistics.median(single[1:])},
        "sentences_per_second": sum(result.sentences for result in results) / seconds,
        "tokens_per_second": tokens,
        "fraction_of_ceiling": gflops / matmul_gflops(_DTYPES[-1]),
        "loss_after_these_steps": result.loss,
    }


# The parts, in their order.


def _device(figures: Figures) -> None:
    """Devices, libraries, and the speed of matrix products."""
    figures["gpus"] = [str(tf.config.experimental.get_device_details(gpu)) for gpu in _GPUS]
    figures["build"] = str(dict(tf.sysconfig.get_build_info()))
    for dtype in _DTYPES:
        figures.measure(f"ceiling_gflops_{dtype}", matmul_gflops, dtype)


def _training(cases: Sequence[tuple[str, int]], figures: Figures) -> None:
    for name, batch in cases:
        figures.measure(f"{name}, {batch}", _speed, name, batch)


def _encoding(figures: Figures) -> None:
    """Sentences per second by exported models."""
    texts = [text for pair in _pairs() for text in pair][: 20_000 if _GPUS else 300]

    def rate(name: str, dtype: str) -> float:
        folder = Path(flags.FLAGS.output).with_name(name)
        if not folder.exists():
            _make(name, _BATCH, "float32")[1].export(folder, {})
        model = load(folder, dtype)
        model.encode(texts)
        return len(texts) / seconds_of(lambda: model.encode(texts))

    for name, dtype in itertools.product(_MODELS, ("float32", "bfloat16")):
        figures.measure(f"{name}, {dtype}", rate, name, dtype)


def _peers(figures: Figures) -> None:
    """Training and encoding by sentence-transformers with the sizes of en-es."""
    pairs = _pairs()[: 10_000 if _GPUS else 512]
    texts = [text for pair in pairs for text in pair]
    shape = {"hidden_dim": 512, "num_layers": 3, "num_heads": 8, "intermediate_dim": 2048}
    python = (
        sys.executable if find_spec("sentence_transformers") else str(_ROOT / ".peers/bin/python")
    )
    with peers(python, {"texts": texts, "pairs": pairs, "shape": shape}) as (_, rate):
        for workload, dtype in itertools.product(("training", "encoding"), _DTYPES):
            name = f"{workload}: sentence-transformers, {dtype}"
            figures.measure(
                name, lambda name: statistics.median(rate(name) for _ in range(ROUNDS)), name
            )


def _replicas(figures: Figures) -> None:
    """One replica, and two that share a device, which should have the same loss."""
    device = tf.config.list_physical_devices("GPU" if _GPUS else "CPU")[0]
    half = tf.config.LogicalDeviceConfiguration(**({"memory_limit": 2**14} if _GPUS else {}))
    tf.config.set_logical_device_configuration(device, [half, half])
    for count in (1, 2):
        devices = [f"{device.device_type}:{i}" for i in range(count)]
        figures.measure(f"{count}", _speed, "en-es", _BATCH, devices)


def _loss(figures: Figures) -> None:
    """Losses in float32, which should be those of the CPU but for rounding."""
    trainer, model = _make("static", 128, "float32")
    random = np.random.default_rng(1)
    for variable in model.weights.values():  # TensorFlow draws other numbers on another device
        values = variable.numpy()
        variable.assign(random.normal(values.mean().round(2), values.std().round(2), values.shape))
    for step in (1, 10, 50, 200):
        figures.measure(f"{step}", lambda step: _train(trainer, step - trainer.step)[-1].loss, step)


PARTS: Mapping[str, Callable[[Figures], None]] = {
    "device": _device,
    "steps": partial(_training, [(name, _BATCH) for name in _MODELS]),
    "batches": partial(_training, [*itertools.product(("static", "en-es"), _LARGE)]),
    "encoding": _encoding,
    "peers": _peers,
    "replicas": _replicas,
    "loss": _loss,
    "loss_on_cpu": _loss,
}
