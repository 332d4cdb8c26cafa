"""The client for Python: any number of sentences to an array, by an exported model or one in training."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import length_sorted_batches
from xling_tf.hub.saved_models import load_saved_model, require_not_forked, resolve
from xling_tf.search.neighbours import cosine_similarity, require_positive, truncated, unit_vectors
from xling_tf.search.quantization import Int8Ranges, Precision, quantize, require_precision

Texts = str | Iterable[str]
# What is done to vectors `[rows, dim]`.
_Finish = Callable[[NDArray[Any]], NDArray[Any]]

_BATCH_SIZE = 2048
_BATCHES_AT_ONCE = min(4, os.cpu_count() or 1)
_TRANSLATED_AT_ONCE = 64
# Fewer texts take less time in float32, as bfloat16 rounds a model's weights in every call.
_BFLOAT16_TEXTS = 8
_SHOWN = 40  # characters of a wrong value in a message


class SentenceEncoder:
    """Encodes sentences with anything that maps a string tensor to vectors.

    Any number of threads may share one; in asyncio, use `asyncio.to_thread(encoder.encode, sentences)`. A
    process needs its own, loaded after a fork: `pickle`, and with it process pools, carries the name of what
    was loaded and `dtype`, and loads it again, without what was changed in memory.

    Args:
        embed: The folder of an exported model, an archive of one or `hf://owner/name`, which is loaded; or
            what gives `[n, dim]` for `[n]` strings.
        dtype: What many sentences' matrices are multiplied in: "float32", or "bfloat16", which is faster
            where a processor has hardware for it. Vectors are float32 all the same.

    Raises:
        UserError: There is no such model, or what is given cannot compute in `dtype`.

    Example:
        >>> encoder = SentenceEncoder("exported/en-es")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    def __init__(self, embed: str | os.PathLike[str] | Callable[[Any], Any], dtype: str = "float32") -> None:
        self._arguments = embed, dtype
        if isinstance(embed, str | os.PathLike):
            self._arguments = _portable(embed), dtype
            embed = load_saved_model(resolve(embed))
        if not callable(embed):
            raise UserError(
                "a model that can be called with sentences is expected, but this one has signatures alone"
                f" ({', '.join(getattr(embed, 'signatures', ())) or 'none'}); export it with xling_tf"
            )
        if dtype not in ("float32", "bfloat16") or (dtype == "bfloat16" and not hasattr(embed, "signatures")):
            raise UserError(
                f"dtype: float32 is expected, or bfloat16 with an exported model, but got {dtype!r} with "
                f"{_shown(embed)}"
            )
        self._model: Any = embed
        self._in_dtype = _in_bfloat16 if dtype == "bfloat16" else lambda call, columns: call
        self._embed = self._in_dtype(embed, 1)

    @classmethod
    def load(cls, model: str | os.PathLike[str], dtype: str = "float32") -> Self:
        """Loads an exported model: only one you trust, as its graph runs with this process' rights."""
        return cls(model, dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        """Says how `pickle` makes it again: by the arguments of the constructor."""
        if hasattr(self._arguments[0], "signatures"):
            raise UserError(
                "to be pickled, an encoder is expected to be made of the name of a model, but this one is of "
                "a loaded model; give xling_tf.load its folder"
            )
        return type(self), self._arguments

    def encode(
        self,
        sentences: Texts,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool = False,
        precision: Precision = "float32",
        truncate_dim: int | None = None,
        ranges: Int8Ranges | None = None,
        convert_to_tensor: bool = False,
        convert_to_numpy: bool = True,
        normalize_embeddings: bool = True,
    ) -> Any:
        """Encodes any number of sentences in bounded memory.

        Args:
            sentences: A string, or strings in a list, tuple, array, Series or generator.
            batch_size: Sentences handed to the model at once.
            show_progress_bar: Whether to show a bar.
            precision: "float32", or what `quantize` makes of it: "int8", "binary" or "ubinary".
            truncate_dim: How many dimensions are kept, brought to unit length again; None: all.
            ranges: Of int8, the same for all of an index; None: those of all unit vectors.
            convert_to_tensor: Whether a TensorFlow tensor is given, not a NumPy array.
            convert_to_numpy: Changes nothing; scripts written for sentence-transformers have it.
            normalize_embeddings: Likewise: vectors are always at unit length.

        Returns:
            `[sentences, dim]`, as `quantize` says, in their order; of a single string, `[dim]`.
        """
        del convert_to_numpy, normalize_embeddings
        vectors = _encode_in_batches(
            self._embed,
            [as_texts(sentences, "sentences")],
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            finish=_finish(precision, truncate_dim, ranges),
        )
        found = vectors[0] if isinstance(sentences, str) else vectors
        return _as_tensor(found) if convert_to_tensor else found

    def encode_query(self, sentences: Texts, **options: Any) -> Any:
        """Encodes questions as `question_encoder` does; options are those of `encode`."""
        return self.question_encoder.encode(sentences, **options)

    def encode_document(self, sentences: Texts, **options: Any) -> Any:
        """Encodes what answers questions as `response_encoder` does, each text its own context."""
        tensor = options.pop("convert_to_tensor", False)
        for name in ("convert_to_numpy", "normalize_embeddings"):
            options.pop(name, None)
        vectors = self.response_encoder.encode(sentences, **options)
        return _as_tensor(vectors) if tensor else vectors

    @staticmethod
    def similarity(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
        """The cosines `[n, m]` of float vectors `[n, dim]` and `[m, dim]`, or single ones, not of texts.

        Example:
            >>> SentenceEncoder.similarity([1.0, 0.0], [[0.0, 1.0], [2.0, 0.0]]).tolist()
            [[0.0, 1.0]]
        """
        return cosine_similarity(a, b)

    @staticmethod
    def similarity_pairwise(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
        """The cosines `[n]` of the rows of two `[n, dim]`.

        Example:
            >>> first, second = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]]
            >>> SentenceEncoder.similarity_pairwise(first, second).tolist()
            [0.0, 1.0]
        """
        first, second = unit_vectors(a, "a"), unit_vectors(b, "b")
        if first.shape != second.shape:
            raise UserError(f"as many vectors are expected, but got {len(first)} and {len(second)}")
        return np.sum(first * second, axis=1)

    def get_sentence_embedding_dimension(self) -> int:
        """`dim`, by the name that sentence-transformers has for it."""
        return self.dim

    @cached_property
    def dim(self) -> int:
        """How many dimensions its vectors have."""
        return int(self.encode([]).shape[1])

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
        _require_as_many(second, first, "hypotheses", "premises")
        probabilities = _encode_in_batches(
            call, [first, second], batch_size=batch_size, show_progress_bar=show_progress_bar
        )
        return probabilities[0] if isinstance(premises, str) else probabilities

    def translate(self, sentences: Texts, language: str) -> list[str]:
        """Says in a language what the vectors of sentences hold (Yu et al. 2018, sec. 2.2).

        The decoder sees the vector alone: this shows what a vector knows, and is no good translator.
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
        return said

    def encode_documents(
        self, documents: Texts, language: str, *, segmentation: str = "sentences", pooling: str = "mean"
    ) -> NDArray[np.float32]:
        """Pools the vectors of documents' parts (Yu et al. 2018, sec. 5.1, Table 5): `[documents, dim]`.

        Args:
            documents: Texts of any length.
            language: Theirs, as "en", whose rules tell sentences apart.
            segmentation: "sentences", or "windows" of 128 words, a new one every 64.
            pooling: "mean" or "max".
        """
        from xling_tf.evaluators.documents import divide, pool

        if segmentation not in ("sentences", "windows") or pooling not in ("mean", "max"):
            raise UserError(
                "segmentation is expected to be sentences or windows, and pooling mean or max, got "
                f"{segmentation!r} and {pooling!r}"
            )
        parts = [divide(text, language, segmentation) for text in as_texts(documents, "documents")]
        return pool(self.encode, parts)[pooling] if parts else np.zeros((0, self.dim), np.float32)

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
    """Encodes questions with a part of a model."""

    def __init__(self, call: Callable[[Any], Any], *, of: SentenceEncoder) -> None:
        super().__init__(call)
        self._whole = of

    def __reduce__(self) -> tuple[Any, ...]:
        """Says how `pickle` makes it again: as a part of the whole model."""
        return getattr, (self._whole, "question_encoder")


class ResponseEncoder:
    """Encodes answers and the contexts that they are from, by a function of one or both.

    It is a part `of` an encoder, which is pickled in its place.
    """

    def __init__(
        self, call: Callable[..., Any], *, takes_contexts: bool, of: SentenceEncoder | None = None
    ) -> None:
        self._call = call
        self._takes_contexts = takes_contexts
        self._whole = of

    def __reduce__(self) -> tuple[Any, ...]:
        """Says how `pickle` makes it again: as a part of the whole model."""
        if self._whole is None:
            return partial(ResponseEncoder, takes_contexts=self._takes_contexts), (self._call,)
        return getattr, (self._whole, "response_encoder")

    def encode(
        self,
        responses: Texts,
        contexts: Texts | None = None,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress_bar: bool = False,
        precision: Precision = "float32",
        truncate_dim: int | None = None,
        ranges: Int8Ranges | None = None,
    ) -> NDArray[Any]:
        """Encodes answers as `SentenceEncoder.encode`, which tells of the options, does sentences.

        There are as many contexts, or a single string in which all are; None or "": an answer is its own.
        """
        columns = [as_texts(responses, "responses")]
        if self._takes_contexts:
            columns.append(
                [contexts or ""] * len(columns[0])
                if contexts is None or isinstance(contexts, str)
                else as_texts(contexts, "contexts")
            )
            _require_as_many(columns[1], columns[0], "contexts", "responses")
        elif contexts is not None:
            raise UserError("this model was trained without contexts, but got some; leave them out")
        vectors = _encode_in_batches(
            self._call,
            columns,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            finish=_finish(precision, truncate_dim, ranges),
        )
        return vectors[0] if isinstance(responses, str) else vectors


load = SentenceEncoder.load


def as_texts(texts: Texts, name: str) -> list[str]:
    """Checks that something is strings, in a list, tuple, array, Series or generator, or a single one."""
    if isinstance(texts, str):
        return [texts]
    # A table gives its columns' names and a mapping its keys; a set forgets what came first.
    rank = getattr(texts, "ndim", 1)
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping | Set) or rank != 1:
        came = f"{rank} dimensions" if rank != 1 else _shown(texts)
        raise UserError(f"{name} must be a string or a list of strings, but got {came}")
    found = list(texts)
    for place, text in enumerate(found):
        if not isinstance(text, str):
            raise UserError(
                f"{name} must be strings, but {name}[{place}] is {_shown(text)}; decode bytes, flatten "
                "nested lists, fill in or drop missing values, and convert others with str(value)"
            )
    return found


def _encode_in_batches(
    call: Callable[..., ArrayLike],
    columns: Sequence[list[str]],
    *,
    batch_size: int,
    show_progress_bar: bool,
    finish: _Finish = lambda rows: rows,
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
        except RuntimeError:  # The interpreter is ending, and starts no threads any more.
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


def _portable(name: str | os.PathLike[str]) -> str:
    """The name of a model that another process finds it by, in whatever folder that works."""
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


def _as_tensor(vectors: NDArray[Any]) -> Any:
    import tensorflow as tf

    return tf.constant(vectors)


def _tensor(texts: list[str], rows: NDArray[np.intp]) -> Any:
    import tensorflow as tf

    # JSON may hold half of a surrogate pair, which UTF-8 cannot; models bear bytes that are no UTF-8.
    return tf.constant([texts[i].encode("utf-8", "surrogatepass") for i in rows], tf.string)


def _finish(precision: Precision, truncate_dim: int | None, ranges: Int8Ranges | None) -> _Finish:
    require_precision(precision)
    return lambda vectors: quantize(
        vectors if truncate_dim is None else truncated(vectors, truncate_dim),
        precision,
        ranges=ranges,
    )


def _require_as_many(some: list[str], others: list[str], name: str, others_name: str) -> None:
    if len(some) != len(others):
        raise UserError(
            f"as many {name} as {others_name} are expected, but got {len(some)} for {len(others)}"
        )


def _shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text if len(text) <= _SHOWN else text[:_SHOWN] + '...'}"
