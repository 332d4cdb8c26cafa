"""Sentences to the ids of SentencePiece's pieces, without TensorFlow."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xling_tf.runtimes.format import PIECES, library
from xling_tf.runtimes.readable import readable
from xling_tf.runtimes.words import padded


class Pieces:
    """Turns sentences into ids of pieces, as `xling_tf.text.sentencepiece` does in the graph.

    Where two segmentations are equally likely, as of "XXXX", another version of SentencePiece than that in
    the graph may choose the other one.

    Args:
        folder: Has SentencePiece's model.
        text: The settings for text in `runtime.json`.

    Raises:
        UserError: sentencepiece is not installed.
    """

    def __init__(self, folder: Path, text: Mapping[str, Any]) -> None:
        processor = library("sentencepiece", "sentencepiece").SentencePieceProcessor
        self._model = processor(model_file=str(folder / PIECES))
        self._text = text

    def tokenize(self, sentence: str) -> list[int]:
        """Splits a sentence into at least one piece, between marks where the model has them."""
        pieces = self._model.encode(readable(sentence, self._text["max_bytes"]))
        begin, end = self._text["begin"], self._text["end"]
        kept = self._text["max_tokens"] - len(begin) - len(end)
        return [*begin, *(pieces or [self._text["empty"]])[:kept], *end]

    def inputs(self, batch: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
        """The model's inputs for sentences of pieces."""
        return padded(batch)
