"""The Python client: encodes any number of sentences with an exported model or with a function."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xling_tf.client import encoder as client
from xling_tf.client.backends import Backend
from xling_tf.client.batches import compute_in_batches
from xling_tf.client.encoder import as_columns
from xling_tf.client.neighbours import require_positive
from xling_tf.client.runtimes import RuntimeModel, open_folder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.client.texts import Texts, require_unused
from xling_tf.errors import UserError, first_line
from xling_tf.files import read_json_dict
from xling_tf.models import IN_THE_BOX
from xling_tf.processes import require_not_forked, start_tensorflow
from xling_tf.savedmodel.backends import as_backend, string_tensor
from xling_tf.savedmodel.saved_models import (
    find_model,
    is_model_folder,
    load_saved_model,
    read_info,
)

_BATCH_SIZE = 2048


class SentenceEncoder(client.SentenceEncoder):
    """Encodes sentences with an exported model, or with any function from texts to vectors.

    Methods and arguments have the names that sentence-transformers uses; an unsupported option
    raises a `UserError`. Threads may share an encoder; with asyncio, use
    `asyncio.to_thread(encoder.encode, texts)`. A forked process cannot use TensorFlow if its parent
    has: load SavedModels after the fork. Exports for ONNX Runtime and LiteRT work on both sides of
    a fork, and open their file anew. Pickling stores the model's path and `dtype`, not its weights:
    unpickling loads the model again. Load only models that you trust: their graphs run with the
    rights of this process.

    Args:
        model_name_or_path: By default, the model in the box, which needs NumPy alone and knows
            sixteen languages. Else one of: the folder of an exported model, an archive of it, or
            `hf://owner/name`; a folder that `Model.save_pretrained` wrote, or the run folder of a
            training (their signatures are traced again); an export for ONNX Runtime or LiteRT, or
            a wheel (its file, or the name of the installed module), which work without TensorFlow
            and have no other signatures than `encode`; a `Model`, whose later changes take effect;
            a function from a list of texts to `[texts, dim]` vectors; or a `tf.Module`, a layer of
            Keras, a loaded SavedModel or a `tf.function`, which gets a string tensor instead.
        dtype: Precision of the matrix products: "float32", or "bfloat16", which is faster on CPUs
            that support it. Vectors are float32 either way.
        truncate_dim: Number of dimensions that `encode` keeps by default; None keeps all.
        **options: Other options of sentence-transformers, with values that change nothing, such as
            `device="cpu"` on a machine without a GPU.

    Attributes:
        prompts: The model's prompts by name, such as {"query": "query: "}.
        default_prompt_name: Name of the prompt that `encode` puts before texts; None for no prompt.
        scores: Scores on examples that `train` or `fine_tune` held out, by suite and metric; else
            {}.

    Raises:
        UserError: There is no such model, it does not support `dtype`, or an option is not
            supported.

    Examples:
        >>> encoder = SentenceEncoder("exported/en-es")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    # The constructor's arguments, if the model was loaded by its name.
    _arguments: tuple[str, str] | None = None

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str] | Backend | Callable[[Any], Any] = IN_THE_BOX,
        dtype: str = "float32",
        *,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> None:
        model: Any = model_name_or_path
        info: Mapping[str, Any] = {}
        self.scores: Mapping[str, Mapping[str, float]] = {}
        if isinstance(model, str | os.PathLike):
            folder = find_folder(name := os.fsdecode(model))
            model, info = _opened(folder)
            scores = read_json_dict(folder / "results.json").get("scores")
            self.scores = scores if isinstance(scores, dict) else {}
            # Absolute, for processes with another working folder.
            is_path = "://" not in name and os.path.exists(os.path.expanduser(name))
            path = os.path.abspath(os.path.expanduser(name)) if is_path else name
            self._arguments = (path, dtype)
        super().__init__(as_backend(model, info, dtype), truncate_dim=truncate_dim)
        require_unused(options, lambda: self.device, SentenceEncoder)

    def __repr__(self) -> str:
        name = repr(self._arguments[0]) if self._arguments else repr(self._backend)
        return f"{type(self).__name__}({name}, prompts={self.prompts})"

    def __reduce__(self) -> Any:
        """Makes `pickle` call the constructor again."""
        arguments = self._arguments or (self._backend,)
        return partial(_unpickled, truncate_dim=self._truncate_dim), arguments

    def call(
        self,
        signature: str,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool = False,
        **inputs: Texts,
    ) -> Any:
        """Calls any signature of an exported model that takes texts, in bounded memory.

        Args:
            signature: Name of the signature, such as "inference".
            batch_size: Number of rows in one call of the model.
            show_progress_bar: True shows a progress bar.
            **inputs: Texts for each of the signature's inputs; a single text is used for every row.

        Returns:
            `[rows, ...]`: an array, or a list of strings; without the axis of rows if all inputs
            are single texts. If the signature has several outputs, a dictionary of them by name.

        Raises:
            UserError: The model has no such signature, the signature has other inputs, or it
                rejects these.
        """
        function = self._signature(signature)
        import tensorflow as tf

        specs = function.structured_input_signature[1]
        if inputs.keys() != specs.keys() or any(spec.dtype != tf.string for spec in specs.values()):
            expected = ", ".join(f"{name}: {spec.dtype.name}" for name, spec in specs.items())
            names = ", ".join(inputs) or "nothing"
            raise UserError(f"the signature {signature} takes {expected}, but got {names}")
        columns, is_one = as_columns(inputs)
        require_positive(batch_size, "batch_size")

        def compute(*texts: list[str]) -> dict[str, NDArray[Any]]:
            require_not_forked()
            outputs = function(**dict(zip(inputs, map(string_tensor, texts), strict=True)))
            return {name: np.asarray(output) for name, output in outputs.items()}

        try:
            outputs = compute_in_batches(
                compute,
                columns,
                max_rows=batch_size,
                threads=self._backend.threads,
                show_progress=show_progress_bar,
            ) or compute(*([] for _ in columns))
        except tf.errors.InvalidArgumentError as error:
            message = first_line(error.message)
            raise UserError(f"the signature {signature} rejects its inputs: {message}") from error
        results: dict[str, Any] = {
            name: [text.decode("utf-8", "replace") for text in array]
            if array.dtype == object
            else array
            for name, array in outputs.items()
        }
        results = {name: rows[0] for name, rows in results.items()} if is_one else results
        return results if len(results) > 1 else next(iter(results.values()))

    @property
    def _signatures(self) -> Mapping[str, Any]:
        return getattr(self._backend, "signatures", {})

    def _signature(self, name: str) -> Any:
        if name not in self._signatures:
            names = ", ".join(sorted(self._signatures)) or "none"
            raise UserError(
                f"the model has no signature {name}, which a task exports; it has {names}"
            )
        return self._signatures[name]

    def _tensor(self, vectors: NDArray[Any]) -> Any:
        return start_tensorflow().constant(vectors)


