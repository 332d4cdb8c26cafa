"""The client for Python: any number of sentences to an array, by an exported model or one in training."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import length_sorted_batches
from xling_tf.files import read_json
from xling_tf.hub.saved_models import load_saved_model, require_not_forked, resolve
from xling_tf.inputs import Texts, as_texts, is_single, require_as_many, shown
from xling_tf.search.neighbours import cosine_similarity, require_positive, truncated, unit_vectors
from xling_tf.search.quantization import Int8Ranges, Precision, quantize, require_precision

_BATCH_SIZE = 2048
_BATCHES_AT_ONCE = min(4, os.cpu_count() or 1)
_TRANSLATED_AT_ONCE = 64
# Fewer texts take less time in float32, as bfloat16 rounds a model's weights in every call.
_BFLOAT16_TEXTS = 8
_UNIT_TOLERANCE = 1e-5  # of the lengths of float32 vectors


class SentenceEncoder:
    """Encodes sentences with anything that maps a string tensor to vectors.

    Any number of threads may share one; in asyncio, use `asyncio.to_thread(encoder.encode, sentences)`. Each
    process needs its own, loaded after the fork. Pickling, as process pools do, keeps the model's name and
    `dtype` alone, and unpickling loads it again: changes in memory are lost.
    Methods and arguments have sentence-transformers' names; an option that is not supported raises a
    `UserError`.

    Args:
        model_name_or_path: The folder of an exported model, an archive of one or `hf://owner/name`, which is
            loaded; or a function from `[n]` strings to `[n, dim]`.
        dtype: What many sentences' matrices are multiplied in: "float32", or "bfloat16", which is faster
            where a processor has hardware for it. Vectors are float32 all the same.
        truncate_dim: How many dimensions `encode` keeps by default; None: all.
        **options: Other options of sentence-transformers, if they ask for what is done anyway, such as
            `device="cpu"` where TensorFlow has no GPU.

    Raises:
        UserError: There is no such model, it cannot compute in `dtype`, or an option is not supported.

    Example:
        >>> encoder = SentenceEncoder("exported/en-es")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    def __init__(
        self,
        model_name_or_path: str | os.PathLike[str] | Callable[[Any], Any],
        dtype: str = "float32",
        *,
        truncate_dim: int | None = None,
        **options: Any,
    ) -> None:
        _require_supported(options, _CONSTRUCTOR_OPTIONS)
        if truncate_dim is not None:
            require_positive(truncate_dim, "truncate_dim")
        embed, self._folder = model_name_or_path, None
        self._arguments: tuple[Any, str] = embed, dtype
        if isinstance(embed, str | os.PathLike):
            self._arguments = _portable(embed), dtype
            self._folder = resolve(embed)
            embed = load_saved_model(self._folder)
        if not callable(embed):
            signatures = ", ".join(getattr(embed, "signatures", ()))
            raise UserError(
                "the folder of a model, or one that can be called with sentences, is expected, but got "
                f"{f'one with the signatures {signatures} alone' if signatures else shown(embed)}; export it "
                "with xling_tf"
            )
        if dtype not in ("float32", "bfloat16") or (dtype == "bfloat16" and not hasattr(embed, "signatures")):
            raise UserError(
                f"dtype: float32 is expected, or bfloat16 with an exported model, but got {dtype!r} with "
                f"{shown(embed)}"
            )
        self._model: Any = embed
        self._in_dtype = _in_bfloat16 if dtype == "bfloat16" else lambda call, columns: call
        self._embed = self._in_dtype(embed, 1)
        self._truncate_dim = truncate_dim

    @classmethod
    def load(cls, model: str | os.PathLike[str], dtype: str = "float32", **options: Any) -> Self:
        """Loads an exported model: only one you trust, as its graph runs with this process' rights."""
        return cls(model, dtype, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes `pickle` call the constructor again."""
        if hasattr(self._arguments[0], "signatures"):
            raise UserError(
                "an encoder can be pickled if it is made from the name of a model, but this one is made from "
                "a loaded model; give xling_tf.load its folder"
            )
        return partial(_unpickled, type(self), self._truncate_dim), self._arguments

    def encode(
        self,
        inputs: Texts | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool | None = None,
        output_value: str | None = "sentence_embedding",
        precision: Precision = "float32",
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        device: Any = None,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        pool: Any = None,
        chunk_size: int | None = None,
        *,
        ranges: Int8Ranges | None = None,
        **options: Any,
    ) -> Any:
        """Encodes any number of sentences in bounded memory.

        Args:
            inputs: One text or several, in any form that `xling_tf.inputs.as_texts` takes; also by the name
                `sentences`.
            prompt_name: None, "query" or "document", without effect, as models are trained without prompts.
            prompt: Put before each text.
            batch_size: Sentences handed to the model at once.
            show_progress_bar: Whether to show a bar; None: no.
            output_value: Only "sentence_embedding"; models give no vectors of tokens.
            precision: "float32", or what `quantize` makes of it: "int8", "binary" or "ubinary".
            convert_to_numpy: False gives a list of TensorFlow tensors, one for each sentence.
            convert_to_tensor: Whether a TensorFlow tensor is given, not a NumPy array.
            device: Where the model is, "cpu" or, if TensorFlow sees a GPU, "cuda"; None: the same.
            normalize_embeddings: True: vectors are scaled to unit length. None: they keep the model's
                lengths, which are 1 for exported models. False: the same, but an error if the model gives
                unit length.
            truncate_dim: How many dimensions are kept, brought to unit length again unless
                `normalize_embeddings` is False; None: the constructor's `truncate_dim`.
            pool: Only None; this process computes with all cores.
            chunk_size: No effect.
            ranges: Of int8, the same for all of an index; None: those of all unit vectors.
            **options: Those of other models of sentence-transformers; only None is allowed.

        Returns:
            `[sentences, dim]`, as `quantize` says, in their order; of a single text, `[dim]`.

        Raises:
            UserError: The inputs are no texts, or an option is not supported.
        """
        texts = options.pop("sentences", None) if inputs is None else inputs
        options |= {"prompt": prompt, "prompt_name": prompt_name, "output_value": output_value}
        options |= {"device": device, "pool": pool}
        _require_supported(options, _ENCODE_OPTIONS)
        if chunk_size is not None:
            require_positive(chunk_size, "chunk_size")
        form = _Form(
            precision=precision,
            truncate_dim=self._truncate_dim if truncate_dim is None else truncate_dim,
            ranges=ranges,
            normalize=normalize_embeddings,
            container="tensor" if convert_to_tensor else "array" if convert_to_numpy else "list",
        )
        column = as_texts(texts, "inputs")
        if prompt:
            (before,) = as_texts(prompt, "prompt")
            column = [before + text for text in column]
        vectors = _encode_in_batches(
            self._embed,
            [column],
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            finish=form.finish,
        )
        return form.contain(vectors[0] if is_single(texts) else vectors)

    def encode_query(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes questions as `question_encoder` does; arguments are those of `encode`."""
        return self.question_encoder.encode(inputs, *args, **options)

    def encode_document(self, inputs: Texts | None = None, *args: Any, **options: Any) -> Any:
        """Encodes what answers questions as `response_encoder` does, each text its own context.

        Arguments are those of `encode`.
        """
        encoder = SentenceEncoder(self.response_encoder.encode_alone, truncate_dim=self._truncate_dim)
        return encoder.encode(inputs, *args, **options)

    @staticmethod
    def similarity(embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.float32]:
        """The cosines `[n, m]` of float vectors `[n, dim]` and `[m, dim]`, or single ones, not of texts.

        Example:
            >>> SentenceEncoder.similarity([1.0, 0.0], [[0.0, 1.0], [2.0, 0.0]]).tolist()
            [[0.0, 1.0]]
        """
        return cosine_similarity(embeddings1, embeddings2)

    @staticmethod
    def similarity_pairwise(embeddings1: ArrayLike, embeddings2: ArrayLike) -> NDArray[np.float32]:
        """The cosines `[n]` of the rows of two `[n, dim]`.

        Example:
            >>> first, second = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]
            >>> SentenceEncoder.similarity_pairwise(first, second).tolist()
            [0.0, 1.0]
        """
        first, second = unit_vectors(embeddings1, "embeddings1"), unit_vectors(embeddings2, "embeddings2")
        if first.shape != second.shape:
            raise UserError(f"as many vectors are expected, but got {len(first)} and {len(second)}")
        # Products of half precision would be rounded before they are added up.
        return np.einsum("nd,nd->n", first.astype(np.float32), second.astype(np.float32))

    @cached_property
    def dim(self) -> int:
        """How many dimensions its vectors have."""
        return int(self.encode([]).shape[1])

    def get_embedding_dimension(self) -> int:
        """`dim`, by the name that sentence-transformers has for it."""
        return self.dim

    get_sentence_embedding_dimension = get_embedding_dimension  # as older versions call it

    @property
    def similarity_fn_name(self) -> str:
        """What `similarity` computes: "cosine"."""
        return "cosine"

    @property
    def device(self) -> str:
        """Where the model computes: "cpu", or "cuda" if TensorFlow sees a GPU."""
        return _device()

    @property
    def max_seq_length(self) -> int | None:
        """After how many tokens a text is cut; None if the model's folder does not say."""
        config = self._folder and self._folder / "config.json"
        return read_json(config).get("text", {}).get("max_tokens") if config and config.is_file() else None

    @cached_property
    def question_encoder(self) -> "SentenceEncoder":
        """Encodes questions, for answers by `response_encoder`; a `UserError` without the signature."""
        call = self._in_dtype(*self._signature("question_encoder", "input"))
        return _QuestionEncoder(call, of=self)

    @cached_property
    def response_encoder(self) -> "ResponseEncoder":
        """Encodes answers, for questions by `question_encoder`; a `UserError` without the signature."""
        call, columns = self._signature("response_encoder", "input", "context")
        return ResponseEncoder(self._in_dtype(call, columns), takes_contexts=columns > 1, of=self)

    def inference(
        self,
        premises: Texts,
        hypotheses: Texts,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool = False,
    ) -> NDArray[np.float32]:
        """Classifies pairs of a premise and a hypothesis; arguments are as those of `encode`.

        Returns:
            `[pairs, 3]` probabilities in the order of `xling_tf.corpora.records.NLI_LABELS`; of two
            strings, `[3]`.
        """
        call, _ = self._signature("inference", "premise", "hypothesis")
        first, second = as_texts(premises, "premises"), as_texts(hypotheses, "hypotheses")
        require_as_many(second, first, "hypotheses", "premises")
        probabilities = _encode_in_batches(
            call, [first, second], batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        return probabilities[0] if is_single(premises) else probabilities

    def translate(self, sentences: Texts, language: str) -> Any:
        """Says in a language what the vectors of sentences hold (Yu et al. 2018, sec. 2.2).

        The decoder sees the vector alone: this shows what a vector knows, and is no good translator.

        Returns:
            A list of strings; of a single text, a string.
        """
        from tensorflow.errors import InvalidArgumentError

        require_not_forked()
        call, _ = self._signature("translate", "input", "language")
        texts, said = as_texts(sentences, "sentences"), list[str]()
        for begin in range(0, len(texts), _TRANSLATED_AT_ONCE):
            chunk = texts[begin : begin + _TRANSLATED_AT_ONCE]
            try:
                outputs = call(chunk, [language] * len(chunk))
            except InvalidArgumentError as error:
                expected = re.findall("one of .* is expected", str(error))
                raise UserError(
                    f"language: {expected[0] if expected else error}, got {language!r}"
                ) from error
            said += [text.decode() for text in outputs.numpy()]
        return said[0] if is_single(sentences) else said

    def encode_documents(
        self, documents: Texts, language: str, *, segmentation: str = "sentences", pooling: str = "mean"
    ) -> NDArray[np.float32]:
        """Pools the vectors of documents' parts (Yu et al. 2018, sec. 5.1, Table 5).

        Args:
            documents: Texts of any length.
            language: Theirs, as "en", whose rules tell sentences apart.
            segmentation: "sentences", or "windows" of 128 words, a new one every 64.
            pooling: "mean" or "max".

        Returns:
            `[documents, dim]`; of a single text, `[dim]`.
        """
        from xling_tf.evaluators.documents import divide, pool

        if segmentation not in ("sentences", "windows") or pooling not in ("mean", "max"):
            raise UserError(
                "segmentation is expected to be sentences or windows, and pooling mean or max, got "
                f"{segmentation!r} and {pooling!r}"
            )
        parts = [divide(text, language, segmentation) for text in as_texts(documents, "documents")]
        vectors = pool(self.encode, parts)[pooling] if parts else np.zeros((0, self.dim), np.float32)
        return vectors[0] if is_single(documents) else vectors

    def _signature(self, name: str, *inputs: str) -> tuple[Callable[..., Any], int]:
        """A signature of the model as a function of the inputs that it has of these, and their number."""
        signatures = getattr(self._model, "signatures", {})
        if name not in signatures:
            found = ", ".join(sorted(signatures)) or "none, as it is not loaded from an export"
            raise UserError(
                f"a model with the signature {name} is expected, but this one has {found}; train one "
                "with that task, and load it"
            )
        function = signatures[name]
        taken = [each for each in inputs if each in function.structured_input_signature[1]]
        return lambda *columns: function(**dict(zip(taken, columns, strict=True)))["outputs"], len(taken)


class _QuestionEncoder(SentenceEncoder):
    """The part of a model that encodes questions."""

    def __init__(self, call: Callable[[Any], Any], *, of: SentenceEncoder) -> None:
        super().__init__(call, truncate_dim=of._truncate_dim)
        self._whole = of

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes `pickle` keep the whole model."""
        return getattr, (self._whole, "question_encoder")


class ResponseEncoder:
    """Encodes answers and the contexts that they are from, by a function of one or both.

    It is a part `of` an encoder, which is pickled with it.
    """

    def __init__(
        self, call: Callable[..., Any], *, takes_contexts: bool, of: SentenceEncoder | None = None
    ) -> None:
        self._call = call
        self._takes_contexts = takes_contexts
        self._whole = of
        self._truncate_dim = of._truncate_dim if of else None

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes `pickle` keep the whole model."""
        if self._whole is None:
            return partial(ResponseEncoder, takes_contexts=self._takes_contexts), (self._call,)
        return getattr, (self._whole, "response_encoder")

    def encode(
        self,
        responses: Texts,
        contexts: Texts | None = None,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool | None = None,
        precision: Precision = "float32",
        convert_to_tensor: bool = False,
        normalize_embeddings: bool | None = None,
        truncate_dim: int | None = None,
        ranges: Int8Ranges | None = None,
    ) -> Any:
        """Encodes answers as `SentenceEncoder.encode`, which tells of the options, does sentences.

        Give a context for each answer, or a single one for all; None or "": an answer is its own context.
        """
        form = _Form(
            precision=precision,
            truncate_dim=self._truncate_dim if truncate_dim is None else truncate_dim,
            ranges=ranges,
            normalize=normalize_embeddings,
            container="tensor" if convert_to_tensor else "array",
        )
        columns = [as_texts(responses, "responses")]
        if self._takes_contexts:
            columns.append(as_texts("" if contexts is None else contexts, "contexts"))
            if contexts is None or is_single(contexts):
                columns[1] *= len(columns[0])
            require_as_many(columns[1], columns[0], "contexts", "responses")
        elif contexts is not None:
            raise UserError("this model was trained without contexts, but got some; leave them out")
        vectors = _encode_in_batches(
            self._call,
            columns,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            finish=form.finish,
        )
        return form.contain(vectors[0] if is_single(responses) else vectors)

    def encode_alone(self, responses: Any) -> Any:
        """Encodes a tensor of answers, each its own context, as one batch: `[answers, dim]`."""
        import tensorflow as tf

        return self._call(responses, *([tf.zeros_like(responses)] if self._takes_contexts else []))


load = SentenceEncoder.load


def _encode_in_batches(
    call: Callable[..., ArrayLike],
    columns: Sequence[list[str]],
    *,
    batch_size: int,
    show_progress_bar: bool | None,
    finish: Callable[[NDArray[Any]], NDArray[Any]] = lambda rows: rows,
) -> NDArray[Any]:
    """Calls a model with a string tensor for each column; rows of similar length go together.

    The results, `[rows, any]` once `finish` has seen each batch, are in the order of the rows.
    """
    require_positive(batch_size, "batch_size")
    require_not_forked()

    def encode(rows: NDArray[np.intp]) -> NDArray[Any]:
        encoded = np.asarray(call(*(_tensor(column, rows) for column in columns)), np.float32)
        if encoded.ndim != 2 or len(encoded) != len(rows):
            raise UserError(
                f"a model that gives an array of shape [{len(rows)}, dim] for {len(rows)} texts is "
                f"expected, but this one gave shape {list(encoded.shape)}; load an exported encoder"
            )
        return finish(encoded)

    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    batches = [*length_sorted_batches(lengths, max_rows=batch_size, max_length=sys.maxsize)]
    result: NDArray[Any] | None = None
    # A processor splits one batch into words while another multiplies the next one's matrices.
    pool = ThreadPoolExecutor(_BATCHES_AT_ONCE)
    try:
        try:
            encoded_batches = pool.map(encode, batches) if len(batches) > 1 else map(encode, batches)
        except RuntimeError:  # The interpreter is shutting down, and starts no more threads.
            encoded_batches = map(encode, batches)
        with tqdm(total=len(lengths), disable=not (show_progress_bar and sys.stderr), unit="sentence") as bar:
            for rows, encoded in zip(batches, encoded_batches, strict=True):
                if result is None:
                    result = np.empty((len(lengths), encoded.shape[1]), encoded.dtype)
                result[rows] = encoded
                bar.update(len(rows))
    finally:
        pool.shutdown(cancel_futures=True)
    return encode(np.zeros(0, np.intp)) if result is None else result


class _NotHere:
    """Stands for an encoder and its parts in a process that cannot have one; what is called says why."""

    def __getattr__(self, name: str) -> "_NotHere":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **options: Any) -> None:
        require_not_forked()


def _unpickled(kind: type[SentenceEncoder], truncate_dim: int | None, *arguments: Any) -> Any:
    """An encoder as it was pickled."""
    try:
        require_not_forked()
    except UserError:
        # A pool would wait for ever for workers that end as they read their tasks.
        return _NotHere()
    return kind(*arguments, truncate_dim=truncate_dim)


def _portable(name: str | os.PathLike[str]) -> str:
    """The name of a model for another process, which may work in another folder."""
    given = os.fsdecode(name)
    return given if "://" in given else os.path.abspath(os.path.expanduser(given))


def _in_bfloat16(call: Callable[..., Any], columns: int) -> Callable[..., Any]:
    """Has TensorFlow multiply a function's matrices in bfloat16, where there are enough texts."""
    import tensorflow as tf
    from tensorflow.core.protobuf.config_pb2 import ConfigProto
    from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

    graph = tf.function(call).get_concrete_function(*[tf.TensorSpec([None], tf.string)] * columns)
    # Given to this function alone: tf.config's options would be those of a training in this process too.
    config = ConfigProto()
    config.graph_options.rewrite_options.auto_mixed_precision_onednn_bfloat16 = RewriterConfig.ON
    options = {"f": graph, "Tout": [tf.float32], "config_proto": config.SerializeToString()}

    def compute(*texts: Any) -> Any:
        if len(texts[0]) < _BFLOAT16_TEXTS:
            return call(*texts)
        return tf.raw_ops.StatefulPartitionedCall(args=[*texts, *graph.captured_inputs], **options)[0]

    return compute


def _tensor(texts: list[str], rows: NDArray[np.intp]) -> Any:
    import tensorflow as tf

    return tf.constant([texts[i] for i in rows], tf.string)


@dataclass(frozen=True, kw_only=True)
class _Form:
    """The options of `encode` that say in which form vectors are returned."""

    precision: Precision
    truncate_dim: int | None
    ranges: Int8Ranges | None
    normalize: bool | None
    container: Literal["array", "tensor", "list"]

    def __post_init__(self) -> None:
        require_precision(self.precision)
        if self.precision == "int8" and self.normalize is False and self.ranges is None:
            raise UserError(
                "int8 vectors of other than unit length need ranges; make some with Int8Ranges.calibrated"
            )

    def finish(self, vectors: NDArray[Any]) -> NDArray[Any]:
        """Converts a batch `[rows, dim]` to `[rows, dim or bytes]`."""
        if self.normalize is False:
            _require_lengths_of_their_own(vectors)
        elif self.normalize:
            vectors = unit_vectors(vectors, "vectors")
        if self.truncate_dim is not None:
            shorter = truncated(vectors, self.truncate_dim)
            vectors = vectors[:, : self.truncate_dim] if self.normalize is False else shorter
        return quantize(vectors, self.precision, ranges=self.ranges)

    def contain(self, vectors: NDArray[Any]) -> Any:
        """Returns an array as it is, as a tensor or as a list of tensors."""
        if self.container == "array":
            return vectors
        import tensorflow as tf

        tensor = tf.constant(vectors)
        return list(tensor) if self.container == "list" and vectors.ndim > 1 else tensor


def _require_lengths_of_their_own(vectors: NDArray[Any]) -> None:
    lengths = np.linalg.norm(vectors, axis=1)
    if len(lengths) and np.all((np.abs(lengths - 1) < _UNIT_TOLERANCE) | (lengths == 0)):
        raise UserError(
            "normalize_embeddings=False asks for the lengths that a model gives its vectors, but this model "
            "gives all of them unit length, as exported ones do; leave the argument out"
        )


def _device() -> str:
    import tensorflow as tf

    return "cuda" if tf.config.get_visible_devices("GPU") else "cpu"


def _is_here(device: Any) -> bool:
    """True if a device, by sentence-transformers' or TensorFlow's name, is where the model computes."""
    if isinstance(device, list | tuple):
        return all(map(_is_here, device))
    name = str(device).lower().removeprefix("/").removeprefix("device:").removesuffix(":0")
    return device is None or name.replace("gpu", "cuda") == _device()


def _nothing(value: Any) -> bool:
    return value is None or value is False or (isinstance(value, dict | list | tuple) and not value)


def _one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: any(value is each or (isinstance(value, str) and value == each) for each in values)


# Options of sentence-transformers that change nothing or are refused: which values are allowed, and what to
# do instead of others.
_Options = Mapping[str, tuple[Callable[[Any], bool], str]]
_HIDE_GPUS = "the model is where TensorFlow has put it; to use the CPU alone, set CUDA_VISIBLE_DEVICES=''"
_ENCODE_OPTIONS: _Options = {
    "prompt": (lambda value: value is None or isinstance(value, str), "give one string for all texts"),
    "prompt_name": (_one_of(None, "query", "document"), "models have no named prompts; give prompt"),
    "output_value": (_one_of("sentence_embedding"), "models give a vector for each text and none for tokens"),
    "device": (_is_here, _HIDE_GPUS),
    "pool": (_nothing, "this process computes with all cores; leave it out"),
    "task": (_nothing, "call encode_query or encode_document"),
    "processing_kwargs": (_nothing, "a model divides texts as it was trained to; leave it out"),
}
_LOGIN = "set HF_TOKEN, or log in with `hf auth login`"
_CONFIGURED = "an exported model computes as it was trained to; leave it out"
_CONSTRUCTOR_OPTIONS: _Options = {
    "modules": (_nothing, "give the folder of an exported model"),
    "device": (_is_here, _HIDE_GPUS),
    "prompts": (_nothing, "models are trained without prompts; give encode a prompt"),
    "default_prompt_name": (_nothing, "models are trained without prompts; give encode a prompt"),
    "cache_folder": (_nothing, "set HF_HOME"),
    "trust_remote_code": (_one_of(True, False), "True and False do the same; no code is fetched"),
    "revision": (_nothing, "give hf://owner/name@revision"),
    "local_files_only": (_nothing, "set HF_HUB_OFFLINE=1"),
    "token": (_nothing, _LOGIN),
    "use_auth_token": (_nothing, _LOGIN),
    "model_kwargs": (_nothing, "give dtype='bfloat16' for a faster model; leave others out"),
    "processor_kwargs": (_nothing, _CONFIGURED),
    "tokenizer_kwargs": (_nothing, _CONFIGURED),
    "config_kwargs": (_nothing, _CONFIGURED),
    "model_card_data": (_nothing, "training writes the card"),
    "backend": (_one_of("torch"), "open LiteRT and ONNX models with xling_tf.hub.runtimes.load"),
    "similarity_fn_name": (_one_of(None, "cosine"), "similarity is the cosine"),
}


def _require_supported(options: Mapping[str, Any], supported: _Options) -> None:
    for name, value in options.items():
        if name not in supported:
            raise UserError(f"{name} is not an option here; correct its name, or leave it out")
        is_allowed, advice = supported[name]
        if not is_allowed(value):
            raise UserError(f"{name} cannot be {shown(value)}: {advice}")
