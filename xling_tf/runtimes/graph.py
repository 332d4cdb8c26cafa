"""What a runtime computes of an exported model: ids of tokens to unit vectors."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.config import EncoderConfig, ExperimentConfig
from xling_tf.encoders.base import TokenEncoder, build_encoder
from xling_tf.errors import UserError
from xling_tf.hub.module import TRAINING
from xling_tf.hub.saved_models import load_saved_model
from xling_tf.layers.pooling import unit_length
from xling_tf.overrides import from_json
from xling_tf.text.preprocessor import (
    TextPreprocessor,
    Vocabulary,
    WordFeatures,
    build_preprocessor,
)
from xling_tf.text.words import WordNgramPreprocessor
from xling_tf.trainer.run_folder import read_vocabulary
from xling_tf.trainer.starting_config import CONFIG

Arrays = Sequence[NDArray[np.float32]]
Shape = tuple[int, ...]

_IDS = tf.TensorSpec([None, None], tf.int32, name="ids")
_LENGTHS = tf.TensorSpec([None], tf.int32, name="lengths")
_BUCKETS = tf.TensorSpec([None], tf.int32, name="buckets")
_NGRAMS = tf.TensorSpec([None, None], tf.int32, name="ngrams")


class ExportedModel(NamedTuple):
    """An exported model, taken apart.

    Attributes:
        config: Its settings.
        preprocessor: What turns its texts into tokens.
        encode: The model as it was loaded: strings to vectors.
        graph: Ids to the same vectors.
    """

    config: ExperimentConfig
    preprocessor: TextPreprocessor
    encode: Any
    graph: "Graph"

    @classmethod
    def open(cls, folder: Path) -> "ExportedModel":
        """Reads an exported model; one that was fine-tuned elsewhere is as good.

        Args:
            folder: With `saved_model.pb`, `variables/`, `config.json` and `training/`.

        Raises:
            UserError: The folder is no export of xling_tf, or its files are not of one model.
        """
        config, vocabulary = _read_settings(folder)
        loaded = load_saved_model(folder)
        preprocessor = build_preprocessor(config.text, vocabulary)
        body = _in_float32(config, preprocessor)
        kind = SpeltGraph if isinstance(preprocessor, WordNgramPreprocessor) else Graph
        shapes = [*kind.table_shapes(preprocessor, config.encoder), *_shapes(body.dense_variables)]
        weights = [np.asarray(v) for v in loaded.trainable_variables]
        if _shapes(weights) != shapes:
            raise UserError(
                f"{folder} has {len(weights)} weights that are not of the sizes its config.json and its "
                f"vocabulary say ({len(shapes)} weights): all must be of one model; export it anew"
            )
        graph = kind(preprocessor, body, weights)
        return cls(config, preprocessor, loaded, graph)


class Graph(tf.Module):
    """Maps ids, each a row of the table, to vectors.

    Args:
        preprocessor: What gives the ids.
        body: An encoder of the model's sizes, whose weights are replaced.
        weights: The model's variables, as `FoldedEncoder.weights` has them: tables, then the rest.
    """

    signature: tuple[tf.TensorSpec, ...] = (_IDS, _LENGTHS)

    def __init__(self, preprocessor: TextPreprocessor, body: TokenEncoder, weights: Arrays) -> None:
        super().__init__()
        self._preprocessor = preprocessor
        # Out of TensorFlow's sight, which would add Keras' own functions to what is saved.
        self._body = lambda: body
        num_tables = len(weights) - len(body.dense_variables)
        for variable, value in zip(body.dense_variables, weights[num_tables:], strict=True):
            variable.assign(value)
        self.dense = [v.value for v in body.dense_variables]
        self.tables = [tf.Variable(table) for table in self._tables(weights[:num_tables])]

    @staticmethod
    def table_shapes(preprocessor: TextPreprocessor, config: EncoderConfig) -> list[Shape]:
        """The shapes of the first of the weights."""
        return [(preprocessor.num_words, config.embedding_dim)]

    def encode(self, tables: Sequence[tf.Tensor], *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps inputs as in `signature` to `outputs`, `[batch, dim]` float32 of unit length."""
        ids, lengths, *unknown = inputs
        vectors = self._embed(tables, ids, *unknown)
        return {"outputs": unit_length(self._body().encode_tokens(vectors, lengths))}

    def _tables(self, tables: Arrays) -> Arrays:
        return tables

    def _embed(self, tables: Sequence[tf.Tensor], ids: tf.Tensor, *unknown: tf.Tensor) -> tf.Tensor:
        own = zip(self._body().table_variables, tables, strict=True)
        with keras.StatelessScope(state_mapping=list(own)):
            words = self._body().embed_words(WordFeatures.unspelt(tf.reshape(ids, [-1])))
        return tf.reshape(words, tf.concat([tf.shape(ids), [words.shape[-1]]], axis=0))


