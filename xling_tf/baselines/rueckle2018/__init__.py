"""Power means and InferSent across languages (Rücklé et al. 2018): settings and presets."""

import math
from dataclasses import dataclass, replace
from typing import Annotated

from xling_tf.baselines.yu2018 import OPTIMIZER, LstmConfig
from xling_tf.config import (
    ALL_LANGUAGES,
    Check,
    DataConfig,
    EncoderConfig,
    ExperimentConfig,
    InferenceConfig,
    InitialConfig,
    SimilarityConfig,
    TrainingConfig,
    WordsConfig,
)
from xling_tf.presets import CORPUS_WEIGHTS


def _are_powers(texts: tuple[str, ...]) -> bool:
    try:
        powers = [float(text) for text in texts]
    except ValueError:
        return False
    # Other powers of float32 numbers overflow.
    return bool(powers) and all(math.isinf(p) or -3 <= p <= 10 for p in powers)


_Powers = Annotated[tuple[str, ...], Check("numbers from -3 to 10, -inf or inf", _are_powers)]


@dataclass(frozen=True, kw_only=True)
class PowerMeanConfig(EncoderConfig):
    """Concatenated power means of the word vectors in `initial.vectors` (sec. 3)."""

    needs_vectors = True

    p_values: _Powers = ("-inf", "1", "inf")  # sec. 4.1


# Words without n-grams. The paper does not cut sentences; the longest of its tasks here has 134
# words.
_TOKENIZER = WordsConfig(ngram_sizes=(), num_oov_buckets=1, lowercase=True, max_tokens=256)
_VECTORS = InitialConfig(vectors=("bivcd:300",))


# Sec. 5: only the word vectors are trained.
P_MEAN = ExperimentConfig(
    description="power means of word vectors learned from translations (Rücklé et al. 2018)",
    data=DataConfig(targets=(ALL_LANGUAGES,), corpus_weights=CORPUS_WEIGHTS),
    tokenizer=_TOKENIZER,
    encoder=PowerMeanConfig(p_values=("-inf", "1", "3", "inf")),
    similarity=SimilarityConfig(normalize=True),
    initial=_VECTORS,
)
# Sec. 5.1, on fixed word vectors (the paper: those that do best), with the sizes and the batches of
# Conneau et al. 2017, sec. 3.3, and without dropout, as there. Adam, its rates and the budget are
# ours. Tasks take turns, a step each; the paper mixes their examples.
INFERSENT = ExperimentConfig(
    description=(
        "InferSent: English inference on word vectors of all languages (Conneau et al. 2017)"
    ),
    data=DataConfig(targets=(ALL_LANGUAGES,), all_pairs=True, corpus_weights=CORPUS_WEIGHTS),
    tokenizer=_TOKENIZER,
    encoder=LstmConfig(num_layers=1, hidden_dim=4096, intermediate_dim=2048, pooling="max"),
    tasks={"inference": InferenceConfig(examples_per_batch=64)},
    initial=_VECTORS,
    optimizer=replace(OPTIMIZER, embedding_learning_rate=0.0),
    training=TrainingConfig(minutes=60.0),
)
