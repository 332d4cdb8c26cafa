"""The settings of an experiment, and the registries of tokenizers, encoders and tasks.

Defaults are constants of the papers, with the section they are from: "2019" is Chidambaram et al.
2019, RepL4NLP, and "2018" its earlier version with the appendix; "Yang" is Yang et al. 2019,
multilingual USE. `presets.py` sets what differs in a preset; `settings.py` reads and writes
settings.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import combinations
from pkgutil import resolve_name
from typing import Annotated, Any, NamedTuple, get_type_hints

from xling_tf.client.settings import role_prompts
from xling_tf.errors import UserError, as_user_error, require_known

DTYPE_POLICIES = ("float32", "mixed_bfloat16")  # of Keras, to compute with in training
ALL_LANGUAGES = "all"  # the only entry of `data.targets`, for every language in the data


class Check(NamedTuple):
    """A requirement on the value of a setting, as part of the field's type."""

    expected: str  # for the message
    is_valid: Callable[[Any], bool]


def one_of(*names: str) -> Check:
    """Returns the check of a setting that is one of some names."""
    return Check(" or ".join(names), names.__contains__)


Positive = Annotated[int, Check("at least 1", lambda number: number >= 1)]
Sizes = Annotated[tuple[int, ...], Check("at least 1", lambda sizes: min(sizes, default=1) >= 1)]
_NOT_NEGATIVE = Check("a number of at least 0", lambda number: 0 <= number < math.inf)
NotNegative = Annotated[float, _NOT_NEGATIVE]
Count = Annotated[int, _NOT_NEGATIVE]
_SHARE = Check("at least 0 and below 1", lambda share: 0 <= share < 1)
Share = Annotated[float, _SHARE]
OwnScale = Annotated[
    float | None, Check("above 0, or auto", lambda scale: scale is None or 0 < scale < math.inf)
]
OwnMargin = Annotated[
    float | None, Check("a finite number, or auto", lambda m: m is None or math.isfinite(m))
]
DifferentSizes = Annotated[
    Sizes, Check("different numbers", lambda sizes: len(set(sizes)) == len(sizes))
]


class Section:
    """Base class of the dataclasses of settings: checks each field whose type has a `Check`."""

    _name = ""  # of the section, for messages

    def __init_subclass__(cls, name: str = "") -> None:
        cls._name = name or cls._name

    def __post_init__(self) -> None:
        for setting, hint in get_type_hints(type(self), include_extras=True).items():
            for check in getattr(hint, "__metadata__", ()):
                self.require(check.is_valid(getattr(self, setting)), setting, check.expected)

    def require(self, is_valid: bool, setting: str, expected: str) -> None:
        """Raises a `UserError` unless the value of a setting is valid."""
        if not is_valid:
            value = getattr(self, setting)
            shown = (",".join(map(str, value)) or "none") if isinstance(value, tuple) else value
            raise UserError(f"{self._name}.{setting} must be {expected}, got {shown}")


@cache
def further_kinds(registry: str) -> dict[str, EntryPoint]:
    """Returns what installed packages add to a registry, by name; imports none of them."""
    prefix = f"{registry}."
    points = entry_points(group="xling_tf.kinds")
    return {p.name.removeprefix(prefix): p for p in points if p.name.startswith(prefix)}


class Registry(Mapping[str, Any]):
    """What names stand for, such as presets; a row "module:attribute" is imported on first use.

    Packages add rows by entry points of the group `xling_tf.kinds`. One that is named
    "preset.mine" names the module whose import registers the preset "mine".

    Args:
        name: The first part of the names of entry points.
        setting: The setting or flag whose value is a name of a row, for messages.
        rows: The rows by name.
    """

    def __init__(self, name: str, setting: str, rows: Mapping[str, Any]) -> None:
        self._name, self._setting = name, setting
        self.data = dict(rows)

    def register(self, name: str, row: Any) -> None:
        """Adds a row, or replaces that of this name."""
        self.data[name] = row

    def __iter__(self) -> Iterator[str]:
        return iter(self.data | further_kinds(self._name))

    def __len__(self) -> int:
        return len(self.data | further_kinds(self._name))

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in further_kinds(self._name)

    def __getitem__(self, name: str) -> Any:
        return _imported(self._row(name))

    def _row(self, name: str) -> Any:
        if not isinstance(name, str) or name not in self.data:
            require_known(self._setting, name, self, "`import` the module that registers it")
            module = further_kinds(self._name)[name].value
            with as_user_error(f"{module} cannot be imported for {name} ({{error}})", ImportError):
                resolve_name(module)
            if name not in self.data:
                raise UserError(f"{module} does not register {name}, as its entry point says")
        return self.data[name]