class SpeltGraph(Graph):
    """Maps ids to vectors; those from the vocabulary's size on are words spelt by their n-grams.

    `buckets`, `[unknown]`, and `ngrams`, `[unknown, ngrams]`, are rows of these words, at least one;
    where a word has fewer n-grams, the number of n-gram buckets stands in the places left.
    """

    signature = (_IDS, _LENGTHS, _BUCKETS, _NGRAMS)

    @staticmethod
    def table_shapes(preprocessor: TextPreprocessor, config: EncoderConfig) -> list[Shape]:
        """The shapes of the first of the weights."""
        return [
            (len(preprocessor.vocabulary), config.hidden_dim),
            (preprocessor.config.num_oov_buckets, config.embedding_dim),
            (preprocessor.num_ngrams, config.embedding_dim),
        ]

    def _tables(self, tables: Arrays) -> Arrays:
        known, buckets, ngrams = tables
        return [known, buckets, np.pad(ngrams, ((0, 1), (0, 0)))]  # a row for no n-gram

    def _embed(self, tables: Sequence[tf.Tensor], ids: tf.Tensor, *unknown: tf.Tensor) -> tf.Tensor:
        buckets, ngrams = unknown
        known_rows, bucket_rows, ngram_rows = tables
        num_known = self.tables[0].shape[0]
        rows = self._preprocessor.ngram_rows
        if rows is not None:
            ngrams = tf.gather(np.append(rows, self._preprocessor.num_ngrams), ngrams)
        sums = tf.reduce_sum(tf.gather(ngram_rows, ngrams), axis=1)
        words = tf.gather(bucket_rows, buckets)
        spelt = self._body().input_projection(self._body().embedding.join(words, sums))
        return tf.where(
            tf.expand_dims(ids < num_known, axis=-1),
            tf.gather(known_rows, tf.minimum(ids, num_known - 1)),
            tf.gather(spelt, tf.maximum(ids - num_known, 0)),
        )


def _read_settings(folder: Path) -> tuple[ExperimentConfig, Vocabulary]:
    try:
        config = from_json(ExperimentConfig, (folder / CONFIG).read_text(encoding="utf-8"))
        return config, read_vocabulary(folder / TRAINING, config.text.tokenizer)
    except FileNotFoundError as error:
        raise UserError(
            f"a model exported by xling_tf is expected, with config.json and training/, but {error.filename} "
            "is not there; copy both from the export that the model was made of, or export it anew"
        ) from error


def _in_float32(config: ExperimentConfig, preprocessor: TextPreprocessor) -> TokenEncoder:
    """An encoder that computes in float32, whatever the policy of the process is."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("float32")
    try:
        return build_encoder(config.encoder, preprocessor)
    finally:
        keras.config.set_dtype_policy(policy)


def _shapes(weights: Iterable[Any]) -> list[Shape]:
    return [tuple(weight.shape) for weight in weights]
