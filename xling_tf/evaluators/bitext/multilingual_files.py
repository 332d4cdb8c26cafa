"""Evaluation data in several languages whose rows translate each other."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from xling_tf.evaluators.bitext.parallel_files import (
    LANGUAGE,
    ParallelTexts,
    aligned_files,
    find_bitexts,
    find_hypotheses,
    join,
    joined_hypotheses,
    keyed,
)
from xling_tf.evaluators.data import find_file, header_of, read_table, stem_of

_FOLDER = "similarity_search"
_TEXTS = re.compile(rf"(.+)\.({LANGUAGE})(?:\.gz)?")
_DIALOGUES = ("xdailydialog_test300.tsv", ("en", "de", "zh"))


def find_multilingual(folder: Path) -> list[ParallelTexts]:
    """Finds texts in several languages, most of them in three or more.

    They are `similarity_search/<name>.<language>` (a sentence a line) and `similarity_search/<name>.tsv`
    (a column a language), the utterances of XDailyDialog, hypotheses of XNLI's languages with the same
    `pair_id`, and tables of two languages with the same name and first language, joined by its texts:
    `bitext/wmt22.en-de.tsv` and `bitext/wmt22.en-zh.tsv` make "wmt22.en-de-zh". Two languages alone are
    what `bitext_retrieval` searches.

    Args:
        folder: The evaluation folder.

    Returns:
        The texts by name.
    """
    found: dict[str, ParallelTexts] = {}
    for find in (_aligned, _tables, _hypotheses, _joined_bitexts):
        for texts in find(folder):
            found.setdefault(texts.name, texts)
    return [found[name] for name in sorted(found)]


def _aligned(folder: Path) -> Iterator[ParallelTexts]:
    """Yields sets of files with a sentence a line."""
    paths: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for path in sorted((folder / _FOLDER).glob("*")):
        match = _TEXTS.fullmatch(path.name)
        if match and match[2] != "tsv":
            paths[match[1]].setdefault(match[2], path)
    for name, of_language in paths.items():
        if len(of_language) > 1:
            yield aligned_files(name, tuple(of_language), tuple(of_language.values()))


def _tables(folder: Path) -> Iterator[ParallelTexts]:
    """Yields tables with a column for each language."""
    for path in sorted((folder / _FOLDER).glob("*.tsv*")):
        yield _table(path, tuple(header_of(path)))
    name, languages = _DIALOGUES
    if dialogues := find_file(folder / "response", name):
        yield _table(dialogues, languages)


def _table(path: Path, languages: tuple[str, ...]) -> ParallelTexts:
    return ParallelTexts(
        name=stem_of(path),
        languages=languages,
        files=(path,),
        read=partial(read_table, path, languages),
    )


def _hypotheses(folder: Path) -> Iterator[ParallelTexts]:
    """Yields XNLI's in all languages together."""
    paths = find_hypotheses(folder)
    if len(paths) > 1:
        yield joined_hypotheses(paths)


def _joined_bitexts(folder: Path) -> Iterator[ParallelTexts]:
    """Yields tables of two languages that have the first one's texts in common."""
    groups: defaultdict[tuple[str, str], dict[str, Path]] = defaultdict(dict)
    for bitext in find_bitexts(folder):
        if len(bitext.files) == 1:
            pivot, other = bitext.languages
            groups[bitext.name.rpartition(".")[0], pivot][other] = bitext.files[0]
    for (name, pivot), paths in groups.items():
        if len(paths) > 1:
            yield ParallelTexts(
                name=f"{name}.{'-'.join((pivot, *paths))}",
                languages=(pivot, *paths),
                files=tuple(paths.values()),
                read=partial(_join_bitexts, pivot, paths),
            )


def _join_bitexts(pivot: str, paths: Mapping[str, Path]) -> list[tuple[str, ...]]:
    others = [keyed(path, pivot, language) for language, path in paths.items()]
    return join([{text: text for text in others[0]}, *others])
