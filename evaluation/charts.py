"""The charts of a report: learning curves, sweeps and quality against speed."""

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xling_tf.errors import UserError
from xling_tf.files import read_json

Chart = tuple[str, str]  # title, and the image as a data URL


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turns errors about the content of a file or folder into one that says what is expected."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        cause = f"{type(error).__name__}: {str(error)[:100]}"
        raise UserError(f"{path} must be {expected}, but is not ({cause}); give another") from error


def learning_curves(run_dir: Path) -> Iterator[Chart]:
    """Draws the losses and accuracies of a training, one line per task."""
    points = learning_points(run_dir)
    for measure in ("loss", "accuracy"):
        lines = [*points[measure].groupby(level="task", sort=False)]
        figure, axes = _line_chart(lines, columns=2)
        for task, line in lines:
            axes.plot(line.index.get_level_values("step"), line, label=task)
        axes.set(xlabel="step", ylabel=measure)
        yield f"{run_dir.name}: {measure} in training", _with_legend(figure, columns=2)


def learning_points(run_dir: Path) -> pd.DataFrame:
    """Reads loss and accuracy by task and step: the means of some steps each, at most 60 points per task."""
    with reading(run_dir, "the folder of a training, as runs/en-es, with its metrics.jsonl"):
        steps = _read_lines(run_dir / "metrics.jsonl")[["step", "task", "loss", "accuracy"]]
        width = max(1, int(steps["step"].max()) // 60)
        steps["step"] = (steps["step"] // width + 0.5) * width
        points = steps.astype({"loss": float, "accuracy": float, "step": float})
        points["task"] = points["task"].astype(str).str.replace("_", " ")
        return points.groupby(["task", "step"], sort=False)[["loss", "accuracy"]].mean()


def sweep_curves(path: Path) -> Iterator[Chart]:
    """Draws each score of a sweep against the minutes of training, one line per recipe."""
    points = sweep_points(path)
    for name in points:
        lines = [*points[name].dropna().groupby(level="recipe", sort=False)]
        figure, axes = _line_chart(lines, columns=1)
        for recipe, line in lines:
            axes.plot(line.index.get_level_values("minutes"), line, "o-", label=recipe)
        axes.set(xlabel="minutes of training", xscale="log")
        budgets = sorted({minutes for _, minutes in points.index})
        axes.set_xticks(budgets, [f"{minutes:g}" for minutes in budgets])
        axes.minorticks_off()
        yield str(name), _with_legend(figure, columns=1)


def sweep_points(path: Path) -> pd.DataFrame:
    """Reads a sweep's scores by recipe and minutes: the medians over the seeds."""
    with reading(path, "a file of training/sweep.py, as runs/sweep/results.jsonl"):
        lines = _read_lines(path)
        scores = pd.DataFrame([*lines["scores"]], index=[lines["recipe"], lines["minutes"]]).astype(float)
        return scores.groupby(level=["recipe", "minutes"], sort=False).median().sort_index()


def quality_against_speed(path: Path) -> str:
    """Draws the scores of models against the sentences that they encode a second.

    Args:
        path: JSON with `panels`, titles by the name of a score, and `models`, each with its `name`, its
            `sentences_per_second` and its `scores` by name. A model that lacks a score is not in its panel.
            `is_peer` marks models of others; `label` says on which side of its point a name is written,
            "right" without it.

    Returns:
        An SVG with a panel per score.

    Raises:
        UserError: The file is not of this form.
    """
    with reading(path, "a file of models with speeds and scores, as evaluation/results/recipes.json"):
        content = read_json(path)
        panels, models = content["panels"], content["models"]
        figure = Figure(figsize=(4.8 * len(panels), 4.4), layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, squeeze=False)[0]
        for axes, (score, title) in zip(grid, panels.items(), strict=True):
            for model in models:
                if score in model["scores"]:
                    point = float(model["sentences_per_second"]), float(model["scores"][score])
                    axes.scatter(*point, **_POINTS[bool(model.get("is_peer"))])
                    offset, alignment = _LABELS[model.get("label", "right")]
                    axes.annotate(
                        model["name"], point, offset, textcoords="offset points", fontsize=8, **alignment
                    )
            axes.set_title(title, fontsize=10)
            axes.set(xlabel="sentences encoded a second", xscale="log")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.margins(x=0.2, y=0.12)
            axes.grid(alpha=0.2)
        points = [grid[0].scatter([], [], **style) for style in _POINTS.values()]
        labels = ["trained by xling_tf", "of others"]
        figure.legend(points, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
        # Text, not outlines: smaller, and names can be searched for.
        return _svg(figure, fonttype="none")


# Styles by `is_peer`.
_POINTS = {False: {"marker": "o", "color": "tab:blue"}, True: {"marker": "D", "color": "tab:gray"}}
# Where a name stands beside its point: offset in points, and alignment.
_LABELS: Mapping[str, tuple[tuple[int, int], Mapping[str, str]]] = {
    "right": ((6, 0), {"ha": "left", "va": "center"}),
    "left": ((-6, 0), {"ha": "right", "va": "center"}),
    "above": ((-4, 6), {"ha": "left", "va": "bottom"}),
    "below": ((-4, -6), {"ha": "left", "va": "top"}),
}


def _line_chart(lines: Sequence[Any], columns: int) -> tuple[Figure, Axes]:
    """An empty chart with room below for a legend in columns."""
    figure = Figure(figsize=(4.8, 3 + 0.17 * -(-len(lines) // columns)), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.2)
    return figure, axes


def _with_legend(figure: Figure, columns: int) -> str:
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    return _data_url(figure)


def _data_url(figure: Figure) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(_svg(figure).encode()).decode()}"


def _svg(figure: Figure, fonttype: Literal["path", "none"] = "path") -> str:
    buffer = io.StringIO()
    with matplotlib.rc_context(
        {"svg.hashsalt": "xling_tf", "svg.fonttype": fonttype, "text.parse_math": False}
    ):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def _read_lines(path: Path) -> pd.DataFrame:
    """Reads lines of JSON; leaves out an unfinished last line, since the training may still run."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return pd.DataFrame([json.loads(line) for line in lines if line.endswith("\n")])
