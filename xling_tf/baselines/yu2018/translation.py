"""Translation from a sentence vector (Yu et al. 2018)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor as Tensor
from keras import ops

from xling_tf.baselines.yu2018 import TranslationConfig
from xling_tf.baselines.yu2018.lstm import Lstm
from xling_tf.config import DataConfig, ExperimentConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import UserError
from xling_tf.layers.base import Layer
from xling_tf.tasks.base import Batch, Heads, Task, gather_candidates
from xling_tf.tasks.signatures import (
    ExportedLayers,
    Signature,
    SignatureDescription,
    one_for_each,
    texts,
)
from xling_tf.tokenizers.base import Tokenizer

_MARGIN = 1.0  # of the distance to another sentence's vector; our choice
_TINY = 1e-12  # keeps the gradient of the square root finite


@keras.saving.register_keras_serializable(package="xling_tf")
class Decoder(Layer):
    """Predicts a sentence word by word from a vector, without attention (Yu et al. 2018, sec. 2.2).

    The vector is the initial state of an LSTM and a part of its input at every position. The other
    part is the target language at the first position (sec. 2; Johnson et al. 2016), and the
    previous word at all others. Inputs are rows of the encoder's word table; outputs are compared
    with these rows too, after a projection (our choice, from Press and Wolf 2017).
    """

    def __init__(self, languages: Sequence[str], embedding_dim: int, **kwargs: Any) -> None:
        super().__init__(**kwargs, autocast=False)
        self.languages, self.embedding_dim = tuple(languages), embedding_dim
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
        shape = (len(self.languages), self.embedding_dim)
        self.language_rows = self.add_weight(shape=shape, initializer=size, name="languages")
        self.end = self.add_weight(shape=(1, self.embedding_dim), initializer=size, name="end")

    def call(
        self, encodings: Tensor, words: Tensor, tokens: Tensor, lengths: Tensor, language: str
    ) -> Tensor:
        """Scores the next word at each position of the translations (teacher forcing).

        Args:
            encodings: `[batch, dim]` vectors of the sources.
            words: `[words, embedding_dim]` rows of the distinct words.
            tokens: `[batch, length]` int32 positions in `words` of the translations' words.
            lengths: `[batch]` int32.
            language: Code of the target language.

        Returns:
            `[batch, length + 1, words + 1]` float32 scores of each word, then of the end of the
            sentence.
        """
        row = self.language_rows[self.languages.index(language)]
        first = ops.broadcast_to(row, (ops.shape(tokens)[0], 1, self.embedding_dim))
        rows = ops.concatenate([first, ops.take(words, tokens, axis=0)], axis=1)
        # Exports decode step by step, so this may always be as in training.
        states = self.lstm(
            rows, lengths + 1, encodings, initial_gates=self.vector_gates, training=True
        )
        return self.scores(states, words)

    def scores(self, states: Tensor, words: Tensor) -> Tensor:
        """Maps `[..., dim]` states to `[..., words + 1]` float32 scores of words and the end."""
        outputs = self.output_projection(states)
        rows = (ops.cast(rows, outputs.dtype) for rows in (words, self.end))
        scores = [ops.matmul(outputs, ops.transpose(part)) for part in rows]
        return ops.cast(ops.concatenate(scores, axis=-1), "float32")

    def translate(
        self, encodings: tf.Tensor, words: tf.Tensor, languages: tf.Tensor, max_words: int
    ) -> tf.RaggedTensor:
        """Decodes `[batch, dim]` vectors greedily.

        Args:
            encodings: Vectors of the sources.
            words: `[words, embedding_dim]` word table of the encoder.
            languages: `[batch]` int32 positions of the target languages in `self.languages`.
            max_words: Maximum number of words of a translation.

        Returns:
            `[batch, (words)]` int32 rows of the word table.
        """
        end, vector_gates = tf.shape(words)[0], self.vector_gates(encodings)

        def decode(
            index: tf.Tensor, row: tf.Tensor, state: Any, words_so_far: tf.TensorArray
        ) -> tuple[Any, ...]:
            gates = self.lstm.input_gates(row) + vector_gates
            hidden, state = self.lstm.cell(ops.cast(gates, "float32"), state)
            ids = tf.argmax(self.scores(hidden, words), axis=1, output_type=tf.int32)
            row = tf.gather(words, tf.minimum(ids, end - 1))
            return index + 1, row, tuple(state), words_so_far.write(index, ids)

        first = tf.gather(tf.convert_to_tensor(self.language_rows), languages)
        start = (
            0,
            first,
            (encodings, tf.zeros_like(encodings)),
            tf.TensorArray(tf.int32, max_words),
        )
        *_, decoded = tf.while_loop(lambda index, *_: index < max_words, decode, start)
        ids = tf.transpose(decoded.stack())
        is_before_end = tf.math.cumprod(tf.cast(ids < end, tf.int32), axis=1)
        return tf.ragged.boolean_mask(ids, tf.cast(is_before_end, tf.bool))


class TranslationSignature(Signature):
    """Translates strings by decoding their vectors (Yu et al. 2018, sec. 2.2)."""

    @tf.function(input_signature=texts("inputs", "language"), autograph=False)
    def __call__(self, inputs: tf.Tensor, language: tf.Tensor) -> tf.Tensor:
        """Translates sentences.

        Args:
            inputs: Sentences, in a tensor of any shape, which is flattened.
            language: The target language of each sentence, or a single string for all of them.

        Returns:
            `[sentences]` translations.
        """
        decoder, inputs = self.head("decoder"), tf.reshape(inputs, [-1])
        message = "expected as many languages as texts, or a single string"
        language = one_for_each(language, inputs, message)
        is_target = tf.equal(language[:, None], tf.constant(decoder.languages)[None, :])
        message = f"expected one of {', '.join(decoder.languages)} for every text"
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.reduce_any(is_target, axis=1), True, message)]
        ):
            languages = tf.argmax(is_target, axis=1, output_type=tf.int32)
        tokenizer, vectors = self.encoder.tokenizer, self.encode(inputs)
        ids = decoder.translate(
            vectors, self.encoder.word_table(), languages, tokenizer.config.max_tokens
        )
        known = tf.constant([*tokenizer.known_words, "?"])
        words = tf.gather(known, tf.minimum(ids.values, len(tokenizer.known_words)))
        return tf.strings.reduce_join(ids.with_values(words), axis=1, separator=" ")


class Translation(Task):
    """Translates each side of a pair into the other, and pulls their vectors together.

    The loss is the sum of the mean negative log-likelihoods of both translations, plus `alpha`
    times the `regularizer`: "similarity", the squared distance of the two vectors (sec. 2.2);
    "contrastive", which adds the square of max(0, 1 - distance) to the target of a random other
    pair (Hadsell et al. 2006, eq. 4; suggested in sec. 2.2); "weight_decay", the squared L2 norm of
    the encoder's dense weights; or "none". The candidates for each word are the words of the batch
    (our choice; see `token_likelihood`).
    """

    record_type: ClassVar[str] = "parallel"
    columns = ("source", "target")
    config: TranslationConfig

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._log_frequencies: tf.Tensor | None = None

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        """See `Task.make_heads`: a decoder for all languages."""
        dim = encoder.embedding.words.dim
        if encoder.num_ngrams or encoder.embed_words(encoder.example_words()).shape[-1] != dim:
            raise UserError(
                "tasks.translation predicts words by their rows of the encoder's table: set an "
                "empty tokenizer.ngram_sizes=, and no encoder.kind=cnn"
            )
        decoder = Decoder(data.languages, dim, name="decoder")
        decoder.build((None, encoder.hidden_dim))
        return {"decoder": decoder}

    @classmethod
    def can_use(cls, heads: Mapping[str, Any], data: DataConfig) -> bool:
        """See `Task.can_use`: the decoder must know the languages."""
        return set(data.languages) <= set(heads["decoder"].languages)

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        """See `Task.signatures`."""
        languages = ", ".join(layers.heads["decoder"].languages)
        card = (
            f"translations, decoded from the vectors; `language` is one of {languages} for each "
            "text"
        )
        return [
            TranslationSignature(
                layers, SignatureDescription("translate", ("input", "language"), card)
            )
        ]

    @property
    def trace_key(self) -> str:
        """See `Task.trace_key`; the decoder's input depends on the language."""
        return f"{super().trace_key} {self.languages}"

    def prepare(self, tokenizer: Tokenizer, texts: Iterable[Sequence[str]]) -> None:
        """See `Task.prepare`: counts the words; one outside the sample occurred 0.5 times."""
        if not tokenizer.known_words:
            raise UserError("tasks.translation predicts words, no pieces: set tokenizer.kind=words")
        counts = np.zeros(tokenizer.num_words)
        for part in texts:
            ids = tokenizer.word_ids(tokenizer.tokenize(tf.constant(part)).values)
            counts += np.bincount(ids, minlength=len(counts))
        self._log_frequencies = tf.constant(
            np.log(np.maximum(counts, 0.5) / counts.sum()), tf.float32
        )

    def encode_and_score(
        self, encoder: TokenEncoder, batch: Batch, training: bool = False
    ) -> tuple[list[tf.Tensor], tf.Tensor, tf.Tensor]:
        """See `Task.encode_and_score`; a hit is the share of correctly predicted words."""
        # "We find that starting with the two terms having comparable value is a good place to start
        # tuning" (sec. 2.2): `alpha` is then the ratio of their means.
        likelihoods, regularizer, hits, columns = self._terms(encoder, batch, training)
        return columns, likelihoods + self.config.alpha * regularizer, hits

    def _terms(
        self, encoder: TokenEncoder, batch: Batch, training: bool = False
    ) -> tuple[Any, ...]:
        features = batch.features
        words = encoder.embed_words(features.words, training)
        columns = tf.split(self.encode_sentences(encoder, words, features, training), 2)
        ids, words, indices = _candidates(features.words, words)
        tokens = tf.split(tf.gather(indices, features.tokens), 2)
        lengths = tf.split(features.lengths, 2)
        num_tokens = tf.reduce_sum(gather_candidates(features.lengths)[0])
        log_probabilities = self._log_probabilities(ids, num_tokens)
        likelihoods, hits = [], []
        decoder, languages = self.heads["decoder"], self.languages.split("-")
        for encodings, side in zip(columns, (1, 0), strict=True):
            scores = decoder(
                encodings, words, tokens[side], lengths[side], language=languages[side]
            )
            end = tf.shape(words)[0]
            positions = tf.range(tf.shape(scores)[1])[None, :]
            length, padded = lengths[side][:, None], tf.pad(tokens[side], [[0, 0], [0, 1]])
            correct, is_token = tf.where(positions < length, padded, end), positions <= length
            likelihood, hit = token_likelihood(scores, correct, is_token, log_probabilities)
            likelihoods.append(likelihood)
            hits.append(hit)
        source, target = columns
        regularizer = self._regularizer(encoder, source, target, batch.fingerprints)
        return tf.add_n(likelihoods), regularizer, tf.add_n(hits) / 2, columns

    def _log_probabilities(self, ids: tf.Tensor, num_tokens: tf.Tensor) -> tf.Tensor:
        """Returns the log probability that each word or the end occurs in `num_tokens`."""
        assert self._log_frequencies is not None, "call prepare() first"
        expected = tf.cast(num_tokens, tf.float32) * tf.exp(tf.gather(self._log_frequencies, ids))
        return tf.concat([tf.math.log(-tf.math.expm1(-expected)), [0.0]], axis=0)

    def _regularizer(
        self, encoder: TokenEncoder, source: tf.Tensor, target: tf.Tensor, fingerprints: tf.Tensor
    ) -> tf.Tensor:
        kind, squares = self.config.regularizer, tf.reduce_sum(tf.square(source - target), axis=1)
        if kind == "similarity":
            return squares
        if kind == "contrastive":
            indices, has_other = draw_others(fingerprints)
            others = tf.gather(gather_candidates(target)[0], indices)
            distances = tf.sqrt(tf.reduce_sum(tf.square(source - others), axis=1) + _TINY)
            return squares + tf.where(
                has_other, tf.square(tf.maximum(0.0, _MARGIN - distances)), 0.0
            )
        decay = tf.add_n([tf.reduce_sum(tf.square(v.value)) for v in encoder.dense_variables])
        return tf.zeros_like(squares) + (decay if kind == "weight_decay" else 0.0)


