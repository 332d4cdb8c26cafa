"""Base class of the training tasks, and their batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import DataConfig, ExperimentConfig, SimilarityConfig
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.store import StoredRecords
from xling_tf.encoders.base import TokenEncoder, in_micro_batches, shortest_first
from xling_tf.layers.pooling import unit_entries
from xling_tf.losses import cosine_distance
from xling_tf.tasks.signatures import ExportedLayers, Signature
from xling_tf.tokenizers.base import TokenFeatures, Tokenizer

Heads = dict[str, Any]  # a task's layers by name
# Which examples share a batch: those of similar length, neighbours in a corpus, or any.
BatchOrder = Literal["length", "corpus", "random"]


class Batch(NamedTuple):
    """A batch of examples of one task; an example has a text in each of the task's columns."""

    # Features of [columns * batch] texts, column after column, encoded in one pass.
    features: TokenFeatures
    fingerprints: tf.Tensor  # [columns, batch] int64, equal for equal texts
    meanings: tf.Tensor  # [batch] int64, equal for examples that mean the same; see `Task.meanings`
    labels: tf.Tensor  # [batch] int32; 0 if the task has no labels
    vectors: tf.Tensor  # [batch, dim] float32 vectors of a teacher; [batch, 0] without a teacher


class Anchor:
    """Keeps a copy of the weights that training will change, and pulls encodings towards those of
    the copy.

    An index of vectors from before the training then stays usable.
    """

    def __init__(self, variables: Sequence[keras.Variable], anchor_weight: float) -> None:
        self.anchor_weight = anchor_weight
        self._earlier = [(v, tf.Variable(v.numpy(), trainable=False)) for v in variables]

    def restored(self) -> keras.StatelessScope:
        """Returns a scope inside of which the encoder has its earlier weights."""
        return keras.StatelessScope(state_mapping=self._earlier)


