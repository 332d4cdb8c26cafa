"""Evaluation data in two languages or more whose rows translate each other."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from xling_tf.evaluators.data import (
    LANGUAGE,
    Dataset,
    Missing,
    find_file,
    find_tables,
    header_of,
    read_table,
    stem_of,
    tables_in,
)
from xling_tf.evaluators.encoding import Evaluator

NO_BITEXTS: Missing = Missing(
    name="translations",
    expected="bitext/<name>.<aa>-<bb>.tsv, a sentence TAB its translation under a line with the "
    "languages' codes (data/convert.py --format moses)",
)
Rows = Sequence[tuple[str, ...]]  # a text for each language


class ParallelTexts(NamedTuple):
    """Texts that were found, row by row translations of each other; `read` gives a text a language."""

    name: str
    languages: tuple[str, ...]
    files: tuple[Path, ...]
    read: Callable[[], list[tuple[str, ...]]]


def datasets(found: Iterable[ParallelTexts], make: Callable[..., Evaluator]) -> list[Dataset]:
    """Makes a data set of each of the texts: `make(rows, languages, name=name)` when its turn comes."""

    def load(texts: ParallelTexts) -> Evaluator:
        return make(texts.read(), texts.languages, name=texts.name)

    return [Dataset(name=each.name, files=each.files, load=partial(load, each)) for each in found]


def find_bitexts(folder: Path) -> list[ParallelTexts]:
    """Finds `bitext/<name>.<aa>-<bb>.tsv` and XNLI's hypotheses in English and another language."""
    found = []
    for name, path in tables_in(folder / "bitext").items():
        if match := re.fullmatch(rf".+\.({LANGUAGE})-({LANGUAGE})", name):
            found.append(_table(name, path, match.groups()))
    paths = _xnli(folder)
    if english := paths.pop("en", None):
        for language, path in paths.items():
            found.append(_hypotheses(f".en-{language}", {"en": english, language: path}))
    return sorted(found)


def find_multilingual(folder: Path) -> list[ParallelTexts]:
    """Finds texts in several languages: `similarity_search/<name>.tsv`, XDailyDialog and XNLI."""
    tables = tables_in(folder / "similarity_search").items()
    found = [_table(name, path, tuple(header_of(path))) for name, path in tables]
    if path := find_file(folder / "response", "xdailydialog_test300.tsv"):
        found.append(_table(stem_of(path), path, ("en", "de", "zh")))
    if len(paths := _xnli(folder)) > 1:
        found.append(_hypotheses("", paths))
    return sorted(found)


def _table(name: str, path: Path, languages: tuple[str, ...]) -> ParallelTexts:
    return ParallelTexts(name, languages, (path,), partial(read_table, path, languages))


def _xnli(folder: Path) -> dict[str, Path]:
    """XNLI's development sets whose rows say which pair they are, by language."""
    languages = find_tables(folder / "nli").get("xnli", {})
    paths = {code: splits["dev"] for code, splits in languages.items() if "dev" in splits}
    return {code: path for code, path in paths.items() if "pair_id" in header_of(path)}


def _hypotheses(suffix: str, paths: Mapping[str, Path]) -> ParallelTexts:
    """XNLI's hypotheses, which come once each; premises come three times."""

    def read() -> list[tuple[str, ...]]:
        # Of rows with the same number the first by order stays.
        tables = (
            sorted(read_table(path, ("pair_id", "hypothesis")), reverse=True) for path in paths.values()
        )
        columns = [{row[0]: row[1] for row in table} for table in tables]
        numbers = set.intersection(*map(set, columns))
        return [tuple(column[number] for column in columns) for number in sorted(numbers)]

    name = f"xnli.dev.hypotheses{suffix}"
    return ParallelTexts(name, tuple(paths), tuple(paths.values()), read)
