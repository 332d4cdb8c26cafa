"""Sentences labelled for argument mining, and which of them an evaluation folder has."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.classification.argument_mining import Labelled, SubsampleValidation
from xling_tf.evaluators.data import Dataset, Missing, Suite, find_file, read_table, stem_of

_FOLDER = "argument"
_LAYOUT = "argument/{name}.<language>.tsv (label TAB text under a line with these names)"


class _Task(NamedTuple):
    """A task of Rücklé et al. 2018, Table 1."""

    aligned: bool  # whether the languages' rows are translations
    published: tuple[str, str] | None = None  # the authors' files of labels and of texts


_TASKS = {
    "AM": _Task(True, ("AM/labels", "AM/argMinPE.{language}")),
    "AC": _Task(True, ("AC/amClaims.labels", "AC/amClaims.{language}")),
    "CLS": _Task(False),
}


def read_aligned(paths: tuple[Path, ...]) -> list[tuple[str, ...]]:
    """Reads files whose lines with the same number belong together."""
    columns = [[line.strip() for _, line in read_every_line(path)] for path in paths]
    if len({len(column) for column in columns}) > 1:
        raise UserError(f"{paths[0]} must have as many lines as {paths[1]}, but has not")
    return list(zip(*columns, strict=True))


class _Files(NamedTuple):
    """Where the rows of a language are."""

    paths: tuple[Path, ...]
    read: Callable[[], Labelled]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    for name, task in _TASKS.items():
        found = {
            language: files
            for language in _languages(folder / _FOLDER, name, task)
            if (files := _find_language(folder / _FOLDER, name, task, language))
        }
        if found:
            paths = [path for files in found.values() for path in files.paths]
            yield Dataset(
                name=name,
                files=tuple(dict.fromkeys(paths)),
                load=partial(_load, name, task.aligned, found, seed),
            )
        else:
            yield Missing(name=name, expected=_expected(name, task))


def _languages(folder: Path, name: str, task: _Task) -> list[str]:
    """The languages that file names tell, English first."""
    names = (f"{name}.*.tsv*", *(file.format(language="*") for file in (task.published or ())[1:]))
    paths = [path for pattern in names for path in folder.glob(pattern)]
    codes = {stem_of(path).rpartition(".")[2] for path in paths} - {"labels"}
    return sorted(codes, key=lambda code: (code != "en", code))


def _find_language(folder: Path, name: str, task: _Task, language: str) -> _Files | None:
    table = find_file(folder, f"{name}.{language}.tsv")
    if table is not None:
        return _Files((table,), partial(_read_table, table))
    published = [find_file(folder, file.format(language=language)) for file in task.published or ()]
    paths = tuple(path for path in published if path is not None)
    return _Files(paths, partial(_read_published, paths)) if len(paths) == 2 else None


def _read_table(path: Path) -> Labelled:
    return [(label, text) for label, text in read_table(path, ("label", "text"))]


def _read_published(paths: tuple[Path, ...]) -> Labelled:
    return [(label, text) for label, text in read_aligned(paths)]


def _load(name: str, aligned: bool, found: Mapping[str, _Files], seed: int) -> SubsampleValidation:
    rows = {language: files.read() for language, files in found.items()}
    return SubsampleValidation(rows, name=name, aligned=aligned, seed=seed)


def _expected(name: str, task: _Task) -> str:
    layout = _LAYOUT.format(name=name)
    if task.published is None:
        return layout
    files = [f"{_FOLDER}/{file.format(language='<language>')}" for file in task.published]
    return f"{layout} or, as published, {' and '.join(files)} (a label or a text a line)"


SUITE = Suite(
    name="argument",
    title="Argument mining and reviews, within and across languages",
    source="Rücklé et al. 2018, Tables 2, 3 and 6",
    find=_find,
)
