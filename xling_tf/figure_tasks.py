"""What the picture of a model tells of each kind of task."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from xling_tf.config import ALL_LANGUAGES, ExperimentConfig
from xling_tf.task_config import SimilarityConfig, TaskConfig


class TaskCard(NamedTuple):
    """What is told of one kind of task, mirrored over its languages.

    Attributes:
        title: Its name.
        languages: Or pairs of them, with a dash.
        columns: Names, or two lines of one.
        towers: Of each column, as lines; none: it has no tower.
        score: Lines: what is compared.
        loss: Lines: what is learnt from.
        share: Its place in the training.
        with_context: Whether the last column is averaged and joins the one before it.
    """

    title: str
    languages: Sequence[str]
    columns: Sequence[str]
    towers: Sequence[Sequence[str]]
    score: Sequence[str]
    loss: Sequence[str]
    share: str
    with_context: bool = False


def task_cards(config: ExperimentConfig) -> list[TaskCard]:
    """Describes the tasks of a config, in the order of the papers."""
    return [
        describe(config, task)
        for name, describe in _TASKS.items()
        if (task := getattr(config.tasks, name)).weight > 0
    ]


def _share(task: TaskConfig) -> str:
    moves = "" if task.loss_weight == 1 else f", loss × {task.loss_weight:g}"
    return f"weight {task.weight}, batch {task.examples_per_batch}{moves}"


def _candidates(task: TaskConfig) -> int:
    return task.candidates or task.examples_per_batch


def _similarity(similarity: SimilarityConfig) -> str:
    parts = ["cosine" if similarity.normalize else "dot product"]
    if similarity.scale != 1:
        parts.append(f" × {similarity.scale:g}")
    if similarity.margin:
        parts.append(f", margin {similarity.margin:g}")
    return "".join(parts)


def _tower(config: ExperimentConfig) -> list[str]:
    return [f"tanh {dim}" for dim in config.tasks.tower_dims]


def _mirrored(config: ExperimentConfig, *, in_targets: bool = True) -> list[str]:
    """The languages of a task over the texts of one."""
    if not in_targets:
        return [config.data.source]
    if ALL_LANGUAGES in config.data.targets:
        return [f"{config.data.source} and every other"]
    return [config.data.source, *config.data.targets]


def _pairs(config: ExperimentConfig, *, all_pairs: bool = False) -> list[str]:
    source, targets = config.data.source, config.data.targets
    if ALL_LANGUAGES in targets:
        return ["every pair" if all_pairs else f"{source}–every other"]
    pairs = combinations((source, *targets), 2) if all_pairs else ((source, t) for t in targets)
    return [f"{one}–{other}" for one, other in pairs]


def _translation_ranking(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    negatives = config.tasks.hard_negatives
    columns = ["source", "target"]
    both = config.tasks.similarity.bidirectional
    among = f"among {_candidates(task)}"
    if negatives:
        among += f" + {negatives * _candidates(task)} negatives"
        columns.append(f"{negatives} hard\nnegatives")
    return TaskCard(
        title="Translation ranking",
        languages=_pairs(config, all_pairs=config.data.all_pairs),
        columns=columns,
        towers=[()] * len(columns),
        score=[_similarity(config.tasks.similarity)],
        loss=["softmax, both directions" if both else "softmax", among],
        share=_share(task),
    )


def _response_prediction(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    return TaskCard(
        title="Response prediction",
        languages=_mirrored(config, in_targets=config.tasks.target_native),
        columns=["message", "response"],
        towers=[(), _tower(config)],
        score=[_similarity(config.tasks.similarity)],
        loss=["softmax", f"among {_candidates(task)}"],
        share=_share(task),
    )


def _quick_thought(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    return TaskCard(
        title="Quick thought",
        languages=_mirrored(config, in_targets=config.tasks.target_native),
        columns=["previous", "sentence", "following"],
        towers=[_tower(config)] * 3,
        score=[_similarity(config.tasks.similarity)],
        loss=["softmax + softmax", f"previous, following among {_candidates(task)}"],
        share=_share(task),
    )


def _inference(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    return TaskCard(
        title="Inference",
        languages=_mirrored(config, in_targets=config.tasks.target_inference),
        columns=["premise", "hypothesis"],
        towers=[(), ()],
        score=["u, v, |u − v|, u · v", f"tanh {config.tasks.inference_dim}"],
        loss=["cross-entropy", "over 3 classes"],
        share=_share(task),
    )


def _distillation(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    is_cosine = config.tasks.distillation.loss == "cosine"
    return TaskCard(
        title="Distillation",
        languages=_pairs(config),
        columns=["source", "target"],
        towers=[(), ()],
        score=["teacher's vector", "of the source"],
        loss=["1 − cosine" if is_cosine else "squared distance", "of both columns to it"],
        share=_share(task),
    )


def _question_answering(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    with_context = config.tasks.question_answering.with_context
    columns = ["question", "answer", *["context\nmean"] * with_context]
    return TaskCard(
        title="Question answering",
        languages=_mirrored(config),
        columns=columns,
        towers=[_tower(config)] * len(columns),
        score=[_similarity(config.tasks.similarity)],
        loss=["softmax", f"among {_candidates(task)}"],
        share=_share(task),
        with_context=with_context,
    )


def _entailment_ranking(config: ExperimentConfig, task: TaskConfig) -> TaskCard:
    similarity = dataclasses.replace(config.tasks.similarity, margin=0.0)
    return TaskCard(
        title="Entailment ranking",
        languages=_mirrored(config, in_targets=config.tasks.target_inference),
        columns=["premise", "entailed", "contra-\ndicting"],
        towers=[()] * 3,
        score=[_similarity(similarity)],
        loss=["softmax", f"among {_candidates(task)} + contradictions"],
        share=_share(task),
    )


_TASKS: Mapping[str, Callable[[ExperimentConfig, TaskConfig], TaskCard]] = {
    "translation_ranking": _translation_ranking,
    "response_prediction": _response_prediction,
    "quick_thought": _quick_thought,
    "inference": _inference,
    "question_answering": _question_answering,
    "distillation": _distillation,
    "entailment_ranking": _entailment_ranking,
}