class Kinds(Registry):
    """The kinds of tokenizers, encoders or tasks by name.

    A row is a dataclass of settings and a class; "module:Class" is imported on first use.

    Examples:
        >>> ENCODERS.config_type("static")().hidden_dim
        512
    """

    def register(  # type: ignore[override]  # a row has two parts
        self, name: str, config_type: type, implementation: type
    ) -> None:
        """Adds a kind: a dataclass of its own, whose settings have defaults, and a class."""
        others = {other: row for other, row in self.data.items() if other != name}
        # Tasks may share a settings class: they are looked up by name.
        if not issubclass(config_type, TaskConfig) and (
            taken := _with_settings(others, config_type)
        ):
            raise UserError(f"{name} would be saved as {taken[0]}; register a subclass of them")
        super().register(name, (config_type, implementation))

    def name_of(self, config: object) -> str:
        """Returns the name of a kind by its settings."""
        return _with_settings(self.data, type(config))[0]

    def config_type(self, name: str) -> Any:
        """Returns the dataclass of a kind's settings; an unknown name raises a `UserError`."""
        return _imported(self._row(name)[0])

    def implementation(self, name: str) -> Any:
        """Returns the class of a kind; an unknown name raises a `UserError`."""
        return _imported(self._row(name)[1])

    def implementation_of(self, config: object) -> Any:
        """Returns the class of a kind by its settings."""
        return self.implementation(self.name_of(config))


def _imported(value: Any) -> Any:
    return resolve_name(value) if isinstance(value, str) else value


def _with_settings(kinds: Mapping[str, tuple[Any, Any]], config_type: type) -> list[str]:
    """Returns the names of the kinds with this dataclass of settings; imports nothing."""
    same = (config_type, f"{config_type.__module__}:{config_type.__qualname__}")
    return [name for name, (settings, _) in kinds.items() if settings in same]


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section, name="tokenizer"):
    """The settings that all tokenizers have in common."""

    takes_vectors = False  # whether a vocabulary can be taken from `initial.vectors`
    ngram_sizes = tuple[int, ...]()  # lengths of words' n-grams, which few encoders take

    max_tokens: Positive = 64  # 2018, sec. 4.2: "sentence lengths clipped to 64"
    lowercase: bool = False


@dataclass(frozen=True, kw_only=True)
class WordsConfig(TokenizerConfig):
    """Treebank-style words, optionally with character n-grams."""

    takes_vectors = True

    # In scripts without spaces between words: whether pairs of neighbouring characters are words in
    # addition to the characters. In Thai, Lao, Khmer and Burmese, consonants with their vowels are
    # the characters.
    bigrams: bool = False
    max_words: Count = 200_000  # 2019, sec. 3.2
    min_word_count: Count = 1
    # Number of each language's most frequent words to add to those of the corpora.
    common_words: Count = 0
    num_oov_buckets: Positive = 10_000  # hash buckets for unknown words; 2019, sec. 3.2
    # Sizes of character n-grams (2019, sec. 3.2); none for words alone (sec. 5.1).
    ngram_sizes: DifferentSizes = (3, 4)
    num_ngram_buckets: Positive = 200_000  # 2019, sec. 3.2


@dataclass(frozen=True, kw_only=True)
class MarkedConfig(TokenizerConfig):
    """Pieces of words, optionally with special tokens (such as <s>, </s>) around sentences."""

    sentence_marks: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        has_room = self.max_tokens >= 3 or not self.sentence_marks
        self.require(has_room, "max_tokens", "at least 3, for the tokens of sentence_marks=true")


