"""The plot of quality against speed."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from xling_tf.errors import UserError
from xling_tf.files import read_json


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turns errors about the content of a file or folder into one that says what is expected."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        cause = f"{type(error).__name__}: {str(error)[:100]}"
        raise UserError(f"{path} must be {expected}, but is not ({cause}); give another") from error


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
        return _svg(figure)


# Styles by `is_peer`.
_POINTS = {False: {"marker": "o", "color": "tab:blue"}, True: {"marker": "D", "color": "tab:gray"}}
# Where a name stands beside its point: offset in points, and alignment.
_LABELS: Mapping[str, tuple[tuple[int, int], Mapping[str, str]]] = {
    "right": ((6, 0), {"ha": "left", "va": "center"}),
    "left": ((-6, 0), {"ha": "right", "va": "center"}),
    "above": ((-4, 6), {"ha": "left", "va": "bottom"}),
    "below": ((-4, -6), {"ha": "left", "va": "top"}),
}


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    # Text, not outlines: smaller, and names can be searched for.
    settings = {"svg.hashsalt": "xling_tf", "svg.fonttype": "none", "text.parse_math": False}
    with matplotlib.rc_context(settings):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
