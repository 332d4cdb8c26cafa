"""What is evaluated: anything that maps strings to vectors, in bounded batches, and the check that it did."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError
from xling_tf.inputs import Texts, as_texts, is_single, require_as_many

Encode = Callable[[list[str]], np.ndarray]
# Vectors are float32 by contract: scores that differ by less than its rounding are a tie.
TIE = 1e-6


class Evaluator(Protocol):
    """Data that, called with an encode function or a system, gives its scores by name.

    Attributes:
        name: Of the data, as "stsb.en.dev".
        protocol: The parameters that its scores depend on, as the number of candidates or the seed.
        pairs: The pairs of texts that it compares, or in which one text is to be found for the other; an
            evaluator without pairs leaves it out.
    """

    name: str
    protocol: Mapping[str, Any]

    def __call__(self, encode: Encode) -> Mapping[str, Any]:
        """Returns the scores of the system behind `encode`, or JSON to be drawn (illustrations)."""


class NotApplicableError(Exception):
    """The system lacks what an evaluator needs, as a head for inference; the message says what."""


@dataclass(frozen=True, kw_only=True)
class System:
    """A sentence encoder by its functions; called, it encodes sentences.

    Every evaluator takes one, or a plain function that encodes sentences.

    Args:
        name: What results call it.
        sentences: n texts to a float array of shape [n, dim].
        questions: The same for questions; None: they are encoded as sentences.
        responses: n answers and their n contexts to [n, dim]; None: the answers are encoded as
            sentences, without their contexts.
        inference: n premises and n hypotheses to probabilities [n, 3] of the labels in
            `xling_tf.corpora.records.NLI_LABELS`; None: it has no head for inference.
        checksum: Identifies its vectors; None: nothing tells when they change, so they are not kept.
        description: Its settings and origin, for result files.
        trained_on: The texts that it was trained on; None: unknown.

    Example:
        >>> system = System(name="lengths", sentences=lambda texts: np.array([[len(t)] for t in texts]))
        >>> system(["a", "bc"]).tolist()
        [[1], [2]]
        >>> system.encode_responses(["a"], ["a. b."]).tolist()
        [[1]]
    """

    name: str
    sentences: Encode
    questions: Encode | None = None
    responses: Callable[[list[str], list[str]], np.ndarray] | None = None
    inference: Callable[[list[str], list[str]], np.ndarray] | None = None
    checksum: str | None = None
    description: Mapping[str, Any] = field(default_factory=dict)
    trained_on: TrainedOn | None = None

    def __call__(self, texts: Texts) -> np.ndarray:
        """Encodes sentences: `[n, dim]`; of a single text, `[dim]`."""
        return _encoded(self.sentences, texts)

    def encode_questions(self, texts: Texts) -> np.ndarray:
        """Encodes questions: `[n, dim]`; of a single text, `[dim]`."""
        return _encoded(self.questions or self.sentences, texts)

    def encode_responses(self, answers: Texts, contexts: Texts) -> np.ndarray:
        """Encodes answers in their contexts: `[n, dim]`; of a single text, `[dim]`."""
        if self.responses:
            return _encoded(self.responses, answers, contexts)
        return _encoded(self.sentences, answers)


def _encoded(encode: Callable[..., np.ndarray], texts: Texts, *contexts: Texts) -> np.ndarray:
    columns = [as_texts(texts, "texts"), *(as_texts(each, "contexts") for each in contexts)]
    require_as_many(columns[-1], columns[0], "contexts", "texts")
    vectors = encode(*columns)
    return vectors[0] if is_single(texts) else vectors


def as_system(encode: Encode) -> System:
    """Makes a system of a plain encode function; a system stays what it is."""
    return encode if isinstance(encode, System) else System(name="encode", sentences=encode)


def encode_checked(
    encode: Callable[..., np.ndarray], texts: list[str], *others: list[str], name: str | None = None
) -> NDArray[np.float64]:
    """Encodes texts to finite vectors `[n, dim]`, in double precision so that rounding reorders no scores.

    `name` is what messages call the encoder; by default, a system's own name.
    """
    name = name or _name_of(encode)
    encoded = encode(texts, *others)
    expected = f"{name} must give an array of numbers of shape [{len(texts)}, dim]"
    try:
        vectors = np.asarray(encoded, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{expected}, but gave {error}; correct the encode function") from error
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise UserError(f"{expected}, but gave shape {list(vectors.shape)}; correct the encode function")
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    require(finite, texts, "a finite vector", "infinity or NaN in it", name)
    return vectors


def encode_units(encode: Encode, texts: list[str]) -> NDArray[np.float64]:
    """Encodes texts, none of them to zeros, and scales their vectors to length 1: `[n, dim]`."""
    vectors = encode_checked(encode, texts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    require(lengths[:, 0] > 0, texts, "a vector with a direction", "zero only", _name_of(encode))
    return vectors / lengths


def _name_of(encode: Callable[..., np.ndarray]) -> str:
    return encode.name if isinstance(encode, System) else "an encoder"


def require(valid: NDArray[np.bool_], texts: list[str], expected: str, came: str, name: str) -> None:
    """Raises a `UserError` that names the encoder and the first text whose vector is not valid."""
    if not valid.all():
        text = texts[int(np.argmin(valid))]
        raise UserError(
            f"{name} must give {expected} for every text, but {np.sum(~valid)} of {len(texts)} "
            f"have {came}, first {text[:80]!r}; look for the cause in its training or its encode "
            "function"
        )


def length_sorted_batches(
    lengths: Sequence[int], *, max_rows: int, max_length: int
) -> Iterator[NDArray[np.intp]]:
    """Divides rows into batches of at most `max_length` when padded to their longest row.

    The longest come first: if the memory does not suffice, that shows at once. A row longer than
    `max_length` is a batch of its own.

    Example:
        >>> batches = length_sorted_batches([1, 9, 2, 3], max_rows=2, max_length=6)
        >>> [batch.tolist() for batch in batches]
        [[1], [3, 2], [0]]
    """
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    start = 0
    while start < len(order):
        longest = max(1, lengths[order[start]])
        size = min(max_rows, max(1, max_length // longest))
        yield order[start : start + size]
        start += size


def in_batches(
    encode: Callable[..., np.ndarray], *columns: list[str], max_rows: int, max_length: int
) -> np.ndarray:
    """Encodes rows of texts in length-sorted batches; the vectors are in the order of the rows.

    Example:
        >>> lengths = lambda texts: np.array([[len(text)] for text in texts])
        >>> in_batches(lengths, ["a", "bcd", "ef"], max_rows=2, max_length=100).tolist()
        [[1], [3], [2]]
    """
    lengths = [sum(map(len, row)) for row in zip(*columns, strict=True)]
    result = np.zeros((0, 0), np.float32)
    for rows in length_sorted_batches(lengths, max_rows=max_rows, max_length=max_length):
        encodings = encode(*([column[i] for i in rows] for column in columns))
        if not result.size:
            result = np.empty((len(lengths), *encodings.shape[1:]), encodings.dtype)
        result[rows] = encodings
    return result
