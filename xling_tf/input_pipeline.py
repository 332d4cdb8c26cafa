"""Examples to shuffled, length-bucketed batches of token features.

The i-th batch of a task is a pure function of (examples, seed, i): nothing of the input has to
be saved for a restarted training to see the batches an uninterrupted one would have seen.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.tasks.base import Batch
from xling_tf.text.word_ngram import WordNgramPreprocessor


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of one task, corpus after corpus.

    Attributes:
        columns: Each `[examples]` strings as UTF-8 bytes (object arrays).
        labels: `[examples]` int32.
        lengths: `[examples]` int32 tokens of the longest column.
        corpora: Name and number of examples of each corpus, in order.
    """

    columns: tuple[np.ndarray, ...]
    labels: np.ndarray
    lengths: np.ndarray
    corpora: tuple[tuple[str, int], ...]

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def texts(self, indices: np.ndarray) -> np.ndarray:
        """The texts of some examples, column after column."""
        return np.concatenate([column[indices] for column in self.columns])


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
        if np.min(weighted) < 0 or np.max(weighted) <= 0:
            raise UserError(
                "data.corpus_weights must be at least 0 and above 0 for one corpus of each task, but "
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
        size = self._sizes[corpus]
        series = [
            np.random.default_rng((self._seed, corpus, epoch)).permutation(size)
            for epoch in range(begin // size, -(-end // size))
        ]
        if not series:
            return np.zeros(0, int)
        skipped = begin // size * size
        return self._starts[corpus] + np.concatenate(series)[begin - skipped : end - skipped]

    def _cut(self, indices: np.ndarray, pool: int) -> list[np.ndarray]:
        random = np.random.default_rng((self._seed, pool))
        indices = random.permutation(indices)
        indices = indices[np.argsort(self._lengths[indices], kind="stable")]
        work = np.cumsum(self._lengths[indices])
        cuts = np.searchsorted(
            work, work[-1] * np.arange(1, self._pool_batches) / self._pool_batches
        )
        batches = [batch for batch in np.split(indices, cuts) if len(batch)]
        order = random.permutation(self._pool_batches) % len(batches)
        return [batches[place] for place in order]


def to_batch(
    preprocessor: WordNgramPreprocessor, num_columns: int
) -> Callable[[tf.Tensor, tf.Tensor], Batch]:
    """Makes the graph function that turns texts and labels into a `Batch`."""

    def convert(texts: tf.Tensor, labels: tf.Tensor) -> Batch:
        fingerprints = tf.strings.to_hash_bucket_fast(texts, 2**62)
        return Batch(
            features=preprocessor(texts),
            fingerprints=tf.reshape(fingerprints, [num_columns, -1]),
            labels=labels,
        )

    return convert


def make_dataset(
    examples: Examples,
    sampler: BatchSampler,
    preprocessor: WordNgramPreprocessor,
    *,
    start: int = 0,
    count: int | None = None,
) -> tf.data.Dataset:
    """Streams the batches from position `start` on, `count` of them or without end."""

    def texts_and_labels() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        position = start
        while count is None or position < start + count:
            indices = sampler.batch(position)
            yield examples.texts(indices), examples.labels[indices]
            position += 1

    signature = (tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int32))
    return (
        tf.data.Dataset.from_generator(texts_and_labels, output_signature=signature)
        .map(to_batch(preprocessor, len(examples.columns)), num_parallel_calls=2)
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
