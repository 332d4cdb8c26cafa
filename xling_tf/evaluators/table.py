"""Results as a table for the screen."""

from collections.abc import Mapping

from tabulate import tabulate


def format_table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Formats scores as a plain text table, a line a score.

    Args:
        results: For each suite its scores by name.

    Returns:
        The table; counts ("num_...") are shown whole, scores with four decimals.

    Example:
        >>> print(format_table({"stsb.en.dev": {"pearson_angular": 0.75, "num_pairs": 1500.0}}))
        suite        metric             value
        -----------  ---------------  -------
        stsb.en.dev  pearson_angular   0.7500
        stsb.en.dev  num_pairs           1500
    """
    rows = [
        (suite, metric, f"{value:.0f}" if metric.startswith("num_") else f"{value:.4f}")
        for suite, scores in results.items()
        for metric, value in scores.items()
    ]
    return tabulate(
        rows,
        headers=("suite", "metric", "value"),
        colalign=("left", "left", "right"),
        disable_numparse=True,
    )
