"""Labelled documents in several languages, and which of them an evaluation folder has."""

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.classification.documents import DocumentClassification, Labelled, Splits
from xling_tf.evaluators.data import LANGUAGE, Dataset, Missing, Suite, find_file, read_table

_FOLDER = "documents"
_TABLE = re.compile(rf"(.+)\.({LANGUAGE})\.(?:train|dev|test)\.tsv(?:\.gz)?")
_TABLE_LAYOUT = (
    "documents/{stem}.train.tsv, .dev.tsv, .test.tsv (label TAB text, so named in line 1)"
)
# Schwenk and Li 2018: what the files call the languages, and the labels of the documents.
_MLDOC_LANGUAGES = {
    "de": "german",
    "en": "english",
    "es": "spanish",
    "fr": "french",
    "it": "italian",
    "ja": "japanese",
    "ru": "russian",
    "zh": "chinese",
}
_MLDOC_LABELS = ("CCAT", "ECAT", "GCAT", "MCAT")
# The smallest of four training sets, with which their results and later ones were made.
_MLDOC_SPLITS = ("train.1000", "dev", "test")
_MLDOC_LAYOUT = (
    "documents/{stem}.train.1000, .dev and .test (label TAB text), as MLDoc's scripts make them of the "
    "Reuters corpora"
)
# As those scripts write a text under Python 3.
_BYTES_LITERAL = re.compile(r"""b(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def read_mldoc(path: Path) -> list[tuple[str, str]]:
    """Reads `label TAB text` lines as MLDoc's scripts write them.

    Args:
        path: UTF-8 text or, by its name, gzip. Texts may be Python's literals of bytes, which
            the scripts write under Python 3.

    Returns:
        Labels and texts.

    Raises:
        UserError: A line is something else.
    """
    return [(label, _decoded(text)) for label, text in _mldoc_lines(path)]


def _mldoc_lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in read_every_line(path):
        label, tab, text = line.partition("\t")
        if label not in _MLDOC_LABELS or not tab:
            raise UserError(
                f"{path} must hold {', '.join(_MLDOC_LABELS)}, a tab and a text in every line, but line "
                f"{number} is {line[:80]!r}; correct that line"
            )
        yield label, text.strip()


def _decoded(text: str) -> str:
    if not _BYTES_LITERAL.fullmatch(text):
        return text
    try:
        return str(ast.literal_eval(text), "utf-8")
    except (SyntaxError, UnicodeDecodeError):
        return text


def _read_table(path: Path) -> list[tuple[str, str]]:
    return [(label, text) for label, text in read_table(path, ("label", "text"))]


def _find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    del seed  # nothing is drawn
    folder = folder / _FOLDER
    yield from _find_mldoc(folder)
    tables = filter(None, (_TABLE.fullmatch(path.name) for path in folder.glob("*")))
    languages_by_name: defaultdict[str, set[str]] = defaultdict(set)
    for name, language in (match.groups() for match in tables):
        languages_by_name[name].add(language)
    for name, languages in sorted(languages_by_name.items()):
        stems = {language: f"{name}.{language}" for language in sorted(languages)}
        paths = {
            language: [find_file(folder, f"{stem}.{split}.tsv") for split in Splits._fields]
            for language, stem in stems.items()
        }
        yield from _complete(name, paths, _read_table, _TABLE_LAYOUT, stems)


def _find_mldoc(folder: Path) -> Iterator[Dataset | Missing]:
    paths = {
        language: [_mldoc_file(folder, stem, split) for split in _MLDOC_SPLITS]
        for language, stem in _MLDOC_LANGUAGES.items()
    }
    if any(any(those) for those in paths.values()):
        yield from _complete("MLDoc", paths, read_mldoc, _MLDOC_LAYOUT, _MLDOC_LANGUAGES)
    else:
        tables = _TABLE_LAYOUT.format(stem="<name>.<language>")
        expected = f"{_MLDOC_LAYOUT.format(stem='<language>')}; or documents of your own, {tables}"
        yield Missing(name="MLDoc", expected=expected)


def _mldoc_file(folder: Path, stem: str, split: str) -> Path | None:
    # The scripts give each language a folder of its own.
    return find_file(folder, f"{stem}.{split}") or find_file(folder / stem, f"{stem}.{split}")


def _complete(
    name: str,
    paths: Mapping[str, Sequence[Path | None]],
    read: Callable[[Path], Labelled],
    layout: str,
    stems: Mapping[str, str],
) -> Iterator[Dataset | Missing]:
    """Yields the languages with all splits as one data set, and those with some as missing."""
    present = {language: [path for path in those if path] for language, those in paths.items()}
    complete = {
        language: those for language, those in present.items() if len(those) == len(paths[language])
    }
    if complete:
        yield Dataset(
            name=name,
            files=tuple(path for those in complete.values() for path in those),
            load=partial(_load, name, complete, read),
        )
    for language in sorted(set(present) - set(complete)):
        if present[language]:
            expected = layout.format(stem=stems[language])
            yield Missing(name=f"{name}.{language}", expected=expected)


def _load(
    name: str, paths: Mapping[str, Sequence[Path]], read: Callable[[Path], Labelled]
) -> DocumentClassification:
    languages = {language: Splits(*map(read, those)) for language, those in paths.items()}
    return DocumentClassification(languages, name=name)


SUITE = Suite(
    name="documents",
    title="Document classification within and across languages",
    source="Yu et al. 2018, Tables 4, 5 and 6; Schwenk and Li 2018",
    find=_find,
)
