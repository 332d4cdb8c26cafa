"""The experiments by name."""

import dataclasses
import difflib
from collections.abc import Mapping

from xling_tf.config import (
    DataConfig,
    EncoderConfig,
    ExperimentConfig,
    OptimizerConfig,
    SimilarityConfig,
    TaskConfig,
    TasksConfig,
    TextConfig,
    TrainingConfig,
)
from xling_tf.errors import UserError

# Manuals and menus are plentiful and read alike; everyday sentences are what a general encoder is
# for. Relative to a corpus' size; corpora that are not named count 1.
_CORPUS_WEIGHTS = {
    "tatoeba": 3.0,
    "python_docs": 0.25,
    "software-ui": 0.5,
    "manpages": 0.25,
    "ddtp": 0.5,
    "libreoffice-help": 0.5,
    "gimp-help": 0.5,
    "lilypond": 0.25,
}

_EN_ES = ExperimentConfig(
    description="the six tasks of Chidambaram et al. 2019, by a recipe for half an hour on 2 cores",
    data=DataConfig(corpus_weights=_CORPUS_WEIGHTS),
    text=TextConfig(lowercase=True, min_word_count=3),
    encoder=EncoderConfig(norm_first=True),
    tasks=TasksConfig(
        # The towers of the other tasks start at random, and their first gradients are noise to the
        # encoder: from the first step on and at full weight they keep it from aligning the languages.
        alignment_steps=200,
        translation_ranking=TaskConfig(weight=4, examples_per_batch=256),
        response_prediction=TaskConfig(weight=1, examples_per_batch=128, loss_weight=0.1),
        quick_thought=TaskConfig(weight=1, examples_per_batch=96, loss_weight=0.1),
        inference=TaskConfig(weight=1, examples_per_batch=128),
        similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True),
    ),
    optimizer=OptimizerConfig(
        name="adam", learning_rate=5e-4, embedding_learning_rate=3e-3, warmup=0.03, decay="linear"
    ),
    training=TrainingConfig(minutes=30.0),
)

_PAPER_EN_ES = ExperimentConfig(
    description="the literal recipe of Chidambaram et al. 2019, sec. 3.2: plain SGD for 30 million steps",
    training=TrainingConfig(steps=30_000_000),
)

_SMOKE = dataclasses.replace(
    _EN_ES,
    description="a tiny en-es model on the built-in sample corpus, in seconds",
    data=DataConfig(sample=True),
    text=TextConfig(lowercase=True, num_oov_buckets=64, num_ngram_buckets=4096),
    encoder=EncoderConfig(
        embedding_dim=64,
        hidden_dim=64,
        intermediate_dim=128,
        num_layers=2,
        num_heads=4,
        norm_first=True,
    ),
    tasks=dataclasses.replace(
        _EN_ES.tasks,
        translation_ranking=TaskConfig(weight=4, examples_per_batch=64),
        response_prediction=TaskConfig(examples_per_batch=32),
        quick_thought=TaskConfig(examples_per_batch=32),
        inference=TaskConfig(examples_per_batch=32),
        alignment_steps=40,
        tower_dims=(64, 64),
        inference_dim=64,
    ),
    optimizer=dataclasses.replace(_EN_ES.optimizer, learning_rate=3e-3),
    training=TrainingConfig(steps=150, precision="float32"),
)


def _with_target(preset: ExperimentConfig, target: str) -> ExperimentConfig:
    """The same recipe for another language pair: the paper tunes none of them apart."""
    return dataclasses.replace(preset, data=dataclasses.replace(preset.data, targets=(target,)))


PRESETS: Mapping[str, ExperimentConfig] = {
    "en-es": _EN_ES,
    "en-fr": _with_target(_EN_ES, "fr"),
    "en-de": _with_target(_EN_ES, "de"),
    "en-zh": _with_target(_EN_ES, "zh"),
    "paper-en-es": _PAPER_EN_ES,
    "smoke": _SMOKE,
}


def get_preset(name: str) -> ExperimentConfig:
    """Finds an experiment by name.

    Raises:
        UserError: There is no such preset.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"--pair expects one of {', '.join(PRESETS)}, got {name!r}{hint}")
