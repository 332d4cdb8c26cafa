"""Reads results files of evaluations, and finds where two of them cannot be compared."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from xling_tf.errors import UserError
from xling_tf.files import read_json

Scores = Mapping[str, float]
# The parts that are mappings by suite and data set.
_PARTS = ("scores", "illustrations", "datasets")


@dataclass(frozen=True, kw_only=True)
class Results:
    """The results of one system.

    Args:
        name: What tables call the system; two results never have one name.
        path: The file.
        complete: Whether the run came to its end.
        scores: By suite and data set, each by the metric's name.
        illustrations: Things to be drawn, by suite and data set.
        datasets: By suite and data set its "protocol", "files" and "seconds".
        skipped: What was left out, with the reason, by "suite/data set".
        provenance: The rest: "system", "seed", "seconds", "command", "versions", "machine".
    """

    name: str
    path: Path
    complete: bool
    scores: Mapping[str, Mapping[str, Scores]]
    illustrations: Mapping[str, Mapping[str, Mapping[str, Any]]]
    datasets: Mapping[str, Mapping[str, Mapping[str, Any]]]
    skipped: Mapping[str, str]
    provenance: Mapping[str, Any]


def read_results(paths: Sequence[Path]) -> list[Results]:
    """Reads results files.

    Args:
        paths: Files that `evaluation/main.py` wrote.

    Returns:
        The results in this order; where two systems have one name, the file's name stands behind it.

    Raises:
        UserError: A file cannot be read or holds something else.
    """
    results = [_read(path) for path in paths]
    counts = Counter(result.name for result in results)
    named = [
        replace(result, name=f"{result.name} ({result.path.stem})")
        if counts[result.name] > 1
        else result
        for result in results
    ]
    twice = [name for name, count in Counter(result.name for result in named).items() if count > 1]
    if twice:
        raise UserError(
            f"results must differ in their system or their file name, but {twice[0]} is there "
            "twice; leave one out or rename its file"
        )
    return named


def differences(results: Sequence[Results], suite: str, dataset: str) -> list[str]:
    """Tells why the scores on a data set are not comparable.

    Args:
        results: Those of all systems.
        suite: The suite's name.
        dataset: The data set's name.

    Returns:
        A sentence for each parameter of the protocol and each file that is not the same in all
        results that have the data set.
    """
    found = [
        (result.name, _account(result.datasets[suite][dataset]))
        for result in results
        if dataset in result.datasets.get(suite, {}) and dataset in result.scores.get(suite, {})
    ]
    told = []
    for key in dict.fromkeys(key for _, account in found for key in account):
        values = {name: account.get(key, "none") for name, account in found}
        if len(set(values.values())) > 1:
            each = ", ".join(f"{value} of {name}" for name, value in values.items())
            told.append(f"{key} differs: {each}")
    return told


def names_of(results: Iterable[Results]) -> dict[str, list[str]]:
    """Names the data sets that have scores, by suite, in the order in which they are first met."""
    names: dict[str, dict[str, None]] = {}
    for result in results:
        for suite, datasets in result.scores.items():
            names.setdefault(suite, {}).update(dict.fromkeys(datasets))
    return {suite: list(datasets) for suite, datasets in names.items()}


def _account(dataset: Mapping[str, Any]) -> dict[str, str]:
    """What must be equal for scores to be comparable, flat."""
    files = dataset.get("files", {})
    return {
        **{name: json.dumps(value) for name, value in dataset.get("protocol", {}).items()},
        **{f"the content of {name}": str(file["checksum"])[:8] for name, file in files.items()},
    }


def _read(path: Path) -> Results:
    try:
        content = read_json(path)
    except OSError as error:
        raise UserError(
            f"a results file is expected, but {path} cannot be read: {error.strerror}; correct the path"
        ) from error
    except ValueError as error:
        raise _no_results(path, f"no JSON ({error})") from error
    for complaint in _complaints(content):
        raise _no_results(path, complaint)
    apart = (*_PARTS, "complete", "skipped")
    return Results(
        name=content["system"]["name"],
        path=path,
        **{part: content[part] for part in apart},
        provenance={key: value for key, value in content.items() if key not in apart},
    )


def _no_results(path: Path, complaint: str) -> UserError:
    return UserError(
        f"{path} must be a results file of evaluation/main.py, but it has {complaint}; "
        "give another file, or evaluate the system anew"
    )


def _complaints(content: Any) -> Iterator[str]:
    """What is wrong with the content of a results file."""
    if not isinstance(content, dict):
        yield "no object in it"
        return
    kinds = {"system": dict, "complete": bool, "skipped": dict, **dict.fromkeys(_PARTS, dict)}
    for part, kind in kinds.items():
        if not isinstance(content.get(part), kind):
            yield f"no {part!r}"
            return
    if not isinstance(content["system"].get("name"), str):
        yield "no name of a system"
    for part in _PARTS:
        for suite, datasets in content[part].items():
            if not isinstance(datasets, dict) or not all(
                isinstance(value, dict) for value in datasets.values()
            ):
                yield f"no data sets in {part}/{suite}"
                return
    yield from _score_complaints(content["scores"])
    for suite, datasets in content["datasets"].items():
        for name, dataset in datasets.items():
            if not all(isinstance(dataset.get(part), dict) for part in ("protocol", "files")):
                yield f"no protocol and files of {suite}/{name}"
            elif not all(
                isinstance(f, dict) and "checksum" in f for f in dataset["files"].values()
            ):
                yield f"no checksum of a file of {suite}/{name}"


def _score_complaints(scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    for suite, datasets in scores.items():
        for dataset, values in datasets.items():
            for metric, value in values.items():
                if type(value) not in (int, float) or not math.isfinite(value):
                    yield f"no finite number but {value!r} as {suite}/{dataset}/{metric}"