@dataclass(frozen=True, kw_only=True)
class SentencePieceConfig(MarkedConfig):
    """SentencePiece's unigram pieces, learned from the corpora (2019, sec. 5.1; Yang, sec. 3.2)."""

    num_pieces: Positive = 32_000  # maximum; 128k in Yang, sec. 3.2


@dataclass(frozen=True, kw_only=True)
class WordPieceConfig(MarkedConfig):
    """A BERT's pieces of words, from its vocabulary file (Devlin et al. 2019, sec. 3)."""

    strip_accents: bool = False
    split_chinese: bool = True  # each Chinese character is a word
    sentence_marks: bool = True


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(Section, name="encoder"):
    """Base class of encoders' settings: what an encoder needs and has before it is made."""

    takes_ngrams = False
    needs_vectors = False  # true if `initial.vectors` must make its word vectors
    fine_tuning_rate = 2e-4  # learning rate of `xling_tf.fine_tune`

    @property
    def has_average(self) -> bool:
        """True if the encoder has an average of words, which a stage can train alone."""
        return False


@dataclass(frozen=True, kw_only=True)
class TransformerConfig(EncoderConfig):
    """The transformer of the shared encoder g (2019, sec. 2.1)."""

    takes_ngrams = True

    embedding_dim: Positive = 320  # 2019, sec. 3.2
    hidden_dim: Positive = 512  # 2019, sec. 2.1
    intermediate_dim: Positive = 2048  # 2019, sec. 2.1: "filter size"
    # 2019, sec. 2.1; 6 in Yang, sec. 4.2. None (encoder.num_layers=auto) is 3, or 1 if the budget
    # is too small for 3 layers on this machine.
    num_layers: Annotated[
        int | None, Check("at least 0, or auto", lambda n: n is None or n >= 0)
    ] = 3
    num_heads: Positive = 8  # 2019, sec. 2.1
    norm_first: bool = False  # normalises the input of each sub-layer, not the sum after it
    bow_residual: bool = False  # adds the output to the average of the word vectors

    def __post_init__(self) -> None:
        super().__post_init__()
        is_multiple = self.hidden_dim % self.num_heads == 0
        self.require(
            is_multiple, "hidden_dim", f"a multiple of encoder.num_heads, {self.num_heads}"
        )

    @property
    def has_average(self) -> bool:
        """See `EncoderConfig.has_average`."""
        return self.bow_residual


@dataclass(frozen=True, kw_only=True)
class CnnConfig(EncoderConfig):
    """The CNN of the published multilingual encoder (Yang, sec. 3.3 and 4.2)."""

    has_average = True

    embedding_dim: Positive = 512
    hidden_dim: Positive = 512
    intermediate_dim: Positive = 320  # of the feed-forward layers after the pooling
    num_layers: Positive = 2  # number of convolutions of each width
    filter_widths: DifferentSizes = (1, 2, 3, 5)
    num_filters: Positive = 256  # for each width


@dataclass(frozen=True, kw_only=True)
class StaticConfig(EncoderConfig):
    """The average of word vectors."""

    takes_ngrams = True

    embedding_dim: Positive = 320  # 2019, sec. 3.2
    hidden_dim: Positive = 512


_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")


@dataclass(frozen=True, kw_only=True)
class BertConfig(EncoderConfig):
    """BERT (Devlin et al. 2019), XLM-RoBERTa (Conneau et al. 2020) and models of these layers."""

    # At a higher rate, a BERT forgets more of what it knows, but learns a new language sooner
    # (docs/research/experiments.md, "Which learning rate for an imported BERT").
    fine_tuning_rate = 4e-5

    embedding_dim: Positive = 384  # of the tables and the blocks
    intermediate_dim: Positive = 1536
    num_layers: Positive = 12
    num_heads: Positive = 12
    max_positions: Positive = 512  # rows of the table of positions
    epsilon: NotNegative = 1e-12  # of layer norms
    activation: Annotated[str, one_of(*_ACTIVATIONS)] = "gelu"  # of the feed-forward layers
    pooling: Annotated[str, one_of("mean", "cls", "max")] = "mean"
    dense_dims: Sizes = ()  # widths of layers after the pooling
    dense_activations: tuple[str, ...] = ()  # one for each: as `activation`, or "tanh" or "linear"

    def __post_init__(self) -> None:
        super().__post_init__()
        is_multiple = self.embedding_dim % self.num_heads == 0
        self.require(
            is_multiple, "embedding_dim", f"a multiple of encoder.num_heads, {self.num_heads}"
        )
        for name in self.dense_activations:
            require_known("encoder.dense_activations", name, (*_ACTIVATIONS, "tanh", "linear"))
        is_valid = len(self.dense_activations) == len(self.dense_dims)
        expected = f"as many names as encoder.dense_dims has numbers, {len(self.dense_dims)}"
        self.require(is_valid, "dense_activations", expected)


