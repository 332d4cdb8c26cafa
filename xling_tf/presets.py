"""Presets: experiments by name."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from xling_tf.config import (
    ALL_LANGUAGES,
    CnnConfig,
    DataConfig,
    DistillationConfig,
    ExperimentConfig,
    HeadsConfig,
    InferenceConfig,
    InitialConfig,
    LstmConfig,
    NativeTaskConfig,
    OptimizerConfig,
    PowerMeanConfig,
    QuestionAnsweringConfig,
    SentencePieceConfig,
    SimilarityConfig,
    StaticConfig,
    TaskConfig,
    TrainingConfig,
    TransformerConfig,
    TranslationConfig,
    TranslationRankingConfig,
    WordsConfig,
)
from xling_tf.errors import require_known

# How often corpora are drawn from relative to their size. A general encoder is for everyday sentences, but
# most of the texts are from manuals and menus, which repeat themselves.
_CORPUS_WEIGHTS = {
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
_EVERYDAY_WEIGHTS = {**_CORPUS_WEIGHTS, "tatoeba": 10.0, **dict.fromkeys(_NARROW_QUESTIONS, 0.1)}

# Outputs of export/import_model.py
PUBLISHED, E5 = "exported/use-multilingual", "exported/multilingual-e5-small"

# The pairs of the paper (2019, sec. 3), each with English.
_TARGETS = ("es", "fr", "de", "zh")

_OPTIMIZER = OptimizerConfig(
    name="adam", learning_rate=5e-4, embedding_learning_rate=3e-3, warmup=0.1, decay="linear"
)
# docs/experiments.md has the measurements behind the phases, the initial word vectors and the learning rates.
# A task's `loss_weight` is for the encoder and the words; `head_rate` makes up for it in the task's own
# layers. The classifier of inference learns at four times the encoder's rate.
_RECIPE = ExperimentConfig(
    data=DataConfig(corpus_weights=_EVERYDAY_WEIGHTS),
    tokenizer=WordsConfig(lowercase=True, min_word_count=3, common_words=30_000),
    encoder=TransformerConfig(num_layers=None, norm_first=True, bow_residual=True),
    similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True),
    heads=HeadsConfig(residual_towers=True),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=4, examples_per_batch=256),
        "response_prediction": NativeTaskConfig(examples_per_batch=128, loss_weight=0.01, head_rate=100.0),
        "quick_thought": NativeTaskConfig(examples_per_batch=96, loss_weight=0.01, head_rate=100.0),
        "inference": InferenceConfig(weight=2, examples_per_batch=128, loss_weight=0.05, head_rate=80.0),
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
    training=TrainingConfig(minutes=30.0, bow_share=0.4, bow_steps=150, bow_rate=0.1),
)

# The first phase of the recipe alone.
_STATIC = replace(
    _RECIPE,
    encoder=StaticConfig(),
    similarity=replace(_RECIPE.similarity, matryoshka_dims=(64, 128, 256)),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=2, examples_per_batch=1024),
        "graded_similarity": _RECIPE.task("graded_similarity"),
        "distillation": replace(_RECIPE.task("distillation"), weight=1, examples_per_batch=1024),
    },
    optimizer=_OPTIMIZER,
    training=TrainingConfig(minutes=10.0),
)

# Without a teacher, words that the corpora lack would keep their random vectors.
_RANKING = replace(
    _RECIPE,
    tokenizer=WordsConfig(lowercase=True, min_word_count=3),
    tasks={"translation_ranking": _RECIPE.task("translation_ranking")},
    optimizer=_OPTIMIZER,
)

# 2019, sec. 2.2 and 3.2, with one difference: the paper minimises -log P(source | target) and gives each
# example 5 wrong translations. Wrong translations are candidates for a source, so P(target | source) is
# trained here. The paper cycles through translation, Reddit, Wikipedia and NLI, one task per step, and does
# not say how its six tasks share the cycle. Here each has one step in six: translation, replies in both
# languages, neighbours in both languages, and inference.
_PAPER = ExperimentConfig(
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
    _RECIPE,
    description="a tiny en-es model on the built-in sample corpus, in seconds",
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
    training=TrainingConfig(steps=150, precision="float32", bow_share=0.3, bow_batch=64),
)

# The models of Yang et al. 2019, with the constants of sec. 3.2 and 4.2. The paper gives no budget, batch
# sizes or learning rates; ours are for hours on a CPU. Not in the paper: a first phase trains an average of
# words (docs/training.md, "Two phases"), and the transformer's outputs are added to this average.
_MULTILINGUAL = replace(
    _RECIPE,
    description="the published multilingual CNN's tasks and sizes, for the languages of the data",
    data=DataConfig(
        targets=(ALL_LANGUAGES,), all_pairs=True, sampling_temperature=5.0, corpus_weights=_CORPUS_WEIGHTS
    ),
    tokenizer=SentencePieceConfig(num_pieces=128_000, max_tokens=256, sentence_marks=True),
    encoder=CnnConfig(),
    tasks={
        "translation_ranking": _RECIPE.task("translation_ranking"),
        "inference": replace(_RECIPE.task("inference"), in_targets=True),
        "question_answering": QuestionAnsweringConfig(
            examples_per_batch=128, loss_weight=0.1, head_rate=10.0
        ),
    },
    # Measured (docs/experiments.md, "How should `multilingual` start"): the entries of this table are five
    # times as large as those of the recipe's encoders.
    optimizer=replace(_OPTIMIZER, embedding_learning_rate=0.05),
    # No minimum of steps for the first phase: without the second, the convolutions would stay random.
    training=replace(_RECIPE.training, minutes=60.0, bow_steps=0),
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
    training=replace(_RECIPE.training, minutes=60.0),
)

# Trains the published weights further, to beat them; docs/experiments.md has the
# measurements. Ranking and distillation align translations. Entailment, and people's scores if the data have
# any, teach semantic similarity.
_BEST = replace(
    _RECIPE,
    data=DataConfig(corpus_weights=_EVERYDAY_WEIGHTS),
    tokenizer=None,
    encoder=None,
    initial=InitialConfig(model=PUBLISHED, average=0.25),
    similarity=replace(_RECIPE.similarity, margin=0.2),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=6, examples_per_batch=256),
        "question_answering": QuestionAnsweringConfig(weight=4, examples_per_batch=128, with_context=False),
        "distillation": DistillationConfig(examples_per_batch=256, teacher=PUBLISHED, every=16),
        "entailment_ranking": InferenceConfig(examples_per_batch=64),
        "graded_similarity": TaskConfig(weight=3, examples_per_batch=128),
    },
    optimizer=OptimizerConfig(
        name="adam", learning_rate=3e-4, embedding_learning_rate=0.0, warmup=0.05, decay="linear"
    ),
    # More steps memorise the 33,000 questions: 8,193 steps find fewer answers than 1,500.
    training=TrainingConfig(steps=1500, minutes=60.0),
)

# Trains multilingual-e5-small (Wang et al. 2024) further, without towers and with its prompts, so that every
# loader of its format can load the result. It is weak across languages.
_E5 = replace(
    _BEST,
    data=DataConfig(
        targets=_TARGETS,
        sampling_temperature=5.0,
        # The model tells long sentences of manuals apart without training, but not short everyday ones.
        corpus_weights=_EVERYDAY_WEIGHTS,
    ),
    initial=InitialConfig(model=E5),
    similarity=SimilarityConfig(normalize=True, scale=50.0, margin=0.03, bidirectional=True),
    tasks={
        "translation_ranking": TranslationRankingConfig(weight=5, examples_per_batch=128),
        "question_answering": QuestionAnsweringConfig(
            weight=2, examples_per_batch=48, with_towers=False, with_context=False
        ),
        "graded_similarity": TaskConfig(weight=2, examples_per_batch=64),
    },
    optimizer=OptimizerConfig(
        name="adam",
        learning_rate=4e-5,
        embedding_learning_rate=0.0,
        warmup=0.08,
        decay="linear",
        clip_norm=1.0,
    ),
    training=TrainingConfig(steps=700, minutes=120.0),
)

# Words without n-grams, for pretrained word vectors.
_WORDS = WordsConfig(ngram_sizes=(), num_oov_buckets=1, lowercase=True)
# Yu et al. 2018, sec. 2. The paper gives no batch size, optimizer, learning rates or dropout, and trains for
# a day and a half on 4 GPUs; ours are for an hour on a CPU. Other differences:
# - The word vectors are BIVCD's, learned from the same translations. The paper's (multi-CCA, Ammar et al.
#   2016) need further texts; initial.vectors=FILE reads such vectors.
# - A word is predicted among the words of the batch, not among all 85,000 (`losses.token_likelihood`).
# - The gradient of the word vectors, which have a learning rate of their own, is not clipped.
# - All pairs of languages in the data are trained; the paper pairs each with English and Spanish alone.
# - The "L2 norm on the encoder weights" is its square, as usual, without the word vectors.
# - Self-attention has one hop, so that vectors keep the paper's 1024 numbers.
_SEQ2SEQ = ExperimentConfig(
    data=DataConfig(targets=(ALL_LANGUAGES,), all_pairs=True, corpus_weights=_CORPUS_WEIGHTS),
    tokenizer=replace(_WORDS, max_words=85_000),
    encoder=LstmConfig(),
    tasks={"translation": TranslationConfig(examples_per_batch=64)},
    initial=InitialConfig(vectors=("bivcd:300",)),
    optimizer=replace(_OPTIMIZER, learning_rate=1e-3, clip_norm=5.0),
    training=TrainingConfig(minutes=60.0),
)
# The paper tunes from an alpha at which both terms are initially equal (sec. 2.2), here about 300 for
# similarity. In minutes, 1 is better than no regularizer, and 10 is worse (docs/experiments.md, "Does the
# similarity loss help"). The other alphas were not tuned; contrastive includes the similarity term.
_REGULARIZERS: Mapping[str, Mapping[str, Any]] = {
    "similarity": {"regularizer": "similarity", "alpha": 1.0},
    "contrastive": {"regularizer": "contrastive", "alpha": 1.0},
    "weight-decay": {"regularizer": "weight_decay", "alpha": 5e-5},
    "no-similarity": {"regularizer": "none", "alpha": 0.0},
}

# Rücklé et al. 2018 do not cut sentences; the longest of their tasks here has 134 words.
_WHOLE = replace(_WORDS, max_tokens=256)
# Rücklé et al. 2018, sec. 5.1, on fixed word vectors (the paper: those that do best), with the sizes and the
# batches of Conneau et al. 2017, sec. 3.3, and without dropout, as there. Adam, its rates and the budget are
# ours. Tasks take turns, a step each; the paper mixes their examples.
_INFERSENT = replace(
    _SEQ2SEQ,
    description="InferSent: English inference on word vectors of all languages (Conneau et al. 2017)",
    tokenizer=_WHOLE,
    encoder=LstmConfig(num_layers=1, hidden_dim=4096, intermediate_dim=2048, pooling="max"),
    tasks={"inference": InferenceConfig(examples_per_batch=64)},
    optimizer=replace(_SEQ2SEQ.optimizer, embedding_learning_rate=0.0),
)
_DETECTION = TaskConfig(examples_per_batch=64)
# Rücklé et al. 2018, sec. 5: only the word vectors are trained.
_P_MEAN = ExperimentConfig(
    description="power means of word vectors learned from translations (Rücklé et al. 2018)",
    data=DataConfig(targets=(ALL_LANGUAGES,), corpus_weights=_CORPUS_WEIGHTS),
    tokenizer=_WHOLE,
    encoder=PowerMeanConfig(p_values=("-inf", "1", "3", "inf")),
    similarity=SimilarityConfig(normalize=True),
    initial=InitialConfig(vectors=("bivcd:300",)),
)


def _variant(preset: ExperimentConfig, description: str, **sections: Mapping[str, Any]) -> ExperimentConfig:
    """Changes settings of some sections of a preset; in `tasks`, a value replaces a task, None removes it."""
    tasks = {**preset.tasks, **sections.pop("tasks", {})}
    changed = {name: replace(getattr(preset, name), **settings) for name, settings in sections.items()}
    tasks = {name: task for name, task in tasks.items() if task is not None}
    return replace(preset, description=description, tasks=tasks, **changed)


# Arivazhagan et al. 2019, sec. 4.2
_MANY = {"targets": _TARGETS, "sampling_temperature": 5.0}


def _pairs(name: str, preset: ExperimentConfig, description: str) -> dict[str, ExperimentConfig]:
    """Makes a preset for each target, whose code replaces "{}" in the name."""
    return {
        name.format(target): _variant(preset, description, data={"targets": (target,)}) for target in _TARGETS
    }


PRESETS: Mapping[str, ExperimentConfig] = {
    **_pairs("en-{}", _RECIPE, "the paper's six tasks and more, in minutes on 2 cores"),
    **_pairs("en-{}-static", _STATIC, "the average of words, for speed"),
    "many": _variant(
        _RECIPE, "English, Spanish, French, German and Chinese in one model (2019, footnote 1)", data=_MANY
    ),
    **_pairs(
        "translation-ranking-en-{}",
        _RANKING,
        "the paper's baseline: translation ranking alone; mines hard negatives",
    ),
    # Variants of en-es; data.targets names another language.
    "no-snli": _variant(_RECIPE, "en-* without inference (2018, table 7)", tasks={"inference": None}),
    "no-wiki": _variant(_RECIPE, "en-* without quick thought (2018, table 7)", tasks={"quick_thought": None}),
    "no-target-native": _variant(
        _RECIPE,
        "en-* without tasks in the target language alone (2018, tables 7 and 8)",
        tasks={
            name: replace(_RECIPE.task(name), in_targets=False)
            for name in ("response_prediction", "quick_thought")
        },
    ),
    "word-only": _variant(
        _RECIPE, "en-* on words without their n-grams (2019, sec. 5.1)", tokenizer={"ngram_sizes": ()}
    ),
    "sentencepiece": replace(
        _RECIPE,
        description="en-* on SentencePiece's pieces (2019, sec. 5.1)",
        tokenizer=SentencePieceConfig(lowercase=True),
    ),
    **_pairs(
        "paper-en-{}",
        _PAPER,
        "the literal recipe (2019, sec. 3.2): SGD, 30 million steps; "
        "trained on dot products, exported at unit length and so ranked by cosine",
    ),
    **_pairs("en-{}-best", _BEST, "the published multilingual CNN, trained further"),
    "multilingual-best": _variant(
        _BEST, "en-*-best for English, Spanish, French, German and Chinese in one model", data=_MANY
    ),
    "multilingual-e5-best": replace(
        _E5, description="multilingual-e5-small, trained further in five languages"
    ),
    "multilingual": _MULTILINGUAL,
    "multilingual-large": _MULTILINGUAL_LARGE,
    # The paper exports its large model with the layers for questions and answers, as every preset here does,
    # and expects the two to diverge (sec. 4.2 and footnote 10).
    "multilingual-qa": _variant(
        _MULTILINGUAL_LARGE,
        "multilingual-large, trained more for questions and answers (Yang, sec. 4.2)",
        tasks={"question_answering": QuestionAnsweringConfig(weight=2, examples_per_batch=128)},
    ),
    **{
        f"seq2seq-{name}": _variant(
            _SEQ2SEQ,
            f"translation from the vector by LSTMs (Yu et al. 2018), {name.replace('-', ' ')}",
            tasks={"translation": replace(_SEQ2SEQ.task("translation"), **regularizer)},
        )
        for name, regularizer in _REGULARIZERS.items()
    },
    "p-mean": _P_MEAN,
    "infersent": _INFERSENT,
    "infersent-mt": _variant(
        _INFERSENT,
        "InferSent MT: inference in each language that has it (Rücklé et al. 2018)",
        tasks={"inference": InferenceConfig(examples_per_batch=64, in_targets=True)},
    ),
    "infersent-td": _variant(
        _INFERSENT,
        "InferSent TD: translations and unrelated sentences (Rücklé et al. 2018)",
        tasks={"inference": None, "translation_detection": _DETECTION},
    ),
    "infersent-mt-td": _variant(
        _INFERSENT,
        "InferSent MT+TD: both, by one classifier of five classes (Rücklé et al. 2018)",
        tasks={"inference": None, "inference_and_detection": _DETECTION},
    ),
    "smoke": _SMOKE,
}


def get_preset(name: str) -> ExperimentConfig:
    """Returns a preset by its name; an unknown one raises a `UserError`."""
    require_known("preset", name, PRESETS)
    return PRESETS[name]


def name_of_run(preset: str, config: ExperimentConfig) -> str:
    """Returns a name for a run: the preset's, with the run's languages if they differ from the preset's.

    Example:
        >>> config = replace(PRESETS["en-es"], data=DataConfig(targets=("it",)))
        >>> name_of_run("en-es", config), name_of_run("many", config)
        ('en-it', 'many-en-it')
    """
    default, languages = ("-".join(data.languages) for data in (PRESETS[preset].data, config.data))
    if languages == default:
        return preset
    return preset.replace(default, languages) if default in preset else f"{preset}-{languages}"
