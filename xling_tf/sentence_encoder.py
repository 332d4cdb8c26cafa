"""The Python client: encodes any number of sentences with an exported model or with a function."""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError, first_line, require_known
from xling_tf.files import RUNTIME_SETTINGS
from xling_tf.inputs import (
    Texts,
    as_texts,
    describe,
    is_blank,
    is_single,
    require_as_many,
    require_prompt,
    require_unused,
)
from xling_tf.processes import start_tensorflow
from xling_tf.savedmodel.calls import call_in_batches, device, in_bfloat16, string_tensor, unpickled
from xling_tf.savedmodel.runtimes import RuntimeModel
from xling_tf.savedmodel.saved_models import (
    find_model,
    is_model_folder,
    load_saved_model,
    read_info,
)
from xling_tf.search.neighbours import cosine_similarity, require_positive, truncated, unit_vectors
from xling_tf.search.quantization import PRECISIONS, Precision, quantize_units

_BATCH_SIZE = 2048
# Attributes of sentence-transformers, which there change how texts are encoded or compared.
_UNSETTABLE = (
    "prompts",
    "default_prompt_name",
    "truncate_dim",
    "similarity_fn_name",
    "similarity",
    "similarity_pairwise",
    "max_seq_length",
    "tokenizer",
    "processor",
    "device",
    "dtype",
    "backend",
    "batch_size",
    "precision",
    "normalize_embeddings",
    "modules",
)


