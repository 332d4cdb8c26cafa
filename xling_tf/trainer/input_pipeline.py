"""Examples to shuffled, length-bucketed batches of token features.

The i-th batch of a task is a pure function of (examples, seed, i): nothing of the input has to
be saved for a restarted training to see the batches an uninterrupted one would have seen.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import Record
from xling_tf.errors import UserError
from xling_tf.tasks.base import Batch
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.trainer.permutation import shuffled


class Vectors(Protocol):
    """A float16 vector for each example, which may be on the disk until it is asked for."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of examples and of a vector's numbers."""

    def __getitem__(self, indices: NDArray[np.int64], /) -> NDArray[np.float16]:
        """The vectors of some examples: `[indices, dim]`."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of one task, corpus after corpus.

    Attributes:
        records: What they are made of; they may be on the disk until they are asked for.
        texts_of: (record) to its text in each column.
        num_columns: How many these are.
        num_contexts: How many of them, the last ones, are contexts.
        labels: `[examples]` int32.
        lengths: `[examples]` tokens of the longest text.
        corpora: Name and number of examples of each corpus, in order.
        vectors: `[examples, dim]` of a teacher; None where the task has none.
    """

    records: Sequence[Record]
    texts_of: Callable[[Record], tuple[str, ...]]
    num_columns: int
    num_contexts: int = 0
    labels: np.ndarray
    lengths: np.ndarray
    corpora: tuple[tuple[str, int], ...]
    vectors: Vectors | None = None

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def texts(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """The texts of some examples as UTF-8 bytes, column after column."""
        rows = [self.texts_of(self.records[index]) for index in np.asarray(indices, int).tolist()]
        texts = np.empty(self.num_columns * len(rows), object)
        texts[:] = [text.encode() for column in zip(*rows, strict=True) for text in column]
        return texts

    @property
    def vector_dim(self) -> int:
        """Numbers of a teacher's vector; 0 where there are none."""
        return 0 if self.vectors is None else self.vectors.shape[1]

    def vectors_of(self, indices: NDArray[np.int64]) -> NDArray[np.float16]:
        """The teacher's vectors for some examples: `[indices, vector_dim]`."""
        return (
            np.zeros((len(indices), 0), np.float16)
            if self.vectors is None
            else self.vectors[indices]
        )


class BatchSampler:
    """Draws batches of examples of similar length.

    A pool of `pool_batches * examples_per_batch` examples is drawn from the corpora in proportion to
    their size times their weight, each corpus in a new random order every time it is exhausted. The
    pool is sorted by length and cut into `pool_batches` batches that take equal work, so a batch of
    short sentences holds more of them. The batches of a pool come in random order.

    Args:
        examples: What to draw from.
        weights: Of each corpus, relative to its size.
        examples_per_batch: On average.
        pool_batches: Batches that are bucketed together.
        seed: Of every random order.

    Raises:
        UserError: A weight is negative, or all are 0.
    """

    def __init__(
        self,
        examples: Examples,
        weights: Sequence[float],
        *,
        examples_per_batch: int,
        pool_batches: int,
        seed: int,
    ) -> None:
        sizes = np.array([size for _, size in examples.corpora])
        weighted = sizes * np.asarray(weights)
        if not (np.all(np.isfinite(weighted)) and np.min(weighted) >= 0 and np.max(weighted) > 0):
            raise UserError(
                "data.corpus_weights must be numbers of at least 0, above 0 for one corpus of each task, but "
                f"{', '.join(name for name, _ in examples.corpora)} have {list(weights)}"
            )
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._shares = weighted / np.sum(weighted)
        self._lengths = examples.lengths
        self._pool_batches = min(pool_batches, max(1, len(examples) // examples_per_batch))
        # At least one example a corpus, so that no pool is empty.
        self._pool_size = max(self._pool_batches * examples_per_batch, len(sizes))
        self._seed = seed
        self._pool: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(self, position: int) -> np.ndarray:
        """Indices of the examples of the batch at `position` (0, 1, ...)."""
        pool, place = divmod(position, self._pool_batches)
        cached, batches = self._pool
        if cached != pool:
            batches = self._cut(self._draw(pool), pool)
            self._pool = (pool, batches)
        return batches[place]

    def _draw(self, pool: int) -> np.ndarray:
        before, after = self._drawn(pool), self._drawn(pool + 1)
        return np.concatenate(
            [self._slice(corpus, before[corpus], after[corpus]) for corpus in range(len(before))]
        )

    def _drawn(self, pools: int) -> np.ndarray:
        """How many examples the first pools take of each corpus."""
        # The addend keeps rounding errors from taking a whole example away: 1/3 * 21 is 7, not 6.99.
        return np.floor(self._shares * pools * self._pool_size + 1e-6).astype(int)

    def _slice(self, corpus: int, begin: int, end: int) -> np.ndarray:
        """Examples number `begin` to `end` of a corpus' endless series of random orders."""
        epochs, places = np.divmod(np.arange(begin, end), self._sizes[corpus])
        order = shuffled(places, epochs, self._sizes[corpus], (self._seed, corpus))
        return self._starts[corpus] + order

    def _cut(self, indices: np.ndarray, pool: int) -> list[np.ndarray]:
        random = np.random.default_rng((self._seed, pool))
        indices = random.permutation(indices)
        indices = indices[np.argsort(self._lengths[indices], kind="stable")]
        work = np.cumsum(self._lengths[indices], dtype=int)
        cuts = np.searchsorted(
            work, work[-1] * np.arange(1, self._pool_batches) / self._pool_batches
        )
        batches = [batch for batch in np.split(indices, cuts) if len(batch)]
        order = random.permutation(self._pool_batches) % len(batches)
        return [batches[place] for place in order]


def to_batch(
    preprocessor: TextPreprocessor, num_columns: int, num_contexts: int = 0
) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], Batch]:
    """Makes the graph function that turns texts, labels and float16 vectors into a `Batch`."""

    def convert(texts: tf.Tensor, labels: tf.Tensor, vectors: tf.Tensor) -> Batch:
        fingerprints = tf.strings.to_hash_bucket_fast(texts, 2**62)
        num_sentences = tf.size(texts) // num_columns * (num_columns - num_contexts)
        contexts = [texts[num_sentences:]] if num_contexts else []
        return Batch(
            features=preprocessor(texts[:num_sentences], *contexts),
            fingerprints=tf.reshape(fingerprints, [num_columns, -1]),
            labels=labels,
            vectors=tf.cast(vectors, tf.float32),
        )

    return convert


def make_dataset(
    examples: Examples,
    sampler: BatchSampler,
    preprocessor: TextPreprocessor,
    *,
    start: int = 0,
    count: int | None = None,
    block: int = 1,
    stride: int = 1,
) -> tf.data.Dataset:
    """Streams the batches from position `start` on, `count` of them or without end.

    Args:
        examples: Of one task.
        sampler: Says which examples are the batch at a position.
        preprocessor: Turns their texts into features.
        start: Position of the first batch.
        count: How many batches; None: without end.
        block: Of every `stride` positions the first `block` are streamed: a worker's share.
        stride: Positions from one block to the next.
    """

    def raw_batches() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        for number in itertools.count() if count is None else range(count):
            indices = sampler.batch(start + number // block * stride + number % block)
            yield examples.texts(indices), examples.labels[indices], examples.vectors_of(indices)

    signature = (
        tf.TensorSpec([None], tf.string),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([None, examples.vector_dim], tf.float16),
    )
    return (
        tf.data.Dataset.from_generator(raw_batches, output_signature=signature)
        .map(
            to_batch(preprocessor, examples.num_columns, examples.num_contexts),
            num_parallel_calls=2,
        )
        .prefetch(2)
    )


def make_sampler(examples: Examples, config: ExperimentConfig, size: int) -> BatchSampler:
    """Draws training batches of `size` examples on average as the config says."""
    return BatchSampler(
        examples,
        [config.data.corpus_weights.get(name, 1.0) for name, _ in examples.corpora],
        examples_per_batch=size,
        pool_batches=config.data.pool_batches,
        seed=config.training.seed,
    )
