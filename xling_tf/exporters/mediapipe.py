"""The file of MediaPipe's TextEmbedder: a LiteRT model from one string to a vector, tokenizer included.

MediaPipe's other form, of a question, an answer and its context, is not written: TextEmbedder fills in the
answer and returns its vector alone (tried with 1.2.3), so that questions could not be encoded.
"""

import struct
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.encoders.lstm import LstmEncoder
from xling_tf.errors import library
from xling_tf.exporters.base import PROBES, Encode, Source, reject
from xling_tf.exporters.runtimes import to_litert
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer

FILE = "model.tflite"
# The tokenizer's operation, by its name in tensorflow-text and in MediaPipe.
_IN_TEXT, _IN_MEDIAPIPE = b"TFText>FastSentencepieceTokenize", b"TFSentencepieceTokenizeOp"
_CARD = """# A sentence encoder for MediaPipe

`model.tflite` maps one string to a vector of {dim} numbers, of unit length; the tokenizer is inside. Exported
by xling_tf.

    from mediapipe.tasks.python import BaseOptions
    from mediapipe.tasks.python.text import TextEmbedder, TextEmbedderOptions
    options = TextEmbedderOptions(base_options=BaseOptions(model_asset_path="model.tflite"))
    TextEmbedder.create_from_options(options).embed("Hola").embeddings[0].embedding
{prompts}"""


def export(source: Source, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes a LiteRT model with SentencePiece's operation as MediaPipe has it."""
    is_recurrent = isinstance(source.model.encoder, LstmEncoder)
    if not isinstance(source.model.tokenizer, SentencePieceTokenizer) or is_recurrent:
        reject(source, "mediapipe", "the tokenizer sentencepiece and an encoder without recurrent layers")
    graph = _Graph(source.model)
    content = to_litert(graph, graph.encode, allow_custom_ops=True)
    (folder / FILE).write_bytes(_renamed(content))
    card = _CARD.format(dim=source.model.encoder.hidden_dim, prompts=source.about_prompts)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return PROBES, _load(content, source.prompt)


class _Graph(tf.Module):
    """The graph from a string to a vector."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        body, rules = model.encoder, model.tokenizer.rules()
        self._body, self._rules = (lambda: body), (lambda: rules)  # hidden from TensorFlow's saving
        (serialized,) = model.tokenizer.files().values()
        self._pieces = import_module("tensorflow_text").FastSentencepieceTokenizer(serialized)
        self.weights = [variable.value for variable in body.variables]

    @tf.function(input_signature=[tf.TensorSpec([1], tf.string, name="input")], autograph=False)
    def encode(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Encodes one text: `[1, hidden_dim]`."""
        body, rules = self._body(), self._rules()
        begin, end, empty = rules["begin"], rules["end"], rules["empty"]
        ids = self._pieces.tokenize(text).values
        if empty is not None:
            ids = tf.concat([ids, [empty]], axis=0)[: tf.maximum(tf.size(ids), 1)]
        ids = tf.concat([begin, ids[: rules["max_tokens"] - len(begin) - len(end)], end], axis=0)
        vectors = body.encode_tokens(body.embed_words(ids)[None], tf.size(ids)[None])
        return {"output": tf.reshape(unit_length(vectors), [1, body.hidden_dim])}


def _renamed(content: bytes) -> bytes:
    """Gives the tokenizer's operation the name that MediaPipe knows; a name is stored after its length."""
    padding = bytes(len(_IN_TEXT) - len(_IN_MEDIAPIPE))
    before, after = (struct.pack("<I", len(name)) + name for name in (_IN_TEXT, _IN_MEDIAPIPE))
    return content.replace(before, after + padding)


def _load(content: bytes, prompt: str) -> Encode:
    litert = library("ai_edge_litert.interpreter", "ai-edge-litert", "export")
    operations = import_module("tensorflow_text.core.pybinds.tflite_registrar").SELECT_TFTEXT_OPS
    interpreter = litert.InterpreterWithCustomOps(model_content=content, custom_op_registerers=operations)
    runner = interpreter.get_signature_runner()

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = [runner(input=np.array([(prompt + text).encode()]))["output"] for text in texts]
        return np.concatenate(vectors)

    return encode
