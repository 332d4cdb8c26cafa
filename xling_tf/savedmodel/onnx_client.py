"""A sentence encoder for ONNX Runtime: a whole model is this file beside word_averages.py and its
own files.

The wheels of `export --to wheel` contain a copy of both.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from .word_averages import Client, PerProcess, first_bytes, telemetry_off

SETTINGS, MODEL, TOKENIZER = "encoder.json", "model.onnx", "tokenizer.json"
_BATCH = 32


class OnnxEncoder(Client):
    """A sentence encoder of pieces of words; a process opens the model at the first use.

    Args:
        folder: What `export --to wheel` puts into a wheel: settings, a model and a tokenizer.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = folder = Path(folder).absolute()
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self.dim = settings["dim"]
        self._prompts = settings["prompts"]  # by the roles of texts
        self._max_bytes = settings["max_bytes"]  # of a text, before it is cut into pieces
        _, self._run = open_model(folder / MODEL, folder / TOKENIZER)

    def _encode(self, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        return self._run(
            [self._prompts[role] + first_bytes(text, self._max_bytes) for text in texts]
        )


def open_model(
    model: Path, tokenizer: Path
) -> tuple[Any, Callable[[Sequence[str]], NDArray[np.float32]]]:
    """Returns a tokenizer of `tokenizers`, and a function that encodes one or more texts by an ONNX
    model.

    The function opens the model when it is first called, and anew in a forked process.
    """
    opened = tokenizers.Tokenizer.from_file(str(tokenizer))
    opened.enable_padding()

    def open_session() -> Any:
        with telemetry_off():
            import onnxruntime  # here, because it takes time

        return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])

    session = PerProcess(open_session)

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        order = np.argsort([len(text) for text in texts], kind="stable")
        batches = []
        for begin in range(0, len(texts), _BATCH):
            batch = opened.encode_batch([texts[row] for row in order[begin : begin + _BATCH]])
            ids, mask = (
                [getattr(text, name) for text in batch] for name in ("ids", "attention_mask")
            )
            inputs = {
                "input_ids": np.array(ids, np.int64),
                "attention_mask": np.array(mask, np.int64),
            }
            batches += session().run(["sentence_embedding"], inputs)
        return np.concatenate(batches)[np.argsort(order)]

    return opened, encode
