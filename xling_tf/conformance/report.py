"""What checks came to, for the screen and for a file."""

import json
import shutil
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.conformance.outcome import FAILED, Outcome
from xling_tf.files import provenance, replacing


def format_outcome(outcome: Outcome) -> str:
    """One row of the table: how a check ended, how long it took, its name and what it has to say.

    Example:
        >>> print(format_outcome(Outcome("it_loads", "passed", "", {"needs": "tensorflow"}, 2.0)))
        passed      2.0 s  it loads
                           needs tensorflow
    """
    title = f"{outcome.status:7} {outcome.seconds:7.1f} s  {outcome.check.replace('_', ' ')}"
    said = outcome.text or ", ".join(
        f"{name.replace('_', ' ')} {_shown(value)}" for name, value in outcome.measured.items()
    )
    width = max(60, shutil.get_terminal_size((100, 24)).columns)
    margin = " " * 19
    return "\n".join(
        [title, *textwrap.wrap(said, width, initial_indent=margin, subsequent_indent=margin)]
    )


def format_summary(name: str, outcomes: Sequence[Outcome]) -> str:
    """The last line of the table: how many checks ended how.

    Example:
        >>> format_summary("en-es", [Outcome("it_loads", "passed", "", {}, 2.0)])
        'en-es: 1 passed, 0 failed, 0 skipped'
    """
    statuses = [outcome.status for outcome in outcomes]
    counts = [f"{statuses.count(status)} {status}" for status in ("passed", "failed", "skipped")]
    return f"{name}: {', '.join(counts)}"


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Whether a contract is broken."""
    return any(outcome.status == FAILED for outcome in outcomes)


def write_json(path: Path, outcomes: Mapping[Path, Sequence[Outcome]]) -> None:
    """Writes what came to a file; folders appear by their names alone.

    Args:
        path: The file, which is replaced.
        outcomes: By the folder of the model.
    """
    models = [
        {"model": folder.resolve().name, "checks": [outcome.as_json() for outcome in of_model]}
        for folder, of_model in outcomes.items()
    ]
    content: dict[str, Any] = {**provenance(), "models": models}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    for folder in sorted(outcomes, key=lambda folder: -len(str(folder))):
        for spelling in (str(folder.resolve()), str(folder)):
            text = text.replace(spelling, folder.resolve().name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def _shown(value: float | int | str) -> str:
    return f"{value:.2g}" if isinstance(value, float) and abs(value) < 1 else str(value)
