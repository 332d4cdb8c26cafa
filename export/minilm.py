"""Import of all-MiniLM-L6-v2, or another BERT of sentence-transformers, as a teacher of similarity.

Sentence vectors are the means of the last layer's vectors, at unit length (Reimers and Gurevych 2019,
"Sentence-BERT", sec. 3; Wang et al. 2020, "MiniLM: Deep Self-Attention Distillation").
"""

import json
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np
import tensorflow as tf

from xling_tf.errors import UserError, library
from xling_tf.files import replacing_folder
from xling_tf.layers.pooling import unit_length
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.saved_models import one_line

_FILES = ("config.json", "model.safetensors", "vocab.txt")
_MAX_TOKENS = 256  # from the page of all-MiniLM-L6-v2


def import_bert(source: Path, output: Path) -> None:
    """Writes a SavedModel from the published files of a model.

    Args:
        source: Folder with config.json, model.safetensors and vocab.txt, or a wheel with such a folder.
        output: Folder of the SavedModel, which needs tensorflow-text.

    Raises:
        UserError: The files are missing or of another kind of model, or `output` cannot be written.
    """
    require_replaceable(output)
    load = library("safetensors.numpy", "safetensors", "published").load
    config, weights, vocabulary = _read(source)
    try:
        sizes = json.loads(config)
        encoder = BertEncoder(load(weights), sizes, vocabulary.decode().split())
        signature = tf.function(lambda inputs: {"outputs": encoder(inputs)}, autograph=False)
        default = signature.get_concrete_function(inputs=tf.TensorSpec([None], tf.string, name="inputs"))
    except (AttributeError, KeyError, ValueError) as error:
        raise UserError(
            f"{source} must have a BERT of sentence-transformers, such as all-MiniLM-L6-v2, but cannot be "
            f"read as one: {one_line(error)}; use its files as they were published"
        ) from error
    with replacing_folder(output) as temporary:
        tf.saved_model.save(encoder, str(temporary), {"serving_default": default, "default": default})


def _read(source: Path) -> list[bytes]:
    try:
        if not is_zipfile(source):
            return [(source / name).read_bytes() for name in _FILES]
        with ZipFile(source) as wheel:
            folder = next(name for name in wheel.namelist() if name.endswith(_FILES[1])).rpartition("/")[0]
            return [wheel.read(f"{folder}/{name}") for name in _FILES]
    except (BadZipFile, KeyError, OSError, StopIteration) as error:
        raise UserError(
            f"{source} must be a folder, or a wheel, with {', '.join(_FILES)}, but is not ({error}); "
            "use the files of sentence-transformers/all-MiniLM-L6-v2 as they were published"
        ) from error


class BertEncoder(tf.Module):
    """Encodes strings as unit vectors with a BERT (Devlin et al. 2019).

    Args:
        weights: Weights by their names in sentence-transformers.
        config: Content of its config.json.
        vocabulary: Vocabulary of WordPiece, in the order of the embeddings' rows.
    """

    def __init__(
        self, weights: Mapping[str, np.ndarray], config: Mapping[str, int], vocabulary: list[str]
    ) -> None:
        super().__init__()
        import tensorflow_text

        self._num_layers, self._num_heads = config["num_hidden_layers"], config["num_attention_heads"]
        self._epsilon = config["layer_norm_eps"]
        floats = {name: array for name, array in weights.items() if array.dtype == np.float32}
        # Matrices are transposed for multiplication from the right.
        self._weights = {
            name: tf.Variable(array.T if name.endswith("dense.weight") or "self" in name else array)
            for name, array in floats.items()
        }
        ids = tf.range(len(vocabulary), dtype=tf.int64)
        pieces = tf.lookup.KeyValueTensorInitializer(vocabulary, ids)
        table = tf.lookup.StaticVocabularyTable(pieces, num_oov_buckets=1)
        self._tokenizer = tensorflow_text.BertTokenizer(table, lower_case=True, token_out_type=tf.int32)
        self._begin, self._end = vocabulary.index("[CLS]"), vocabulary.index("[SEP]")

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")], autograph=False)
    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """Encodes `[batch]` strings as `[batch, dim]` float32."""
        pieces = self._tokenizer.tokenize(inputs).merge_dims(1, 2)[:, : _MAX_TOKENS - 2]
        begin, end = (tf.fill([pieces.nrows(), 1], mark) for mark in (self._begin, self._end))
        tokens = tf.concat([begin, pieces, end], axis=1)
        is_token = tf.sequence_mask(tokens.row_lengths(), dtype=tf.float32)
        vectors = self._embed(tokens.to_tensor())
        for layer in range(self._num_layers):
            vectors = self._layer(f"encoder.layer.{layer}", vectors, is_token)
        sums = tf.reduce_sum(vectors * is_token[:, :, None], axis=1)
        return unit_length(sums)

    def _embed(self, tokens: tf.Tensor) -> tf.Tensor:
        names = ("word", "position", "token_type")
        words, places, kinds = (self._weights[f"embeddings.{name}_embeddings.weight"] for name in names)
        vectors = tf.gather(words, tokens) + places[: tf.shape(tokens)[1]] + kinds[0]
        return self._norm("embeddings.LayerNorm", vectors)

    def _layer(self, name: str, inputs: tf.Tensor, is_token: tf.Tensor) -> tf.Tensor:
        query, key, value = (
            self._heads(self._dense(f"{name}.attention.self.{part}", inputs))
            for part in ("query", "key", "value")
        )
        scores = tf.matmul(query, key, transpose_b=True) * query.shape[-1] ** -0.5
        shares = tf.nn.softmax(scores + 1e9 * (is_token[:, None, None, :] - 1))
        mixed = tf.transpose(tf.matmul(shares, value), (0, 2, 1, 3))
        mixed = self._dense(f"{name}.attention.output.dense", tf.reshape(mixed, tf.shape(inputs)))
        inputs = self._norm(f"{name}.attention.output.LayerNorm", inputs + mixed)
        hidden = tf.nn.gelu(self._dense(f"{name}.intermediate.dense", inputs))
        return self._norm(f"{name}.output.LayerNorm", inputs + self._dense(f"{name}.output.dense", hidden))

    def _heads(self, vectors: tf.Tensor) -> tf.Tensor:
        batch, length = tf.unstack(tf.shape(vectors)[:2])
        per_head = vectors.shape[-1] // self._num_heads
        split = tf.reshape(vectors, (batch, length, self._num_heads, per_head))
        return tf.transpose(split, (0, 2, 1, 3))

    def _dense(self, name: str, vectors: tf.Tensor) -> tf.Tensor:
        return tf.tensordot(vectors, self._weights[f"{name}.weight"], 1) + self._weights[f"{name}.bias"]

    def _norm(self, name: str, vectors: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(vectors, [-1], keepdims=True)
        scale, offset = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return tf.nn.batch_normalization(vectors, mean, variance, offset, scale, self._epsilon)
