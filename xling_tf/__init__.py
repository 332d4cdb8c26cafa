"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow.

Use a model:
    load                 opens a model, by default the one in the box; `encode` gives vectors
    encode_files         encodes files of texts, of any size, into files of vectors
    semantic_search      finds the texts that are nearest to queries, by vectors
    paraphrase_mining    finds similar texts in a list
    bitext_mining        finds translations in two lists of vectors
    align                finds the translations in two versions of a text, in order

Make a model:
    train                trains a preset on corpora, scores and exports it
    distill              makes an average of words from any encoder, in a minute
    fine_tune            trains a model further on pairs of texts
    mine_hard_negatives  adds texts that are similar but wrong to pairs for `fine_tune`
    import_model         exports a model of another library, such as multilingual-e5

Check and ship it:
    evaluate             scores a model by the papers' protocols
    calibrate            fits the probabilities of a match on your own pairs
    export               writes it for another library or runtime, or smaller

In your own code:
    SentenceEncoder      what `load` returns
    Model                tokenizer, encoder and heads, for training loops of your own
    KerasEncoder         a model as a layer of Keras
    UserError            a mistake in arguments, files or data; its message says what to do

    encoder = xling_tf.load()  # the model in the box, or xling_tf.load("exported/en-es")
    encoder.encode(["Hola", "Hello"])  # float32 [2, 384]

`help(xling_tf.load)` has the arguments; `xling-tf --help` lists the commands.
"""

# Names are imported on first use, so that `import xling_tf` is fast and does not import TensorFlow.
# `__init__.pyi` lists them for type checkers and editors.

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
    "align": "search.alignment",
    "calibrate": "exporters.base",
    "bitext_mining": "client.search",
    "distill": "trainer.word_distillation",
    "encode_files": "bulk.vector_files",
    "evaluate": "evaluators.running",
    "export": "exporters.base",
    "fine_tune": "trainer.fine_tuning",
    "import_model": "model",
    "load": "sentence_encoder",
    "mine_hard_negatives": "search.hard_negatives",
    "paraphrase_mining": "client.search",
    "semantic_search": "client.search",
    "train": "trainer.training",
}
__all__ = [*_MODULES]
_WITH_KERAS = (
    "KerasEncoder",
    "Model",
    "calibrate",
    "distill",
    "export",
    "fine_tune",
    "import_model",
    "train",
)
# Packages without which a name cannot be imported, and their extras; else those of TensorFlow.
_NEEDED = {
    "encode_files": ("pyarrow", "bulk"),
    "evaluate": ("scikit-learn", "evaluation"),
}


def __getattr__(name: str) -> Any:
    """Imports a public name on first use (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name = f"{__name__}.{_MODULES[name]}"
    # Without TensorFlow, only the clients of other runtimes work.
    is_installed = find_spec("tensorflow") is not None
    if is_installed and name in _WITH_KERAS:
        _require_tensorflow_backend()
    if is_installed and name not in _NEEDED:
        return getattr(import_module(module_name), name)
    return getattr(library(module_name, *_NEEDED.get(name, ("tensorflow", "tensorflow"))), name)


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
