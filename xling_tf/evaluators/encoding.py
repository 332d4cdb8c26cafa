"""What is evaluated: anything that maps strings to vectors, and the check that it did."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from xling_tf.errors import UserError

Encode = Callable[[list[str]], np.ndarray]


class Evaluator(Protocol):
    """Data that, called with an encode function or a system, gives its scores by name.

    Attributes:
        name: Of the data, as "stsb.en.dev".
        protocol: The parameters that its scores depend on, as the number of candidates or the seed.
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

    def __call__(self, texts: list[str]) -> np.ndarray:
        """Encodes sentences: `[n, dim]`."""
        return self.sentences(texts)

    def encode_questions(self, texts: list[str]) -> np.ndarray:
        """Encodes questions: `[n, dim]`."""
        return (self.questions or self.sentences)(texts)

    def encode_responses(self, answers: list[str], contexts: list[str]) -> np.ndarray:
        """Encodes answers in their contexts: `[n, dim]`."""
        return self.responses(answers, contexts) if self.responses else self.sentences(answers)


def as_system(encode: Encode) -> System:
    """Makes a system of a plain encode function; a system stays what it is."""
    return encode if isinstance(encode, System) else System(name="encode", sentences=encode)


def encode_checked(encode: Encode, texts: list[str]) -> NDArray[np.float64]:
    """Encodes texts and makes sure that every one has a finite vector.

    Args:
        encode: The system: n texts to a float array of shape [n, dim].
        texts: The texts.

    Returns:
        The vectors in double precision, in which rounding cannot reorder near-equal scores.

    Raises:
        UserError: The array has another shape, or a vector is not finite.
    """
    encoded = encode(texts)
    try:
        vectors = np.asarray(encoded, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"an encoder must give an array of numbers of shape [{len(texts)}, dim] for {len(texts)} "
            f"texts, but gave something else ({error}); correct the encode function"
        ) from error
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise UserError(
            f"an encoder must give an array of shape [{len(texts)}, dim] for {len(texts)} texts, "
            f"but gave shape {list(vectors.shape)}; correct the encode function"
        )
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    require(finite, texts, "a finite vector", "infinity or NaN in it")
    return vectors


def encode_units(encode: Encode, texts: list[str]) -> NDArray[np.float64]:
    """Encodes texts and scales their vectors to length 1: `[n, dim]`.

    Raises:
        UserError: As in `encode_checked`, or a vector is zero, so that it has no direction.
    """
    vectors = encode_checked(encode, texts)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    require(lengths[:, 0] > 0, texts, "a vector with a direction", "zero only")
    return vectors / lengths


def require(valid: NDArray[np.bool_], texts: list[str], expected: str, came: str) -> None:
    """Raises a `UserError` that names the first text whose vector is not valid."""
    if not valid.all():
        text = texts[int(np.argmin(valid))]
        raise UserError(
            f"an encoder must give {expected} for every text, but {np.sum(~valid)} of {len(texts)} "
            f"have {came}, first {text[:80]!r}; look for the cause in its training or its encode "
            "function"
        )
