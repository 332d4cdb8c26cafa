"""Sentences to vectors by LiteRT or ONNX Runtime, without TensorFlow."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xling_tf.evaluators.batching import length_sorted_batches
from xling_tf.runtimes.engines import Run, open_engine
from xling_tf.runtimes.format import read_settings
from xling_tf.runtimes.pieces import Pieces
from xling_tf.runtimes.words import Words


class Text(Protocol):
    """Turns sentences into the model's inputs."""

    def tokenize(self, sentence: str) -> Sequence[Any]:
        """Splits a sentence into at least one token."""

    def inputs(self, batch: Sequence[Sequence[Any]]) -> dict[str, NDArray[np.int32]]:
        """The model's inputs for sentences of tokens."""


_TEXTS: Mapping[str, Callable[[Path, Mapping[str, Any]], Text]] = {"words": Words, "pieces": Pieces}
# Padding included, a bound for memory: long texts go few at a time.
_MOST_TOKENS = 4096


class RuntimeEncoder:
    """Encodes sentences as the exported model does that it was made of.

    Args:
        text: Turns sentences into the model's inputs.
        run: The model.
        dim: Of the vectors.
    """

    def __init__(self, text: Text, run: Run, dim: int) -> None:
        self.text = text
        self.dim = dim
        self._run = run

    def encode(self, sentences: Sequence[str], *, batch_size: int = 64) -> NDArray[np.float32]:
        """Encodes any number of sentences in bounded memory.

        Args:
            sentences: What to encode.
            batch_size: The most sentences that the model is given at once.

        Returns:
            `[sentences, dim]` unit vectors, in the order of the sentences.
        """
        tokens = [self.text.tokenize(sentence) for sentence in sentences]
        vectors = np.empty((len(tokens), self.dim), np.float32)
        lengths = [len(words) for words in tokens]
        for batch in length_sorted_batches(lengths, max_rows=batch_size, max_length=_MOST_TOKENS):
            vectors[batch] = self._run(self.text.inputs([tokens[i] for i in batch]))
        return vectors


def load(folder: str | Path) -> RuntimeEncoder:
    """Opens a folder that `export_litert` or `export_onnx` has written.

    Raises:
        UserError: It is none, or a package that it needs is missing.

    Example:
        >>> load("exported/en-es-onnx").encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """
    folder = Path(folder)
    settings = read_settings(folder)
    text = _TEXTS[settings["text"]["kind"]](folder, settings["text"])
    return RuntimeEncoder(text, open_engine(settings["runtime"], folder), settings["dim"])
