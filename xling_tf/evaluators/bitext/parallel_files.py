"""Files of texts that translate each other line by line, as evaluation data has them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path

from xling_tf.corpora.line_files import read_every_line
from xling_tf.errors import UserError
from xling_tf.evaluators.data import find_file, header_of, read_table

LANGUAGE = "[a-z]{2,3}(?:_[A-Za-z]+)?"  # a code in a file's name, as a regular expression
BITEXT_LAYOUTS = (
    "bitext/<name>.<aa>-<bb>.tsv (a sentence TAB its translation, under a line with the languages' "
    "codes) or bitext/<name>.<aa>-<bb>.<aa> and .<bb> (a sentence a line), plain or .gz"
)

_PIVOT = "en"
_XNLI = re.compile(rf"xnli\.({LANGUAGE})\.dev\.tsv(?:\.gz)?")
_FOLDERS = ("bitext", "tatoeba", "un")
_BITEXT = re.compile(rf"(.+\.({LANGUAGE})-({LANGUAGE}))\.(tsv|{LANGUAGE})(?:\.gz)?")


@dataclass(frozen=True, kw_only=True)
class ParallelTexts:
    """Texts in two languages or more that were found, row by row translations of each other.

    Args:
        name: Of the files, as "wmt22.en-de".
        languages: Codes, as ("en", "de").
        files: What is read.
        read: Reads the rows: a text for each language.
    """

    name: str
    languages: tuple[str, ...]
    files: tuple[Path, ...]
    read: Callable[[], list[tuple[str, ...]]]


def find_bitexts(folder: Path) -> list[ParallelTexts]:
    """Finds the translations in two languages of an evaluation folder.

    They are tables, or pairs of files as Moses, the UN Parallel Corpus (`UNv1.0.en-fr.en`, `.fr`) and
    LASER's Tatoeba sets (`tatoeba.deu-eng.deu`, `.eng`) have them, in the folders `bitext`, `tatoeba` and
    `un`. Where a name comes twice, a table goes before a pair and a plain file before a packed one. The
    hypotheses of XNLI in English and each other language are bitexts too.

    Args:
        folder: The evaluation folder.

    Returns:
        The bitexts by name.
    """
    found: dict[str, ParallelTexts] = {}
    for path in _candidates(folder):
        match = _BITEXT.fullmatch(path.name)
        if match is None:
            continue
        name, first, second, kind = match.groups()
        if kind == "tsv":
            found.setdefault(name, _table(name, (first, second), path))
        elif kind in (first, second):
            sides = [path.parent / f"{name}.{language}" for language in (first, second)]
            paths = [find_file(side.parent, side.name) or side for side in sides]
            found.setdefault(name, aligned_files(name, (first, second), paths))
    hypotheses = find_hypotheses(folder)
    for language in hypotheses:
        if _PIVOT in hypotheses and language != _PIVOT:
            pair = {_PIVOT: hypotheses[_PIVOT], language: hypotheses[language]}
            bitext = joined_hypotheses(pair, suffix=f".{_PIVOT}-{language}")
            found.setdefault(bitext.name, bitext)
    return [found[name] for name in sorted(found)]


def find_hypotheses(folder: Path) -> dict[str, Path]:
    """Finds XNLI's development sets whose rows say which pair they are, by language."""
    paths: dict[str, Path] = {}
    for path in sorted((folder / "nli").glob("xnli.*")):
        match = _XNLI.fullmatch(path.name)
        if match and "pair_id" in header_of(path):
            paths.setdefault(match[1], path)
    return paths


def joined_hypotheses(paths: Mapping[str, Path], *, suffix: str = "") -> ParallelTexts:
    """Describes XNLI's hypotheses, which come once each; premises come three times."""
    return ParallelTexts(
        name=f"xnli.dev.hypotheses{suffix}",
        languages=tuple(paths),
        files=tuple(paths.values()),
        read=lambda: join([keyed(path, "pair_id", "hypothesis") for path in paths.values()]),
    )


def keyed(path: Path, key: str, column: str) -> dict[str, str]:
    """Reads a column by another; of rows with the same key, the first text by order stays."""
    texts: dict[str, str] = {}
    for value, text in sorted(read_table(path, (key, column))):
        texts.setdefault(value, text)
    return texts


def join(columns: Sequence[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """Makes rows of the texts whose key is in every column."""
    keys = set.intersection(*map(set, columns))
    return [tuple(column[key] for column in columns) for key in sorted(keys)]


def aligned_files(name: str, languages: Sequence[str], paths: Sequence[Path]) -> ParallelTexts:
    """Describes files, one for each language, whose lines with the same number belong together."""
    return ParallelTexts(
        name=name,
        languages=tuple(languages),
        files=tuple(paths),
        read=partial(read_aligned, paths),
    )


def read_aligned(paths: Sequence[Path]) -> list[tuple[str, ...]]:
    """Reads files whose lines with the same number belong together.

    Args:
        paths: UTF-8 text or, by its name, gzip.

    Returns:
        The rows, a stripped line of each file; nothing is left out.

    Raises:
        UserError: They differ in length, or a line cannot be read.
    """
    rows: list[tuple[str, ...]] = []
    texts = ((text.strip() for _, text in read_every_line(path)) for path in paths)
    for lines in zip_longest(*texts):
        if None in lines:
            short = lines.index(None)
            long = next(place for place, line in enumerate(lines) if line is not None)
            raise UserError(
                f"{paths[short]} must have as many lines as {paths[long]}, since lines with the same "
                f"number belong together, but ends before line {len(rows) + 1}; fetch or make them "
                "again together"
            )
        rows.append(lines)
    return rows


def _candidates(folder: Path) -> Iterator[Path]:
    """Yields the files that may be bitexts, the preferred ones first."""
    for name in _FOLDERS:
        paths = [path for path in (folder / name).glob("*") if path.is_file()]
        yield from sorted(paths, key=lambda path: (".tsv" not in path.suffixes[-2:], path.name))


def _table(name: str, languages: tuple[str, str], path: Path) -> ParallelTexts:
    return ParallelTexts(
        name=name, languages=languages, files=(path,), read=partial(read_table, path, languages)
    )