@dataclass(frozen=True, kw_only=True)
class ModernBertConfig(BertConfig):
    """ModernBERT (Warner et al. 2024, sec. 2), by transformers' names."""

    max_positions: Positive = 8192
    epsilon: NotNegative = 1e-5
    global_attn_every_n_layers: Positive = 3  # the first of so many layers attends to whole texts
    # Width of the other layers' window, half of it on each side of a token.
    local_attention: Positive = 128
    global_rope_theta: NotNegative = 160_000.0  # bases of the rotations by positions
    local_rope_theta: NotNegative = 10_000.0
    attention_bias: bool = False
    mlp_bias: bool = False  # of the feed-forward layers
    norm_bias: bool = False


@dataclass(frozen=True, kw_only=True)
class SimilarityConfig(Section, name="similarity"):
    """How ranking tasks score a candidate for a query."""

    normalize: bool = False  # cosines; False for the dot products of 2019, eq. 1
    # Multiplies the scores.
    scale: Annotated[float, Check("above 0", lambda scale: 0 < scale < math.inf)] = 1.0
    # Subtracted from the right candidate's score, before the scale.
    margin: Annotated[float, Check("a finite number", math.isfinite)] = 0.0
    # Translation ranking ranks sources for targets and targets for sources.
    bidirectional: bool = False
    # Lengths of prefixes of the vectors that are ranked too, so that vectors can be cut to them
    # (Kusupati et al. 2022, "Matryoshka Representation Learning", eq. 1).
    matryoshka_dims: DifferentSizes = ()

    def require_below(self, hidden_dim: float) -> None:
        """Raises a `UserError` unless vectors of this width can be cut to `matryoshka_dims`."""
        is_valid = max(self.matryoshka_dims, default=0) < hidden_dim
        self.require(is_valid, "matryoshka_dims", f"below the width of the vectors, {hidden_dim}")


@dataclass(frozen=True, kw_only=True)
class HeadsConfig(Section, name="heads"):
    """Sizes of the layers that tasks put on the encoder (2019, sec. 2.2)."""

    tower_dims: Sizes = (320,)  # hidden layers; the last layer is as wide as the encoder's vectors
    residual_towers: bool = False  # adds zero-initialised towers to their inputs
    inference_dim: Positive = 512


@dataclass(frozen=True, kw_only=True)
class TaskConfig(Section, name="tasks.*"):
    """The settings that all training tasks have in common."""

    weight: Count = 1  # number of steps in each cycle of the schedule; 0 leaves the task out
    examples_per_batch: Positive = 100  # of all replicas together; 2019, sec. 3.2
    loss_weight: NotNegative = 1.0  # multiplies the loss
    head_rate: NotNegative = 1.0  # multiplies optimizer.learning_rate for the task's heads


@dataclass(frozen=True, kw_only=True)
class RankingConfig(TaskConfig):
    """A task that ranks candidates."""

    # In place of similarity.scale and similarity.margin; None (auto) for these.
    scale: OwnScale = None
    margin: OwnMargin = None


@dataclass(frozen=True, kw_only=True)
class TranslationRankingConfig(RankingConfig, name="tasks.translation_ranking"):
    """Ranking translations within a batch (2019, sec. 2.2)."""

    # Number of mined wrong translations for each example; 5 in 2019, sec. 2.2.
    hard_negatives: Count = 0
    # Ranks a sentence's translation above the batch's other sentences of its own language as well.
    same_side: bool = False