class Task:
    """A training task over a shared encoder.

    A new kind of task is a subclass and a row of `xling_tf.config.TASKS`. Tasks of one kind in
    several languages share their heads.

    Args:
        name: Name in logs and scores, unique in the experiment.
        languages: Languages of its corpora, such as "en-es" or "en".
        config: Settings of the task.
        similarity: How vectors are compared; see `scale_for_heads`.
        heads: The layers from `make_heads`.
    """

    # The text fields of a record that the task encodes, in the order of `score`; may depend on the
    # settings.
    columns: tuple[str, ...]
    # Prompts of the columns, see `ModelInfo.role_prompts`; () for the default.
    roles: tuple[str, ...] = ()
    # Number of mined wrong texts that each example has; they are read if above 0.
    hard_negatives: int = 0
    # How many of the last columns are contexts: longer, encoded as averages of words.
    num_contexts: int = 0
    group: str = ""  # name of the task and its heads in `TASKS`
    record_type: ClassVar[str]  # a name in `RECORD_TYPES`
    batch_order: ClassVar[BatchOrder] = "length"

    def __init__(
        self,
        name: str,
        languages: str,
        config: Any,
        similarity: SimilarityConfig,
        heads: Mapping[str, Any],
    ) -> None:
        self.name, self.languages = name, languages
        self.config, self.similarity, self.heads = config, similarity, dict(heads)

    @classmethod
    def languages_of(cls, config: Any, data: DataConfig) -> list[str]:
        """Returns the task's languages or pairs; there is one task for each (see `mirrored`)."""
        if RECORD_TYPES[cls.record_type].is_bilingual:
            return data.language_pairs
        return [data.source, *(data.targets if getattr(config, "in_targets", True) else ())]

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """Makes the built layers that the task puts on the encoder; most tasks have none."""
        return {}

    @classmethod
    def can_use(cls, heads: Mapping[str, Any], data: DataConfig) -> bool:
        """Returns True if heads of the same names, from another training, fit these languages."""
        return True

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """Returns the signatures that the task adds to an exported model; most tasks add none.

        A signature replaces one of the same name from an earlier task in `TASKS`.
        """
        return []

    @classmethod
    def mirrored(
        cls, name: str, config: ExperimentConfig, data: DataConfig, heads: Mapping[str, Any]
    ) -> list[Self]:
        """A task for each of `languages_of`; they share heads (Chidambaram 2019, sec. 2.2)."""
        settings = config.tasks[name]
        tasks = []
        for languages in cls.languages_of(settings, data):
            task = cls(f"{name}_{languages}", languages, settings, config.similarity, heads)
            task.group = name
            tasks.append(task)
        return tasks

    @property
    def teacher(self) -> str:
        """The model whose vectors of the first column are `Batch.vectors`; "" for none."""
        return getattr(self.config, "teacher", "")

    @property
    def miners(self) -> tuple[str, ...]:
        """What finds wrong texts for the first column, which are the last columns; () for none."""
        return getattr(self.config, "miner", ())

    def require_teacher(self, name: str, dim: int, hidden_dim: int) -> None:
        """Raises a `UserError` if an encoder of this width cannot learn from `dim` numbers."""

    def select(self, records: StoredRecords) -> StoredRecords:
        """Selects the records of a corpus that are examples of the task; by default all."""
        return records

    def learned(self, records: StoredRecords) -> StoredRecords:
        """Selects a corpus' records whose texts the task learns from; by default `select`'s."""
        return self.select(records)

    def columns_of(
        self, records: StoredRecords
    ) -> Callable[[StoredRecords], list[NDArray[np.object_]]]:
        """Returns a function like `texts`; override it if columns depend on a whole corpus."""
        return self.texts

    def texts(self, records: StoredRecords) -> list[NDArray[np.object_]]:
        """Returns `[records]` UTF-8 bytes for each of `columns`: by default, fields so named."""
        return [records.column(name) for name in self.columns]

    def meanings(self, records: StoredRecords) -> NDArray[np.int32]:
        """Returns `[records]` numbers, equal for records that mean the same although they may share
        no text: the right answer of one is right for the others. By default, none do.
        """
        return np.arange(len(records), dtype=np.int32)

    def prepare(self, tokenizer: Tokenizer, texts: Iterable[Sequence[str]]) -> None:
        """Gets a sample of the training texts, in parts, before training; most tasks ignore it."""

    def losses(
        self,
        encoder: TokenEncoder,
        batch: Batch,
        anchor: Anchor | None = None,
        training: bool = False,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the losses of a batch.

        Args:
            encoder: The shared encoder.
            batch: Examples of the task.
            anchor: Adds the distance to earlier encodings, averaged over the columns, to the
                losses.
            training: True in a training step.

        Returns:
            `[batch]` losses, and `[batch]` hits, 1 where the model is right.
        """
        columns, losses, hits = self.encode_and_score(encoder, batch, training)
        if anchor is not None:
            with anchor.restored():
                earlier = self.encode(encoder, batch.features, training)
            pairs = list(zip(columns, earlier, strict=True))[: len(columns) - self.num_contexts]
            distances = [cosine_distance(now, tf.stop_gradient(before)) for now, before in pairs]
            losses += anchor.anchor_weight * tf.add_n(distances) / len(distances)
        return losses, hits

    def encode_and_score(
        self, encoder: TokenEncoder, batch: Batch, training: bool = False
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """Returns the encodings of a batch's columns, `[batch]` losses and `[batch]` hits."""
        columns = self.encode(encoder, batch.features, training)
        return columns, *self.score(columns, batch)

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes the `[batch]` losses and hits from each column's `[batch, dim]` encodings."""
        raise NotImplementedError(f"{type(self).__name__} must define score or encode_and_score")

    def encode(
        self, encoder: TokenEncoder, features: TokenFeatures, training: bool = False
    ) -> list[tf.Tensor]:
        """Returns each column's `[batch, dim]` encodings of a batch's features, for `score`."""
        words = encoder.embed_words(features.words, training)
        return tf.split(
            self.encode_sentences(encoder, words, features, training), len(self.columns)
        )

    def encode_sentences(
        self,
        encoder: TokenEncoder,
        words: tf.Tensor,
        features: TokenFeatures,
        training: bool = False,
    ) -> tf.Tensor:
        """Encodes `[words, any]` embedded words as `[sentences, dim]`, scaled for the heads."""
        tokens, lengths = features.tokens, features.lengths
        if not training:
            encodings = in_micro_batches(
                lambda part: encoder.encode(
                    words, part.to_tensor(), tf.cast(part.row_lengths(), tf.int32)
                ),
                tf.RaggedTensor.from_tensor(tokens, lengths),
                encoder.hidden_dim,
            )
        # A GPU step's time goes into launching kernels, of which three groups have three times as
        # many.
        elif encoder.length_groups > 1 and not tf.config.list_logical_devices("GPU"):
            encodings = shortest_first(partial(_encode_in_groups, encoder, words), tokens, lengths)
        else:
            encodings = encoder.encode(words, tokens, lengths, training)
        return scale_for_heads(self.similarity)(encodings)

    @property
    def trace_key(self) -> str:
        """Tasks with the same key share their losses' graph: they differ only in batches."""
        return f"{self.group} {type(self).__name__}"

    def variables(self) -> list[keras.Variable]:
        """Returns the trainable variables of the heads."""
        return [v for head in self.heads.values() for v in head.trainable_variables]


def _encode_in_groups(
    encoder: TokenEncoder, words: tf.Tensor, tokens: tf.Tensor, lengths: tf.Tensor
) -> tf.Tensor:
    """Encodes sentences sorted by length, in `length_groups` of about as many tokens each."""
    ends = tf.cumsum(lengths)
    total = tf.reduce_sum(lengths)
    shares = [total * group // encoder.length_groups for group in range(1, encoder.length_groups)]
    cuts = [0, *tf.unstack(tf.searchsorted(ends, shares, side="right")), tf.size(lengths)]
    encodings = []
    for begin, end in pairwise(cuts):
        longest = tf.maximum(1, tf.reduce_max(lengths[begin:end]))
        encodings.append(
            encoder.encode(words, tokens[begin:end, :longest], lengths[begin:end], training=True)
        )
    return tf.concat(encodings, axis=0)


def scale_for_heads(similarity: SimilarityConfig) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the function that scales `[n, dim]` encodings for the heads."""
    # Tanh layers are nearly linear on the entries of unit vectors, about 0.04.
    return unit_entries if similarity.normalize else tf.identity


def gather_candidates(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Concatenates all replicas' rows; also returns the position of this one's first row."""
    # So that the replicas share the candidates of the whole batch.
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values, tf.constant(0)
    # Gathering needs a tensor on this replica's device, which values from outside the replica lack.
    values = tf.identity(values)
    counts = context.all_gather(tf.shape(values)[:1], axis=0)
    offset = tf.reduce_sum(counts[: context.replica_id_in_sync_group])
    gathered = context.all_gather(values, axis=0)
    # `all_gather` cannot take the sparse gradient of looking rows up; the reshape makes it dense.
    return tf.reshape(gathered, tf.shape(gathered)), offset
