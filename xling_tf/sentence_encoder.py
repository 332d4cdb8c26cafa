"""The interface people use from Python: any number of sentences to an array."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from xling_tf.saved_models import load_saved_model


class SentenceEncoder:
    """Encodes lists of sentences with anything that maps a string tensor to vectors.

    Args:
        embed: A model in training or a loaded SavedModel.

    Example:
        >>> encoder = SentenceEncoder(tf.saved_model.load("exported/en-es"))  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    def __init__(self, embed: Callable[[tf.Tensor], tf.Tensor]) -> None:
        self._embed = embed

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Loads an exported model.

        Raises:
            UserError: The folder is none.
        """
        return cls(load_saved_model(folder))

    def encode(
        self, sentences: Sequence[str], *, batch_size: int = 2048, show_progress: bool = False
    ) -> np.ndarray:
        """Encodes any number of sentences in bounded memory.

        Args:
            sentences: What to encode.
            batch_size: Sentences handed to the model at once.
            show_progress: Whether to show a bar.

        Returns:
            `[sentences, dim]` float32, in the order of the sentences.
        """
        # Similar lengths go together; the model pads within what it is handed.
        order = np.argsort([len(sentence) for sentence in sentences], kind="stable")
        starts = range(0, max(1, len(sentences)), batch_size)
        batches = [
            self._embed(
                tf.constant([sentences[i] for i in order[start : start + batch_size]], tf.string)
            )
            for start in tqdm(starts, disable=not show_progress, unit="batch")
        ]
        encodings = np.concatenate(batches)
        result = np.empty_like(encodings)
        result[order] = encodings
        return result
