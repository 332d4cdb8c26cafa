"""A picture of the model that a config describes: text, the shared encoder, and the tasks over it.

The parts of figure 1 in Chidambaram et al. 2019, from top to bottom.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from xling_tf.config import ExperimentConfig, TaskConfig, TextConfig
from xling_tf.drawing import Box, Drawing, Point, Style

_WIDTH, _HEIGHT = 1000, 610
_CARD_WIDTH, _CARD_GAP = 234, 12
_TEXT_TOP, _ENCODER_TOP, _CARDS_TOP = 48, 154, 258

_PLAIN = Style("#f8fafc", "#94a3b8")
_CARD = Style("#ffffff", "#cbd5e1")
_TABLE = Style("#fef9c3", "#ca8a04")
_ENCODER = Style("#dbeafe", "#2563eb")
_TOWER = Style("#ffedd5", "#ea580c")
_LOSS = Style("#dcfce7", "#16a34a")


class _Task(NamedTuple):
    """What is told of one kind of task, mirrored over its languages."""

    title: str
    languages: Sequence[str]
    columns: Sequence[str]  # names, or two lines of one
    towers: Sequence[Sequence[str]]  # of each column, as lines; none: it has no tower
    score: Sequence[str]
    loss: Sequence[str]


def model_figure(config: ExperimentConfig) -> str:
    """Draws the model of a config.

    Args:
        config: Of a preset, or a run's resolved one.

    Returns:
        The text of an SVG file.

    Example:
        >>> "3 transformer layers" in model_figure(ExperimentConfig())
        True
    """
    tasks = [
        (describe(config, task), task)
        for name, describe in _TASKS.items()
        if (task := getattr(config.tasks, name)).weight > 0
    ]
    title = _title(config, [told for told, _ in tasks])
    drawing = Drawing(_WIDTH, _HEIGHT, title=title)
    drawing.text(Point(_WIDTH / 2, 29), title, bold=True, size=16)
    _draw_text(drawing, config)
    _draw_encoder(drawing, config)
    left = (_WIDTH - len(tasks) * (_CARD_WIDTH + _CARD_GAP) + _CARD_GAP) / 2
    for place, (told, task) in enumerate(tasks):
        _draw_task(drawing, left + place * (_CARD_WIDTH + _CARD_GAP), told, task)
    return drawing.svg()


def _title(config: ExperimentConfig, tasks: Sequence[_Task]) -> str:
    languages = ", ".join((config.data.source, *config.data.targets))
    count = sum(len(task.languages) for task in tasks)
    return f"One encoder for {languages}, trained on {count} task{'s' * (count != 1)}"


def _draw_text(drawing: Drawing, config: ExperimentConfig) -> None:
    """Draws the way from a sentence to the vectors of its words, left to right."""
    text, dim = config.text, config.encoder.embedding_dim
    middle = _TEXT_TOP + 41
    sentence = Box(16, middle - 34, 196, 68)
    drawing.box(sentence, _sentence(text), _PLAIN, heading=True)
    if text.tokenizer == "sentencepiece" or not text.ngram_sizes:
        table = Box(402, middle - 26, 196, 52)
        drawing.box(table, _word_table(text, dim), _TABLE, heading=True)
        drawing.arrow(sentence.east, table.west)
        drawing.arrow(table.south, Point(table.south.x, _ENCODER_TOP))
        return
    words, ngrams = Box(272, _TEXT_TOP, 196, 38), Box(272, _TEXT_TOP + 44, 196, 38)
    feedforward = Box(520, ngrams.top, 196, 38)
    average = Box(788, middle - 19, 196, 38)
    sizes = ", ".join(map(str, text.ngram_sizes))
    drawing.box(words, _word_table(text, dim), _TABLE, heading=True)
    drawing.box(
        ngrams,
        [f"n-grams of {sizes} characters", f"{text.num_ngram_buckets:,} × {dim}"],
        _TABLE,
        heading=True,
    )
    drawing.box(feedforward, [f"sum, tanh {dim}"], _PLAIN)
    drawing.box(average, ["average"], _PLAIN)
    fork, join = (sentence.east.x + words.left) / 2, (feedforward.east.x + average.left) / 2
    for table in (words, ngrams):
        corner = Point(fork, table.west.y)
        drawing.arrow(sentence.east, Point(fork, middle), corner, table.west)
    drawing.arrow(ngrams.east, feedforward.west)
    for box in (words, feedforward):
        corner = Point(join, box.east.y)
        drawing.arrow(box.east, corner, Point(join, middle), average.west)
    drawing.arrow(average.south, Point(average.south.x, _ENCODER_TOP))


def _sentence(text: TextConfig) -> list[str]:
    rule = "SentencePiece" if text.tokenizer == "sentencepiece" else "Treebank-style words"
    case = "lowercase, " if text.lowercase else ""
    return ["Sentence", rule, f"{case}at most {text.max_tokens} tokens"]


def _word_table(text: TextConfig, dim: int) -> list[str]:
    if text.tokenizer == "sentencepiece":
        return ["pieces", f"{text.sentencepiece_size:,} × {dim}"]
    return ["words", f"({text.max_words:,} + {text.num_oov_buckets:,}) × {dim}"]


def _draw_encoder(drawing: Drawing, config: ExperimentConfig) -> None:
    encoder = config.encoder
    frame = Box(16, _ENCODER_TOP, _WIDTH - 32, 76)
    drawing.box(frame, [], _ENCODER)
    drawing.text(Point(84, frame.west.y - 3), "Shared encoder", bold=True)
    drawing.text(Point(84, frame.west.y + 14), "for every text")
    norm = "norm before" if encoder.norm_first else "norm after"
    steps = (
        (160, 170, [f"linear {encoder.embedding_dim} → {encoder.hidden_dim}", "+ positions"]),
        (
            370,
            350,
            [
                f"{encoder.num_layers} transformer layers",
                f"{encoder.num_heads} heads, {encoder.hidden_dim}, "
                f"feed-forward {encoder.intermediate_dim:,}, {norm}",
            ],
        ),
        (760, 210, ["mean over tokens", f"{encoder.hidden_dim}"]),
    )
    boxes = [Box(left, frame.top + 14, width, 48) for left, width, _ in steps]
    for box, (_, _, lines) in zip(boxes, steps, strict=True):
        drawing.box(box, lines, _CARD, heading=True)
    for box, following in pairwise(boxes):
        drawing.arrow(box.east, following.west)


def _draw_task(drawing: Drawing, left: float, told: _Task, task: TaskConfig) -> None:
    card = Box(left, _CARDS_TOP, _CARD_WIDTH, 336)
    drawing.arrow(Point(card.north.x, _ENCODER_TOP + 76), card.north)
    drawing.box(card, [], _CARD)
    drawing.text(Point(card.north.x, card.top + 24), told.title, bold=True, size=14)
    drawing.text(Point(card.north.x, card.top + 43), " · ".join(told.languages))
    score = Box(left + 12, card.top + 184, _CARD_WIDTH - 24, 48)
    loss = Box(left + 12, card.top + 250, _CARD_WIDTH - 24, 48)
    width = (_CARD_WIDTH - 24 + 6) / len(told.columns) - 6
    for place, (column, tower) in enumerate(zip(told.columns, told.towers, strict=True)):
        box = Box(left + 12 + place * (width + 6), card.top + 56, width, 40)
        drawing.box(box, column.split("\n"), _ENCODER)
        if tower:
            above, box = box, Box(box.left, card.top + 114, width, 52)
            drawing.arrow(above.south, box.north)
            drawing.box(box, tower, _TOWER)
        drawing.arrow(box.south, Point(box.south.x, score.top))
    drawing.box(score, told.score, _PLAIN)
    drawing.arrow(score.south, loss.north)
    drawing.box(loss, told.loss, _LOSS, heading=True)
    drawing.text(Point(card.north.x, card.top + 322), _share(task))


def _share(task: TaskConfig) -> str:
    moves = "" if task.loss_weight == 1 else f", loss × {task.loss_weight:g}"
    return f"weight {task.weight}, batch {task.examples_per_batch}{moves}"


def _candidates(task: TaskConfig) -> int:
    return task.candidates or task.examples_per_batch


def _similarity(config: ExperimentConfig) -> str:
    similarity = config.tasks.similarity
    parts = ["cosine" if similarity.normalize else "dot product"]
    if similarity.scale != 1:
        parts.append(f" × {similarity.scale:g}")
    if similarity.margin:
        parts.append(f", margin {similarity.margin:g}")
    return "".join(parts)


def _tower(config: ExperimentConfig) -> list[str]:
    return [f"tanh {dim}" for dim in config.tasks.tower_dims]


def _native(config: ExperimentConfig) -> list[str]:
    return [config.data.source, *(config.data.targets if config.tasks.target_native else ())]


def _translation_ranking(config: ExperimentConfig, task: TaskConfig) -> _Task:
    pairs = [f"{config.data.source}–{target}" for target in config.data.targets]
    negatives = config.tasks.hard_negatives
    columns = ["source", "target"]
    both = config.tasks.similarity.bidirectional
    among = f"among {_candidates(task)}"
    if negatives:
        among += f" + {negatives * _candidates(task)} negatives"
        columns.append(f"{negatives} hard\nnegatives")
    return _Task(
        title="Translation ranking",
        languages=pairs,
        columns=columns,
        towers=[()] * len(columns),
        score=[_similarity(config)],
        loss=["softmax, both directions" if both else "softmax", among],
    )


def _response_prediction(config: ExperimentConfig, task: TaskConfig) -> _Task:
    return _Task(
        title="Response prediction",
        languages=_native(config),
        columns=["message", "response"],
        towers=[(), _tower(config)],
        score=[_similarity(config)],
        loss=["softmax", f"among {_candidates(task)}"],
    )


def _quick_thought(config: ExperimentConfig, task: TaskConfig) -> _Task:
    return _Task(
        title="Quick thought",
        languages=_native(config),
        columns=["previous", "sentence", "following"],
        towers=[_tower(config)] * 3,
        score=[_similarity(config)],
        loss=["softmax + softmax", f"previous, following among {_candidates(task)}"],
    )


def _inference(config: ExperimentConfig, task: TaskConfig) -> _Task:
    return _Task(
        title="Inference",
        languages=[config.data.source],
        columns=["premise", "hypothesis"],
        towers=[(), ()],
        score=["u, v, |u − v|, u · v", f"tanh {config.tasks.inference_dim}"],
        loss=["cross-entropy", "over 3 classes"],
    )


_TASKS: Mapping[str, Callable[[ExperimentConfig, TaskConfig], _Task]] = {
    "translation_ranking": _translation_ranking,
    "response_prediction": _response_prediction,
    "quick_thought": _quick_thought,
    "inference": _inference,
}
