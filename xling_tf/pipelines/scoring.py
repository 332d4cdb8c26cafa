"""Scores of translation pairs by an exported model, on Beam's workers."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.pipelines import storage

_BATCH_PAIRS = 512


def model_identity(model: str) -> dict[str, Any]:
    """What changes when another model is exported to a folder; a setting of preparations.

    Args:
        model: Folder of a SavedModel, on any file system that TensorFlow and Beam know.

    Raises:
        UserError: There is none.
    """
    graph = storage.join(model, "saved_model.pb")
    if not storage.exists(graph):
        raise UserError(
            f"--model must be the folder of an exported model, but {graph} is missing; "
            "train one with training/main.py, or leave --model out"
        )
    (file,) = storage.find_inputs([graph])
    return {"path": model, "bytes": file.size, "modified": file.modified}


def well_scored(
    pairs: Iterable[TranslationPair], model: str, min_cosine: float, dropped: Counter[str]
) -> Iterator[TranslationPair]:
    """Yields the pairs whose sides a model holds for similar.

    Args:
        pairs: Any number; one batch is held in memory.
        model: Folder of a SavedModel.
        min_cosine: The lowest cosine of the two sides' vectors that is kept.
        dropped: Counts the others, as "low cosine".
    """
    waiting = iter(pairs)
    while batch := list(islice(waiting, _BATCH_PAIRS)):
        for pair, cosine in zip(batch, _cosines(batch, model), strict=True):
            if cosine >= min_cosine:
                yield pair
            else:
                dropped["low cosine"] += 1


def _cosines(pairs: list[TranslationPair], model: str) -> np.ndarray:
    texts = [pair.source for pair in pairs] + [pair.target for pair in pairs]
    vectors = np.asarray(_loaded(model)(texts), np.float32)
    lengths = np.linalg.norm(vectors, axis=1)
    products = np.sum(vectors[: len(pairs)] * vectors[len(pairs) :], axis=1)
    return products / np.maximum(lengths[: len(pairs)] * lengths[len(pairs) :], 1e-12)


@lru_cache(maxsize=1)
def _loaded(model: str) -> Any:
    """The model, loaded once by each worker."""
    # Only here, because it takes seconds to start.
    import tensorflow as tf

    return tf.saved_model.load(model)
