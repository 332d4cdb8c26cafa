"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow.

What people call is here by its short name, as `xling_tf.load`; it is imported when it is first asked
for, so that `import xling_tf` imports nothing heavy. `__init__.pyi` tells type checkers and editors of it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "Int8Ranges": "search.quantization",
    "KerasEncoder": "hub.keras_layer",
    "MiningConfig": "search.mining",
    "SentenceEncoder": "sentence_encoder",
    "UserError": "errors",
    "bitext_mining": "search.semantic",
    "community_detection": "search.semantic",
    "dequantize": "search.quantization",
    "fine_tune": "trainer.fine_tuning",
    "load": "sentence_encoder",
    "mine_hard_negatives": "search.mining",
    "paraphrase_mining": "search.semantic",
    "paraphrase_mining_embeddings": "search.semantic",
    "quantize": "search.quantization",
    "quantized_search": "search.semantic",
    "semantic_search": "search.semantic",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Imports what is asked for by its short name (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """Lists the short names too."""
    return sorted([*globals(), *_HOMES])
