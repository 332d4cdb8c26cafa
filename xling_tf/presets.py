"""Presets: experiments by name, for any languages.

A preset has the languages that it was measured with; `with_languages` names others.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from xling_tf.config import (
    ALL_LANGUAGES,
    CnnConfig,
    DataConfig,
    DistillationConfig,
    EntailmentRankingConfig,
    ExperimentConfig,
    HeadsConfig,
    InferenceConfig,
    InitialConfig,
    NativeTaskConfig,
    OptimizerConfig,
    QuestionAnsweringConfig,
    Registry,
    SentencePieceConfig,
    SimilarityConfig,
    StageConfig,
    StaticConfig,
    TaskConfig,
    TrainingConfig,
    TransformerConfig,
    TranslationRankingConfig,
    WordsConfig,
)
from xling_tf.errors import UserError, did_you_mean
from xling_tf.settings import apply_overrides

# How often corpora are drawn from relative to their size. A general encoder is for everyday
# sentences, but most of the texts are from manuals and menus, which repeat themselves.
CORPUS_WEIGHTS = {
    "tatoeba": 3.0,
    "python_docs": 0.25,
    "software-ui": 0.5,
    "manpages": 0.25,
    "ddtp": 0.5,
    "libreoffice-help": 0.5,
    "gimp-help": 0.5,
    "lilypond": 0.25,
}

# Data sets of narrow domains, or of questions that are not phrased as people ask them.
_NARROW_QUESTIONS = ("medquad", "policyqa", "paraqa", "squadshifts_amazon")
# For models that already encode manuals and menus well before the training.
_EVERYDAY_WEIGHTS = {**CORPUS_WEIGHTS, "tatoeba": 10.0, **dict.fromkeys(_NARROW_QUESTIONS, 0.1)}

# Outputs of xling-tf import
PUBLISHED, E5 = "exported/use-multilingual", "exported/multilingual-e5-small"

# The pairs of the paper (2019, sec. 3), each with English.
MANY = ("es", "fr", "de", "zh")
# Of presets for a pair, if they are given several (Arivazhagan et al. 2019, sec. 4.2).
_TEMPERATURE = 5.0

_OPTIMIZER = OptimizerConfig(
    name="adam", learning_rate=5e-4, embedding_learning_rate=3e-3, warmup=0.1, decay="linear"
)
# An average of words learns faster than what is trained on it, and hardly changes afterwards.
_STAGES = {
    "average": StageConfig(share=0.4, min_steps=150, part="average", examples_per_batch=1024),
    "whole": StageConfig(earlier_rate=0.1),
}
_ONE_STAGE = ExperimentConfig().stages
_WORDS = WordsConfig(lowercase=True, min_word_count=3, common_words=30_000)
# docs/research/experiments.md has the measurements behind the stages, the initial word vectors and
# the learning rates. A task's `loss_weight` is for the encoder and the words; `head_rate` makes up
# for it in the task's own layers. The classifier of inference learns at four times the encoder's
# rate.
_MULTI_TASK = ExperimentConfig(
    description="the paper's six tasks and more, in minutes on 2 cores",
    data=DataConfig(corpus_weights=_EVERYDAY_WEIGHTS),
    tokenizer=_WORDS,
    encoder=TransformerConfig(num_layers=None, norm_first=True, bow_residual=True),
    similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True),
    heads=HeadsConfig(residual_towers=True),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=4, examples_per_batch=256),
        "response_prediction": NativeTaskConfig(
            examples_per_batch=128, loss_weight=0.01, head_rate=100.0
        ),
        "quick_thought": NativeTaskConfig(examples_per_batch=96, loss_weight=0.01, head_rate=100.0),
        "inference": InferenceConfig(
            weight=2, examples_per_batch=128, loss_weight=0.05, head_rate=80.0
        ),
        "question_answering": QuestionAnsweringConfig(
            examples_per_batch=128, loss_weight=0.1, head_rate=10.0, with_context=False
        ),
        "graded_similarity": TaskConfig(examples_per_batch=128, loss_weight=0.3),
        "distillation": DistillationConfig(
            weight=4, examples_per_batch=256, teacher=PUBLISHED, score_scale=20.0, every=4
        ),
    },
    # Twice that of the average alone: most rows are also read for losses of small weights.
    optimizer=replace(_OPTIMIZER, embedding_learning_rate=6e-3),
    training=TrainingConfig(minutes=30.0),
    stages=_STAGES,
)

# What the first stage of multi-task trains, alone.
_STATIC = replace(
    _MULTI_TASK,
    description="the average of words, for speed",
    # A Chinese text of n characters has 2n + 1 tokens. With the paper's 200,000 words, pairs of
    # characters would take the places of rare words of all languages.
    tokenizer=replace(_WORDS, bigrams=True, max_tokens=128, max_words=300_000),
    encoder=StaticConfig(),
    similarity=replace(_MULTI_TASK.similarity, matryoshka_dims=(64, 128, 256)),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=2, examples_per_batch=1024),
        "graded_similarity": _MULTI_TASK.task("graded_similarity"),
        # From one pair in 16, it learns as much as from one in 4, and starts a minute earlier.
        "distillation": replace(
            _MULTI_TASK.task("distillation"), weight=1, examples_per_batch=1024, every=16
        ),
    },
    optimizer=_OPTIMIZER,
    training=TrainingConfig(minutes=10.0),
    stages=_ONE_STAGE,
)

# Without a teacher, words that the corpora lack would keep their random vectors.
_TRANSLATION_RANKING = replace(
    _MULTI_TASK,
    description="the paper's baseline: translation ranking alone; mines hard negatives",
    tokenizer=WordsConfig(lowercase=True, min_word_count=3),
    tasks={"translation_ranking": _MULTI_TASK.task("translation_ranking")},
    optimizer=_OPTIMIZER,
)

# 2019, sec. 2.2 and 3.2, with one difference: the paper minimises -log P(source | target) and gives
# each example 5 wrong translations. Wrong translations are candidates for a source, so P(target |
# source) is trained here. The paper cycles through translation, Reddit, Wikipedia and NLI, one task
# per step, and does not say how its six tasks share the cycle. Here each has one step in six:
# translation, replies in both languages, neighbours in both languages, and inference.
_PAPER = ExperimentConfig(
    description=(
        "the literal recipe (2019, sec. 3.2): SGD, 30 million steps; "
        "trained on dot products, exported at unit length and so ranked by cosine"
    ),
    data=DataConfig(equal_batches=True),
    tasks={
        "translation_ranking": TranslationRankingConfig(hard_negatives=5),
        "response_prediction": NativeTaskConfig(),
        "quick_thought": NativeTaskConfig(),
        "inference": InferenceConfig(),
    },
    training=TrainingConfig(steps=30_000_000),
)

_SMOKE = replace(
    _MULTI_TASK,
    description="a tiny en-es model on the built-in sample corpus, in a minute",
    data=DataConfig(sample=True),
    tokenizer=WordsConfig(lowercase=True, num_oov_buckets=64, num_ngram_buckets=4096),
    encoder=TransformerConfig(
        embedding_dim=64,
        hidden_dim=64,
        intermediate_dim=128,
        num_layers=2,
        num_heads=4,
        norm_first=True,
        bow_residual=True,
    ),
    heads=HeadsConfig(tower_dims=(64,), residual_towers=True, inference_dim=64),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=4, examples_per_batch=64),
        "response_prediction": NativeTaskConfig(examples_per_batch=32),
        "quick_thought": NativeTaskConfig(examples_per_batch=32),
        "inference": InferenceConfig(examples_per_batch=32),
    },
    optimizer=replace(_OPTIMIZER, learning_rate=3e-3),
    training=TrainingConfig(steps=150, precision="float32"),
    stages={
        "average": StageConfig(share=0.3, part="average", examples_per_batch=64),
        "whole": StageConfig(),
    },
)

# The models of Yang et al. 2019, with the constants of sec. 3.2 and 4.2. The paper gives no budget,
# batch sizes or learning rates; ours are for hours on a CPU. Not in the paper: a first stage trains
# an average of words (docs/settings.md, "Stages"), and the transformer's outputs are added to this
# average.
_MULTILINGUAL = replace(
    _MULTI_TASK,
    description="the published multilingual CNN's tasks and sizes, for the languages of the data",
    data=DataConfig(
        targets=(ALL_LANGUAGES,),
        all_pairs=True,
        sampling_temperature=_TEMPERATURE,
        corpus_weights=CORPUS_WEIGHTS,
    ),
    tokenizer=SentencePieceConfig(num_pieces=128_000, max_tokens=256, sentence_marks=True),
    encoder=CnnConfig(),
    tasks={
        "translation_ranking": _MULTI_TASK.task("translation_ranking"),
        "inference": replace(_MULTI_TASK.task("inference"), in_targets=True),
        "question_answering": replace(_MULTI_TASK.task("question_answering"), with_context=True),
    },
    # Measured (docs/research/experiments.md, "How should `multilingual` start"): the entries of
    # this table are five times as large as those of the encoder of multi-task.
    optimizer=replace(_OPTIMIZER, embedding_learning_rate=0.05),
    training=replace(_MULTI_TASK.training, minutes=60.0),
    # No minimum of steps for the first stage: convolutions stay random without the second.
    stages={**_STAGES, "average": replace(_STAGES["average"], min_steps=0)},
)
_MULTILINGUAL_LARGE = replace(
    _MULTILINGUAL,
    description="the same tasks on the paper's transformer: 6 layers, 100 tokens",
    tokenizer=SentencePieceConfig(num_pieces=128_000, max_tokens=100),
    encoder=TransformerConfig(num_layers=6, norm_first=True, bow_residual=True),
    tasks={
        **_MULTILINGUAL.tasks,
        # Measured at this weight; .1 has not been tried.
        "question_answering": replace(
            _MULTILINGUAL.task("question_answering"), loss_weight=0.01, head_rate=100.0
        ),
    },
    optimizer=_OPTIMIZER,
    stages=_STAGES,
)

# Trains the published weights further, to beat them; docs/research/experiments.md has the
# measurements. Ranking and distillation align translations. Entailment, and people's scores if the
# data have any, teach semantic similarity.
_BEST = replace(
    _MULTI_TASK,
    description="the published multilingual CNN, trained further",
    tokenizer=None,
    encoder=None,
    initial=InitialConfig(model=PUBLISHED, average=0.25),
    similarity=replace(_MULTI_TASK.similarity, margin=0.2),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=6, examples_per_batch=256),
        "question_answering": QuestionAnsweringConfig(
            weight=4, examples_per_batch=128, with_context=False, miner=(PUBLISHED,)
        ),
        "distillation": DistillationConfig(examples_per_batch=256, teacher=PUBLISHED, every=16),
        "entailment_ranking": EntailmentRankingConfig(examples_per_batch=64),
        "graded_similarity": TaskConfig(weight=3, examples_per_batch=128),
    },
    optimizer=replace(_OPTIMIZER, learning_rate=3e-4, embedding_learning_rate=0.0, warmup=0.05),
    # More steps memorise the 33,000 questions: 8,193 steps find fewer answers than 1,500.
    training=TrainingConfig(steps=1500, minutes=60.0),
    stages=_ONE_STAGE,
)

# Trains multilingual-e5-small (Wang et al. 2024) further, without towers and with its prompts, so
# that every loader of its format can load the result. It is weak across languages.
_E5_BEST = replace(
    _BEST,
    description="multilingual-e5-small, trained further in five languages",
    # Its weights are for everyday sentences: the model already tells long ones of manuals apart.
    data=replace(_BEST.data, targets=MANY, sampling_temperature=_TEMPERATURE),
    initial=InitialConfig(model=E5),
    similarity=SimilarityConfig(normalize=True, scale=50.0, margin=0.03, bidirectional=True),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=5, examples_per_batch=128),
        "question_answering": QuestionAnsweringConfig(
            weight=2,
            examples_per_batch=48,
            with_towers=False,
            with_context=False,
            miner=(PUBLISHED,),
        ),
        "graded_similarity": TaskConfig(weight=2, examples_per_batch=64),
    },
    optimizer=replace(_BEST.optimizer, learning_rate=4e-5, warmup=0.08, clip_norm=1.0),
    # Half as many are a little worse at everything but English and Spanish similarity.
    training=TrainingConfig(steps=1400, minutes=120.0),
)


def _variant(
    preset: ExperimentConfig,
    description: str,
    tasks: Mapping[str, TaskConfig | None] | None = None,
    **sections: Any,
) -> ExperimentConfig:
    """Replaces some tasks and sections of a preset; a task that is None is left out."""
    merged = {**preset.tasks, **(tasks or {})}
    kept = {name: task for name, task in merged.items() if task is not None}
    return replace(preset, description=description, tasks=kept, **sections)


_YU_2018, _RUECKLE_2018 = "xling_tf.baselines.yu2018", "xling_tf.baselines.rueckle2018"

PRESETS = Registry(
    "preset",
    "preset",
    {
        "multi-task": _MULTI_TASK,
        "static": _STATIC,
        "best": _BEST,
        "e5-best": _E5_BEST,
        "multilingual": _MULTILINGUAL,
        "multilingual-large": _MULTILINGUAL_LARGE,
        "smoke": _SMOKE,
        "translation-ranking": _TRANSLATION_RANKING,
        "no-snli": _variant(
            _MULTI_TASK, "multi-task without inference (2018, table 7)", tasks={"inference": None}
        ),
        "no-wiki": _variant(
            _MULTI_TASK,
            "multi-task without quick thought (2018, table 7)",
            tasks={"quick_thought": None},
        ),
        "no-target-native": _variant(
            _MULTI_TASK,
            "multi-task without tasks in the target language alone (2018, tables 7 and 8)",
            tasks={
                name: replace(_MULTI_TASK.task(name), in_targets=False)
                for name in ("response_prediction", "quick_thought")
            },
        ),
        "word-only": _variant(
            _MULTI_TASK,
            "multi-task on words without their n-grams (2019, sec. 5.1)",
            tokenizer=replace(_WORDS, ngram_sizes=()),
        ),
        "sentencepiece": _variant(
            _MULTI_TASK,
            "multi-task on SentencePiece's pieces (2019, sec. 5.1)",
            tokenizer=SentencePieceConfig(lowercase=True),
        ),
        "paper": _PAPER,
        # The paper exports its large model with the layers for questions and answers, as every
        # preset here does, and expects the two to diverge (sec. 4.2 and footnote 10).
        "multilingual-qa": _variant(
            _MULTILINGUAL_LARGE,
            "multilingual-large, trained more for questions and answers (Yang, sec. 4.2)",
            tasks={"question_answering": QuestionAnsweringConfig(weight=2, examples_per_batch=128)},
        ),
        "seq2seq": f"{_YU_2018}:SEQ2SEQ",
        "p-mean": f"{_RUECKLE_2018}:P_MEAN",
        "infersent": f"{_RUECKLE_2018}:INFERSENT",
    },
)
# Ablations and baselines, to compare with.
OF_PAPERS = (
    "translation-ranking",
    "no-snli",
    "no-wiki",
    "no-target-native",
    "word-only",
    "sentencepiece",
    "paper",
    "multilingual-qa",
    "seq2seq",
    "p-mean",
    "infersent",
)


class FormerName(NamedTuple):
    """What a preset's name of the last version means now."""

    preset: str
    targets: tuple[str, ...] = ()  # () for those of the preset
    settings: tuple[str, ...] = ()

    @property
    def flags(self) -> str:
        """The flags of a training that mean the same."""
        words = [] if self.preset == "multi-task" else [f"--preset {self.preset}"]
        if self.targets:
            targets = ",".join(self.targets)
            words.append(f"--target {targets}" if "," in targets else f"--pair en-{targets}")
        return " ".join([*words, *(f"--set {setting}" for setting in self.settings)])


