"""Results of several trainings side by side."""

from collections.abc import Mapping
from typing import Any

from tabulate import tabulate

_TASKS = {"inference": "NLI", "response_prediction": "response", "quick_thought": "quick thought"}


def summary(results: Mapping[str, Any]) -> dict[str, str]:
    """Picks the scores that trainings are compared by.

    Args:
        results: The content of a run's `results.json`.

    Returns:
        By column: P@1 over all held-out pairs in both directions (Chidambaram et al. 2019, sec.
        3.4), STS Benchmark dev in each language (sec. 3.5, Pearson times 100), accuracy of
        each kind of task (mean over the languages), all in percent; the steps and minutes of training.

    Example:
        >>> scores = {"retrieval/en-es/all": {"en-es/precision_at_1": 0.98, "num_queries": 5000}}
        >>> summary({"scores": scores, "steps": 1200, "minutes": 12.25})
        {'P@1 en-es': '98.0', 'steps': '1200', 'minutes': '12.2'}
    """
    scores: Mapping[str, Mapping[str, float]] = results["scores"]
    columns: dict[str, str] = {}
    for suite, values in scores.items():
        if suite.startswith("retrieval/") and suite.endswith("/all"):
            for metric, value in values.items():
                if metric.endswith("precision_at_1"):
                    columns[f"P@1 {metric.partition('/')[0]}"] = _percent(value)
        elif suite.startswith("stsb."):
            columns[f"STS {suite.split('.')[1]}"] = _percent(values["pearson_angular"])
    for task, title in _TASKS.items():
        accuracies = [v["accuracy"] for s, v in scores.items() if s.startswith(f"task/{task}")]
        if accuracies:
            columns[title] = _percent(sum(accuracies) / len(accuracies))
    return {
        **columns,
        "steps": str(results["steps"]),
        "minutes": f"{results['minutes']:.1f}",
    }


def comparison(rows: Mapping[str, Mapping[str, str]]) -> str:
    """Formats summaries as a Markdown table, a line a training.

    Args:
        rows: Of each training, by its name; a column that one lacks is left empty there.

    Example:
        >>> print(comparison({"en-es": {"NLI": "44.0"}, "no-snli": {"steps": "9"}}))
        |         |   NLI |   steps |
        |:--------|------:|--------:|
        | en-es   |  44.0 |         |
        | no-snli |       |       9 |
    """
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    columns.sort(key=_order)
    table = [[name, *(row.get(column, "") for column in columns)] for name, row in rows.items()]
    return tabulate(
        table,
        headers=("", *columns),
        tablefmt="pipe",
        colalign=("left", *("right" for _ in columns)),
        disable_numparse=True,
    )


def _order(column: str) -> int:
    """Scores of translations, of similarity and of the tasks, then what they cost."""
    groups = ("P@1", "STS", *_TASKS.values(), "steps", "minutes")
    return next(i for i, group in enumerate(groups) if column.startswith(group))


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
