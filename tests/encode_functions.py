"""Encode functions whose scores are known in advance."""

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from xling_tf.evaluators.encoding import Encode


def _draw(text: str, dim: int, seed: int) -> np.ndarray:
    digest = hashlib.blake2b(
        f"{seed}:{text}".encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    vector = np.random.default_rng(int.from_bytes(digest)).standard_normal(dim)
    return vector / np.linalg.norm(vector)


def random_vectors(dim: int = 64, seed: int = 0) -> Encode:
    """A random vector for each text, always the same one."""

    def encode(texts: list[str]) -> np.ndarray:
        return np.stack([_draw(text, dim, seed) for text in texts]).astype(np.float32)

    return encode


def by_meaning(meaning: Callable[[str], Hashable], dim: int = 512) -> Encode:
    """A perfect encoder: texts with one meaning have one unit vector, others nearly orthogonal
    ones.

    Args:
        meaning: Function from a text to its meaning, which is equal for texts that mean the same.
    """
    draw = random_vectors(dim, seed=1)
    return lambda texts: draw([repr(meaning(text)) for text in texts])


# Perfect where a text's last word is its meaning.
by_last_word = by_meaning(lambda text: text.split()[-1])


def looked_up(vectors: Mapping[str, ArrayLike]) -> Encode:
    """The given vector of each text."""
    return lambda texts: np.array([vectors[text] for text in texts], np.float32)


def constant(texts: list[str]) -> np.ndarray:
    """The same vector for every text."""
    return np.ones((len(texts), 4), np.float32)


def numbers(texts: Sequence[str]) -> np.ndarray:
    """An exported model's stand-in with its own lengths: the text "3 4" has the vector (3, 4)."""
    rows = [[float(number) for number in text.split()] for text in texts]
    return np.array(rows, np.float32).reshape(len(rows), -1)


class Counting:
    """An encode function that records its inputs."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.batches: list[list[str]] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.batches.append(texts)
        return self.encode(texts)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]