class SentenceEncoder:
    """Encodes sentences with an exported model, or with any function from a string tensor to
    vectors.

    Methods and arguments have the names that sentence-transformers uses; an unsupported option
    raises a `UserError`. Threads may share an encoder; with asyncio, use
    `asyncio.to_thread(encoder.encode, texts)`. A forked process cannot use TensorFlow if its parent
    has: load SavedModels after the fork. Exports for ONNX Runtime and LiteRT work on both sides of
    a fork, and open their file anew. Pickling stores the model's path and `dtype`, not its weights:
    unpickling loads the model again. Load only models that you trust: their graphs run with the
    rights of this process.

    Args:
        model_name_or_path: The folder of an exported model, an archive of one or `hf://owner/name`;
            or a folder that `Model.save_pretrained` wrote, whose signatures are traced anew.
            Exports for ONNX Runtime and LiteRT, which have `encode` but no signatures, work without
            TensorFlow. Or a `Model`, whose later changes count; or a function from `[n]` strings to
            `[n, dim]` vectors.
        dtype: Precision of the matrix products: "float32", or "bfloat16", which is faster on CPUs
            that support it. Vectors are float32 either way.
        truncate_dim: Number of dimensions that `encode` keeps by default; None keeps all.
        **options: Other options of sentence-transformers, with values that change nothing, such as
            `device="cpu"` on a machine without a GPU.

    Attributes:
        prompts: The model's prompts by name, such as {"query": "query: "}.
        default_prompt_name: Name of the prompt that `encode` puts before texts; None for no prompt.

    Raises:
        UserError: There is no such model, it does not support `dtype`, or an option is not
            supported.

    Example:
        >>> encoder = SentenceEncoder("exported/en-es")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    prompts: dict[str, str]
    default_prompt_name: str | None
    similarity_fn_name = "cosine"  # the measure that `similarity` computes
    _takes_contexts = False
    # Makes a model's input of texts.
    _to_input: Callable[[list[str]], Any] = staticmethod(string_tensor)
    # The constructor's arguments, if the model was loaded by its name.
    _arguments: tuple[str, str] | None = None

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str] | Callable[[Any], Any],
        dtype: str = "float32",
        *,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> None:
        require_unused(options, device)
        if truncate_dim is not None:
            require_positive(truncate_dim, "truncate_dim")
        model: Any = model_name_or_path
        info: Mapping[str, Any] = {}
        if isinstance(model, str | os.PathLike):
            name = os.fsdecode(model)  # absolute, for processes with another working folder
            self._arguments = (
                name if "://" in name else os.path.abspath(os.path.expanduser(name)),
                dtype,
            )
            model, info = _opened(find_model(model))
        embed, raw = model, None
        # This is a `Model`: `encode` puts prompts before its texts.
        if hasattr(model, "encoder_settings"):
            info, raw, embed = asdict(model.info), model.raw, _scaled(model.raw)
        roles = {"query": "", "document": ""}
        if isinstance(model, RuntimeModel):  # which has no prompt but the default one
            roles, self._to_input = {}, list
        self._set_prompts({**roles, **info.get("prompts", {})}, info.get("default_prompt_name"))
        parts: Mapping[str, Any] = getattr(model, "signatures", {})
        self._signatures: Mapping[str, Any] = {
            # The result of `Model.module` has not been traced.
            name: part.concrete_function() if hasattr(part, "concrete_function") else part
            for name, part in parts.items()
        }
        if not callable(model):
            raise UserError(
                f"expected a model that can be called with sentences, but got {describe(model)}"
            )
        if dtype not in (("float32", "bfloat16") if self._signatures else ("float32",)):
            raise UserError(
                f"dtype must be float32, or bfloat16 with an exported model, but is {dtype!r}"
            )
        if dtype == "bfloat16" and device() == "cuda":
            raise UserError(
                "dtype bfloat16 is for CPUs, but TensorFlow sees a GPU; load with float32"
            )
        self._model: Any = model
        self._in_dtype = (
            in_bfloat16 if dtype == "bfloat16" else lambda function, num_inputs: function
        )
        self._embed, self._raw = self._in_dtype(embed, 1), raw
        self._truncate_dim = truncate_dim
        self.scores: Mapping[str, Mapping[str, float]] = {}  # set by `fine_tune`

    def _set_prompts(self, prompts: dict[str, str], default: str | None) -> None:
        vars(self).update(prompts=prompts, default_prompt_name=default)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses attributes of sentence-transformers that would change nothing here."""
        if name in _UNSETTABLE:
            raise UserError(
                f"{name} cannot be set on a loaded model; give it to `load` or `encode` where "
                "they take it"
            )
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        name = self._arguments[0] if self._arguments else describe(self._model)
        return f"{type(self).__name__}({name!r}, prompts={self.prompts})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes `pickle` call the constructor again."""
        if self._arguments is None:
            raise UserError("only an encoder that was loaded by its model's name can be pickled")
        return partial(unpickled, type(self), truncate_dim=self._truncate_dim), self._arguments

    def encode(
        self,
        inputs: Texts | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool | None = None,
        *,
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> Any:
        """Encodes any number of sentences in bounded memory.

        Args:
            inputs: One text or several, in any form that `xling_tf.inputs.as_texts` takes;
                `sentences` is another name of this argument.
            prompt_name: Name of one of the model's `prompts`, which is put before each input; None
                for the default prompt.
            prompt: Text to put before each input instead.
            batch_size: Number of sentences in one call of the model.
            show_progress_bar: True shows a progress bar.
            precision: "float32", "int8", "binary" or "ubinary", see `quantize_units`.
            convert_to_numpy: False returns a list of TensorFlow tensors, one for each sentence.
            convert_to_tensor: True returns one TensorFlow tensor instead of a NumPy array.
            normalize_embeddings: False returns vectors of the encoder's own lengths, from the
                signature `raw` of an exported model. True scales them to unit length, the default
                of all models but functions.
            truncate_dim: Number of dimensions to keep; shorter vectors are scaled to unit length
                again unless `normalize_embeddings` is False. None: the constructor's
                `truncate_dim`.
            **options: Other options of sentence-transformers, with values that change nothing.

        Returns:
            `[sentences, dim]` float32, or as `precision` says, in the order of the inputs; `[dim]`
            for a single text. A blank text, without a visible character, has the zero vector (in
            bits: none is set), which no search finds; the model is not run on it.

        Raises:
            UserError: The inputs are not texts, an option is not supported, or the model has no
                `raw`.
        """
        texts = options.pop("sentences", None) if inputs is None else inputs
        contexts = options.pop("contexts", None)
        require_unused(options, device)
        is_raw = normalize_embeddings is not None and not normalize_embeddings
        require_known("precision", precision, PRECISIONS)
        if precision == "int8" and is_raw:
            raise UserError(
                "precision='int8' needs unit vectors; leave out normalize_embeddings=False"
            )
        named = {"inputs": texts}
        if self._takes_contexts:
            named["contexts"] = "" if contexts is None else contexts
        elif contexts is not None:
            raise UserError("contexts: this model was trained without them; leave them out")
        columns, is_one = _columns(named)
        is_text = np.array([not is_blank(text) for text in columns[0]], bool)
        columns = [
            [text for text, kept in zip(column, is_text, strict=True) if kept] for column in columns
        ]
        prompt = self._prompt(prompt, prompt_name)
        if prompt:
            columns[0] = as_texts([prompt + text for text in columns[0]], "prompt")
        embed = self._embed_raw if is_raw else self._embed
        has_default = (
            self.prompts.get(self.default_prompt_name or "") or "unprompted" in self._signatures
        )
        if self._signatures and has_default and prompt is not None:
            # The other signatures put the default prompt before texts.
            embed, normalize_embeddings = self._encoder("unprompted")[0], not is_raw
        if truncate_dim is None:
            truncate_dim = self._truncate_dim

        def encode(*tensors: Any) -> dict[str, NDArray[Any]]:
            vectors, count = np.asarray(embed(*tensors), np.float32), len(tensors[0])
            if vectors.ndim != 2 or len(vectors) != count:
                shape = list(vectors.shape)
                raise UserError(
                    f"the model gave shape {shape} for {count} texts, not [{count}, dim]"
                )
            if normalize_embeddings:
                vectors = unit_vectors(vectors, "vectors")
            if truncate_dim is not None:
                shorter = truncated(vectors, truncate_dim)
                vectors = vectors[:, :truncate_dim] if is_raw else shorter
            return {"vectors": quantize_units(vectors, precision)}

        outputs = call_in_batches(encode, columns, batch_size, show_progress_bar, self._to_input)
        # In "binary", no bit at all is -128.
        nothing = -128 if precision == "binary" else 0
        encoded = outputs["vectors"]
        all_vectors = np.full((len(is_text), encoded.shape[1]), nothing, encoded.dtype)
        all_vectors[is_text] = encoded
        vectors = all_vectors[0] if is_one else all_vectors
        if convert_to_numpy and not convert_to_tensor:
            return vectors
        tensor = start_tensorflow().constant(vectors)
        return tensor if convert_to_tensor or vectors.ndim == 1 else list(tensor)

    def _prompt(self, prompt: str | None, name: str | None) -> str | None:
        """Returns the prompt that the arguments of `encode` ask for; None for the default."""
        require_prompt(prompt)
        if not self._signatures:  # a SavedModel puts its default prompt before texts itself
            name = name or self.default_prompt_name
        if prompt is None and name is not None:
            require_known("prompt_name", name, self.prompts)
            return self.prompts[name]
        return prompt

    def encode_query(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes questions after the queries' prompt; takes `encode`'s arguments but prompts."""
        return SentenceEncoder.encode(self.question_encoder, inputs, *args, **options)

    def encode_document(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes answers, each as its own context, as `encode_query` does questions."""
        return SentenceEncoder.encode(self.response_encoder, inputs, *args, **options)

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
        columns, is_one = _columns(inputs)
        try:
            outputs = call_in_batches(
                lambda *tensors: function(**dict(zip(inputs, tensors, strict=True))),
                columns,
                batch_size,
                show_progress_bar,
                self._to_input,
            )
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

    def probability(
        self, sentences1: Texts, sentences2: Texts, *, batch_size: int = _BATCH_SIZE
    ) -> Any:
        """The probability that two sentences mean the same, assuming that half of all pairs do.

        It is calibrated on translations, at the end of a training, or on your own pairs by
        `xling_tf.calibrate`, which makes it reliable for pairs of that kind.

        Args:
            sentences1: Texts; a single one is compared with each of the others.
            sentences2: Texts.
            batch_size: Number of pairs in one call of the model.

        Returns:
            `[pairs]` float32; a number if both are single texts.

        Raises:
            UserError: The model is not calibrated, or the numbers of texts differ.
        """
        if "same_meaning" not in self._signatures:
            raise UserError(
                "expected a calibrated model, with the signature same_meaning; calibrate it with "
                "xling_tf.calibrate(model, pairs, output=...)"
            )
        return self.call(
            "same_meaning", batch_size=batch_size, sentence1=sentences1, sentence2=sentences2
        )

    similarity = staticmethod(cosine_similarity)

    @staticmethod
    def similarity_pairwise(embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.float32]:
        """The cosines `[n]` of the rows of two `[n, dim]`.

        Example:
            >>> first, second = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]
            >>> SentenceEncoder.similarity_pairwise(first, second).tolist()
            [0.0, 1.0]
        """
        first = unit_vectors(embeddings1, "embeddings1")
        second = unit_vectors(embeddings2, "embeddings2")
        if first.shape != second.shape:
            raise UserError(
                f"expected equal shapes, but got {[*first.shape]} and {[*second.shape]}"
            )
        # Products of half precision would be rounded before they are added up.
        return np.einsum("nd,nd->n", first.astype(np.float32), second.astype(np.float32))

    @cached_property
    def dim(self) -> int:
        """Number of dimensions of the vectors."""
        return int(self.encode([]).shape[1])

    def get_embedding_dimension(self) -> int:
        """The same as `dim`, by sentence-transformers' name."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension  # the name in older versions

    @property
    def device(self) -> str:
        """The device of the model: "cpu", or "cuda" for a SavedModel if TensorFlow sees a GPU."""
        return "cpu" if isinstance(self._model, RuntimeModel) else device()

    @cached_property
    def question_encoder(self) -> "InnerEncoder":
        """The encoder of questions; raises a `UserError` if the model has no such signature."""
        return InnerEncoder(self, "question_encoder")

    @cached_property
    def response_encoder(self) -> "InnerEncoder":
        """The encoder of answers; raises a `UserError` if the model has no such signature."""
        return InnerEncoder(self, "response_encoder")

    @cached_property
    def _embed_raw(self) -> Callable[..., Any]:
        """The function from texts to vectors of the encoder's own lengths."""
        if self._signatures or isinstance(self._model, RuntimeModel):
            return self._encoder("raw")[0]
        return self._raw or self._embed

    def _encoder(self, name: str) -> tuple[Callable[..., Any], int]:
        """A signature as a function of texts (and contexts, if taken), and its number of inputs."""
        function = self._signature(name)
        inputs = function.structured_input_signature[1]
        names = [
            input_name for input_name in ("inputs", "input", "context") if input_name in inputs
        ]

        def embed(*columns: Any) -> Any:
            return function(**dict(zip(names, columns, strict=True)))["outputs"]

        return self._in_dtype(embed, len(names)), len(names)

    def _signature(self, name: str) -> Any:
        if name not in self._signatures:
            names = ", ".join(sorted(self._signatures)) or "none"
            raise UserError(
                f"the model has no signature {name}, which a task exports; it has {names}"
            )
        return self._signatures[name]


class InnerEncoder(SentenceEncoder):
    """The encoder of questions or of answers within a model; pickling stores the whole model."""

    def __init__(self, whole: SentenceEncoder, name: str) -> None:
        function, num_inputs = whole._encoder(name)
        super().__init__(function, truncate_dim=whole._truncate_dim)
        self._takes_contexts = num_inputs > 1
        self._whole, self._name = whole, name
        self._set_prompts(whole.prompts, self.default_prompt_name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._whole, self._name)

    def encode(  # type: ignore[override]
        self, inputs: Texts | None = None, contexts: Texts | None = None, **options: Any
    ) -> Any:
        """Encodes questions, or answers in their contexts if the model was trained with them.

        Args:
            inputs: One text or several.
            contexts: A context for each answer, or one for all; None or "": an answer is its own
                context.
            **options: Those of `SentenceEncoder.encode`.

        Returns:
            `[inputs, dim]`; `[dim]` for a single text.
        """
        return super().encode(inputs, contexts=contexts, **options)

    def _prompt(self, prompt: str | None, name: str | None) -> str | None:
        if prompt is not None and any(self.prompts.values()):
            raise UserError(
                "prompt: questions and documents have the model's own prompts; use `encode`"
            )
        return super()._prompt(prompt, name) and prompt

    @property
    def _embed_raw(self) -> Callable[..., Any]:
        raise UserError(
            "normalize_embeddings=False: questions and responses have only unit vectors"
        )


load = SentenceEncoder  # by the public name


def _opened(folder: Path) -> tuple[Any, Mapping[str, Any]]:
    """Returns the model in a folder, and what is known of its prompts."""
    if (folder / RUNTIME_SETTINGS).is_file():
        model = RuntimeModel(folder)
        return model, {"prompts": {"default": model.prompt}, "default_prompt_name": "default"}
    if is_model_folder(folder):
        model_class = resolve_name("xling_tf.model:Model")  # here, because it imports TensorFlow
        return model_class.from_pretrained(folder).module(), read_info(folder)
    return load_saved_model(folder), read_info(folder)


def _scaled(raw: Callable[[Any], Any]) -> Callable[[Any], NDArray[np.float32]]:
    """Returns a function whose vectors are those of another one, in unit length."""
    return lambda texts: unit_vectors(np.asarray(raw(texts)), "vectors")


def _columns(inputs: Mapping[str, Any]) -> tuple[list[list[str]], bool]:
    """Makes inputs columns of one length, repeating single texts; tells if all are single."""
    columns = {name: as_texts(texts, name) for name, texts in inputs.items()}
    several = [name for name, texts in inputs.items() if not is_single(texts)]
    for name, column in columns.items():
        if name not in several:
            columns[name] = column * (len(columns[several[0]]) if several else 1)
        else:
            require_as_many(column, columns[several[0]], f"texts in {name}", several[0])
    return [*columns.values()], not several
