"""The experiments by name."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from xling_tf.config import (
    ALL_LANGUAGES,
    DataConfig,
    DistillationConfig,
    EncoderConfig,
    ExperimentConfig,
    InitialConfig,
    OptimizerConfig,
    QuestionAnsweringConfig,
    SimilarityConfig,
    TaskConfig,
    TasksConfig,
    TextConfig,
    TrainingConfig,
    TranslationConfig,
)
from xling_tf.errors import UserError

# Manuals and menus are plentiful and read alike; everyday sentences are what a general encoder is
# for. Relative to a corpus' size; corpora that are not named count 1.
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

PUBLISHED = "exported/use-multilingual"  # what export/import_published.py makes
_OFF = TaskConfig(weight=0)

# The phases, the words' start and the rate of the classifier are what docs/results.md has measured ("en-es in
# minutes").
_RECIPE = ExperimentConfig(
    data=DataConfig(corpus_weights=_CORPUS_WEIGHTS),
    text=TextConfig(lowercase=True, min_word_count=3),
    encoder=EncoderConfig(num_layers=0, norm_first=True, add_average=True),
    tasks=TasksConfig(
        translation_ranking=TaskConfig(weight=4, examples_per_batch=256),
        response_prediction=TaskConfig(weight=1, examples_per_batch=128, loss_weight=0.01),
        quick_thought=TaskConfig(weight=1, examples_per_batch=96, loss_weight=0.01),
        inference=TaskConfig(weight=2, examples_per_batch=128, loss_weight=0.05, head_rate=4.0),
        distillation=DistillationConfig(
            weight=4, examples_per_batch=256, teacher=PUBLISHED, score_scale=20.0, every=4
        ),
        similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.1, bidirectional=True),
        residual_towers=True,
    ),
    optimizer=OptimizerConfig(
        name="adam",
        learning_rate=5e-4,
        embedding_learning_rate=3e-3,
        warmup=0.1,
        decay="linear",
    ),
    training=TrainingConfig(minutes=30.0, static_share=0.4, static_steps=150, static_rate=0.1),
)

# What the first phase of the recipe trains, as an encoder of its own.
_STATIC = dataclasses.replace(
    _RECIPE,
    encoder=EncoderConfig(kind="static"),
    tasks=dataclasses.replace(
        _RECIPE.tasks,
        translation_ranking=TaskConfig(weight=1, examples_per_batch=1024),
        response_prediction=_OFF,
        quick_thought=_OFF,
        inference=_OFF,
        distillation=dataclasses.replace(_RECIPE.tasks.distillation, weight=1, examples_per_batch=1024),
        similarity=dataclasses.replace(_RECIPE.tasks.similarity, matryoshka_dims=(64, 128, 256)),
    ),
    training=TrainingConfig(minutes=10.0),
)

_RANKING = dataclasses.replace(
    _RECIPE,
    tasks=dataclasses.replace(
        _RECIPE.tasks,
        response_prediction=_OFF,
        quick_thought=_OFF,
        inference=_OFF,
        distillation=DistillationConfig(),
    ),
)

# As 2019, sec. 2.2 and 3.2, but for one thing: the paper minimises -log P(source | target) and gives each
# example 5 wrong translations. These are candidates for a source, so P(target | source) is trained.
# The paper cycles through translation, Reddit, Wikipedia and NLI, a step of one task at a time, and does not
# say how its six tasks share the cycle. Here each has one step in six: translation, replies in both
# languages, neighbours in both languages, inference.
_PAPER = ExperimentConfig(
    data=DataConfig(equal_batches=True),
    tasks=TasksConfig(hard_negatives=5),
    training=TrainingConfig(steps=30_000_000),
)

_SMOKE = dataclasses.replace(
    _RECIPE,
    description="a tiny en-es model on the built-in sample corpus, in seconds",
    data=DataConfig(sample=True),
    text=TextConfig(lowercase=True, num_oov_buckets=64, num_ngram_buckets=4096),
    encoder=EncoderConfig(
        embedding_dim=64,
        hidden_dim=64,
        intermediate_dim=128,
        num_layers=2,
        num_heads=4,
        norm_first=True,
        add_average=True,
    ),
    tasks=dataclasses.replace(
        _RECIPE.tasks,
        translation_ranking=TaskConfig(weight=4, examples_per_batch=64),
        response_prediction=TaskConfig(examples_per_batch=32),
        quick_thought=TaskConfig(examples_per_batch=32),
        inference=TaskConfig(examples_per_batch=32),
        distillation=DistillationConfig(),
        tower_dims=(64, 64),
        inference_dim=64,
    ),
    optimizer=dataclasses.replace(_RECIPE.optimizer, learning_rate=3e-3),
    training=TrainingConfig(steps=150, precision="float32", static_share=0.3, static_batch=64),
)

_NO_TASKS = TasksConfig(
    translation_ranking=_OFF, response_prediction=_OFF, quick_thought=_OFF, inference=_OFF
)

# The models of Yang et al. 2019; constants from its sec. 3.2 and 4.2. The budget, batches and rates are
# ours, for hours on a CPU: the paper gives none.
_MULTILINGUAL = dataclasses.replace(
    _RECIPE,
    description="the published multilingual CNN's tasks and sizes, for the languages of the data",
    data=DataConfig(
        targets=(ALL_LANGUAGES,),
        all_pairs=True,
        sampling_temperature=5.0,
        corpus_weights=_CORPUS_WEIGHTS,
    ),
    text=TextConfig(
        tokenizer="sentencepiece", sentencepiece_size=128_000, max_tokens=256, sentence_marks=True
    ),
    encoder=EncoderConfig(kind="cnn", embedding_dim=512, intermediate_dim=320, num_layers=2),
    tasks=dataclasses.replace(
        _RECIPE.tasks,
        response_prediction=_OFF,
        quick_thought=_OFF,
        distillation=DistillationConfig(),
        question_answering=QuestionAnsweringConfig(
            weight=1, examples_per_batch=128, loss_weight=0.01, with_context=False
        ),
        target_inference=True,
    ),
    training=TrainingConfig(minutes=60.0),
)
_MULTILINGUAL_LARGE = dataclasses.replace(
    _MULTILINGUAL,
    description="the same tasks on the paper's transformer: 6 layers, 100 tokens",
    text=dataclasses.replace(_MULTILINGUAL.text, max_tokens=100, sentence_marks=False),
    encoder=EncoderConfig(num_layers=6, norm_first=True),
)

# What beats the published weights: they are trained on, by what docs/results.md has measured ("One
# multilingual model"). Nearness of translations comes from ranking and distillation, that of equal meanings
# from entailment and from people's scores of similarity, where the data have these.
_BEST = dataclasses.replace(
    _MULTILINGUAL,
    data=DataConfig(corpus_weights=_CORPUS_WEIGHTS),
    initial=InitialConfig(model=PUBLISHED, average=0.25),
    tasks=TasksConfig(
        translation_ranking=TaskConfig(weight=4, examples_per_batch=256),
        response_prediction=_OFF,
        quick_thought=_OFF,
        inference=_OFF,
        distillation=DistillationConfig(weight=1, examples_per_batch=256, teacher=PUBLISHED, every=16),
        entailment_ranking=TaskConfig(weight=1, examples_per_batch=64),
        question_answering=QuestionAnsweringConfig(weight=3, examples_per_batch=128, with_context=False),
        graded_similarity=TaskConfig(weight=3, examples_per_batch=128),
        similarity=SimilarityConfig(normalize=True, scale=20.0, margin=0.2, bidirectional=True),
        residual_towers=True,
    ),
    optimizer=OptimizerConfig(
        name="adam",
        learning_rate=2e-4,
        embedding_learning_rate=0.0,
        warmup=0.05,
        decay="linear",
    ),
    # More steps learn the collection's 33,000 questions by heart: 8,193 find fewer answers than 1,000.
    training=TrainingConfig(steps=1500, minutes=60.0),
)

# Words that are not spelt, as vectors of words have them.
_WORDS = TextConfig(ngram_sizes=(), num_oov_buckets=1, lowercase=True)
# Yu et al. 2018, sec. 2; the paper's vectors of words too were learnt in advance, from other texts. Batches,
# optimizer, rates and minutes are ours, it gives none.
_SEQ2SEQ = ExperimentConfig(
    data=DataConfig(targets=(ALL_LANGUAGES,), all_pairs=True, corpus_weights=_CORPUS_WEIGHTS),
    text=dataclasses.replace(_WORDS, max_words=85_000),
    encoder=EncoderConfig(
        kind="lstm", num_layers=2, embedding_dim=300, hidden_dim=1024, intermediate_dim=512
    ),
    tasks=dataclasses.replace(
        _NO_TASKS,
        translation=TranslationConfig(weight=1, examples_per_batch=64),
        tower_dims=(320, 1024),
    ),
    initial=InitialConfig(vectors=("bivcd:300",)),
    optimizer=dataclasses.replace(_RECIPE.optimizer, learning_rate=1e-3, clip_norm=5.0),
    training=TrainingConfig(minutes=60.0),
)
# The paper begins to tune where the terms are equal at the start (sec. 2.2), here with an alpha of about 300
# for similarity. At a quarter of the width 10 already is worse than none, and 1 no worse
# (docs/results.md, "Translating LSTMs"). The others were not tried; contrastive has similarity's term in it.
_REGULARIZERS: Mapping[str, Mapping[str, Any]] = {
    "similarity": {"regularizer": "similarity", "alpha": 1.0},
    "contrastive": {"regularizer": "contrastive", "alpha": 1.0},
    "weight-decay": {"regularizer": "weight_decay", "alpha": 5e-5},
    "no-similarity": {"regularizer": "none", "alpha": 0.0},
}

# Rücklé et al. 2018, sec. 5.1, on words' vectors that stay as they are. Batches, optimizer, rates and minutes
# are ours.
_INFERSENT = dataclasses.replace(
    _SEQ2SEQ,
    description="InferSent by telling translations from other sentences, TD (Rücklé et al. 2018)",
    text=_WORDS,
    encoder=EncoderConfig(
        kind="lstm", num_layers=1, embedding_dim=300, hidden_dim=4096, intermediate_dim=2048, pooling="max"
    ),
    tasks=dataclasses.replace(
        _NO_TASKS,
        translation_detection=TaskConfig(examples_per_batch=64),
        tower_dims=(320, 4096),
    ),
    optimizer=dataclasses.replace(_SEQ2SEQ.optimizer, embedding_learning_rate=0.0),
)
# Rücklé et al. 2018, sec. 5: nothing is trained but the words' vectors.
_P_MEAN = ExperimentConfig(
    description="power means of words' vectors learnt from translations (Rücklé et al. 2018)",
    data=DataConfig(targets=(ALL_LANGUAGES,), corpus_weights=_CORPUS_WEIGHTS),
    text=_WORDS,
    encoder=EncoderConfig(kind="p_mean", p_values=("-inf", "1", "3", "inf")),
    tasks=dataclasses.replace(_NO_TASKS, similarity=SimilarityConfig(normalize=True)),
    initial=InitialConfig(vectors=("bivcd:300",)),
)


def _variant(preset: ExperimentConfig, description: str, **sections: Mapping[str, Any]) -> ExperimentConfig:
    """A preset with other settings in some of its sections."""
    changed = {
        name: dataclasses.replace(getattr(preset, name), **settings) for name, settings in sections.items()
    }
    return dataclasses.replace(preset, description=description, **changed)


# The pairs of the paper (2019, sec. 3), each with English.
_TARGETS = {"es": "Spanish", "fr": "French", "de": "German", "zh": "Chinese"}
# Arivazhagan et al. 2019, sec. 4.2
_MANY = {"targets": tuple(_TARGETS), "sampling_temperature": 5.0}


def _pairs(name: str, preset: ExperimentConfig, description: str) -> dict[str, ExperimentConfig]:
    """A preset for each target; `{}` stands for it in the name, and for its language in the description."""
    return {
        name.format(target): _variant(preset, description.format(language), data={"targets": (target,)})
        for target, language in _TARGETS.items()
    }


PRESETS: Mapping[str, ExperimentConfig] = {
    **_pairs("en-{}", _RECIPE, "English and {}: the paper's six tasks, a recipe for half an hour on 2 cores"),
    **_pairs("en-{}-static", _STATIC, "English and {}: the average of words, for speed"),
    "many": _variant(
        _RECIPE, "English, Spanish, French, German and Chinese in one model (2019, footnote 1)", data=_MANY
    ),
    **_pairs(
        "translation-ranking-en-{}",
        _RANKING,
        "the paper's baseline for {}: translation ranking alone; mines hard negatives",
    ),
    "no-snli": _variant(_RECIPE, "en-es without inference (2018, table 7)", tasks={"inference": _OFF}),
    "no-wiki": _variant(
        _RECIPE, "en-es without quick thought (2018, table 7)", tasks={"quick_thought": _OFF}
    ),
    "no-target-native": _variant(
        _RECIPE,
        "en-es without tasks in Spanish alone (2018, tables 7 and 8)",
        tasks={"target_native": False},
    ),
    "word-only": _variant(
        _RECIPE, "en-es on words without their n-grams (2019, sec. 5.1)", text={"ngram_sizes": ()}
    ),
    "sentencepiece": _variant(
        _RECIPE, "en-es on SentencePiece's pieces (2019, sec. 5.1)", text={"tokenizer": "sentencepiece"}
    ),
    **_pairs(
        "paper-en-{}",
        _PAPER,
        "English and {}, the literal recipe (2019, sec. 3.2): SGD, 30 million steps; "
        "trained on dot products, exported at unit length and so ranked by cosine",
    ),
    **_pairs(
        "en-{}-best", _BEST, "English and {}: the published multilingual CNN, trained on to beat itself"
    ),
    "multilingual-best": _variant(
        _BEST, "the same for English, Spanish, French, German and Chinese in one model", data=_MANY
    ),
    "multilingual": _MULTILINGUAL,
    "multilingual-large": _MULTILINGUAL_LARGE,
    "multilingual-qa": _variant(
        _MULTILINGUAL_LARGE,
        "multilingual-large with answers encoded beside their context (Yang, sec. 4.2)",
        tasks={"question_answering": QuestionAnsweringConfig(weight=2, examples_per_batch=128)},
    ),
    **{
        f"seq2seq-{name}": _variant(
            _SEQ2SEQ,
            f"translation from the vector by LSTMs (Yu et al. 2018), {name.replace('-', ' ')}",
            tasks={"translation": dataclasses.replace(_SEQ2SEQ.tasks.translation, **regularizer)},
        )
        for name, regularizer in _REGULARIZERS.items()
    },
    "p-mean": _P_MEAN,
    "infersent-td": _INFERSENT,
    "infersent-mt-td": _variant(
        _INFERSENT,
        "the same, and inference in each language that has it, MT+TD (Rücklé et al. 2018)",
        tasks={"inference": TaskConfig(examples_per_batch=64), "target_inference": True},
    ),
    "smoke": _SMOKE,
}


def get_preset(name: str) -> ExperimentConfig:
    """Finds an experiment by name.

    Raises:
        UserError: There is no such preset.
    """
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"--pair expects one of {', '.join(PRESETS)}, got {name!r}{hint}")