@dataclass(frozen=True, kw_only=True)
class NativeTaskConfig(RankingConfig):
    """A task on texts of one language."""

    in_targets: bool = True  # also trains in the target languages (2018, sec. A.4)


@dataclass(frozen=True, kw_only=True)
class InferenceConfig(TaskConfig):
    """A task on pairs of natural language inference."""

    in_targets: bool = False  # also trains in the target languages (Yang, sec. 4.1)


@dataclass(frozen=True, kw_only=True)
class EntailmentRankingConfig(InferenceConfig, RankingConfig):
    """Ranking what a premise entails; there is no margin."""

    margin: OwnMargin = 0.0


# Names in `miner` that are no models: words, and the model in training.
BM25, SELF = "bm25", "self"


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig(RankingConfig, name="tasks.question_answering"):
    """Ranking the answers to a question (Yang, sec. 3.1 and 4.1)."""

    # Compares the outputs of towers; False for the encoder's own vectors, which every loader gives.
    with_towers: bool = True
    # Encodes answers together with the paragraph they are from; needs the towers.
    with_context: bool = True
    # What finds wrong answers for each question when a stage begins: "bm25" by words, "self" (the
    # model as it is then), and models named as `tasks.distillation.teacher`.
    miner: tuple[str, ...] = ()
    # Number of these wrong answers.
    wrong_answers: Positive = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        can_mine = not (self.miner and self.with_context)
        self.require(can_mine, "miner", "empty with contexts (with_context=true)")
        has_towers = self.with_towers or not self.with_context
        self.require(has_towers, "with_towers", "true, for the contexts, or with_context=false")


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(TaskConfig, name="tasks.distillation"):
    """Learning a teacher's vectors, or its similarities, for a sentence and its translation."""

    teacher: str = ""  # as in xling-tf evaluate --model: a folder, rest: or python:module:function
    # If above 0, learn the teacher's similarities instead of its vectors, whose width may then
    # differ; multiplies the cosines.
    score_scale: NotNegative = 0.0
    every: Positive = 1  # uses every n-th pair only, because the teacher has to encode them all

    def __post_init__(self) -> None:
        super().__post_init__()
        has_teacher = bool(self.teacher or not self.weight)
        self.require(has_teacher, "teacher", "a model, as exported/use-multilingual, or weight=0")


# What only a paper's baseline needs.
_YU_2018, _RUECKLE_2018 = "xling_tf.baselines.yu2018", "xling_tf.baselines.rueckle2018"

