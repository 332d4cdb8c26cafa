"""A tokenizer, an encoder and a task of a user's, for `--import toys`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import keras
import tensorflow as tf

from xling_tf.config import (
    ENCODERS,
    TASKS,
    TOKENIZERS,
    DataConfig,
    EncoderConfig,
    ExperimentConfig,
    TaskConfig,
    TokenizerConfig,
)
from xling_tf.encoders.base import TokenEncoder
from xling_tf.layers.embeddings import WordEmbedding
from xling_tf.layers.pooling import masked_max, token_mask
from xling_tf.losses import in_batch_softmax
from xling_tf.tasks.base import Batch, Heads, Task
from xling_tf.tasks.signatures import ExportedLayers, Signature, SignatureDescription, texts
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.composition import readable


@dataclass(frozen=True, kw_only=True)
class LettersConfig(TokenizerConfig):
    """Letters, the first ones by code point."""

    max_letters: int = 30


class LetterTokenizer(Tokenizer):
    """Each letter is a token; row 0 is for letters that were not learned, and for none at all."""

    file_names = ("letters.json",)
    config: LettersConfig

    def __init__(self, letters: Iterable[str], config: LettersConfig) -> None:
        super().__init__(config)
        self.letters = tuple(letters)
        self.num_words = 1 + len(self.letters)
        keys, rows = tf.constant(self.letters), tf.range(1, self.num_words)
        self._table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, rows), 0)

    @classmethod
    def fit(
        cls, config: LettersConfig, texts_by_language: Mapping[str, Iterable[str]]
    ) -> "LetterTokenizer":
        seen = sorted(
            {letter for texts in texts_by_language.values() for text in texts for letter in text}
        )
        return cls(seen[: config.max_letters], config)

    @classmethod
    def from_files(cls, config: LettersConfig, files: Mapping[str, bytes]) -> "LetterTokenizer":
        return cls(json.loads(files["letters.json"]), config)

    def files(self) -> dict[str, bytes]:
        return {"letters.json": json.dumps(self.letters).encode()}

    def tokenize(self, sentences: tf.Tensor, max_tokens: int | None = None) -> tf.RaggedTensor:
        max_tokens = max_tokens or self.config.max_tokens
        text = readable(sentences, max_tokens)
        text = tf.where(tf.equal(text, ""), " ", text)
        return tf.strings.unicode_split(text, "UTF-8")[:, :max_tokens]

    def word_ids(self, tokens: tf.Tensor) -> tf.Tensor:
        return self._table.lookup(tokens)

    def rules(self) -> dict[str, Any]:
        return {"kind": "letters"}


@dataclass(frozen=True, kw_only=True)
class MaxConfig(EncoderConfig):
    """The maximum of the letters' vectors."""

    hidden_dim: int = 16


@keras.saving.register_keras_serializable(package="toys")
class MaxEncoder(TokenEncoder):
    """The maximum of the letters' vectors, and a dense layer."""

    config_type = MaxConfig

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.embedding = WordEmbedding(self.num_words, self.hidden_dim, name="embedding")
        self.dense = keras.layers.Dense(self.hidden_dim, name="dense")

    def encode_tokens(self, inputs: Any, lengths: Any, training: bool = False) -> keras.KerasTensor:
        return self.dense(masked_max(inputs, token_mask(inputs, lengths)))


class LabelSignature(Signature):
    """Strings to the probabilities of three labels."""

    @tf.function(input_signature=texts("text"), autograph=False)
    def __call__(self, text: tf.Tensor) -> tf.Tensor:
        return self.head("labels")(self.scaled_for_heads(self.encoder(tf.reshape(text, [-1]))))


class HypothesisOnly(Task):
    """Guesses the label of inference from the hypothesis alone (Poliak et al. 2018)."""

    record_type: ClassVar[str] = "nli"
    columns = ("hypothesis",)

    @classmethod
    def languages_of(cls, config: TaskConfig, data: DataConfig) -> list[str]:
        return [data.source]

    @classmethod
    def make_heads(cls, config: ExperimentConfig, data: DataConfig, encoder: TokenEncoder) -> Heads:
        labels = keras.layers.Dense(3, activation="softmax", name="labels")
        labels.build((None, encoder.hidden_dim))
        return {"labels": labels}

    @classmethod
    def signatures(cls, layers: ExportedLayers) -> list[Signature]:
        description = SignatureDescription("label", ("text",), "probabilities of three labels")
        return [LabelSignature(layers, description)]

    def score(self, columns: list[tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        logits = tf.math.log(self.heads["labels"](columns[0]))
        return in_batch_softmax(logits, batch.labels, excluded=False)


TOKENIZERS.register("letters", LettersConfig, LetterTokenizer)
ENCODERS.register("max", MaxConfig, MaxEncoder)
TASKS.register("hypothesis_only", TaskConfig, HypothesisOnly)
