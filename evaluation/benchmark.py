"""Measures training and encoding speed against the machine's own matrix-product ceiling.

    python evaluation/benchmark.py                       # built-in sample sentences
    python evaluation/benchmark.py --data my_corpora     # the translations found there

Everything is measured in one run, so that figures can be compared as ratios.
"""

import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import quiet_start, set_up_logging

with quiet_start():
    import keras
    import numpy as np
    import tensorflow as tf

from xling_tf.config import EncoderConfig, ExperimentConfig
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.store import CorpusStore, transient_store
from xling_tf.files import provenance, replacing
from xling_tf.model import Model, fit_text
from xling_tf.presets import get_preset
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.task_config import TaskConfig
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.examples import task_examples
from xling_tf.trainer.input_pipeline import Examples, make_dataset, make_sampler
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.precision import matmul_gflops, resolve_precision
from xling_tf.trainer.workers import Workers

_DATA = flags.DEFINE_string("data", None, "Folder of corpora; without it, the built-in sample.")
_CORPUS = flags.DEFINE_string("corpus", None, "Translations of this name only, as tatoeba.")
_PAIR = flags.DEFINE_string("pair", "en-es", "Preset whose model is measured.")
_STEPS = flags.DEFINE_integer("steps", 30, "Training steps that are timed.", lower_bound=2)
_SENTENCES = flags.DEFINE_integer("sentences", 20_000, "Sentences encoded.", lower_bound=1)
_OUTPUT = flags.DEFINE_string(
    "output", "evaluation/results/benchmark.json", "Where the figures are written."
)
_WARM_UP_STEPS = 5


def main(argv: list[str]) -> None:
    """Runs the benchmark and writes its figures."""
    del argv
    set_up_logging()
    config = _config()
    store = _store(config)
    text, vocabulary = fit_text(config.text, store.training_texts_by_language())
    config = dataclasses.replace(config, text=text)
    keras.config.set_dtype_policy(config.training.precision)
    strategy = make_strategy()
    with strategy.scope():
        model = Model.build(config, vocabulary)
    examples = task_examples(model.tasks, store.corpora)["translation_ranking_en-es"].train
    tokens_per_sentence = _tokens_per_sentence(model, examples)
    ceilings = {kind: matmul_gflops(kind) for kind in ("float32", "bfloat16")}
    figures = {
        "input": _input_rate(model, examples),
        "training": _training_rate(model, examples, strategy),
        "encoding": _encoding_rate(model, examples),
    }
    dtypes = {"training": _dtype(config), "encoding": "float32"}
    flops = _flops_per_token(config.encoder) * tokens_per_sentence
    for name, passes in (("training", 3), ("encoding", 1)):
        gflops = figures[name]["sentences_per_second"] * flops * passes / 1e9
        figures[name] |= {
            "dtype": dtypes[name],
            "gflops": gflops,
            "fraction_of_ceiling": gflops / ceilings[dtypes[name]],
        }
    # Measured again at the end: on a shared machine the two tell how far figures can be trusted.
    again = {kind: matmul_gflops(kind) for kind in ceilings}
    _write(
        {
            "command": " ".join(["python evaluation/benchmark.py", *sys.argv[1:]]),
            "ceiling_gflops": ceilings,
            "ceiling_gflops_at_end": again,
            "tokens_per_sentence": tokens_per_sentence,
            "examples": len(examples),
            **figures,
            **provenance(),
        }
    )


def _config() -> ExperimentConfig:
    config = get_preset(_PAIR.value)
    off = TaskConfig(weight=0)
    ranking = dataclasses.replace(config.tasks.translation_ranking, examples_per_batch=256)
    tasks = dataclasses.replace(
        config.tasks,
        translation_ranking=ranking,
        response_prediction=off,
        quick_thought=off,
        inference=off,
    )
    precision = resolve_precision(config.training.precision)
    steps = _WARM_UP_STEPS + _STEPS.value
    training = dataclasses.replace(config.training, precision=precision, steps=steps, minutes=0.0)
    return dataclasses.replace(config, tasks=tasks, training=training)


def _store(config: ExperimentConfig) -> CorpusStore:
    folder = Path(_DATA.value) if _DATA.value else SAMPLE_FOLDER
    corpora = load_folder(folder, source=config.data.source, targets=config.data.targets)
    return transient_store(
        [c for c in corpora if c.kind == "parallel" and _CORPUS.value in (None, c.name)]
    )


def _input_rate(model: Model, examples: Examples) -> dict[str, Any]:
    """Batching and text preprocessing alone."""
    sampler = make_sampler(examples, model.config, 256)
    batches = iter(make_dataset(examples, sampler, model.preprocessor))
    next(batches)
    sentences, seconds = _timed(
        lambda: [int(tf.size(batch.fingerprints)) for batch in islice(batches, _STEPS.value)]
    )
    return {"sentences_per_second": sum(sentences) / seconds}


def _training_rate(
    model: Model, examples: Examples, strategy: tf.distribute.Strategy
) -> dict[str, Any]:
    """The training loop as it is, input, logs and all; the first steps are left out."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=model,
            examples={"translation_ranking_en-es": examples},
            workers=Workers(strategy),
            run_dir=Path(folder),
        )
        trainer.train()
        lines = (Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines][_WARM_UP_STEPS:]
    seconds = steps[-1]["seconds"] - steps[0]["seconds"]
    return {
        "sentences_per_second": sum(step["sentences"] for step in steps[1:]) / seconds,
        "sentences_per_step": sum(step["sentences"] for step in steps) / len(steps),
    }


def _encoding_rate(model: Model, examples: Examples) -> dict[str, Any]:
    """The exported module, strings in and vectors out."""
    texts = examples.texts(np.arange(len(examples)))
    drawn = np.random.default_rng(0).choice(texts, _SENTENCES.value)
    sentences = [text.decode("utf-8") for text in drawn]
    encoder = SentenceEncoder(model.hub_module())
    encoder.encode(sentences[:100])
    _, seconds = _timed(lambda: encoder.encode(sentences))
    return {"sentences_per_second": len(sentences) / seconds}


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = function()
    return result, time.perf_counter() - begin


def _tokens_per_sentence(model: Model, examples: Examples) -> float:
    """Mean number of real tokens; padding is work that earns nothing."""
    texts = examples.texts(np.arange(len(examples)))
    sample = np.random.default_rng(0).choice(texts, min(len(texts), 50_000), replace=False)
    lengths = model.preprocessor.tokenize(tf.constant(sample.tolist())).row_lengths()
    return float(np.mean(lengths))


def _flops_per_token(config: EncoderConfig) -> int:
    """Multiplications and additions of the transformer's dense layers, forward."""
    attention = 4 * config.hidden_dim**2
    feedforward = 2 * config.hidden_dim * config.intermediate_dim
    return 2 * config.num_layers * (attention + feedforward)


def _dtype(config: ExperimentConfig) -> str:
    return config.training.precision.removeprefix("mixed_")


def _write(figures: dict[str, Any]) -> None:
    text = json.dumps(figures, indent=2) + "\n"
    path = Path(_OUTPUT.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    app.run(main)
