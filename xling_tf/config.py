"""Every knob of an experiment, in frozen dataclasses; overrides by dotted name; JSON round trip.

Defaults are the papers' constants, with the section they stand in ("2019" is Chidambaram et al.
2019, RepL4NLP; "2018" its earlier version with the appendix). `presets.py` says where a preset departs
from them.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes token features."""

    max_tokens: int = 64  # 2018, sec. 4.2: "sentence lengths clipped to 64"
    lowercase: bool = False
    max_words: int = 200_000  # 2019, sec. 3.2
    min_word_count: int = 1
    num_oov_buckets: int = 10_000  # 2019, sec. 3.2
    ngram_sizes: tuple[int, ...] = (3, 4)  # 2019, sec. 3.2
    num_ngram_buckets: int = 200_000  # 2019, sec. 3.2


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shared encoder g (2019, sec. 2.1)."""

    embedding_dim: int = 320  # 2019, sec. 3.2
    hidden_dim: int = 512  # 2019, sec. 2.1
    intermediate_dim: int = 2048  # 2019, sec. 2.1: "filter size"
    num_layers: int = 3  # 2019, sec. 2.1
    num_heads: int = 8  # 2019, sec. 2.1
    norm_first: bool = False


@dataclass(frozen=True, kw_only=True)
class SimilarityConfig:
    """How a query scores a candidate in every ranking task."""

    normalize: bool = False  # 2019, eq. 1: the plain dot product
    scale: float = 1.0
    margin: float = 0.0
    bidirectional: bool = False


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One training task. A weight of 0 leaves it out."""

    weight: float = 1.0
    examples_per_batch: int = 100  # 2019, sec. 3.2


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """The training tasks (2019, sec. 2.2)."""

    translation_ranking: TaskConfig = TaskConfig()
    response_prediction: TaskConfig = TaskConfig()
    quick_thought: TaskConfig = TaskConfig()
    inference: TaskConfig = TaskConfig()
    tower_dims: tuple[int, ...] = (320, 512)  # 2019, sec. 2.2
    inference_dim: int = 512  # 2019, sec. 2.2
    similarity: SimilarityConfig = SimilarityConfig()


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """Dense layers and embedding tables have an optimizer each."""

    name: str = "sgd"
    learning_rate: float = 0.008  # 2019, sec. 3.2
    embedding_learning_rate: float = 0.8  # 2019, sec. 3.2: embedding gradients times 100
    warmup: float = 0.0
    decay: bool = False
    clip_norm: float = 0.0


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Languages, and how often each corpus is drawn from relative to its size."""

    source: str = "en"
    target: str = "es"
    source_weights: dict[str, float] = field(default_factory=dict)
    pool_batches: int = 64


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Budget, precision and housekeeping."""

    minutes: float = 30.0
    steps: int = 0
    seed: int = 1
    precision: str = "auto"
    checkpoint_minutes: float = 3.0


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """A whole experiment: what a preset is, and what `--set` changes."""

    name: str = ""
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    encoder: EncoderConfig = EncoderConfig()
    tasks: TasksConfig = TasksConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
