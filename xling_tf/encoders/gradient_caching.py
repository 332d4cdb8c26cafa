"""Gradients of a large batch in the memory of a small one."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from xling_tf.encoders.base import TokenEncoder
from xling_tf.text.preprocessor import TokenFeatures


def encode_in_chunks(
    encoder: TokenEncoder, words: tf.Tensor, features: TokenFeatures, num_chunks: int
) -> tf.Tensor:
    """Encodes what `encoder(features)` does, and keeps no activations for the backward pass.

    That encodes each chunk once more and adds up the chunks' gradients (Gao et al. 2021, "Scaling Deep
    Contrastive Learning Batch Size under Memory Limited Setup", sec. 3.2).

    Args:
        encoder: Encodes sentences of words that are embedded already.
        words: `[words, any]`, what it embeds the batch's distinct words as.
        features: Of the whole batch.
        num_chunks: How many to cut it into; fewer, if it has fewer sentences.

    Returns:
        `[batch, hidden_dim]` float32, in the order of the sentences.
    """
    chunks = _Chunks.cut(features, num_chunks)

    @tf.custom_gradient
    def encode(words: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(
            upstream: tf.Tensor, variables: Sequence[tf.Variable]
        ) -> tuple[tf.Tensor, list[tf.Tensor]]:
            return _add_up_gradients(encoder, words, chunks, upstream, variables)

        return _encode_all(encoder, words, chunks), gradient

    return encode(words)


class _Chunks(NamedTuple):
    """A batch, the order of its sentences by length, and where in that each chunk begins and ends."""

    features: TokenFeatures
    order: tf.Tensor
    bounds: tf.Tensor

    @classmethod
    def cut(cls, features: TokenFeatures, num_chunks: int) -> "_Chunks":
        """Gives every chunk about equal numbers of tokens, as batches have, and at least a sentence."""
        order = tf.argsort(features.lengths)
        work = tf.cumsum(tf.gather(features.lengths, order))
        cuts = tf.searchsorted(work, tf.range(1, num_chunks) * (work[-1] // num_chunks))
        bounds, _ = tf.unique(tf.concat([[0], cuts, [tf.size(order)]], axis=0))
        return cls(features, order, bounds)

    @property
    def count(self) -> tf.Tensor:
        """How many there are."""
        return tf.size(self.bounds) - 1

    def rows(self, chunk: tf.Tensor) -> tf.Tensor:
        """Which sentences of the batch a chunk holds."""
        return self.order[self.bounds[chunk] : self.bounds[chunk + 1]]

    def sentences(self, chunk: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`[sentences, longest]` positions of words, and `[sentences]` lengths."""
        rows = self.rows(chunk)
        lengths = tf.gather(self.features.lengths, rows)
        return tf.gather(self.features.tokens, rows)[:, : lengths[-1]], lengths


def _encode_all(encoder: TokenEncoder, words: tf.Tensor, chunks: _Chunks) -> tf.Tensor:
    def add_chunk(chunk: tf.Tensor, encodings: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        tokens, lengths = chunks.sentences(chunk)
        outputs = encoder.encode_tokens(tf.gather(words, tokens), lengths)
        return chunk + 1, encodings.write(chunk, outputs)

    shape = [None, encoder.hidden_dim]
    encodings = tf.TensorArray(
        tf.float32, size=chunks.count, infer_shape=False, element_shape=shape
    )
    _, encodings = _for_each(chunks, add_chunk, encodings)
    return tf.gather(encodings.concat(), tf.argsort(chunks.order))


def _add_up_gradients(
    encoder: TokenEncoder,
    words: tf.Tensor,
    chunks: _Chunks,
    upstream: tf.Tensor,
    variables: Sequence[tf.Variable],
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """The gradients of the words, and of the variables."""

    def add_chunk(
        chunk: tf.Tensor, of_words: tf.Tensor, of_variables: list[tf.Tensor]
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        tokens, lengths = chunks.sentences(chunk)
        inputs = tf.gather(words, tokens)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = encoder.encode_tokens(inputs, lengths)
        of_inputs, *parts = tape.gradient(
            outputs, [inputs, *variables], tf.gather(upstream, chunks.rows(chunk))
        )
        of_words = tf.tensor_scatter_nd_add(
            of_words, tokens[..., None], tf.cast(of_inputs, tf.float32)
        )
        sums = [total + part for total, part in zip(of_variables, parts, strict=True)]
        return chunk + 1, of_words, sums

    # Words that all chunks share are added up in float32, whatever they are computed in.
    zeros = tf.zeros(tf.shape(words)), [tf.zeros(variable.shape) for variable in variables]
    _, of_words, of_variables = _for_each(chunks, add_chunk, *zeros)
    return tf.cast(of_words, words.dtype), of_variables


def _for_each(chunks: _Chunks, body: Callable[..., Any], *state: Any) -> Any:
    # One after another: TensorFlow would run ten at the same time, in the memory of ten.
    return tf.while_loop(
        lambda chunk, *_: chunk < chunks.count, body, (0, *state), parallel_iterations=1
    )
