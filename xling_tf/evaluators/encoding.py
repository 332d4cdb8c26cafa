"""Evaluation's interfaces: encode functions, embedders, evaluators; checks of their vectors."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from absl import logging
from numpy.typing import NDArray

from xling_tf.client.batches import Encode as Encode  # for evaluators to import from here
from xling_tf.client.batches import encode_in_batches
from xling_tf.client.match import Line
from xling_tf.client.texts import Texts, as_texts, is_single, require_as_many
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError, as_user_error

Array = NDArray[Any]
_TEXTS_PER_CHUNK = 65_536


class Evaluator(Protocol):
    """Evaluates on a data set: called with an encode function or an `Embedder`, it returns scores.

    It may also have `pairs` of texts that are compared or searched for each other.
    """

    name: str  # of the data set, such as "stsb.en.dev"
    # What may differ between results: seeds, sizes, versions of libraries.
    protocol: Mapping[str, Any]

    def __call__(self, encode: Encode) -> Mapping[str, float]:
        """Returns scores by name."""


class NotApplicableError(Exception):
    """The embedder lacks what an evaluator needs, or data are too few; the message says what."""


class BatchLimits(NamedTuple):
    """The largest batch: number of texts, and of characters if all are as long as the longest."""

    max_rows: int = 1024
    max_length: int = 2**17


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """A sentence encoder for evaluation, described by its functions; calling it encodes sentences.

    Every evaluator takes an embedder, or a plain function that encodes sentences. Functions that
    are None are replaced by `sentences`, except `inference`, whose probabilities are those of
    `NLI_LABELS`.

    Examples:
        >>> lengths = lambda texts: np.array([[len(text)] for text in texts])
        >>> embedder = Embedder(name="lengths", sentences=lengths)
        >>> embedder(["a", "bc"]).tolist()
        [[1], [2]]
        >>> embedder.encode_responses(["a"], ["a. b."]).tolist()
        [[1]]
    """

    name: str  # in results
    sentences: Encode  # n texts to `[n, dim]`
    raw: Encode | None = None  # the same, in the encoder's own lengths
    questions: Encode | None = None
    # From n answers and their n contexts.
    responses: Callable[[list[str], list[str]], np.ndarray] | None = None
    # From premises and hypotheses to `[n, 3]` probabilities.
    inference: Callable[[list[str], list[str]], np.ndarray] | None = None
    # Limits of these functions' batches; None if they take any number of texts.
    batch_limits: BatchLimits | None = None
    # Identifies the model; None if its changes go unnoticed, so that vectors are not stored.
    checksum: str | None = None
    # Settings and origin, for result files.
    description: Mapping[str, Any] = field(default_factory=dict)
    trained_on: TrainedOn | None = None  # None: unknown
    match: Mapping[str, Line] = field(default_factory=dict)  # see `client.match.probabilities`

    def __call__(self, texts: Texts) -> np.ndarray:
        """Encodes sentences: `[n, dim]`; a single text gives `[dim]`."""
        return self._call(self.sentences, texts=texts)

    def encode_raw(self, texts: Texts) -> np.ndarray:
        """Encodes sentences to vectors of the encoder's own lengths, where it has them."""
        return self._call(self.raw or self.sentences, texts=texts)

    def encode_questions(self, texts: Texts) -> np.ndarray:
        """Encodes questions: `[n, dim]`; a single text gives `[dim]`."""
        return self._call(self.questions or self.sentences, texts=texts)

    def encode_responses(self, answers: Texts, contexts: Texts) -> np.ndarray:
        """Encodes answers in their contexts: `[n, dim]`; a single text gives `[dim]`."""
        if self.responses:
            return self._call(self.responses, answers=answers, contexts=contexts)
        return self._call(self.sentences, answers=answers)

    def infer(self, premises: Texts, hypotheses: Texts) -> np.ndarray:
        """Classifies pairs: probabilities `[n, 3]`; a `NotApplicableError` without a head."""
        if self.inference is None:
            raise NotApplicableError("it has no head for inference")
        return self._call(self.inference, premises=premises, hypotheses=hypotheses)

    def wrapped(
        self, wrap: Callable[[str, Callable[..., np.ndarray]], Any], **changes: Any
    ) -> "Embedder":
        """Returns a copy with each function replaced by `wrap(name of the attribute, function)`."""
        names = ("sentences", "raw", "questions", "responses", "inference")
        functions = {n: wrap(n, function) for n in names if (function := getattr(self, n))}
        return dataclasses.replace(self, **functions, **changes)

    def _call(self, function: Callable[..., np.ndarray], **inputs: Texts) -> np.ndarray:
        columns, names = [as_texts(texts, name) for name, texts in inputs.items()], [*inputs]
        require_as_many(columns[-1], columns[0], names[-1], names[0])
        if self.batch_limits:
            vectors: np.ndarray = encode_in_batches(
                function, *columns, **self.batch_limits._asdict()
            )
        else:
            vectors = function(*columns)
        return vectors[0] if is_single(next(iter(inputs.values()))) else vectors


