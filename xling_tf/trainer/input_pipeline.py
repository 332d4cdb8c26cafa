"""Examples to shuffled, length-bucketed batches of token features.

The i-th batch of a task is a pure function of (examples, seed, i): nothing of the input has to
be saved for a restarted training to see the batches an uninterrupted one would have seen.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.records import Record
from xling_tf.corpora.store import StoredCorpus, StoredRecords, join
from xling_tf.errors import UserError
from xling_tf.tasks.base import Batch, Task
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.trainer.distribution import Workers

# What is read of a batch: texts, labels, and a teacher's vectors.
_READ = (tf.string, tf.int32, tf.float32)


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Examples of one task, corpus after corpus; on the disk, perhaps, until they are asked for."""

    records: Sequence[Record]
    texts_of: Callable[[Record], tuple[str, ...]]  # to the text of each column
    num_columns: int
    num_contexts: int = 0  # how many of the columns, the last ones, are contexts
    labels: NDArray[np.int32]
    lengths: NDArray[np.signedinteger[Any]]  # tokens of the longest text
    corpora: tuple[tuple[str, int], ...]  # name and number of examples of each, in order
    vectors: Any  # `[examples, dim]` float32 of a teacher, or something that is indexed in the same way

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def texts(self, indices: NDArray[np.int64]) -> NDArray[np.object_]:
        """The texts of some examples as UTF-8 bytes, column after column."""
        rows = [self.texts_of(self.records[index]) for index in indices.tolist()]
        texts = np.empty(self.num_columns * len(rows), object)
        texts[:] = [text.encode() for column in zip(*rows, strict=True) for text in column]
        return texts


class TaskExamples(NamedTuple):
    """The examples of one task."""

    train: Examples
    held_out: Examples


def task_examples(tasks: Iterable[Task], corpora: Sequence[StoredCorpus]) -> dict[str, TaskExamples]:
    """Collects the examples of each task that has any for training; the others are left out."""
    examples = {}
    for task in tasks:
        own = [c for c in corpora if (c.kind, c.languages) == (task.kind, task.languages)]
        if any(len(task.select(corpus.train)) for corpus in own):
            examples[task.name] = TaskExamples(
                _collect(task, [(corpus.name, corpus.train) for corpus in own]),
                _collect(task, [(corpus.name, corpus.held_out) for corpus in own]),
            )
    return examples


def _collect(task: Task, parts: Sequence[tuple[str, StoredRecords]]) -> Examples:
    texts_of = task.texts_of(join([part for _, part in parts]))
    parts = [(name, task.select(part)) for name, part in parts]
    records = join([part for _, part in parts])
    return Examples(
        records=records,
        texts_of=texts_of,
        num_columns=len(task.columns),
        num_contexts=task.num_contexts,
        labels=records.labels,
        lengths=records.lengths,
        corpora=tuple((name, len(part)) for name, part in parts if len(part)),
        vectors=np.zeros((len(records), 0), np.float32),
    )


