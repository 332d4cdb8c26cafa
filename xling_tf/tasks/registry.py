"""The tasks of an experiment, from its config."""

import dataclasses
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from xling_tf.config import ExperimentConfig
from xling_tf.layers.tower import Tower
from xling_tf.task_config import TaskConfig
from xling_tf.tasks.base import Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.tasks.entailment import EntailmentRanking
from xling_tf.tasks.inference import Inference, InferenceHead
from xling_tf.tasks.question_answering import QuestionAnswering
from xling_tf.tasks.ranking import QuickThought, ResponsePrediction, TranslationRanking


def _common(
    config: ExperimentConfig, name: str, languages: str, task: TaskConfig
) -> dict[str, Any]:
    return {
        "name": name,
        "languages": languages,
        "weight": task.weight,
        "examples_per_batch": task.examples_per_batch,
        "candidates": task.candidates,
        "loss_weight": task.loss_weight,
        "normalize": config.tasks.similarity.normalize,
    }


def _translation_ranking(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    source, targets = config.data.source, config.data.targets
    pairs = [f"{source}-{target}" for target in targets]
    if config.data.all_pairs:
        pairs += [f"{one}-{other}" for one, other in combinations(targets, 2)]
    return [
        TranslationRanking(
            similarity=config.tasks.similarity,
            hard_negatives=config.tasks.hard_negatives,
            **_common(config, f"translation_ranking_{pair}", pair, task),
        )
        for pair in pairs
    ]


def _native_languages(config: ExperimentConfig) -> list[str]:
    """Whose monolingual corpora are learnt from; only the source's in an ablation (2018, sec. A.4)."""
    return [config.data.source, *(config.data.targets if config.tasks.target_native else ())]


def _response_prediction(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    tower = Tower(config.tasks.tower_dims, name="response_tower")
    return [
        ResponsePrediction(
            tower=tower,
            similarity=config.tasks.similarity,
            **_common(config, f"response_prediction_{language}", language, task),
        )
        for language in _native_languages(config)
    ]


def _quick_thought(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    towers = tuple(
        Tower(config.tasks.tower_dims, name=f"{column}_tower") for column in QuickThought.columns
    )
    return [
        QuickThought(
            towers=towers,
            similarity=config.tasks.similarity,
            **_common(config, f"quick_thought_{language}", language, task),
        )
        for language in _native_languages(config)
    ]


def _inference(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    head = InferenceHead(config.tasks.inference_dim, name="inference_head")
    return [
        Inference(head=head, **_common(config, name, language, task))
        for language in _inference_languages(config)
        for name in ["inference" if language == config.data.source else f"inference_{language}"]
    ]


def _inference_languages(config: ExperimentConfig) -> list[str]:
    return [config.data.source, *(config.data.targets if config.tasks.target_inference else ())]


def _question_answering(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    towers = {
        name: Tower(config.tasks.tower_dims, name=name)
        for name in ("question_tower", "context_encoder", "answer_tower")
    }
    with_context = config.tasks.question_answering.with_context
    return [
        QuestionAnswering(
            question_tower=towers["question_tower"],
            context_encoder=towers["context_encoder"] if with_context else None,
            answer_tower=towers["answer_tower"],
            similarity=config.tasks.similarity,
            **_common(config, f"question_answering_{language}", language, task),
        )
        for language in (config.data.source, *config.data.targets)
    ]


def _distillation(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    """Of the source's pairs alone: the source is the language that the teacher knows."""
    pairs = [f"{config.data.source}-{target}" for target in config.data.targets]
    return [
        Distillation(
            loss=config.tasks.distillation.loss,
            every=config.tasks.distillation.every,
            **_common(config, f"distillation_{pair}", pair, task),
        )
        for pair in pairs
    ]


def _entailment_ranking(config: ExperimentConfig, task: TaskConfig) -> list[Task]:
    return [
        EntailmentRanking(
            similarity=dataclasses.replace(config.tasks.similarity, margin=0.0),
            **_common(config, f"entailment_ranking_{language}", language, task),
        )
        for language in _inference_languages(config)
    ]


TASKS: Mapping[str, Callable[[ExperimentConfig, TaskConfig], list[Task]]] = {
    "translation_ranking": _translation_ranking,
    "response_prediction": _response_prediction,
    "quick_thought": _quick_thought,
    "inference": _inference,
    "question_answering": _question_answering,
    "distillation": _distillation,
    "entailment_ranking": _entailment_ranking,
}


def build_tasks(config: ExperimentConfig) -> list[Task]:
    """Builds every task whose weight is not 0, mirrored over the languages (2019, sec. 2.2)."""
    configs = {name: getattr(config.tasks, name) for name in TASKS}
    return [
        task
        for name, build in TASKS.items()
        if configs[name].weight > 0
        for task in build(config, configs[name])
    ]
