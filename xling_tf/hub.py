"""The SavedModel: built from a trained encoder, exported, loaded."""

from collections.abc import Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from xling_tf.config import EncoderConfig
from xling_tf.encoders.transformer import TransformerEncoder
from xling_tf.errors import UserError
from xling_tf.files import replacing_folder
from xling_tf.layers.pooling import unit_length
from xling_tf.layers.tower import Tower
from xling_tf.text.word_ngram import WordNgramPreprocessor, ngram_ids

# Sentences encoded together; sorted by length, so memory is bounded by this many of the longest.
_MICRO_BATCH = 256
_WORDS_PER_CHUNK = 8192
# Call forms: any rank, flattened; `training` is the Reusable SavedModel contract's.
_CALL_SIGNATURE = (
    tf.TensorSpec(None, tf.string, name="inputs"),
    tf.TensorSpec([], tf.bool, name="training"),
)


class FoldedEncoder(tf.Module):
    """An encoder whose vocabulary is tabulated: a known word is one row, n-grams and all.

    What a word becomes before the transformer depends on the word alone, so it is computed here for
    the whole vocabulary; only other words are spelt into n-grams at run time. Computes in float32.

    Args:
        preprocessor: The trained encoder's.
        encoder: The trained encoder.
        config: Its sizes.
    """

    def __init__(
        self,
        preprocessor: WordNgramPreprocessor,
        encoder: TransformerEncoder,
        config: EncoderConfig,
    ) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        self._num_known = len(preprocessor.vocabulary)
        body = _in_float32(encoder, preprocessor, config)
        # Out of TensorFlow's sight: a Keras model would add its own serving function to the export.
        self._body = lambda: body
        self.vocabulary = tf.Variable(self._tabulate(), name="vocabulary")
        # The rows of known words are in the table now; only those of the hash buckets stay.
        rows = self._body().embedding.words.table.numpy()[self._num_known :]
        self._bucket_words = tf.Variable(rows, name="bucket_words")
        self.weights = [
            self.vocabulary,
            self._bucket_words,
            self._body().embedding.ngrams.table.value,
            *(v.value for v in self._body().dense_variables),
        ]

    def __call__(self, sentences: tf.Tensor) -> tf.Tensor:
        """Encodes `[batch]` strings to `[batch, hidden_dim]`, not normalised, in bounded memory."""
        tokens = self._preprocessor.tokenize(sentences)
        order = tf.argsort(tokens.row_lengths())
        tokens = tf.gather(tokens, order)
        count = tf.shape(sentences)[0]
        chunks = tf.maximum(1, -(-count // _MICRO_BATCH))
        encodings = tf.TensorArray(
            tf.float32,
            size=chunks,
            infer_shape=False,
            element_shape=[None, self._body().hidden_dim],
        )
        for chunk in tf.range(chunks):
            begin = chunk * _MICRO_BATCH
            micro_batch = self._encode(tokens[begin : begin + _MICRO_BATCH])
            encodings = encodings.write(chunk, micro_batch)
        return tf.gather(encodings.concat(), tf.argsort(order))

    def _encode(self, tokens: tf.RaggedTensor) -> tf.Tensor:
        words, positions = tf.unique(tokens.values)
        vectors = self._embed(words)
        inputs = tf.gather(vectors, tokens.with_values(positions).to_tensor())
        return self._body().encode_tokens(inputs, tf.cast(tokens.row_lengths(), tf.int32))

    def _embed(self, words: tf.Tensor) -> tf.Tensor:
        """Represents `[words]` strings: `[words, hidden_dim]`."""
        ids = self._preprocessor.word_ids(words)
        is_known = ids < self._num_known
        vectors = tf.gather(self.vocabulary, tf.where(is_known, ids, 0))
        unknown = tf.where(~is_known)
        spelt = self._spell(tf.gather_nd(words, unknown), tf.gather_nd(ids, unknown))
        return tf.tensor_scatter_nd_update(vectors, unknown, spelt)

    def _spell(self, words: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Represents words by their bucket and their n-grams."""
        ngrams = ngram_ids(words, self._preprocessor.config)
        embedding = self._body().embedding
        combined = embedding.combine(
            tf.gather(self._bucket_words, ids - self._num_known),
            embedding.ngrams(ngrams.values),
            tf.cast(ngrams.value_rowids(), tf.int32),
        )
        return self._body().input_projection(combined)

    def _tabulate(self) -> np.ndarray:
        words = self._preprocessor.vocabulary
        chunks = [
            self._body().embed_words(
                *self._preprocessor.word_features(tf.constant(words[i : i + _WORDS_PER_CHUNK]))
            )
            for i in range(0, len(words), _WORDS_PER_CHUNK)
        ]
        return np.concatenate(chunks)


def _in_float32(
    encoder: TransformerEncoder, preprocessor: WordNgramPreprocessor, config: EncoderConfig
) -> TransformerEncoder:
    """Copies an encoder trained in any precision into one that computes in float32."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        body = TransformerEncoder(
            config,
            num_words=preprocessor.num_words,
            num_ngrams=preprocessor.config.num_ngram_buckets,
            max_tokens=preprocessor.config.max_tokens,
        )
        body.build_variables()
    finally:
        keras.config.set_dtype_policy(policy)
    body.set_weights(encoder.get_weights())
    return body


class HubEncoder(tf.train.Checkpoint):
    """Strings to unit vectors, with what the Reusable SavedModel interface asks for.

    A `tf.train.Checkpoint` and not a `tf.Module`, whose `variables` would be lost on saving.

    Args:
        encoder: Makes the sentence vectors.
        tower: Applied to them, if any, before the result is normalised.
    """

    def __init__(self, encoder: FoldedEncoder, tower: "FrozenTower | None" = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.tower = tower
        self.trainable_variables = [*encoder.weights, *(tower.weights if tower else ())]
        self.variables = list(self.trainable_variables)
        self.regularization_losses: list[tf.Tensor] = []

    @tf.function(input_signature=_CALL_SIGNATURE)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Encodes strings of any shape, flattened: `[sentences, dim]` float32 of unit length."""
        encodings = self.encoder(tf.reshape(inputs, [-1]))
        return unit_length(self.tower(encodings) if self.tower else encodings)


class FrozenTower(tf.Module):
    """A trained tower in float32, apart from the layer whose precision it was trained in.

    Args:
        tower: The trained tower.
        normalize: Whether it was trained on unit vectors.
    """

    def __init__(self, tower: Tower, *, normalize: bool) -> None:
        super().__init__()
        self._normalize = normalize
        self.weights = [tf.Variable(weight) for weight in tower.get_weights()]

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Maps `[batch, dim]` to `[batch, tower dim]`."""
        if self._normalize:
            inputs = unit_length(inputs)
        for kernel, bias in zip(self.weights[::2], self.weights[1::2], strict=True):
            inputs = tf.tanh(tf.matmul(inputs, kernel) + bias)
        return inputs


class HubModule(HubEncoder):
    """What is exported: the encoder itself, and one encoder for each side of question answering.

    Args:
        encoder: Makes the sentence vectors.
        response_tower: Of the response prediction task; where it was not trained, responses are encoded
            as questions are.
    """

    def __init__(self, encoder: FoldedEncoder, response_tower: FrozenTower | None) -> None:
        super().__init__(encoder)
        self.question_encoder = HubEncoder(encoder)
        self.response_encoder = HubEncoder(encoder, response_tower)

    def make_signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Traces `serving_default`, `default`, `question_encoder` and `response_encoder`."""
        return {
            "serving_default": _signature(self, "inputs"),
            "default": _signature(self, "inputs"),
            "question_encoder": _signature(self.question_encoder, "input"),
            "response_encoder": _signature(self.response_encoder, "input"),
        }


def _signature(module: HubEncoder, name: str) -> tf.types.experimental.ConcreteFunction:
    # A known rank lets TensorFlow Serving batch requests together.
    spec = tf.TensorSpec([None], tf.string, name=name)
    function = tf.function(lambda **inputs: {"outputs": module(inputs[name], False)})
    return function.get_concrete_function(**{name: spec})


def export(module: HubModule, path: Path, files: Mapping[str, str]) -> None:
    """Writes a SavedModel that needs nothing but TensorFlow; the old one stays until it is whole.

    Args:
        module: What to export.
        path: Folder, as `exported/en-es`.
        files: Texts to put beside the model, by file name (config, model card).
    """
    with replacing_folder(path) as temporary:
        tf.saved_model.save(module, str(temporary), signatures=module.make_signatures())
        for name, text in files.items():
            (temporary / name).write_text(text, encoding="utf-8")


def require_replaceable(path: Path) -> None:
    """Makes sure that an export to `path` would replace a model or nothing.

    Raises:
        UserError: Something else is there.
    """
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not (path / "saved_model.pb").is_file():
        raise UserError(
            f"--output must be a new folder or an exported model, which it replaces, but {path} is "
            "something else; give another with --output"
        )