def as_embedder(encode: Encode) -> Embedder:
    """Wraps a plain encode function; returns an embedder as it is."""
    return encode if isinstance(encode, Embedder) else Embedder(name="encode", sentences=encode)


def encode_checked(
    encode: Callable[..., np.ndarray], texts: list[str], *others: list[str], name: str | None = None
) -> NDArray[np.float64]:
    """Encodes columns of n texts to finite float64 vectors `[n, dim]`: rounding reorders no scores.

    Anything else raises a `UserError`, with `name` or, by default, the embedder's name for the
    encoder.
    """
    name = name or _name_of(encode)
    encoded = encode(texts, *others)
    expected = f"{name} must return an array of numbers of shape [{len(texts)}, dim]"
    with as_user_error(f"{expected}, but returned {{error}}", TypeError, ValueError):
        vectors = np.asarray(encoded, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise UserError(f"{expected}, but returned shape {list(vectors.shape)}")
    _require(np.asarray(np.isfinite(vectors).all(axis=1)), texts, "finite vectors", name)
    return vectors


def encode_units(
    encode: Callable[..., np.ndarray],
    texts: list[str],
    *others: list[str],
    allow_zero: bool = True,
) -> NDArray[np.float64]:
    """Encodes columns of n texts to unit vectors `[n, dim]`.

    A zero vector, which averages of words give to a text of unknown words, stays zero: its cosines
    are 0. Without `allow_zero`, it raises a `UserError`.
    """
    vectors, name = encode_checked(encode, texts, *others), _name_of(encode)
    lengths = np.linalg.norm(vectors, axis=1)
    if not allow_zero:
        _require(lengths > 0, texts, "vectors other than zero", name)
    elif not lengths.all():
        first = texts[int(np.argmin(lengths))]
        logging.warning(
            "%s gives zero to %d of %d texts, first %r",
            name,
            np.sum(lengths == 0),
            len(texts),
            first[:80],
        )
    return vectors / np.where(lengths > 0, lengths, 1)[:, None]


def encode_in_chunks(encode: Encode, texts: list[str]) -> NDArray[np.float32]:
    """Encodes millions of texts to unit vectors `[n, dim]`, without a float64 copy of all."""
    starts = range(0, len(texts), _TEXTS_PER_CHUNK)
    chunks = (encode_units(encode, texts[start : start + _TEXTS_PER_CHUNK]) for start in starts)
    return np.concatenate([chunk.astype(np.float32) for chunk in chunks])


def _name_of(encode: Callable[..., np.ndarray]) -> str:
    # The owner of a method such as `encode_questions`.
    embedder = getattr(encode, "__self__", encode)
    return embedder.name if isinstance(embedder, Embedder) else "an encoder"


def _require(valid: NDArray[np.bool_], texts: list[str], expected: str, name: str) -> None:
    if not valid.all():
        text = texts[int(np.argmin(valid))]
        count = f"{np.sum(~valid)} of {len(texts)} texts"
        raise UserError(
            f"{name} must return {expected}, but does not for {count}, first {text[:80]!r}"
        )
