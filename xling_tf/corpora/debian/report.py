"""What went into a preparation, for the log, for programs and for people."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from absl import logging

_STATED = re.compile(r"^Files:\s*\*\s*$.*?^License:[ \t]*(\S[^\n]*)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """What one source gave.

    Attributes:
        name: Of the source.
        description: What it is.
        packages: Version by package.
        licences: Licence by package.
        counts: Pairs or sentences by kind.
    """

    name: str
    description: str
    packages: Mapping[str, str]
    licences: Mapping[str, str]
    counts: Mapping[str, int]


def licences(folders: Mapping[str, Path], stated: str) -> dict[str, str]:
    """The main licence of each package, from its machine-readable copyright file.

    Args:
        folders: Unpacked packages by name.
        stated: The licence where the file is missing or free text.

    Returns:
        Licence by package.
    """
    found = {}
    for name, folder in folders.items():
        path = folder / "usr/share/doc" / name / "copyright"
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        match = _STATED.search(text)
        found[name] = match[1].strip() if match else stated
    return found


def write_reports(
    folder: Path, summary: Mapping[str, Any], reports: Sequence[SourceReport]
) -> None:
    """Writes preparation.json and SOURCES.md.

    Args:
        folder: The prepared folder.
        summary: What holds for all sources.
        reports: One for each source.
    """
    content = {**summary, "sources": [asdict(report) for report in reports]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / "preparation.json").write_text(text + "\n", encoding="utf-8")
    parts = ["# Sources", *map(_section, reports)]
    (folder / "SOURCES.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _section(report: SourceReport) -> str:
    packages = (
        f"- package {name} {version}, licence {report.licences[name]}"
        for name, version in report.packages.items()
    )
    counts = (f"- {kind}: {count:,}" for kind, count in report.counts.items())
    return "\n".join((f"## {report.name}", "", f"{report.description}.", "", *packages, *counts))


def table(reports: Sequence[SourceReport]) -> str:
    """Counts as a text table, a row a source, with totals.

    Args:
        reports: One for each source.

    Returns:
        Lines of equal width.
    """
    kinds = list(dict.fromkeys(kind for report in reports for kind in report.counts))
    rows = [["source", *kinds]]
    for report in reports:
        rows.append([report.name, *(f"{report.counts.get(kind, 0):,}" for kind in kinds)])
    totals = [sum(report.counts.get(kind, 0) for report in reports) for kind in kinds]
    rows.append(["total", *(f"{total:,}" for total in totals)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        )
        for row in rows
    )


def log_report(summary: Mapping[str, Any], reports: Sequence[SourceReport]) -> None:
    """Logs counts, drops, licences and what is missing.

    Args:
        summary: What holds for all sources.
        reports: One for each source.
    """
    logging.info("Prepared %s:\n%s", summary["languages"], table(reports))
    for kind, counts in summary["dropped"].items():
        listed = sorted(counts.items(), key=lambda item: -item[1])
        logging.info("Dropped from %s: %s", kind, ", ".join(f"{n:,} {r}" for r, n in listed))
    for report in reports:
        logging.info("%s: %s", report.name, ", ".join(sorted(set(report.licences.values()))))
    for pattern in summary["not_found"]:
        logging.warning("No package is called %s", pattern)
    for name, reason in summary["failed"].items():
        logging.warning("Package %s is missing (the next run tries again): %s", name, reason)
