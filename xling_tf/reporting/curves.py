"""What is drawn as lines: learning curves of a training, few-shot curves, time and memory."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from xling_tf.errors import UserError
from xling_tf.reporting.results import Results

# Points of a line: each is a mean over neighbouring steps, since single batches jump.
_MEASURES = ("loss", "accuracy")
_POINTS = 60

_FEW_SHOT = re.compile(r"(zero_shot|few_shot|monolingual)/([^/]+)(?:/(\d+))?/accuracy")
_RESOURCES = re.compile(r"length_(\d+)/batch_(\d+)/([^/]+)")


class Line(NamedTuple):
    """A line of a chart.

    Attributes:
        name: For the legend.
        x: Places.
        y: Values.
        dashed: Whether it is a baseline or held-out data.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    dashed: bool = False


class Chart(NamedTuple):
    """Lines over one pair of axes."""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    log_x: bool = False


def learning_curves(run_dir: Path) -> list[Chart]:
    """Reads the learning curves of a training.

    Args:
        run_dir: Its folder, with `metrics.jsonl` and, where there was held-out data, `dev.jsonl`.

    Returns:
        A chart of the losses and one of the accuracies, a line a task; held-out ones are dashed.

    Raises:
        UserError: The folder has no metrics, or a file has something else in it.
    """
    steps = _read_lines(run_dir / "metrics.jsonl", {"step", "task", "loss", "accuracy"})
    if not steps:
        raise UserError(
            f"--training must be the folder of a run, as runs/en-es, but {run_dir} has no "
            "metrics.jsonl with steps; correct the path"
        )
    dev = run_dir / "dev.jsonl"
    scores = _read_lines(dev, {"step", "scores"}) if dev.exists() else []
    return [
        Chart(
            title=f"{run_dir.name}: {measure} in training",
            x_label="step",
            y_label=measure,
            lines=(*_of_training(steps, measure), *_of_held_out(scores, measure)),
        )
        for measure in _MEASURES
    ]


def few_shot_curves(results: Sequence[Results]) -> list[Chart]:
    """Draws accuracy against the share of the target language's training data.

    Chidambaram et al. 2019, table 6: with all English data, and dashed without it.
    """
    points: defaultdict[str, defaultdict[str, dict[float, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for result, dataset, metric, value in _scores(results, "classification"):
        if match := _FEW_SHOT.fullmatch(metric):
            kind, language, percent = match.groups()
            name = f"{result}, monolingual" if kind == "monolingual" else result
            points[f"{dataset}, {language}"][name][float(percent or 0)] = 100 * value
    return [
        Chart(
            title=f"{title}: few-shot classification",
            x_label="% of the training data of the language",
            y_label="accuracy, %",
            lines=tuple(
                _line(name, of, dashed=name.endswith(", monolingual")) for name, of in lines.items()
            ),
        )
        for title, lines in points.items()
        # The source language has its one score without examples of a target.
        if max(map(len, lines.values())) > 1
    ]


def resource_curves(results: Sequence[Results]) -> list[Chart]:
    """Draws time and memory against the length of sentences (Yang et al. 2019, figure 2)."""
    points: defaultdict[tuple[str, str, str], defaultdict[str, dict[float, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for result, dataset, metric, value in _scores(results, "resources"):
        if match := _RESOURCES.fullmatch(metric):
            length, batch, measure = match.groups()
            points[dataset, batch, measure][result][float(length)] = value
    return [
        Chart(
            title=f"{dataset}: a batch of {batch}",
            x_label="tokens of a sentence",
            y_label=measure.replace("_", " "),
            lines=tuple(_line(name, of, dashed=False) for name, of in lines.items()),
            log_x=True,
        )
        for (dataset, batch, measure), lines in points.items()
        # Sentences a second tell the same as the time.
        if measure != "sentences_per_second"
    ]


def _scores(results: Sequence[Results], suite: str) -> Iterator[tuple[str, str, str, float]]:
    for result in results:
        for dataset, scores in result.scores.get(suite, {}).items():
            for metric, value in scores.items():
                yield result.name, dataset, metric, value


def _line(name: str, points: Mapping[float, float], dashed: bool) -> Line:
    places = sorted(points)
    return Line(name, tuple(places), tuple(points[place] for place in places), dashed)


def _of_training(steps: Sequence[Mapping[str, Any]], measure: str) -> Iterator[Line]:
    by_task: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for step in steps:
        by_task[step["task"]].append((step["step"], step[measure]))
    width = max(1, max(step["step"] for step in steps) // _POINTS)
    for task, points in by_task.items():
        bins: defaultdict[int, list[float]] = defaultdict(list)
        for place, value in points:
            bins[int(place) // width].append(value)
        means = {(number + 0.5) * width: sum(of) / len(of) for number, of in bins.items()}
        yield _line(task.replace("_", " "), means, dashed=False)


def _of_held_out(lines: Sequence[Mapping[str, Any]], measure: str) -> Iterator[Line]:
    by_task: defaultdict[str, dict[float, float]] = defaultdict(dict)
    for line in lines:
        for task, scores in line["scores"].items():
            by_task[task][line["step"]] = scores[measure]
    for task, points in by_task.items():
        yield _line(f"{task.replace('_', ' ')}, held out", points, dashed=True)


def _read_lines(path: Path, fields: set[str]) -> list[dict[str, Any]]:
    """Reads lines of JSON; the last one may be cut, since the training may still run."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"--training must be the folder of a run, as runs/en-es, but {path} cannot be read: "
            f"{error}; correct the path"
        ) from error
    read = []
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            break
        try:
            content = json.loads(line)
        except (RecursionError, ValueError):
            content = None
        if not isinstance(content, dict) or not fields <= content.keys() or not _is_ours(content):
            raise UserError(
                f"{path} must have {', '.join(sorted(fields))} in every line, but line {number} is "
                f"{line[:80]!r}; give another folder with --training"
            )
        read.append(content)
    return read


def _is_ours(line: Mapping[str, Any]) -> bool:
    """Whether the fields of a line are of the kinds that a training writes."""
    measured = line["scores"] if "scores" in line else {line["task"]: line}
    return (
        isinstance(line["step"], int)
        and isinstance(measured, dict)
        and all(isinstance(task, str) and isinstance(of, dict) for task, of in measured.items())
        and all(isinstance(of.get(m), (int, float)) for of in measured.values() for m in _MEASURES)
    )
