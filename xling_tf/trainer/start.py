"""What a training starts from: a model, word vectors, or random numbers."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from absl import logging

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.model import WEIGHTS, Model
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.resolution import START, VECTORS
from xling_tf.trainer.run_folder import RunFolder
from xling_tf.weights import Weights, assign_weights, read_weights


def copy_start(config: ExperimentConfig, folder: RunFolder) -> None:
    """Copies the model that a new run starts from into its folder, if there is one.

    Raises:
        UserError: The model cannot be used.
    """
    start = config.initial.model
    if not start or folder.resolved() is not None:
        return
    model = Model.from_pretrained(start)
    config.similarity.require_below(model.encoder.hidden_dim)
    for name, stage in config.active_stages.items():
        # A trained CNN is no average of words without its convolutions.
        if stage.part == "average" and model.encoder.static_part is None:
            raise UserError(
                f"stages.{name}.part=average needs a starting model that is a transformer with "
                f"encoder.bow_residual, not {start}; set stages.{name}.share=0"
            )
    model.save_pretrained(folder.path / START)


def initial_weights(
    config: ExperimentConfig,
    run_dir: Path,
    workers: Workers,
    model: Model,
    new_heads: Iterable[str],
) -> None:
    """Assigns the weights of the model or of the word vectors that training starts from, if any."""
    if config.initial.model:
        weights_from_model(workers, run_dir, model, new_heads)
    elif config.initial.vectors:
        if workers.is_chief:
            model.encoder.assign_word_vectors(**np.load(run_dir / VECTORS))
        workers.share([table.value for table in model.encoder.table_variables])


def weights_from_model(
    workers: Workers, run_dir: Path, model: Model, new_heads: Iterable[str]
) -> None:
    """Assigns the weights that training starts from, read by the chief; new heads stay random."""
    variables = {
        name: variable.value for name, variable in _without(new_heads, model.weights).items()
    }
    workers.from_chief(
        lambda: assign_weights(variables, _start_weights(run_dir, new_heads), str(run_dir / START))
    )
    workers.share([*variables.values()])
    for task in new_heads:
        logging.info(
            "%s: the starting model has no heads that fit, so new ones start at random", task
        )


def average_with_start(run_dir: Path, model: Model, share: float, new_heads: Iterable[str]) -> None:
    """Averages a trained model's weights with its start's (Wortsman et al. 2022, eq. 1)."""
    variables = model.weights
    for name, start in _start_weights(run_dir, new_heads).items():
        variables[name].assign(share * start + (1 - share) * np.asarray(variables[name].value))


def _start_weights(run_dir: Path, new_heads: Iterable[str]) -> Weights:
    """Reads the weights that training started from, but for tasks with new heads."""
    return _without(new_heads, read_weights(run_dir / START / WEIGHTS))


def _without(heads: Iterable[str], weights: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out the weights of the heads of some tasks."""
    prefixes = tuple(f"heads/{task}/" for task in heads)
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}
