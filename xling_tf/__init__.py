"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow.

What people call is here by its short name, as `xling_tf.load`; it is imported when it is first asked
for, so that `import xling_tf` imports nothing heavy. `__init__.pyi` tells type checkers and editors of it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "Int8Ranges": "vectors.quantization",
    "SentenceEncoder": "sentence_encoder",
    "UserError": "errors",
    "bitext_mining": "vectors.search",
    "dequantize": "vectors.quantization",
    "load": "sentence_encoder",
    "paraphrase_mining": "vectors.search",
    "paraphrase_mining_embeddings": "vectors.search",
    "quantize": "vectors.quantization",
    "quantized_search": "vectors.search",
    "semantic_search": "vectors.search",
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
