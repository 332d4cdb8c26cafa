"""A picture of the model that a config describes: text, the shared encoder, and the tasks over it.

The parts of figure 1 in Chidambaram et al. 2019, from top to bottom.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from xling_tf.config import ALL_LANGUAGES, EncoderConfig, ExperimentConfig, TextConfig
from xling_tf.drawing import Box, Drawing, Point, Style
from xling_tf.figure_tasks import TaskCard, task_cards

_WIDTH = 1000
_CARD_WIDTH, _CARD_HEIGHT, _CARD_GAP = 234, 336, 12
_ONE_ROW, _SEVERAL_ROWS = 4, 3  # most cards in a row: in the only one, and where there are more
_ROW_GAP = 36
_LONGEST_LINE = 34  # characters in a card
_TEXT_TOP, _ENCODER_TOP, _CARDS_TOP = 48, 154, 258

_PLAIN = Style("#f8fafc", "#94a3b8")
_CARD = Style("#ffffff", "#cbd5e1")
_TABLE = Style("#fef9c3", "#ca8a04")
_ENCODER = Style("#dbeafe", "#2563eb")
_TOWER = Style("#ffedd5", "#ea580c")
_LOSS = Style("#dcfce7", "#16a34a")


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
    cards = task_cards(config)
    is_one_row = len(cards) <= _ONE_ROW
    per_row = len(cards) if is_one_row else _SEVERAL_ROWS
    num_rows = -(-len(cards) // per_row)
    title = _title(config, cards)
    height = _CARDS_TOP + num_rows * (_CARD_HEIGHT + _ROW_GAP) - _ROW_GAP + 16
    drawing = Drawing(_WIDTH, height, title=title)
    drawing.text(Point(_WIDTH / 2, 29), title, bold=True, size=16)
    _draw_text(drawing, config)
    _draw_encoder(drawing, config.encoder)
    gap = _CARD_GAP if is_one_row else _ROW_GAP  # arrows to the next rows pass through it
    left = (_WIDTH - per_row * (_CARD_WIDTH + gap) + gap) / 2
    for number, card in enumerate(cards):
        row, place = divmod(number, per_row)
        top = _CARDS_TOP + row * (_CARD_HEIGHT + _ROW_GAP)
        frame = Box(left + place * (_CARD_WIDTH + gap), top, _CARD_WIDTH, _CARD_HEIGHT)
        _draw_arrow(drawing, frame, row)
        _draw_task(drawing, frame, card)
    return drawing.svg()


def _title(config: ExperimentConfig, cards: Sequence[TaskCard]) -> str:
    source, targets = config.data.source, config.data.targets
    if ALL_LANGUAGES in targets:
        kinds = f"{len(cards)} kind{'s' * (len(cards) != 1)} of task"
        return f"One encoder for {source} and all languages of the data, trained on {kinds}"
    count = sum(len(card.languages) for card in cards)
    languages = ", ".join((source, *targets))
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


def _draw_encoder(drawing: Drawing, encoder: EncoderConfig) -> None:
    frame = Box(16, _ENCODER_TOP, _WIDTH - 32, 76)
    drawing.box(frame, [], _ENCODER)
    drawing.text(Point(84, frame.west.y - 3), "Shared encoder", bold=True)
    drawing.text(Point(84, frame.west.y + 14), "for every text")
    places = ((160, 170), (370, 350), (760, 210))
    boxes = [Box(left, frame.top + 14, width, 48) for left, width in places]
    for box, lines in zip(boxes, _ENCODERS[encoder.kind](encoder), strict=True):
        drawing.box(box, lines, _CARD, heading=True)
    for box, following in pairwise(boxes):
        drawing.arrow(box.east, following.west)


def _transformer(encoder: EncoderConfig) -> list[list[str]]:
    norm = "norm before" if encoder.norm_first else "norm after"
    return [
        [f"linear {encoder.embedding_dim} → {encoder.hidden_dim}", "+ positions"],
        [
            f"{encoder.num_layers} transformer layers",
            f"{encoder.num_heads} heads, {encoder.hidden_dim}, "
            f"feed-forward {encoder.intermediate_dim:,}, {norm}",
        ],
        ["mean over tokens", f"{encoder.hidden_dim}"],
    ]


def _cnn(encoder: EncoderConfig) -> list[list[str]]:
    widths = [width for width in encoder.filter_widths if width > 1]
    words = encoder.embedding_dim
    return [
        [f"{len(widths)} × linear {words} → {encoder.num_filters}", "norm; width 1 as it is"],
        [
            f"{encoder.num_layers} layers of convolutions",
            f"widths {', '.join(map(str, encoder.filter_widths))}, {encoder.num_filters} filters each, "
            "residual",
        ],
        ["mean × √length", f"feed-forward {encoder.intermediate_dim} → {encoder.hidden_dim}"],
    ]


# Three boxes of lines for each kind of encoder.
_ENCODERS: Mapping[str, Callable[[EncoderConfig], list[list[str]]]] = {
    "transformer": _transformer,
    "cnn": _cnn,
}


def _draw_arrow(drawing: Drawing, frame: Box, row: int) -> None:
    """Draws the way from the encoder to a card, past those of the rows above."""
    below = _ENCODER_TOP + 76
    if row == 0:
        drawing.arrow(Point(frame.north.x, below), frame.north)
        return
    aside, between = frame.left - _ROW_GAP / 2, frame.top - _ROW_GAP / 2
    corners = Point(aside, between), Point(frame.north.x, between)
    drawing.arrow(Point(aside, below), *corners, frame.north)


def _draw_task(drawing: Drawing, frame: Box, card: TaskCard) -> None:
    left, top = frame.left + 12, frame.top
    drawing.box(frame, [], _CARD)
    drawing.text(Point(frame.north.x, top + 24), card.title, bold=True, size=14)
    drawing.text(Point(frame.north.x, top + 43), _languages(card.languages))
    score = Box(left, top + 184, _CARD_WIDTH - 24, 48)
    loss = Box(left, top + 250, _CARD_WIDTH - 24, 48)
    gap = 14 if card.with_context else 6
    width = (_CARD_WIDTH - 24 + gap) / len(card.columns) - gap
    for place, (column, tower) in enumerate(zip(card.columns, card.towers, strict=True)):
        is_context = card.with_context and place == len(card.columns) - 1
        box = Box(left + place * (width + gap), top + 56, width, 40)
        drawing.box(box, column.split("\n"), _TABLE if is_context else _ENCODER)
        if tower:
            above, box = box, Box(box.left, top + 114, width, 52)
            drawing.arrow(above.south, box.north)
            drawing.box(box, tower, _TOWER)
        if is_context:  # joins the answer before it
            drawing.arrow(box.west, Point(box.left - gap, box.west.y))
        else:
            drawing.arrow(box.south, Point(box.south.x, score.top))
    drawing.box(score, card.score, _PLAIN)
    drawing.arrow(score.south, loss.north)
    drawing.box(loss, card.loss, _LOSS, heading=True)
    drawing.text(Point(frame.north.x, top + 322), card.share)


def _languages(languages: Sequence[str]) -> str:
    line = " · ".join(languages)
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{len(languages)} {'pairs' if '–' in line else 'languages'}"
