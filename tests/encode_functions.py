"""Encode functions whose scores are known before they are computed."""

import hashlib
from collections.abc import Callable, Hashable, Mapping

import numpy as np

from xling_tf.evaluators.encoding import Encode


def random_vectors(dim: int = 64, seed: int = 0) -> Encode:
    """A vector of chance for each text: always the same one for a text, whatever its company."""

    def encode(texts: list[str]) -> np.ndarray:
        return np.stack([_draw(text, dim, seed) for text in texts]).astype(np.float32)

    return encode


def by_meaning(meaning: Mapping[str, Hashable] | Callable[[str], Hashable]) -> Encode:
    """A perfect encoder: texts with one meaning have one unit vector, others nearly orthogonal ones.

    Args:
        meaning: Of each text, whatever says which texts mean the same.
    """
    look_up = meaning.__getitem__ if isinstance(meaning, Mapping) else meaning

    def encode(texts: list[str]) -> np.ndarray:
        return np.stack([_draw(repr(look_up(text)), 512, 1) for text in texts]).astype(np.float32)

    return encode


def constant(texts: list[str]) -> np.ndarray:
    """One vector for every text."""
    return np.ones((len(texts), 4), np.float32)


def _draw(text: str, dim: int, seed: int) -> np.ndarray:
    digest = hashlib.blake2b(f"{seed}:{text}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    vector = np.random.default_rng(int.from_bytes(digest)).standard_normal(dim)
    return vector / np.linalg.norm(vector)


class Counting:
    """An encode function that keeps what it was asked for."""

    def __init__(self, encode: Encode) -> None:
        self.encode = encode
        self.batches: list[list[str]] = []

    def __call__(self, texts: list[str]) -> np.ndarray:
        self.batches.append(texts)
        return self.encode(texts)

    @property
    def texts(self) -> list[str]:
        return [text for batch in self.batches for text in batch]
