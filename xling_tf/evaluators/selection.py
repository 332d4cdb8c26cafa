"""Which data sets a run evaluates: those found, or those named."""

import difflib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing, Suite


class Selected(NamedTuple):
    """A data set to be evaluated, and its suite."""

    suite: Suite
    dataset: Dataset

    @property
    def name(self) -> str:
        """The full name, as `senteval/MR`."""
        return f"{self.suite.name}/{self.dataset.name}"


class Selection(NamedTuple):
    """What is evaluated, and what is not: the files expected, by full name."""

    selected: list[Selected]
    missing: dict[str, str]


def select(
    suites: Mapping[str, Suite], folder: Path, wanted: Sequence[str], seed: int
) -> Selection:
    """Finds the data sets of a run.

    Args:
        suites: All there are, by name.
        folder: The evaluation data.
        wanted: Suites ("sts") and data sets ("sts/stsb.en.dev", "bitext/*"); none: all that is there.
        seed: Of what is drawn.

    Raises:
        UserError: The folder is none, a name is unknown, or nothing that it names is there.
    """
    if not folder.is_dir():
        raise UserError(
            f"--data must be a folder with evaluation data, but {folder} is none; correct the path"
        )
    for name in wanted:
        _require_known(name.partition("/")[0], suites)
    selection = Selection([], {})
    for suite in suites.values():
        names = [name for name in wanted if name.partition("/")[0] == suite.name]
        if names or not wanted:
            _add(selection, suite, folder, names, seed)
    if not selection.selected:
        raise UserError(
            f"{folder} must hold evaluation data, but none of its layouts was found there, as "
            f"{next(iter(selection.missing.values()), 'sts/stsb.en.dev.tsv')}; correct --data"
        )
    return selection


def _add(selection: Selection, suite: Suite, folder: Path, names: Sequence[str], seed: int) -> None:
    """Adds what a suite has to the selection; `names` are those that the user named in it."""
    found = {item.name: item for item in suite.find(folder, seed)}
    datasets = {name: item for name, item in found.items() if isinstance(item, Dataset)}
    missing = {name: item for name, item in found.items() if isinstance(item, Missing)}
    patterns = {name: name.partition("/")[2] or "*" for name in names}
    for name, pattern in patterns.items():
        if not any(fnmatchcase(dataset, pattern) for dataset in datasets):
            expected = [
                item.expected for item in missing.values() if fnmatchcase(item.name, pattern)
            ]
            raise UserError(
                f"{name} must be evaluated, but {folder} does not have it; expected: "
                f"{'; or '.join(expected) or ', '.join(datasets) or suite.title}"
            )
    chosen = tuple(patterns.values()) or ("*",)
    for name, item in found.items():
        if any(fnmatchcase(name, pattern) for pattern in chosen):
            if isinstance(item, Dataset):
                selection.selected.append(Selected(suite, item))
            else:
                selection.missing[f"{suite.name}/{name}"] = item.expected


def _require_known(name: str, suites: Mapping[str, Suite]) -> None:
    if name not in suites:
        close = difflib.get_close_matches(name, suites, 1)
        raise UserError(
            f"--suite must name suites, as {', '.join(suites)}, but has {name!r}; "
            + (f"did you mean {close[0]!r}?" if close else "--list tells what each one measures")
        )