TOKENIZERS = Kinds(
    "tokenizer",
    "tokenizer.kind",
    {
        "words": (WordsConfig, "xling_tf.tokenizers.words:WordTokenizer"),
        "sentencepiece": (
            SentencePieceConfig,
            "xling_tf.tokenizers.sentencepiece:SentencePieceTokenizer",
        ),
        "wordpiece": (WordPieceConfig, "xling_tf.tokenizers.wordpiece:WordPieceTokenizer"),
    },
)
ENCODERS = Kinds(
    "encoder",
    "encoder.kind",
    {
        "transformer": (TransformerConfig, "xling_tf.encoders.transformer:TransformerEncoder"),
        "cnn": (CnnConfig, "xling_tf.encoders.cnn:CnnEncoder"),
        "static": (StaticConfig, "xling_tf.encoders.static:StaticEncoder"),
        "bert": (BertConfig, "xling_tf.encoders.bert:BertEncoder"),
        "modernbert": (ModernBertConfig, "xling_tf.encoders.modernbert:ModernBertEncoder"),
        "lstm": (f"{_YU_2018}:LstmConfig", f"{_YU_2018}.lstm:LstmEncoder"),
        "p_mean": (f"{_RUECKLE_2018}:PowerMeanConfig", f"{_RUECKLE_2018}.p_mean:PowerMeanEncoder"),
    },
)
# If two tasks export a signature of the same name, the later task's is exported.
TASKS = Kinds(
    "task",
    "a task's name",
    {
        "translation_ranking": (
            TranslationRankingConfig,
            "xling_tf.tasks.ranking:TranslationRanking",
        ),
        "response_prediction": (NativeTaskConfig, "xling_tf.tasks.ranking:ResponsePrediction"),
        "quick_thought": (NativeTaskConfig, "xling_tf.tasks.ranking:QuickThought"),
        "inference": (InferenceConfig, "xling_tf.tasks.inference:Inference"),
        "question_answering": (
            QuestionAnsweringConfig,
            "xling_tf.tasks.question_answering:QuestionAnswering",
        ),
        "distillation": (DistillationConfig, "xling_tf.tasks.distillation:Distillation"),
        "entailment_ranking": (
            EntailmentRankingConfig,
            "xling_tf.tasks.ranking:EntailmentRanking",
        ),
        "graded_similarity": (TaskConfig, "xling_tf.tasks.inference:GradedSimilarity"),
        "translation": (f"{_YU_2018}:TranslationConfig", f"{_YU_2018}.translation:Translation"),
        "translation_detection": (TaskConfig, f"{_RUECKLE_2018}.detection:TranslationDetection"),
        "inference_and_detection": (
            TaskConfig,
            f"{_RUECKLE_2018}.detection:InferenceAndDetection",
        ),
    },
)
# Makes the word vectors of `initial.vectors` from translations.
WORD_VECTORS = f"{_RUECKLE_2018}.word_vectors:vectors_from"


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """Facts about a model besides its layers, saved in `config.json`."""

    description: str = ""  # one line
    languages: tuple[str, ...] = ()  # codes, the source language first
    similarity: SimilarityConfig = SimilarityConfig()  # how vectors were compared in training
    # Texts that are put before inputs, by name, as in sentence-transformers: {"query": "query: "}.
    prompts: Mapping[str, str] = field(default_factory=dict)
    # Prompt of inputs that are not known to be queries or documents.
    default_prompt_name: str | None = None
    # Slope and intercept of the log odds as a function of the cosine, by the kind of match:
    # "same_meaning" and "answer" (`client/match.py`).
    match: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.default_prompt_name not in (None, *self.prompts):
            raise UserError(
                f"default_prompt_name must be one of {', '.join(self.prompts) or 'no prompts'}, "
                f"but is {self.default_prompt_name!r}"
            )

    @property
    def role_prompts(self) -> dict[str, str]:
        """The prompts of any input, of queries and documents: "default", "query", "document"."""
        return role_prompts(self.prompts, self.default_prompt_name)


@dataclass(frozen=True, kw_only=True)
class InitialConfig(Section, name="initial"):
    """The model or the word vectors that training starts from."""

    # A model folder, a run or an exported model, whose tokenizer, encoder and heads are used.
    model: str = ""
    # Weight, in every loss, of 1 - cosine to the starting model's vectors of the same texts, so
    # that indexes built with the starting model stay usable.
    anchor_weight: NotNegative = 0.0
    # Share of the starting weights in the exported mean of starting and trained weights, which
    # preserves more of what the training texts lack, such as other languages ("WiSE-FT", Wortsman
    # et al. 2022, eq. 1).
    average: Share = 0.0
    # Word vectors of one or more spaces, which are concatenated: files, or "bivcd:300"
    # (docs/teachers.md).
    vectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("anchor_weight", "average"):
            is_valid = bool(self.model) or not getattr(self, name)
            self.require(is_valid, name, "0 without a model to start from (initial.model)")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section, name="optimizer"):
    """The optimizers of the dense layers and of the embedding tables."""

    # "adam" uses row-wise RMSprop for the tables.
    name: Annotated[str, one_of("sgd", "adam")] = "sgd"
    learning_rate: NotNegative = 0.008  # 2019, sec. 3.2
    # 2019, sec. 3.2: embedding gradients times 100. 0 leaves the tables unchanged.
    embedding_learning_rate: NotNegative = 0.8
    # Share of the budget in which the learning rates rise.
    warmup: Annotated[float, Check("from 0 to 1", lambda share: 0 <= share <= 1)] = 0.0
    # After the warmup; "linear" falls to 0.
    decay: Annotated[str, one_of("constant", "linear")] = "constant"
    clip_norm: NotNegative = 0.0  # maximum norm of the dense layers' gradient; 0 for no limit


