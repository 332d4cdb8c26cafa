"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow.

What people call is here by its short name, as `xling_tf.load`; it is imported when it is first asked
for, so that `import xling_tf` imports nothing heavy. `__init__.pyi` tells type checkers and editors of it.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0.dev0"

_HOMES = {
    "Int8Ranges": "search.quantization",
    "SentenceEncoder": "sentence_encoder",
    "UserError": "errors",
    "bitext_mining": "search.search",
    "dequantize": "search.quantization",
    "load": "sentence_encoder",
    "paraphrase_mining": "search.search",
    "paraphrase_mining_embeddings": "search.search",
    "quantize": "search.quantization",
    "quantized_search": "search.search",
    "semantic_search": "search.search",
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