def _candidates(ids: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the distinct ids of all replicas' words, their rows, and this replica's indices."""
    all_ids, offset = gather_candidates(ids)
    all_words, _ = gather_candidates(words)
    distinct, indices = tf.unique(all_ids)
    firsts = tf.math.unsorted_segment_min(tf.range(tf.size(all_ids)), indices, tf.size(distinct))
    return distinct, tf.gather(all_words, firsts), indices[offset : offset + tf.size(ids)]


def token_likelihood(
    scores: Tensor, correct: Tensor, is_token: Tensor, log_probabilities: Tensor
) -> tuple[Tensor, Tensor]:
    """Mean negative log-likelihood of the tokens of each sequence (Yu et al. 2018, sec. 2.2).

    The candidates are a sample of the vocabulary. Subtracting the log probability of being sampled
    corrects for the tokens outside the sample (Jean et al. 2015, "On Using Very Large Target
    Vocabulary", sec. 3.1, eq. 8).

    Args:
        scores: `[batch, length, candidates]` float32.
        correct: `[batch, length]` int32 index of the correct candidate.
        is_token: `[batch, length]` bool, false for padding.
        log_probabilities: `[candidates]` log probability that each candidate is in the sample.

    Returns:
        `[batch]` losses, and `[batch]` share of tokens whose correct candidate has the highest
        score.

    Examples:
        >>> import numpy as np
        >>> scores = np.array([[[0.0, 0.0], [9.0, 0.0]]], "float32")
        >>> correct, is_token = np.array([[0, 1]]), np.array([[True, False]])
        >>> losses, _ = token_likelihood(scores, correct, is_token, np.zeros(2, "float32"))
        >>> print(losses.numpy().round(4))  # log 2
        [0.6931]
    """
    weights = ops.cast(is_token, "float32")
    weights /= ops.sum(weights, axis=1, keepdims=True)
    losses = ops.sparse_categorical_crossentropy(
        correct, scores - log_probabilities, from_logits=True
    )
    hits = ops.cast(ops.equal(ops.cast(ops.argmax(scores, axis=2), "int32"), correct), "float32")
    return ops.sum(weights * losses, axis=1), ops.sum(weights * hits, axis=1)


def draw_others(fingerprints: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Draws, for each example, another example of the batch of all replicas at random.

    Examples that share a text with it are never drawn, because they may be right answers too. The
    texts of the batch seed the draws, which are therefore the same after a restart and on any
    number of replicas.

    Returns:
        For `[2, batch]` int64, `[batch]` int32 positions of the drawn examples among those of all
        replicas, and `[batch]` bool, false where there was nothing to draw.
    """
    columns, offset = gather_candidates(tf.transpose(fingerprints))
    columns = tf.transpose(columns)
    is_other = tf.reduce_all(tf.not_equal(fingerprints[:, :, None], columns[:, None, :]), axis=0)
    count, size = tf.shape(fingerprints)[1], tf.shape(columns)[1]
    priorities = tf.random.stateless_uniform([size, size], seed=tf.reduce_sum(columns, axis=1))
    priorities = tf.where(is_other, priorities[offset : offset + count], -1.0)
    return tf.argmax(priorities, axis=1, output_type=tf.int32), tf.reduce_any(is_other, axis=1)
