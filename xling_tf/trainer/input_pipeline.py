"""Batches of token features; the i-th is a pure function of (examples, seed, i)."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.client.batches import available_cpus
from xling_tf.config import ExperimentConfig
from xling_tf.corpora.store import StoredCorpus, StoredRecords, join
from xling_tf.errors import UserError
from xling_tf.tasks.base import Batch, BatchOrder, Task
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.trainer.distribution import Workers

# Dtypes of the parts of a batch: texts, meanings, labels, and a teacher's vectors.
_READ = (tf.string, tf.int64, tf.int32, tf.float32)
_POOL_BATCHES = 64  # number of training batches that are bucketed by length together
# Every fourth question, as in the measured trainings: the three between are mostly on the same
# paragraph.
_SPACING = 4


@dataclass(frozen=True, kw_only=True)
class Examples:
    """One task's examples, corpus after corpus; texts and vectors may be on disk until read."""

    # Maps `[n]` indices of examples to `[n]` UTF-8 bytes for each column.
    columns: Callable[[NDArray[np.int64]], Sequence[NDArray[np.object_]]]
    num_columns: int
    prompts: tuple[str, ...] = ()  # of each column, put before its texts; () for none
    num_contexts: int = 0  # how many of the last columns are contexts
    meanings: NDArray[np.int32]  # see `Task.meanings`
    labels: NDArray[np.int32]
    lengths: NDArray[np.signedinteger[Any]]  # tokens of the longest text
    corpora: tuple[tuple[str, int], ...]  # name and number of examples of each, in order
    vectors: NDArray[np.floating[Any]]  # `[examples, dim]` of a teacher

    def __len__(self) -> int:
        return len(self.labels)

    def texts(self, indices: NDArray[np.int64]) -> NDArray[np.object_]:
        """Returns `[num_columns * indices]` UTF-8 bytes of some examples, column after column."""
        return np.concatenate(self.columns(indices))


class TaskExamples(NamedTuple):
    """The examples of one task."""

    train: Examples
    held_out: Examples


def task_examples(
    tasks: Iterable[Task], corpora: Sequence[StoredCorpus], prompts: Mapping[str, str]
) -> dict[str, TaskExamples]:
    """Collects the examples, by task, of the tasks that have any for training."""
    examples = {}
    for task in tasks:
        matching = [
            c for c in corpora if (c.record_type, c.languages) == (task.record_type, task.languages)
        ]
        if any(len(task.select(corpus.train)) for corpus in matching):
            examples[task.name] = TaskExamples(
                _collect(task, [(corpus.name, corpus.train) for corpus in matching], prompts),
                _collect(task, [(corpus.name, corpus.held_out) for corpus in matching], prompts),
            )
    return examples


def _collect(
    task: Task, parts: Sequence[tuple[str, StoredRecords]], prompts: Mapping[str, str]
) -> Examples:
    columns_of = task.columns_of(join([part for _, part in parts]))
    parts = [(name, task.select(part)) for name, part in parts]
    records = join([part for _, part in parts])
    return Examples(
        columns=lambda indices: columns_of(records[indices]),
        num_columns=len(task.columns),
        prompts=tuple(
            prompts.get(role, "") for role in task.roles or ["default"] * len(task.columns)
        ),
        num_contexts=task.num_contexts,
        meanings=task.meanings(records),
        labels=records.labels,
        lengths=records.lengths,
        corpora=tuple((name, len(part)) for name, part in parts if len(part)),
        vectors=np.zeros((len(records), 0), np.float32),
    )


