"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow.

The public names, such as `xling_tf.load`, are imported on first use, so that `import xling_tf` is
fast and does not import TensorFlow. `__init__.pyi` lists them for type checkers and editors.
"""

from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from xling_tf.errors import UserError, library
from xling_tf.processes import start_tensorflow

__version__ = "0.1.0.dev0"

_MODULES = {
    "KerasEncoder": "savedmodel.keras_layer",
    "Model": "model",
    "SentenceEncoder": "sentence_encoder",
    "UserError": "errors",
    "calibrate": "exporters.base",
    "bitext_mining": "client.search",
    "fine_tune": "trainer.fine_tuning",
    "load": "sentence_encoder",
    "mine_hard_negatives": "search.hard_negatives",
    "paraphrase_mining": "client.search",
    "semantic_search": "client.search",
}
__all__ = [*_MODULES]
_WITH_KERAS = ("KerasEncoder", "Model", "calibrate", "fine_tune")


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name = f"{__name__}.{_MODULES[name]}"
    # Without TensorFlow, only the clients of other runtimes work.
    is_installed = find_spec("tensorflow") is not None
    if is_installed and name in _WITH_KERAS:
        _require_tensorflow_backend()
    if is_installed:
        return getattr(import_module(module_name), name)
    return getattr(library(module_name, "tensorflow", "tensorflow"), name)


def _require_tensorflow_backend() -> None:
    start_tensorflow()
    with suppress(ImportError):  # another backend's library may be missing
        if import_module("keras").backend.backend() == "tensorflow":
            return
    raise UserError(
        "Keras must use TensorFlow here; set KERAS_BACKEND=tensorflow before Keras is imported"
    )


def __dir__() -> list[str]:
    """Lists the public names."""
    return sorted(__all__)
