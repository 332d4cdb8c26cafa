"""The client for Python: any number of sentences to an array, by an exported model or one in training."""

import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xling_tf.errors import UserError
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.search.arrays import cosine_similarity, truncated
from xling_tf.search.quantization import Int8Ranges, Precision, quantize, require_precision
from xling_tf.text_batches import Texts, as_texts, encode_in_batches

# What is done to vectors `[rows, dim]`.
_Finish = Callable[[NDArray[Any]], NDArray[Any]]

_BATCH_SIZE = 2048


class SentenceEncoder:
    """Encodes sentences with anything that maps a string tensor to vectors.

    It changes nothing in itself or in the model: any number of threads may share one. In asyncio,
    `await asyncio.to_thread(encoder.encode, sentences)` leaves the loop free.

    Args:
        embed: A loaded SavedModel or a model in training: `[n]` strings to `[n, dim]`.

    Raises:
        UserError: It cannot be called.

    Example:
        >>> encoder = SentenceEncoder.load("exported/en-es")  # doctest: +SKIP
        >>> encoder.encode(["Hola", "Hello"]).shape  # doctest: +SKIP
        (2, 512)
    """

    def __init__(self, embed: Callable[[Any], Any]) -> None:
        if not callable(embed):
            raise UserError(
                "a model that can be called with sentences is expected, but this one has nothing but "
                f"signatures ({', '.join(getattr(embed, 'signatures', ())) or 'none'}); export it with "
                "xling_tf"
            )
        self._embed = embed

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Loads an exported model.

        Its graph runs with the rights of this process: load models only from those you trust.

        Args:
            folder: With `saved_model.pb`.

        Raises:
            UserError: The folder holds no model that encodes sentences.
        """
        return cls(load_saved_model(Path(folder)))

    def encode(
        self,
        sentences: Texts,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress: bool = False,
        precision: Precision = "float32",
        truncate_dim: int | None = None,
        ranges: Int8Ranges | None = None,
    ) -> NDArray[Any]:
        """Encodes any number of sentences in bounded memory.

        Args:
            sentences: A string, or strings in a list, tuple, array, Series or generator.
            batch_size: Sentences handed to the model at once.
            show_progress: Whether to show a bar.
            precision: "float32", or what `quantize` makes of it: "int8", "binary" or "ubinary".
            truncate_dim: How many dimensions are kept, brought to unit length again; None: all.
            ranges: Of int8; None: those of all unit vectors. All of an index need the same.

        Returns:
            `[sentences, dim]` in the order of the sentences; of a single string, `[dim]`. Of the type
            that `quantize` says.

        Raises:
            UserError: A sentence is no string, an argument is out of its range, or the model gives
                something else than vectors.
        """
        vectors = encode_in_batches(
            lambda texts: self._embed(_tensor(texts)),
            [as_texts(sentences, "sentences")],
            batch_size=batch_size,
            show_progress=show_progress,
            finish=_finish(precision, truncate_dim, ranges),
        )
        return vectors[0] if isinstance(sentences, str) else vectors

    @staticmethod
    def similarity(a: ArrayLike, b: ArrayLike) -> NDArray[np.float32]:
        """The cosines of vectors, which `encode` made in float32, not of texts.

        Args:
            a: `[n, dim]` or one vector `[dim]`.
            b: `[m, dim]` or one vector `[dim]`.

        Returns:
            `[n, m]`.

        Raises:
            UserError: They are no vectors, or of different dimensions.

        Example:
            >>> SentenceEncoder.similarity([1.0, 0.0], [[0.0, 1.0], [2.0, 0.0]]).tolist()
            [[0.0, 1.0]]
        """
        return cosine_similarity(a, b)

    @cached_property
    def dim(self) -> int:
        """How many dimensions its vectors have."""
        return int(self.encode([]).shape[1])

    @cached_property
    def question_encoder(self) -> "SentenceEncoder":
        """Encodes questions, for answers by `response_encoder`.

        Raises:
            UserError: The model has no such signature.
        """
        call, _ = self._signature("question_encoder")
        return SentenceEncoder(lambda questions: call(input=questions))

    @cached_property
    def response_encoder(self) -> "ResponseEncoder":
        """Encodes answers, for questions by `question_encoder`.

        Raises:
            UserError: The model has no such signature.
        """
        call, inputs = self._signature("response_encoder")
        return ResponseEncoder(call, takes_contexts="context" in inputs)

    def inference(
        self,
        premises: Texts,
        hypotheses: Texts,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress: bool = False,
    ) -> NDArray[np.float32]:
        """Classifies pairs: does the premise entail the hypothesis?

        Args:
            premises: As `sentences` of `encode`.
            hypotheses: As many.
            batch_size: Pairs handed to the model at once.
            show_progress: Whether to show a bar.

        Returns:
            `[pairs, 3]` probabilities in the order of `xling_tf.corpora.records.NLI_LABELS`; of two
            strings, `[3]`.

        Raises:
            UserError: The model was not trained for it, a text is no string, or their numbers differ.
        """
        call, _ = self._signature("inference")
        first, second = as_texts(premises, "premises"), as_texts(hypotheses, "hypotheses")
        _require_as_many(second, first, "hypotheses", "premises")
        probabilities = encode_in_batches(
            lambda some, others: call(premise=_tensor(some), hypothesis=_tensor(others)),
            [first, second],
            batch_size=batch_size,
            show_progress=show_progress,
        )
        return probabilities[0] if isinstance(premises, str) else probabilities

    def _signature(self, name: str) -> tuple[Callable[..., Any], frozenset[str]]:
        """A signature of the model, which gives its `outputs`, and the names of its inputs."""
        signatures = getattr(self._embed, "signatures", {})
        if name not in signatures:
            found = ", ".join(sorted(signatures)) or "none, as it is not loaded from an export"
            raise UserError(
                f"a model with the signature {name} is expected, but this one has {found}; train one "
                "with that task, and load it"
            )
        function = signatures[name]
        inputs = frozenset(function.structured_input_signature[1])
        return lambda **texts: function(**texts)["outputs"], inputs


class ResponseEncoder:
    """Encodes answers and the contexts that they are from.

    Args:
        call: The signature: `input` and, where it takes them, `context`.
        takes_contexts: Whether it does.
    """

    def __init__(self, call: Callable[..., Any], *, takes_contexts: bool) -> None:
        self._call = call
        self._takes_contexts = takes_contexts

    def encode(
        self,
        responses: Texts,
        contexts: Texts | None = None,
        *,
        batch_size: int = _BATCH_SIZE,
        show_progress: bool = False,
        precision: Precision = "float32",
        truncate_dim: int | None = None,
        ranges: Int8Ranges | None = None,
    ) -> NDArray[Any]:
        """Encodes answers.

        Args:
            responses: As `sentences` of `SentenceEncoder.encode`.
            contexts: As many, or a single string in which all are; None or "": an answer is its own.
            batch_size: As in `SentenceEncoder.encode`.
            show_progress: Alike.
            precision: Alike.
            truncate_dim: Alike.
            ranges: Alike.

        Returns:
            `[responses, dim]`; of a single string, `[dim]`.

        Raises:
            UserError: As there, or there are contexts that the model cannot take, or fewer or more of
                them than responses.
        """
        columns = {"input": as_texts(responses, "responses")}
        if self._takes_contexts:
            columns["context"] = (
                [contexts or ""] * len(columns["input"])
                if contexts is None or isinstance(contexts, str)
                else as_texts(contexts, "contexts")
            )
            _require_as_many(columns["context"], columns["input"], "contexts", "responses")
        elif contexts is not None:
            raise UserError(
                "responses without contexts are expected, as this model was trained without, but got "
                "some; leave them out, or train with questions, answers and contexts"
            )
        vectors = encode_in_batches(
            lambda *rows: self._call(**dict(zip(columns, map(_tensor, rows), strict=True))),
            list(columns.values()),
            batch_size=batch_size,
            show_progress=show_progress,
            finish=_finish(precision, truncate_dim, ranges),
        )
        return vectors[0] if isinstance(responses, str) else vectors


load = SentenceEncoder.load


def _finish(precision: Precision, truncate_dim: int | None, ranges: Int8Ranges | None) -> _Finish:
    """What is done to each batch of vectors, so that those of all in float32 need never be held."""
    require_precision(precision)

    def finish(vectors: NDArray[np.float32]) -> NDArray[Any]:
        if truncate_dim is not None:
            vectors = truncated(vectors, truncate_dim)
        return quantize(vectors, precision, ranges=ranges)

    return finish


def _require_as_many(some: list[str], others: list[str], name: str, others_name: str) -> None:
    if len(some) != len(others):
        raise UserError(
            f"as many {name} as {others_name} are expected, but got {len(some)} for {len(others)}"
        )


def _tensor(texts: list[bytes]) -> Any:
    import tensorflow as tf

    return tf.constant(texts, tf.string)
