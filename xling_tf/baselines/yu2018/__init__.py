"""Sentence vectors from translation by LSTMs (Yu et al. 2018): settings and presets."""

from dataclasses import dataclass
from typing import Annotated

from xling_tf.config import (
    ALL_LANGUAGES,
    Check,
    DataConfig,
    EncoderConfig,
    ExperimentConfig,
    InitialConfig,
    NotNegative,
    OptimizerConfig,
    Positive,
    TaskConfig,
    TrainingConfig,
    WordsConfig,
    one_of,
)
from xling_tf.presets import CORPUS_WEIGHTS


@dataclass(frozen=True, kw_only=True)
class LstmConfig(EncoderConfig):
    """A bidirectional LSTM, and one on top of it (sec. 2)."""

    embedding_dim: Positive = 300
    hidden_dim: Positive = 1024  # of the second layer; with a single layer, twice intermediate_dim
    intermediate_dim: Positive = 512  # of each direction of the first layer
    # 1 for the bidirectional layer alone
    num_layers: Annotated[int, Check("1 or 2", (1, 2).__contains__)] = 2
    pooling: Annotated[str, one_of("mean", "max", "attention")] = "mean"  # sec. 3

    def __post_init__(self) -> None:
        super().__post_init__()
        both = 2 * self.intermediate_dim
        is_valid = self.num_layers > 1 or self.hidden_dim == both
        expected = f"twice encoder.intermediate_dim, {both}, if there is one layer"
        self.require(is_valid, "hidden_dim", expected)


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TaskConfig, name="tasks.translation"):
    """Translation from the vector, in both directions (sec. 2.2)."""

    regularizer: Annotated[str, one_of("similarity", "contrastive", "weight_decay", "none")] = (
        "similarity"
    )
    # Weight of the regularizer; contrastive includes the similarity term.
    alpha: NotNegative = 0.0


OPTIMIZER = OptimizerConfig(
    name="adam",
    learning_rate=1e-3,
    embedding_learning_rate=3e-3,
    warmup=0.1,
    decay="linear",
    clip_norm=5.0,
)
# The paper gives no batch size, optimizer, learning rates or dropout, and trains for a day and a
# half on 4 GPUs; ours are for an hour on a CPU. Other differences:
# - The word vectors are BIVCD's, learned from the same translations. The paper's (multi-CCA, Ammar
#   et al. 2016) need further texts; initial.vectors=FILE reads such vectors.
# - A word is predicted among the words of the batch, not among all 85,000 (`token_likelihood`).
# - The gradient of the word vectors, which have a learning rate of their own, is not clipped.
# - All pairs of languages in the data are trained; the paper pairs each with English and Spanish
#   alone.
# - The "L2 norm on the encoder weights" is its square, as usual, without the word vectors.
# - Self-attention has one hop, so that vectors keep the paper's 1024 numbers.
SEQ2SEQ = ExperimentConfig(
    description="translation from the vector by LSTMs (Yu et al. 2018)",
    data=DataConfig(targets=(ALL_LANGUAGES,), all_pairs=True, corpus_weights=CORPUS_WEIGHTS),
    tokenizer=WordsConfig(max_words=85_000, ngram_sizes=(), num_oov_buckets=1, lowercase=True),
    encoder=LstmConfig(),
    # The paper tunes from an alpha at which both terms are initially equal (sec. 2.2), here about
    # 300 for similarity. In minutes, 1 is better than no regularizer, and 10 is worse
    # (docs/research/experiments.md, "Does the similarity loss help").
    tasks={"translation": TranslationConfig(examples_per_batch=64, alpha=1.0)},
    initial=InitialConfig(vectors=("bivcd:300",)),
    optimizer=OPTIMIZER,
    training=TrainingConfig(minutes=60.0),
)