_DETECTION = "tasks.translation_detection", "tasks.inference_and_detection"
FORMER_NAMES: Mapping[str, FormerName] = {
    **{
        name.format(code): FormerName(preset, (code,))
        for name, preset in {
            "en-{}": "multi-task",
            "en-{}-static": "static",
            "en-{}-best": "best",
            "translation-ranking-en-{}": "translation-ranking",
            "paper-en-{}": "paper",
        }.items()
        for code in MANY
    },
    "many": FormerName("multi-task", MANY),
    "multilingual-static": FormerName("static", MANY, ("tokenizer.num_oov_buckets=1",)),
    "multilingual-best": FormerName("best", MANY),
    "multilingual-e5-best": FormerName("e5-best"),
    "seq2seq-similarity": FormerName("seq2seq"),
    **{
        f"seq2seq-{name}": FormerName(
            "seq2seq",
            settings=(f"tasks.translation.regularizer={regularizer}", *alpha),
        )
        for name, regularizer, *alpha in (
            ("contrastive", "contrastive"),
            ("weight-decay", "weight_decay", "tasks.translation.alpha=5e-5"),
            ("no-similarity", "none", "tasks.translation.alpha=0"),
        )
    },
    "infersent-mt": FormerName("infersent", settings=("tasks.inference.in_targets=true",)),
    **{
        f"infersent-{name}": FormerName(
            "infersent",
            settings=(
                "tasks.inference.weight=0",
                f"{task}.weight=1",
                f"{task}.examples_per_batch=64",
            ),
        )
        for name, task in zip(("td", "mt-td"), _DETECTION, strict=True)
    },
}


def get_preset(name: str) -> ExperimentConfig:
    """Returns a preset by its name, or by a former one; an unknown name raises a `UserError`."""
    if name not in {*PRESETS, *FORMER_NAMES}:
        hint = did_you_mean(str(name), PRESETS, "`import` the module that registers another")
        raise UserError(f"{name!r} is no preset; `xling-tf train --list` shows them; {hint}")
    if name in PRESETS:
        preset: ExperimentConfig = PRESETS[name]
        return preset
    former = FORMER_NAMES[name]
    preset = PRESETS[former.preset]
    if former.targets:
        preset = with_languages(preset, preset.data.source, former.targets)
    return apply_overrides(preset, former.settings)


def with_languages(
    preset: ExperimentConfig, source: str, targets: tuple[str, ...]
) -> ExperimentConfig:
    """Returns a preset for other languages; one for a pair samples several by a temperature."""
    data, several = preset.data, (ALL_LANGUAGES,)
    is_for_pair = len(data.targets) == 1 and data.targets != several
    if is_for_pair and (len(targets) > 1 or targets == several):
        data = replace(data, sampling_temperature=_TEMPERATURE)
    return replace(preset, data=replace(data, source=source, targets=targets))
