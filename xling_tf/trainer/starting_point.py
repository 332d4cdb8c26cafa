"""The weights of a run or of an exported model, for a training that starts from them."""

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from numpy.typing import NDArray

from xling_tf.config import ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.folded import WORDS, rows_digest
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL
from xling_tf.hub.module import TRAINING
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.model import Model
from xling_tf.text.preprocessor import Vocabulary
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.optimizers import Optimizers
from xling_tf.trainer.run_folder import RunFolder, read_vocabulary
from xling_tf.trainer.starting_config import StartRecord

Weights = Sequence[NDArray[np.float32]]


class StartingPoint(NamedTuple):
    """What a training starts from.

    Attributes:
        config: Of the model, resolved.
        vocabulary: Its words, or SentencePiece's serialized model.
        weights: Of the encoder's `[*table_variables, *dense_variables]`.
        heads: Of the layers that its tasks put on the encoder, by the layer's name.
    """

    config: ExperimentConfig
    vocabulary: Vocabulary
    weights: Weights
    heads: Mapping[str, Weights]

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Reads a run, as it would be exported now, or an exported model.

        An exported model may have been fine-tuned by other programs and saved again, with `config.json`
        and `training/` of the old folder put beside it.

        Raises:
            UserError: The folder is neither, or its files do not fit together.
        """
        config = StartRecord.of(str(folder)).config
        if (folder / SAVED_MODEL).is_file():
            return cls(*_read_export(folder, config))
        return cls(*_read_run(folder, config))

    def give(self, model: Model, parents: Sequence[Sequence[int]] = ()) -> list[str]:
        """Gives a model these weights; heads that are not among them, or of another size, stay random.

        Args:
            model: With this config's encoder.
            parents: For each piece that its vocabulary has more, the rows of those that spelt it.

        Returns:
            The names of the heads that have got theirs.

        Raises:
            UserError: The weights are not those of the encoder.
        """
        encoder = model.encoder
        weights = self.weights
        _require_fitting(weights, encoder, model.preprocessor.num_words)
        _assign([*encoder.table_variables, *encoder.dense_variables], weights)
        given = []
        for name, layer in model.heads.items():
            variables = layer.trainable_variables
            if _shapes(self.heads.get(name, ())) == _shapes(variables):
                _assign(variables, self.heads[name])
                given.append(name)
        return given


def read_start_vocabulary(folder: Path, config: ExperimentConfig) -> Vocabulary:
    """Reads the vocabulary of a run or of an exported model, whose config is given.

    Raises:
        UserError: An exported model is without it.
    """
    place = folder / TRAINING if (folder / SAVED_MODEL).is_file() else folder
    try:
        return read_vocabulary(place, config.text.tokenizer)
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename} is expected beside an exported model that training starts from, but is "
            "not there; copy config.json and training/ from the export that it was made of, or "
            "export it anew"
        ) from error


def _read_export(
    folder: Path, config: ExperimentConfig
) -> tuple[ExperimentConfig, Vocabulary, Weights, Mapping[str, Weights]]:
    vocabulary = read_start_vocabulary(folder, config)
    loaded = load_saved_model(folder)
    weights = _arrays(loaded.trainable_variables)
    words = folder / TRAINING / WORDS
    if words.is_file():
        weights = _unfolded(weights, words)
    heads = {name: _arrays(head.weights) for name, head in getattr(loaded, "heads", {}).items()}
    return config, vocabulary, weights, heads


def _unfolded(weights: Weights, path: Path) -> Weights:
    """Puts the rows of known words back, in place of what they and their n-grams were folded to."""
    rows, buckets, *rest = weights
    try:
        with np.load(path) as arrays:
            kept = {name: arrays[name] for name in ("digest", "words")}
    except (EOFError, LookupError, OSError, TypeError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} must hold the rows of known words, as the export wrote it, but is damaged ({error}); "
            "bring it back from a copy, or export the model anew"
        ) from error
    if kept["digest"].item() != rows_digest(rows):
        raise UserError(
            f"{path.parents[1]} was changed after its export, which holds known words as what they and "
            "their n-grams come to; training can start from such a model as it was exported, or from its "
            "run, but no longer from this"
        )
    return [np.concatenate([kept["words"], buckets]), *rest]


def _read_run(
    folder: Path, config: ExperimentConfig
) -> tuple[ExperimentConfig, Vocabulary, Weights, Mapping[str, Weights]]:
    """Reads the best weights of a run, else the newest ones, or their averages where it keeps those."""
    vocabulary = read_vocabulary(folder, config.text.tokenizer)
    model = Model.build(config, vocabulary)
    trained = RunFolder(folder).tasks()
    model = model._replace(tasks=[task for task in model.tasks if task.name in trained])
    encoder, heads = model.encoder, model.head_variables
    best = [v.value for v in (*encoder.trainable_variables, *heads)]
    if Checkpoints(folder / "checkpoints" / "best", best).read_newest() is None:
        _read_newest(folder / "checkpoints", model)
    return (
        config,
        vocabulary,
        _arrays([*encoder.table_variables, *encoder.dense_variables]),
        {name: _arrays(layer.trainable_variables) for name, layer in model.heads.items()},
    )


def _read_newest(folder: Path, model: Model) -> None:
    encoder, config = model.encoder, model.config.optimizer
    tables = encoder.table_variables
    dense = [*encoder.dense_variables, *model.head_variables]
    variables = [v.value for v in (*tables, *dense)]
    optimizers = Optimizers(config, tables, dense) if config.average_decay else None
    variables += optimizers.variables if optimizers else []
    if Checkpoints(folder, variables).read_newest() is None:
        raise UserError(
            f"a checkpoint of the run is expected in {folder}, but none there can be read; train it "
            "further, or start from another model"
        )
    if optimizers:
        optimizers.use_averages()


def _require_fitting(weights: Weights, encoder: TokenEncoder, num_words: int) -> None:
    variables = [*encoder.table_variables, *encoder.dense_variables]
    if len(weights) and len(weights[0]) != num_words:
        raise UserError(
            f"the table of the model to start from has {len(weights[0])} rows, but its vocabulary has "
            f"{num_words} words or pieces: the vocabulary is another model's; put the right one there"
        )
    if _shapes(weights) != _shapes(variables):
        raise UserError(
            f"the model to start from has {len(weights)} weights that are not of the sizes its config.json "
            f"says ({len(variables)} weights): both must be of one model; export it anew"
        )


def _shapes(variables: Iterable[Any]) -> list[tuple[int, ...]]:
    return [tuple(variable.shape) for variable in variables]


def _assign(variables: Iterable[keras.Variable], values: Weights) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _arrays(variables: Iterable[Any]) -> Weights:
    return [np.asarray(variable) for variable in variables]