class BatchSampler:
    """Draws batches of examples.

    A pool of `pool_batches * examples_per_batch` examples is drawn from the corpora, in proportion
    to their size times their weight; an exhausted corpus starts again in a new random order.

    The pool is sorted: for the order "length" by length, for the order "corpus", which draws
    `neighbourhoods`, by position in the corpora, and for the order "random" not at all. Then it is
    cut into batches of equal work: the shorter the sentences, the more of them are in a batch. With
    `equal_batches`, batches have equal numbers of examples. The batches of a pool come in random
    order.
    """

    def __init__(
        self,
        examples: Examples,
        weights: Sequence[float],
        examples_per_batch: int,
        *,
        pool_batches: int,
        seed: int,
        equal_batches: bool = False,
        order: BatchOrder = "length",
    ) -> None:
        sizes = np.array([size for _, size in examples.corpora])
        weighted = sizes * np.asarray(weights)
        if not (np.all(np.isfinite(weighted)) and np.min(weighted) >= 0 and np.max(weighted) > 0):
            raise UserError(
                "data.corpus_weights must be at least 0, and above 0 for one corpus of each task, "
                f"but those of {', '.join(name for name, _ in examples.corpora)} are "
                f"{', '.join(f'{weight:g}' for weight in weights)}; change one"
            )
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._shares = weighted / np.sum(weighted)
        self._lengths = examples.lengths
        self._batch_order = order
        self._neighbours = 2 * examples_per_batch if order == "corpus" else 0
        batches_per_epoch = max(1, len(examples) // examples_per_batch)
        self._pool_batches = min(pool_batches, batches_per_epoch)
        # At least one example for each corpus, so that no pool is empty.
        self._pool_size = max(self._pool_batches * examples_per_batch, len(sizes))
        self._equal = equal_batches
        self._seed = seed
        self._pool: tuple[int, list[NDArray[np.int64]]] = (-1, [])
        self._orders: dict[int, tuple[int, NDArray[np.int64]]] = {}  # the last epoch's, by corpus

    def batch(self, position: int) -> NDArray[np.int64]:
        """Returns the indices of the examples of the batch at `position` (0, 1, ...)."""
        number, place = divmod(position, self._pool_batches)
        pool = self._pool  # another thread may replace it meanwhile
        if pool[0] != number:
            pool = self._pool = (number, self._cut(self._draw(number), number))
        return pool[1][place]

    def _draw(self, pool: int) -> NDArray[np.int64]:
        """Returns the pool's part of each corpus' infinite sequence of random orders."""
        # The addend makes up for rounding errors: 1/3 * 21 is 7, not 6.99.
        pools = np.array([pool, pool + 1])[:, None]
        ends = np.floor(self._shares * pools * self._pool_size + 1e-6).astype(int)
        parts = []
        for corpus, (begin, end) in enumerate(ends.T):
            size = self._sizes[corpus]
            for epoch in range(begin // size, -(-end // size)):
                place = slice(max(0, begin - epoch * size), end - epoch * size)
                parts.append(self._starts[corpus] + self._order(corpus, epoch)[place])
        return np.concatenate(parts)

    def _order(self, corpus: int, epoch: int) -> NDArray[np.int64]:
        last = self._orders.get(corpus)
        if last is None or last[0] != epoch:
            random, size = np.random.default_rng((self._seed, corpus, epoch)), self._sizes[corpus]
            near = self._neighbours
            order = neighbourhoods(size, near, random) if near else random.permutation(size)
            last = self._orders[corpus] = (epoch, order)
        return last[1]

    def _cut(self, indices: NDArray[np.int64], pool: int) -> list[NDArray[np.int64]]:
        random = np.random.default_rng((self._seed, pool))
        indices = random.permutation(indices)
        if self._batch_order == "corpus":
            indices = np.sort(indices)
        elif self._batch_order == "length":
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
    """Makes the sampler of a task's training batches."""
    weights = [config.data.corpus_weights.get(name, 1.0) for name, _ in examples.corpora]
    equal, order = config.data.equal_batches, task.batch_order
    return BatchSampler(
        examples,
        weights,
        task.config.examples_per_batch,
        pool_batches=_POOL_BATCHES,
        seed=config.training.seed,
        equal_batches=equal,
        order="random" if equal and order == "length" else order,
    )


def neighbourhoods(size: int, length: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Returns an order of `size` elements in which about `length` neighbours come together.

    The elements are divided into stretches of `_SPACING * length`. The order has a random part of
    each stretch, the stretches in random order, then another part of each, and so on.
    """
    num_stretches = -(-size // (_SPACING * length))
    elements = np.arange(num_stretches * -(-size // num_stretches)).reshape(num_stretches, -1)
    parts = np.array_split(random.permuted(elements, axis=1), _SPACING, axis=1)
    order = np.concatenate([random.permutation(part).ravel() for part in parts])
    return order[order < size]


# Makes a graph function from texts, meanings, labels and vectors to a `Batch`; see `batch_graphs`.
BatchGraphs = Callable[[int, int, tuple[str, ...], int], Callable[..., Batch]]


def batch_graphs(tokenizer: Tokenizer) -> BatchGraphs:
    """Returns the function that makes batches' graphs: one for all tasks with equal shapes."""
    return cache(partial(_to_batch, tokenizer))


def make_dataset(
    examples: Examples,
    batch: Callable[[int], NDArray[np.int64]],
    graphs: BatchGraphs,
    *,
    count: int | None = None,
    is_closed: threading.Event | None = None,
) -> tf.data.Dataset:
    """Streams `count` or endless `Batch`es of a task; `batch` maps 0, 1, ... to examples."""

    def read(number: NDArray[np.int64]) -> tuple[Any, ...]:
        is_open = is_closed is None or not is_closed.is_set()
        indices = batch(int(number)) if is_open else np.array([], np.int64)
        meanings = examples.meanings[indices].astype(np.int64)
        vectors = examples.vectors[indices].astype(np.float32, copy=False)
        return is_open, examples.texts(indices), meanings, examples.labels[indices], vectors

    # Beside a GPU, half of the processors tokenize; one reads, which takes a twentieth of the time.
    conversions = max(2, available_cpus() // 2) if tf.config.list_logical_devices("GPU") else 2
    # Nothing here is tuned. TensorFlow's tuner would delay the end of a stream by up to a minute:
    # the thread that tunes does not notice the end while it sleeps.
    options = tf.data.Options()
    options.autotune.enabled = False
    # `Dataset.from_generator` is slower: its iterator makes malloc return freed memory at once.
    shape = examples.num_columns, examples.num_contexts, examples.prompts
    convert = graphs(*shape, examples.vectors.shape[1])
    return (
        tf.data.Dataset.range(sys.maxsize if count is None else count)
        .map(lambda number: tf.numpy_function(read, [number], (tf.bool, *_READ)))
        .take_while(lambda is_open, *_: tf.ensure_shape(is_open, []))
        .map(lambda _, *columns: convert(*columns), num_parallel_calls=conversions)
        .prefetch(2)
        .with_options(options)
    )


def _to_batch(
    tokenizer: Tokenizer,
    num_columns: int,
    num_contexts: int,
    prompts: tuple[str, ...],
    vector_dim: int,
) -> Callable[..., Batch]:
    """Makes the graph function that turns what is read of examples into a `Batch`."""

    @tf.function(input_signature=[tf.TensorSpec(None, dtype) for dtype in _READ], autograph=False)
    def convert(
        texts: tf.Tensor, meanings: tf.Tensor, labels: tf.Tensor, vectors: tf.Tensor
    ) -> Batch:
        texts, labels = tf.ensure_shape(texts, [None]), tf.ensure_shape(labels, [None])
        fingerprints = tokenizer.fingerprints(texts)
        if any(prompts):
            texts = tf.strings.join([tf.repeat(prompts, tf.size(labels)), texts])
        split = tf.size(texts) // num_columns * (num_columns - num_contexts)
        contexts = [texts[split:]] if num_contexts else []
        features = tokenizer(texts[:split], *contexts)
        # At least one position, also on a replica without examples: an LSTM cannot loop over none.
        width = tf.maximum(1, tf.shape(features.tokens)[1])
        tokens = tf.pad(features.tokens, [[0, 0], [0, width - tf.shape(features.tokens)[1]]])
        return Batch(
            features=features._replace(tokens=tokens),
            fingerprints=tf.reshape(fingerprints, [num_columns, -1]),
            meanings=tf.ensure_shape(meanings, [None]),
            labels=labels,
            vectors=tf.ensure_shape(vectors, [None, vector_dim]),
        )

    return convert


class TrainingInput:
    """The training batches of one task, for the replicas of this process.

    The n-th step of a task takes the n-th batch of the sampler. The batch is divided among the
    replicas of all processes in order, in nearly equal parts; with fewer examples than replicas,
    the last ones get none.
    """

    def __init__(
        self,
        task: Task,
        examples: Examples,
        graphs: BatchGraphs,
        config: ExperimentConfig,
        workers: Workers,
    ) -> None:
        self.task = task
        self._graphs = graphs
        self._strategy = workers.strategy
        self._replicas = workers.replicas
        self.examples = examples
        self._sampler = make_sampler(examples, task, config)

    def spec(self) -> Any:
        """Returns the type of the batches."""
        dataset = self._dataset(0)
        if self._strategy.num_replicas_in_sync == 1:
            return dataset.element_spec
        return self._strategy.distribute_datasets_from_function(lambda _: dataset).element_spec

    def stream(self, count: int, is_closed: threading.Event) -> Iterator[Batch]:
        """Returns a stream for `next_batch` from the task's step `count`, until `is_closed`."""
        return iter(self._dataset(count, is_closed))

    def next_batch(self, stream: Iterator[Batch]) -> Any:
        """Returns the next batch of this process' replicas."""
        if self._strategy.num_replicas_in_sync == 1:
            return next(stream)
        # The strategy's iterator would ask all workers at each step if they have a batch left, and
        # its destructor takes seconds.
        return self._strategy.experimental_distribute_values_from_function(lambda _: next(stream))

    def drawn(self, num_batches: float) -> NDArray[np.int64]:
        """Returns the examples that are in the first batches, in order; infinity for all."""
        if num_batches * self.task.config.examples_per_batch >= 4 * len(self.examples):
            return np.arange(len(self.examples))
        batches = [self._sampler.batch(number) for number in range(int(num_batches))]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *batches]))

    def use_wrong_answers(self, chosen: NDArray[np.int32]) -> None:
        """Replaces the columns after the second by wrong answers.

        Args:
            chosen: `[examples, columns]` examples whose second column, the answer, is taken.
        """
        columns = self.examples.columns
        answers = columns(np.arange(len(self.examples)))[1]

        def replaced(indices: NDArray[np.int64]) -> list[NDArray[np.object_]]:
            return [*columns(indices)[:2], *(answers[rows] for rows in chosen[indices].T)]

        self.examples = replace(self.examples, columns=replaced)

    def sample(self, num_examples: int) -> Iterator[list[str]]:
        """Yields the first batches' texts, until they have `num_examples` or a whole epoch."""
        num_left, count = min(num_examples, len(self.examples)), 0
        while num_left > 0:
            indices = self._sampler.batch(count)
            yield [text.decode("utf-8") for text in self.examples.texts(indices)]
            num_left, count = num_left - len(indices), count + 1

    def _dataset(self, count: int, is_closed: threading.Event | None = None) -> tf.data.Dataset:
        def part(number: int) -> NDArray[np.int64]:
            step, replica = divmod(number, len(self._replicas))
            parts = np.array_split(
                self._sampler.batch(count + step), self._strategy.num_replicas_in_sync
            )
            return parts[self._replicas[replica]]

        return make_dataset(self.examples, part, self._graphs, is_closed=is_closed)