@dataclass(frozen=True, kw_only=True)
class DataConfig(Section, name="data"):
    """Languages, and the sampling of examples."""

    source: str = "en"
    targets: tuple[str, ...] = ("es",)  # or ("all",)
    all_pairs: bool = False  # also trains on translations between two targets
    # A language or pair is drawn in proportion to its number of examples to the power of
    # 1 / temperature (Arivazhagan et al. 2019, sec. 4.2); 0 draws all languages equally often.
    sampling_temperature: NotNegative = 0.0
    # Without --data, trains on the built-in sample instead of Debian's packages.
    sample: bool = False
    # Sampling weights of corpora relative to their size, by name; 1 for corpora that are not named.
    corpus_weights: dict[str, float] = field(default_factory=dict)
    # True for batches of the same number of examples, of any length (2019, sec. 3.2). False for
    # batches of similar lengths that take equal work: the shorter the sentences, the more of them.
    equal_batches: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        is_mixed = ALL_LANGUAGES in self.targets and len(self.targets) > 1
        are_different = len({*self.languages}) == len(self.languages)
        is_valid = bool(self.targets) and not is_mixed and are_different
        expected = (
            f"different languages besides data.source, {self.source}, or {ALL_LANGUAGES} alone"
        )
        self.require(is_valid, "targets", f"{expected} for every language in the data")
        for name, codes in (("source", (self.source,)), ("targets", self.targets)):
            is_valid = all(re.fullmatch(r"\w+", code) for code in codes)
            self.require(
                is_valid, name, "codes such as es or pt_BR; hyphens separate the languages of pairs"
            )

    @property
    def languages(self) -> tuple[str, ...]:
        """The source language, then the target languages."""
        return (self.source, *self.targets)

    @property
    def language_pairs(self) -> list[str]:
        """Pairs of source and target, such as "en-es"; with `all_pairs`, also of targets."""
        pairs = [(self.source, target) for target in self.targets]
        if self.all_pairs:
            pairs += combinations(self.targets, 2)
        return ["-".join(pair) for pair in pairs]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Section, name="training"):
    """Budget, precision and housekeeping."""

    minutes: NotNegative = 0.0  # minutes of training, summed over restarts; 0 for no limit
    steps: Count = 0  # 0 for no limit
    seed: Count = 1
    # "auto" takes the faster one on this machine.
    precision: Annotated[str, one_of("auto", *DTYPE_POLICIES)] = "auto"
    checkpoint_minutes: NotNegative = 3.0

    @property
    def budget(self) -> str:
        """The limits of a training, such as "1,500 steps or 60 minutes"."""
        limits = [f"{self.steps:,} steps"] if self.steps else []
        limits += [f"{self.minutes:g} minutes"] if self.minutes else []
        return " or ".join(limits)


@dataclass(frozen=True, kw_only=True)
class StageConfig(Section, name="stages.*"):
    """A stage of the training, in which learning rates rise and fall as `OptimizerConfig` says."""

    # Share of the steps and minutes; None (auto) for an equal part of what other stages leave, 0
    # leaves the stage out.
    share: Annotated[
        float | None, Check("from 0 to 1, or auto", lambda share: share is None or 0 <= share <= 1)
    ] = None
    min_steps: Count = 0  # least number of steps, at the expense of later stages
    # What is trained of the encoder, besides its tables and the tasks' heads: an average of words
    # needs a transformer with encoder.bow_residual, or a CNN.
    part: Annotated[str, one_of("whole", "average")] = "whole"
    tasks: tuple[str, ...] = ()  # empty for all
    examples_per_batch: Count = 0  # of each task; 0 for the tasks' own
    # Multiplies the learning rates of the tables and layers that an earlier stage has trained.
    earlier_rate: NotNegative = 1.0


def _default_stages() -> dict[str, StageConfig]:
    average = StageConfig(share=0.0, part="average", examples_per_batch=1024)
    return {"average": average, "whole": StageConfig()}