class BatchSampler:
    """Draws batches of examples of similar length, of any lengths, or of the same documents.

    A pool of `data.pool_batches * examples_per_batch` examples is drawn from the corpora in proportion to
    their size times their weight, each corpus in a new random order every time it is exhausted. The
    pool is sorted by length, or by the examples' place in the corpora without `by_length`, and cut into
    batches that take equal work, so a batch of short sentences holds more of them. With
    `data.equal_batches` it is cut into equal numbers, and not sorted by length: a sentence's negatives
    are of any length. The batches of a pool come in random order.
    """

    def __init__(
        self,
        examples: Examples,
        weights: Sequence[float],
        examples_per_batch: int,
        config: ExperimentConfig,
        *,
        by_length: bool = True,
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
        self._by_length = by_length
        most = max(1, len(examples) // examples_per_batch)
        self._pool_batches = min(config.data.pool_batches, most)
        # At least one example a corpus, so that no pool is empty.
        self._pool_size = max(self._pool_batches * examples_per_batch, len(sizes))
        self._equal = config.data.equal_batches
        self._seed = config.training.seed
        self._pool: tuple[int, list[NDArray[np.int64]]] = (-1, [])

    def batch(self, position: int) -> NDArray[np.int64]:
        """Indices of the examples of the batch at `position` (0, 1, ...)."""
        pool, place = divmod(position, self._pool_batches)
        if self._pool[0] != pool:
            self._pool = (pool, self._cut(self._draw(pool), pool))
        return self._pool[1][place]

    def _draw(self, pool: int) -> NDArray[np.int64]:
        before, after = self._drawn(pool), self._drawn(pool + 1)
        return np.concatenate(
            [self._slice(corpus, before[corpus], after[corpus]) for corpus in range(len(before))]
        )

    def _drawn(self, pools: int) -> NDArray[np.int64]:
        """How many examples the first pools take of each corpus."""
        # The addend keeps rounding errors from taking a whole example away: 1/3 * 21 is 7, not 6.99.
        return np.floor(self._shares * pools * self._pool_size + 1e-6).astype(int)

    def _slice(self, corpus: int, begin: int, end: int) -> NDArray[np.int64]:
        """Examples number `begin` to `end` of a corpus' endless series of random orders."""
        epochs, places = np.divmod(np.arange(begin, end), self._sizes[corpus])
        order = shuffled(places, epochs, self._sizes[corpus], (self._seed, corpus))
        return self._starts[corpus] + order

    def _cut(self, indices: NDArray[np.int64], pool: int) -> list[NDArray[np.int64]]:
        random = np.random.default_rng((self._seed, pool))
        indices = random.permutation(indices)
        if not self._by_length:
            indices = np.sort(indices)
        elif not self._equal:
            indices = indices[np.argsort(self._lengths[indices], kind="stable")]
        if self._equal:
            batches = np.array_split(indices, self._pool_batches)
        else:
            work = np.cumsum(self._lengths[indices], dtype=int)
            cuts = work[-1] * np.arange(1, self._pool_batches) / self._pool_batches
            batches = np.split(indices, np.searchsorted(work, cuts))
        batches = [batch for batch in batches if len(batch)]
        places = random.permutation(self._pool_batches) % len(batches)
        return [batches[place] for place in places]


def make_sampler(examples: Examples, task: Task, config: ExperimentConfig) -> BatchSampler:
    """Draws the training batches of a task as the config says."""
    weights = [config.data.corpus_weights.get(name, 1.0) for name, _ in examples.corpora]
    return BatchSampler(examples, weights, task.config.examples_per_batch, config, by_length=task.by_length)


_ROUNDS = 4  # Luby and Rackoff 1988: from four on, an order cannot be told from a random one


def shuffled(
    places: NDArray[np.int64], epochs: NDArray[np.int64], size: int, seed: Sequence[int]
) -> NDArray[np.int64]:
    """Computes what is at some places of random orders, one order for each epoch, in no memory.

    An order is a Feistel network over the numbers of an even number of bits; its rounds repeat until
    the number is below `size` ("cycle walking", Black and Rogaway 2002, sec. 4). `places`, `epochs` and
    what is returned are `[n]`.

    Example:
        >>> places = np.arange(5)
        >>> sorted(shuffled(places, np.zeros(5, int), 5, [1]).tolist())
        [0, 1, 2, 3, 4]
    """
    half = np.uint64(max(1, -(-int(size - 1).bit_length() // 2)))
    keys = np.random.SeedSequence(seed).generate_state(_ROUNDS, np.uint64)
    keys = _mixed(keys[:, None] + _mixed(epochs.astype(np.uint64)))
    numbers = places.astype(np.uint64)
    outside = np.arange(len(numbers))
    while len(outside):
        left = numbers[outside] >> half
        right = numbers[outside] & ((np.uint64(1) << half) - np.uint64(1))
        for key in keys[:, outside]:
            left, right = right, left ^ (_mixed(right + key) >> (np.uint64(64) - half))
        numbers[outside] = (left << half) | right
        outside = outside[numbers[outside] >= size]
    return numbers.astype(np.int64)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Lets every bit depend on every other (the finalizer of SplitMix64, Steele et al. 2014)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def make_dataset(
    examples: Examples,
    batch: Callable[[int], NDArray[np.int64]],
    preprocessor: TextPreprocessor,
    *,
    count: int | None = None,
) -> tf.data.Dataset:
    """Streams batches, `count` of them or without end; `batch(n)` says which examples the n-th one has."""

    def read(number: NDArray[np.int64]) -> tuple[NDArray[Any], ...]:
        indices = batch(int(number))
        return examples.texts(indices), examples.labels[indices], examples.vectors[indices]

    # Not `Dataset.from_generator`, whose iterator makes malloc give freed memory back at once.
    convert = _to_batch(preprocessor, examples.num_columns, examples.num_contexts, examples.vectors.shape[1])
    return (
        tf.data.Dataset.range(sys.maxsize if count is None else count)
        .map(lambda number: tf.numpy_function(read, [number], _READ))
        .map(convert, num_parallel_calls=2)
        .prefetch(2)
    )


@lru_cache(8)
def _to_batch(
    preprocessor: TextPreprocessor, num_columns: int, num_contexts: int, vector_dim: int
) -> Callable[..., Batch]:
    """Makes the graph function that turns texts, labels and vectors into a `Batch`."""

    @tf.function(input_signature=[tf.TensorSpec(None, dtype) for dtype in _READ], autograph=False)
    def convert(texts: tf.Tensor, labels: tf.Tensor, vectors: tf.Tensor) -> Batch:
        texts, labels = tf.ensure_shape(texts, [None]), tf.ensure_shape(labels, [None])
        fingerprints = preprocessor.fingerprints(texts)
        split = tf.size(texts) // num_columns * (num_columns - num_contexts)
        contexts = [texts[split:]] if num_contexts else []
        features = preprocessor(texts[:split], *contexts)
        # One column at least, also for a replica without examples: an LSTM cannot loop over none.
        width = tf.maximum(1, tf.shape(features.tokens)[1])
        tokens = tf.pad(features.tokens, [[0, 0], [0, width - tf.shape(features.tokens)[1]]])
        return Batch(
            features=features._replace(tokens=tokens),
            fingerprints=tf.reshape(fingerprints, [num_columns, -1]),
            labels=labels,
            vectors=tf.ensure_shape(vectors, [None, vector_dim]),
        )

    return convert


class TrainingInput:
    """The training batches of one task, for the replicas of this process.

    The n-th step of a task takes the sampler's batch at position n, whatever the number of replicas. The
    replicas of all processes share it in order, in nearly equal parts; if it has fewer examples than there
    are replicas, the last ones have none.
    """

    def __init__(
        self,
        task: Task,
        examples: Examples,
        preprocessor: TextPreprocessor,
        config: ExperimentConfig,
        workers: Workers,
    ) -> None:
        self._examples = examples
        self._preprocessor = preprocessor
        self._sampler = make_sampler(examples, task, config)
        self._replicas = workers.replicas
        self._strategy = workers.strategy

    def spec(self) -> Any:
        """The type of what `batches` yields."""
        dataset = self._dataset(0)
        if self._strategy.num_replicas_in_sync == 1:
            return dataset.element_spec
        return self._strategy.distribute_datasets_from_function(lambda _: dataset).element_spec

    def batches(self, count: int) -> Iterator[Any]:
        """Yields the batches of this process' replicas from the task's step `count` on."""
        local = iter(self._dataset(count))
        if self._strategy.num_replicas_in_sync == 1:
            yield from local
        while True:
            # The strategy's own iterator asks all workers at each step whether they have a batch
            # left, and its destructor waits for seconds.
            yield self._strategy.experimental_distribute_values_from_function(lambda _: next(local))

    def texts(self, count: int) -> list[list[str]]:
        """The texts that all replicas get at the task's step `count`, a list for each column."""
        indices = self._sampler.batch(count)
        texts = [text.decode("utf-8") for text in self._examples.texts(indices)]
        return [texts[first : first + len(indices)] for first in range(0, len(texts), len(indices))]

    def sample(self, num_examples: int) -> Iterator[list[str]]:
        """Yields the texts of the first batches, a list for each, of `num_examples` or of an epoch."""
        left = min(num_examples, len(self._examples))
        count = 0
        while left > 0:
            columns = self.texts(count)
            yield [text for column in columns for text in column]
            left -= len(columns[0])
            count += 1

    def _dataset(self, count: int) -> tf.data.Dataset:
        total, own = self._strategy.num_replicas_in_sync, self._replicas

        def part(number: int) -> NDArray[np.int64]:
            step, replica = divmod(number, len(own))
            return np.array_split(self._sampler.batch(count + step), total)[own[replica]]

        return make_dataset(self._examples, part, self._preprocessor)