load = SentenceEncoder  # by the public name


def find_folder(name: str) -> Path:
    """Returns the folder of a model as `find_model` does, or that of an installed wheel."""
    if name.isidentifier() and not os.path.exists(name):
        spec: ModuleSpec | None = find_spec(name)
        folder = Path(spec.origin).parent if spec and spec.origin else None
        if folder and (folder / RUNTIME_SETTINGS).is_file():
            return folder
    return find_model(name)


def _opened(folder: Path) -> tuple[Any, Mapping[str, Any]]:
    """Returns the model in a folder, and what is known of its prompts."""
    if (folder / RUNTIME_SETTINGS).is_file():
        model = open_folder(folder)
        if isinstance(model, RuntimeModel):
            model.open()  # reports a damaged file now
        return model, {}
    if is_model_folder(folder):
        model_class = resolve_name("xling_tf.model:Model")  # here, because it imports TensorFlow
        return model_class.from_folder(folder).module(), read_info(folder)
    return load_saved_model(folder), read_info(folder)


class _Unavailable:
    """Stands in for an encoder in a forked process; calls raise the `UserError` about forks."""

    def __getattr__(self, name: str) -> "_Unavailable":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> None:
        require_not_forked()


def _unpickled(*arguments: Any, **options: Any) -> Any:
    """Loads an encoder by its constructor's arguments; in a forked process, calls are errors."""
    try:
        require_not_forked()
    except UserError:
        # An error here would end each worker of a pool, and the pool would wait forever.
        return _Unavailable()
    return SentenceEncoder(*arguments, **options)
