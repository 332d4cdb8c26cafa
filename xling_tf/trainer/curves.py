"""The losses of a training as a picture: an SVG with a chart for each task."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from xling_tf.files import replacing

# Charts in a row; width and height of a chart, and the margin around it, in pixels.
_COLUMNS, _WIDTH, _HEIGHT, _MARGIN = 3, 240, 120, 28
_MOST_POINTS = 40  # each is the mean of equally many steps
_STYLE = """svg { background: #fff } text { font: 12px system-ui, sans-serif; fill: #1b2430 }
.faint { fill: #55606e } line { stroke: #c5ccd6 }
.held-out { stroke: #b45309; stroke-dasharray: 4 3 }
polyline { fill: none; stroke: #1d4ed8; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
  svg { background: #12161c } text { fill: #e6eaf0 } .faint { fill: #9aa6b6 }
  line { stroke: #3a4553 } .held-out { stroke: #f0a35e } polyline { stroke: #8ab4ff } }"""


def write_curves(
    metrics: Path,
    held_out: Mapping[str, float],
    path: Path,
    scores: Sequence[tuple[int, float]] = (),
) -> None:
    """Draws the losses of a run's `metrics.jsonl`, and the losses on held-out examples by task.

    Args:
        metrics: The file of losses.
        held_out: Losses on held-out examples, by task.
        path: The picture.
        scores: Steps and scores on held-out pairs, which get a chart of their own.
    """
    losses = defaultdict[str, list[tuple[int, float]]](list)
    for step in map(json.loads, metrics.read_text("utf-8").splitlines()):
        losses[step["task"]].append((step["step"] + 1, step["loss"]))
    last_step = max((step for steps in losses.values() for step, _ in steps), default=1)
    charts = [
        _chart(number, task, np.array(steps), last_step, held_out.get(task))
        for number, (task, steps) in enumerate(losses.items())
    ]
    if scores:
        charts.append(
            _chart(len(charts), "score_on_held-out_pairs", np.array(scores), last_step, None)
        )
    width = (_WIDTH + _MARGIN) * _COLUMNS
    height = _MARGIN + (_HEIGHT + 2 * _MARGIN) * -(-len(charts) // _COLUMNS)
    ends = ", ".join(
        f"{task.replace('_', ' ')} {steps[-1][1]:.2f}" for task, steps in losses.items()
    )
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>Losses by step</title><desc>At step {last_step}: {escape(ends)}.</desc>",
        f"<style>{_STYLE}</style>",
        f'<text class="faint" x="{_MARGIN / 2}" y="14">',
        f"Losses to step {last_step}; dashed: held out</text>",
        *charts,
        "</svg>\n",
    ]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(svg), "utf-8")


def _chart(
    number: int, task: str, steps: np.ndarray, last_step: int, held_out: float | None
) -> str:
    """Returns a chart: title, curve from the first to the last step, dashed line held out."""
    points = np.array(
        [part.mean(axis=0) for part in np.array_split(steps, min(len(steps), _MOST_POINTS))]
    )
    values = [*points[:, 1], *([] if held_out is None else [held_out])]
    low, high = min(values), max(values)
    x = points[:, 0] / last_step * _WIDTH
    y = _HEIGHT * (high - points[:, 1]) / ((high - low) or 1)
    curve = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    lines = [f'<line x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}"/>']
    ends = f"{points[0, 1]:.2f} to {points[-1, 1]:.2f}"
    if held_out is not None:
        place = _HEIGHT * (high - held_out) / ((high - low) or 1)
        lines.append(
            f'<line class="held-out" x1="0" y1="{place:.1f}" x2="{_WIDTH}" y2="{place:.1f}"/>'
        )
        ends += f", held out {held_out:.2f}"
    left = (number % _COLUMNS) * (_WIDTH + _MARGIN) + _MARGIN / 2
    top = number // _COLUMNS * (_HEIGHT + 2 * _MARGIN) + 2.5 * _MARGIN
    parts = [
        f'<g transform="translate({left},{top})">',
        f'<text y="-22">{escape(task.replace("_", " "))}</text>',
        f'<text class="faint" y="-7">{ends}</text>',
        *lines,
        f'<polyline points="{curve}"/></g>',
    ]
    return "\n".join(parts)