@dataclass(frozen=True, kw_only=True)
class ExperimentConfig:
    """A whole experiment: a preset, perhaps changed by `--set`."""

    description: str = ""
    data: DataConfig = DataConfig()
    # Of a kind in `TOKENIZERS` and `ENCODERS`; None for those of `initial.model`.
    tokenizer: TokenizerConfig | None = WordsConfig()
    encoder: EncoderConfig | None = TransformerConfig()
    similarity: SimilarityConfig = SimilarityConfig()
    heads: HeadsConfig = HeadsConfig()
    tasks: Mapping[str, TaskConfig] = field(default_factory=dict)
    initial: InitialConfig = InitialConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingConfig = TrainingConfig()
    # What is trained one after the other, by names of one's own.
    stages: Mapping[str, StageConfig] = field(default_factory=_default_stages)

    def __post_init__(self) -> None:
        self._check_stages()
        tokenizer, encoder, vectors = self.tokenizer, self.encoder, self.initial.vectors
        if self.initial.model:
            if tokenizer is not None or encoder is not None:
                raise UserError(
                    "training that starts from a model (initial.model) uses its tokenizer and "
                    "encoder: leave their settings out"
                )
            return
        if tokenizer is None or encoder is None:
            raise UserError("this preset starts from a model: set initial.model")
        is_valid = not tokenizer.ngram_sizes or encoder.takes_ngrams
        expected = "empty for this encoder (tokenizer.ngram_sizes= or tokenizer.kind=sentencepiece)"
        tokenizer.require(is_valid, "ngram_sizes", expected)
        if vectors and (tokenizer.ngram_sizes or not tokenizer.takes_vectors):
            raise UserError(
                "initial.vectors needs tokenizer.kind=words and an empty tokenizer.ngram_sizes="
            )
        expected = (
            "files such as my.{}.vec for this encoder, or bivcd:300, learned from the translations"
        )
        self.initial.require(not encoder.needs_vectors or bool(vectors), "vectors", expected)
        for name, stage in self.active_stages.items():
            if stage.part == "average" and not encoder.has_average:
                raise UserError(
                    f"stages.{name}.part=average needs a CNN, or encoder.bow_residual=true; set "
                    f"stages.{name}.share=0 to leave the stage out"
                )
        self.similarity.require_below(getattr(encoder, "hidden_dim", math.inf))

    def _check_stages(self) -> None:
        shares, tasks = self.stage_shares, [*self.active_tasks]
        if abs(sum(shares.values()) - 1) > 1e-6 or min(shares.values()) <= 0:
            given = [
                f"stages.{name}.share={'auto' if stage.share is None else stage.share}"
                for name, stage in self.stages.items()
            ]
            raise UserError(
                f"the shares of all stages must add up to 1, got {', '.join(given) or 'no stages'};"
                " auto is what the others leave"
            )
        trained = set[str]()
        for name, stage in self.active_stages.items():
            for task in stage.tasks:
                require_known(f"stages.{name}.tasks", task, [*TASKS])
            trained.update(stage.tasks or tasks)
            if tasks and {*tasks}.isdisjoint(stage.tasks or tasks):
                raise UserError(f"stages.{name}.tasks needs a task whose weight is above 0")
        if untrained := [task for task in tasks if task not in trained]:
            raise UserError(f"tasks.{untrained[0]} is in no stage; set its weight to 0, or name it")

    @property
    def stage_shares(self) -> dict[str, float]:
        """The shares of the budget of the stages that are trained, by name, in their order."""
        left = 1 - sum(stage.share or 0 for stage in self.stages.values())
        parts = sum(stage.share is None for stage in self.stages.values())
        return {
            name: left / parts if stage.share is None else stage.share
            for name, stage in self.stages.items()
            if stage.share != 0
        }

    @property
    def active_stages(self) -> dict[str, StageConfig]:
        """The settings of the stages that are trained, in their order."""
        return {name: self.stages[name] for name in self.stage_shares}

    @property
    def active_tasks(self) -> dict[str, TaskConfig]:
        """The settings of the tasks that are trained, in the order of `TASKS`."""
        return {
            name: self.tasks[name]
            for name in TASKS
            if name in self.tasks and self.tasks[name].weight
        }

    def task(self, name: str) -> Any:
        """Returns the settings of a task; its defaults with weight 0 if it is not trained."""
        return self.tasks[name] if name in self.tasks else TASKS.config_type(name)(weight=0)
