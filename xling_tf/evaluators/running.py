"""Evaluates a system on data set after data set, and keeps every result as soon as it is there."""

import hashlib
import json
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.corpora.line_files import read_lines
from xling_tf.errors import UserError
from xling_tf.evaluators.selection import Selected, Selection
from xling_tf.evaluators.system import NotApplicableError, System
from xling_tf.files import provenance, read_json, replacing

Results = dict[str, Any]

_UNREADABLE = "cannot be used: "


def evaluate_system(
    system: System, bare: System, selection: Selection, output: Path, *, folder: Path, seed: int
) -> Results:
    """Evaluates a system, writing the results file anew after every data set.

    A run that was killed is continued: what its file has is not computed again. Results of other data
    sets stay in the file; results of another model are put aside.

    Args:
        system: What is evaluated, its vectors cached.
        bare: The same, encoding whatever it is asked for.
        selection: The data sets.
        output: The results file.
        folder: The evaluation data, from which file names are told.
        seed: Of what is drawn.

    Returns:
        The content of the file: "system", "seed", "complete", "seconds" (of wall time in all),
        "scores" and "illustrations" by suite and data set, "datasets" (protocol, files with their checksums
        and lines, seconds), "skipped" (why), and what `provenance` tells.

    Raises:
        UserError: The data or the system is at fault; what was finished is in the file.
    """
    results, is_continued = _begin(system, output, seed)
    for name, files in selection.missing.items():
        logging.info("%s skipped: it is expected as %s", name, files)
        results["skipped"][name] = f"expected: {files}"
    for place, item in enumerate(selection.selected, start=1):
        if is_continued and _is_finished(results, item, folder):
            logging.info("%s has its result already", item.name)
            continue
        logging.info("%d of %d: %s", place, len(selection.selected), item.name)
        _evaluate(results, item, bare if item.suite.uncached else system, folder)
        _write(results, output)
    _require_readable(results, output)
    results["complete"] = True
    _write(results, output)
    return results


def headlines(results: Results, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Picks the first score of each data set, which is the one that sums it up.

    Args:
        results: As `evaluate_system` returns them.
        names: The data sets' full names.
    """
    picked = {}
    for name in names:
        suite, _, dataset = name.partition("/")
        scores = results["scores"].get(suite, {}).get(dataset)
        if scores:
            metric = next(iter(scores))
            picked[name] = {metric: scores[metric]}
    return picked


def _begin(system: System, output: Path, seed: int) -> tuple[Results, bool]:
    """The results to add to, and whether they are those of a run that was killed."""
    results: Results = {
        "system": {
            "name": system.name,
            "checksum": system.checksum,
            "description": dict(system.description),
        },
        **provenance(),
        "seed": seed,
        "complete": False,
        "seconds": 0.0,
        **{part: {} for part in ("scores", "illustrations", "datasets", "skipped")},
    }
    before = _read(output)
    if before is None:
        return results, False
    is_same = before["system"]["checksum"] == system.checksum is not None and before["seed"] == seed
    if not is_same:
        aside = output.with_name(
            f"{output.stem}.{(before['system']['checksum'] or 'unknown')[:8]}.{before['seed']}.json"
        )
        os.replace(output, aside)
        logging.info("%s had results of another model or seed, now in %s", output, aside)
        return results, False
    for part in ("seconds", "scores", "illustrations", "datasets"):
        results[part] = before[part]
    return results, not before["complete"]


def _is_finished(results: Results, item: Selected, folder: Path) -> bool:
    """Whether the data set's files are those that a result was computed from."""
    dataset = results["datasets"].get(item.suite.name, {}).get(item.dataset.name)
    return dataset is not None and dataset["files"] == _accounts(item, folder)


def _read(output: Path) -> Results | None:
    if not output.exists():
        return None
    try:
        before: Results = read_json(output)
        _require_kinds(before)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"--output must be a new file or one of evaluation results, but {output} is not "
            f"({error!r}); give another or remove it"
        ) from error
    return before


def _require_kinds(before: Results) -> None:
    kinds: dict[str, type | tuple[type, ...]] = {
        **{"seed": int, "complete": bool, "seconds": (int, float), "system": dict},
        **dict.fromkeys(("scores", "illustrations", "datasets"), dict),
    }
    wrong = [part for part, kind in kinds.items() if not isinstance(before[part], kind)]
    for part in ("scores", "illustrations", "datasets"):
        if not wrong and not all(isinstance(suite, dict) for suite in before[part].values()):
            wrong.append(part)
    if wrong or not re.fullmatch(r"\w*", before["system"]["checksum"] or ""):
        raise ValueError(f"{wrong[0] if wrong else 'the checksum of its system'} is something else")


def _evaluate(results: Results, item: Selected, system: System, folder: Path) -> None:
    """Puts the outcome of one data set into the results."""
    suite, name = item.suite.name, item.dataset.name
    start = time.monotonic()
    try:
        evaluator = item.dataset.load()
    except UserError as error:
        # A fault of this data set alone: the others are evaluated before it is told.
        logging.error("%s: %s", item.name, error)
        results["skipped"][item.name] = f"{_UNREADABLE}{error}"
        return
    try:
        outcome = dict(evaluator(system))
    except NotApplicableError as error:
        logging.info("%s skipped: %s", item.name, error)
        results["skipped"][item.name] = str(error)
        return
    if not item.suite.illustrates:
        _require_finite(item.name, outcome)
        shown = [f"{key} {value:.4f}" for key, value in outcome.items() if "num_" not in key]
        logging.info("%s: %s", item.name, ", ".join(shown[:3]))
    seconds = time.monotonic() - start
    part = "illustrations" if item.suite.illustrates else "scores"
    results[part].setdefault(suite, {})[name] = outcome
    results["datasets"].setdefault(suite, {})[name] = {
        "protocol": dict(evaluator.protocol),
        "files": _accounts(item, folder),
        "seconds": round(seconds, 2),
    }
    results["skipped"].pop(item.name, None)
    results["seconds"] = round(results["seconds"] + seconds, 2)


def _require_readable(results: Results, output: Path) -> None:
    faults = [
        f"{name}: {reason.removeprefix(_UNREADABLE)}"
        for name, reason in results["skipped"].items()
        if reason.startswith(_UNREADABLE)
    ]
    if faults:
        raise UserError(
            f"data sets must be readable, but {len(faults)} cannot be used, first {faults[0]} (the results "
            f"of all others are in {output})"
        )


def _require_finite(name: str, scores: Mapping[str, float]) -> None:
    wrong = {key: value for key, value in scores.items() if not math.isfinite(value)}
    if wrong:
        raise ValueError(f"{name} must give finite scores, but gave {wrong}")


def _accounts(item: Selected, folder: Path) -> dict[str, dict[str, Any]]:
    """Says of each file, by its name in the folder, what and how much it held."""
    return {
        str(path.relative_to(folder)): {
            "checksum": _checksum(path),
            "lines": sum(1 for _ in read_lines(path)),
        }
        for path in item.dataset.files
    }


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()


def _write(results: Results, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as temporary:
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
