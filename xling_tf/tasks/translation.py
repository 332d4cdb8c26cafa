"""Translating to and from a sentence vector (Yu et al. 2018)."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Self

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from xling_tf.config import ExperimentConfig, TranslationConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.base import Layer
from xling_tf.layers.recurrent import Lstm
from xling_tf.losses import token_likelihood
from xling_tf.tasks.base import Batch, Task, draw_others, gather_candidates, language_pairs
from xling_tf.text.preprocessor import TextPreprocessor

_MARGIN = 1.0  # of the distance to another sentence's vector; ours
_TINY = 1e-12  # a root has a gradient above 0


@keras.saving.register_keras_serializable(package="xling_tf")
class Decoder(Layer):
    """Predicts a sentence word by word from a vector alone, without attention (Yu et al. 2018, sec. 2.2).

    The vector is the first state of an LSTM and a part of its input at every position. The first of the other
    inputs stands for the language to translate to (sec. 2; Johnson et al. 2016), the rest are the words
    before. The rows of the words are those of the encoder's table, as inputs and, behind a projection, as
    outputs (ours: Press and Wolf 2017).

    Args:
        num_languages: That it can translate to.
        embedding_dim: Width of the words' rows.
    """

    def __init__(self, num_languages: int, embedding_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.num_languages, self.embedding_dim = num_languages, embedding_dim
        self.output_projection = keras.layers.Dense(
            embedding_dim, dtype=self.dtype_policy, name="output_projection"
        )

    def build(self, encodings_shape: Any, *_: Any) -> None:
        """Creates the variables for vectors `[batch, dim]`."""
        dim = encodings_shape[-1]
        self.lstm = Lstm(dim, dtype=self.dtype_policy, name="lstm")
        self.lstm.build((None, None, self.embedding_dim))
        self.vector_gates = keras.layers.Dense(
            4 * dim, use_bias=False, dtype=self.dtype_policy, name="vector_gates"
        )
        self.vector_gates.build((None, dim))
        self.output_projection.build((None, dim))
        size = keras.initializers.RandomNormal(stddev=self.embedding_dim**-0.5)
        shape = (self.num_languages, self.embedding_dim)
        self.languages = self.add_weight(shape=shape, initializer=size, name="languages")
        self.end = self.add_weight(shape=(1, self.embedding_dim), initializer=size, name="end")

    def call(
        self,
        encodings: keras.KerasTensor,
        words: keras.KerasTensor,
        tokens: keras.KerasTensor,
        lengths: keras.KerasTensor,
        language: int,
    ) -> keras.KerasTensor:
        """Scores what comes after each position of the translations, teacher-forced.

        Args:
            encodings: `[batch, dim]` of the sources.
            words: `[words, embedding_dim]` rows of the distinct words.
            tokens: `[batch, length]` positions in `words` of the translations.
            lengths: `[batch]`.
            language: Of the translations.

        Returns:
            `[batch, length + 1, words + 1]` float32 scores of each word, and of the end, which is the last.
        """
        first = ops.broadcast_to(self.languages[language], (ops.shape(tokens)[0], 1, self.embedding_dim))
        rows = ops.concatenate([first, ops.take(words, tokens, axis=0)], axis=1)
        states = self.lstm(rows, lengths + 1, encodings, self.vector_gates(encodings)[:, None])
        return self.scores(states, words)

    def scores(self, states: keras.KerasTensor, words: keras.KerasTensor) -> keras.KerasTensor:
        """Maps states `[..., dim]` to the scores of the words and of the end: `[..., words + 1]`."""
        outputs = self.output_projection(states)
        rows = (ops.cast(rows, outputs.dtype) for rows in (words, self.end))
        scores = [ops.matmul(outputs, ops.transpose(own)) for own in rows]
        return ops.cast(ops.concatenate(scores, axis=-1), "float32")

    def translate(
        self, encodings: tf.Tensor, words: tf.Tensor, languages: tf.Tensor, most: int
    ) -> tf.RaggedTensor:
        """Says what vectors hold, the likeliest word at each position.

        Args:
            encodings: `[batch, dim]` of the sources.
            words: `[num_words, embedding_dim]`, the encoder's table.
            languages: `[batch]` int32, of the translations.
            most: Words of a translation.

        Returns:
            `[batch, (words)]` int32 rows of the table, without the end.
        """
        end, vector_gates = tf.shape(words)[0], self.vector_gates(encodings)

        def say(place: tf.Tensor, row: tf.Tensor, state: Any, said: tf.TensorArray) -> tuple[Any, ...]:
            gates = self.lstm.input_gates(row) + vector_gates
            hidden, state = self.lstm.cell(ops.cast(gates, "float32"), state)
            ids = tf.argmax(self.scores(hidden, words), axis=1, output_type=tf.int32)
            row = tf.gather(words, tf.minimum(ids, end - 1))
            return place + 1, row, tuple(state), said.write(place, ids)

        first = tf.gather(tf.convert_to_tensor(self.languages), languages)
        start = (0, first, (encodings, tf.zeros_like(encodings)), tf.TensorArray(tf.int32, most))
        *_, said = tf.while_loop(lambda place, *_: place < most, say, start)
        ids = tf.transpose(said.stack())
        goes_on = tf.math.cumprod(tf.cast(ids < end, tf.int32), axis=1)
        return tf.ragged.boolean_mask(ids, tf.cast(goes_on, tf.bool))


class Translation(Task):
    """Translates both sides of a pair to the other, and keeps their vectors together.

    The loss is the mean negative log-likelihood of the translation's words, both ways, plus `alpha` times
    what `regularizer` names: "similarity", the squared distance of the two vectors (sec. 2.2);
    "contrastive", that and the square of how much nearer than 1 the target of another pair is, which is drawn
    at random (Hadsell et al. 2006, eq. 4; sec. 2.2 suggests it); "weight_decay", the squared L2 norm of the
    encoder's weights; or "none". Words are told apart from the other words of the batch (ours; see
    `losses.token_likelihood`).

    Args:
        decoder: Shared by all languages.
        languages_of_decoder: In the decoder's order.
    """

    kind: ClassVar[str] = "parallel"
    columns = ("source", "target")
    config: TranslationConfig

    def __init__(self, *, decoder: Decoder, languages_of_decoder: list[str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.decoder, self.languages_of_decoder = decoder, languages_of_decoder
        self.heads = (decoder,)
        self._sides = [languages_of_decoder.index(language) for language in self.languages.split("-")]
        self._log_frequencies: tf.Tensor | None = None

    @classmethod
    def of_experiment(cls, config: ExperimentConfig) -> list[Self]:
        """Makes a task for each pair: one language pair a batch (sec. 2.1)."""
        languages = [config.data.source, *config.data.targets]
        decoder = Decoder(len(languages), config.encoder.embedding_dim, name="decoder")
        pairs = language_pairs(config)
        return cls.mirrored(config, "translation", pairs, decoder=decoder, languages_of_decoder=languages)

    @property
    def graph(self) -> str:
        """See `Task.graph`; each language has an input of its own in the decoder."""
        return f"{super().graph} {self.languages}"

    def prepare(self, preprocessor: TextPreprocessor, texts: Iterable[Sequence[str]]) -> None:
        """Counts the words of the two languages, which alone occur in the batches.

        A word that is not in the sample counts as half an occurrence.
        """
        counts = np.zeros(preprocessor.num_words)
        for part in texts:
            ids = preprocessor.word_ids(preprocessor.tokenize(tf.constant(part)).values)
            counts += np.bincount(ids, minlength=len(counts))
        self._log_frequencies = tf.constant(np.log(np.maximum(counts, 0.5) / counts.sum()), tf.float32)

    def encode_and_score(
        self, encoder: TokenEncoder, batch: Batch
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """See `Task.encode_and_score`; a hit is the share of words that are told."""
        likelihoods, regularizer, hits, columns = self._terms(encoder, batch)
        return columns, likelihoods + self.config.alpha * regularizer, hits

    def terms(self, encoder: TokenEncoder, batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """The two terms of the loss without `alpha`: `[batch]` each.

        "We find that starting with the two terms having comparable value is a good place to start tuning"
        (sec. 2.2): `alpha` is then the ratio of their means.
        """
        return self._terms(encoder, batch)[:2]

    def _terms(self, encoder: TokenEncoder, batch: Batch) -> tuple[Any, ...]:
        features = batch.features
        words = encoder.embed_words(features.words)
        columns = tf.split(self.encode_sentences(encoder, words, features), 2)
        ids, words, places = _candidates(features.words.ids, words)
        tokens = tf.split(tf.gather(places, features.tokens), 2)
        lengths = tf.split(features.lengths, 2)
        num_tokens = tf.reduce_sum(gather_candidates(features.lengths)[0])
        log_chances = self._log_chances(ids, num_tokens)
        likelihoods, hits = [], []
        for encodings, side in zip(columns, (1, 0), strict=True):
            scores = self.decoder(encodings, words, tokens[side], lengths[side], language=self._sides[side])
            end = tf.shape(words)[0]
            positions = tf.range(tf.shape(scores)[1])[None, :]
            right = tf.where(positions < lengths[side][:, None], tf.pad(tokens[side], [[0, 0], [0, 1]]), end)
            counted = positions <= lengths[side][:, None]
            likelihood, hit = token_likelihood(scores, right, counted, log_chances)
            likelihoods.append(likelihood)
            hits.append(hit)
        source, target = columns
        regularizer = self._regularizer(encoder, source, target, batch.fingerprints)
        return tf.add_n(likelihoods), regularizer, tf.add_n(hits) / 2, columns

    def _log_chances(self, ids: tf.Tensor, num_tokens: tf.Tensor) -> tf.Tensor:
        """The log probability of each word, and of the end, to be in a batch of `num_tokens`."""
        assert self._log_frequencies is not None, "prepare() comes first"
        expected = tf.cast(num_tokens, tf.float32) * tf.exp(tf.gather(self._log_frequencies, ids))
        return tf.concat([tf.math.log(-tf.math.expm1(-expected)), [0.0]], axis=0)

    def _regularizer(
        self, encoder: TokenEncoder, source: tf.Tensor, target: tf.Tensor, fingerprints: tf.Tensor
    ) -> tf.Tensor:
        kind, squares = self.config.regularizer, tf.reduce_sum(tf.square(source - target), axis=1)
        if kind == "similarity":
            return squares
        if kind == "contrastive":
            places, has_other = draw_others(fingerprints)
            others = tf.gather(gather_candidates(target)[0], places)
            distances = tf.sqrt(tf.reduce_sum(tf.square(source - others), axis=1) + _TINY)
            return squares + tf.where(has_other, tf.square(tf.maximum(0.0, _MARGIN - distances)), 0.0)
        decay = tf.add_n([tf.reduce_sum(tf.square(v.value)) for v in encoder.dense_variables])
        return tf.zeros_like(squares) + (decay if kind == "weight_decay" else 0.0)


def _candidates(ids: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Joins the words of all replicas, so that all of them have the same candidates.

    Unknown words of one hash bucket are the same word to the decoder.

    Args:
        ids: `[words]` int32 rows of the word table.
        words: `[words, dim]`.

    Returns:
        The different ids and their rows, and `[words]` int32 positions of this replica's words among them.
    """
    all_ids, offset = gather_candidates(ids)
    all_words, _ = gather_candidates(words)
    distinct, places = tf.unique(all_ids)
    firsts = tf.math.unsorted_segment_min(tf.range(tf.size(all_ids)), places, tf.size(distinct))
    return distinct, tf.gather(all_words, firsts), places[offset : offset + tf.size(ids)]
