"""A sentence encoder for ONNX Runtime: a whole model is this file beside word_averages.py and its own files.

The wheels of `export --to wheel` contain a copy of both.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import tokenizers
from numpy.typing import NDArray

from .word_averages import Client, first_bytes

SETTINGS, MODEL, TOKENIZER = "encoder.json", "model.onnx", "tokenizer.json"
_BATCH = 32


class OnnxEncoder(Client):
    """A sentence encoder of pieces of words.

    Args:
        folder: What `export --to wheel` puts into a wheel: settings, a model and a tokenizer.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self.dim = settings["dim"]
        self._prompts = settings["prompts"]  # by the roles of texts
        self._max_bytes = settings["max_bytes"]  # of a text, before it is cut into pieces
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / TOKENIZER))
        self._tokenizer.enable_padding()
        self._session = onnxruntime.InferenceSession(folder / MODEL, providers=["CPUExecutionProvider"])

    def _encode(self, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        vectors = np.empty((len(texts), self.dim), np.float32)
        order = np.argsort([len(text) for text in texts], kind="stable")
        for begin in range(0, len(texts), _BATCH):
            rows = order[begin : begin + _BATCH]
            batch = self._tokenizer.encode_batch(
                [self._prompts[role] + first_bytes(texts[row], self._max_bytes) for row in rows]
            )
            ids, mask = ([getattr(text, name) for text in batch] for name in ("ids", "attention_mask"))
            inputs = {"input_ids": np.array(ids), "attention_mask": np.array(mask)}
            (vectors[rows],) = self._session.run(["sentence_embedding"], inputs)
        return vectors
