"""The charts of a report: learning curves, sweeps, quality against speed, and pictures of vectors."""

import base64
import io
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from xling_tf.errors import UserError

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


def picture(drawing: Mapping[str, Any]) -> str:
    """Draws a map of texts, or a heat map of similarities; returns a data URL."""
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    if "points" in drawing:
        markers = itertools.cycle("os^DP*")
        for (group, points), marker in zip(drawing["points"].items(), markers, strict=False):
            axes.scatter(points["x"], points["y"], s=12, marker=marker, alpha=0.7, label=group)
        axes.set(xticks=[], yticks=[])
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=6, frameon=False)
    else:
        axes.imshow(drawing["similarities"], cmap="Blues", vmin=0, vmax=1)
        first, second = ([text[:24] for text in texts] for texts in drawing["texts"])
        axes.set_xticks(range(len(second)), second, rotation=60, ha="right", fontsize=7)
        axes.set_yticks(range(len(first)), first, fontsize=7)
    return _data_url(figure)


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
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "xling_tf", "text.parse_math": False}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _read_lines(path: Path) -> pd.DataFrame:
    """Reads lines of JSON; leaves out an unfinished last line, since the training may still run."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return pd.DataFrame([json.loads(line) for line in lines if line.endswith("\n")])
