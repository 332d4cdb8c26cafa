"""Data folders: finds each suite's data sets; reads tables, whose first line names columns."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from absl import logging

from xling_tf.client.texts import is_blank
from xling_tf.compressed import PACKED
from xling_tf.corpora.folder import CorpusFile, discover
from xling_tf.corpora.line_files import LANGUAGE
from xling_tf.corpora.split import held_out
from xling_tf.corpora.tables import TABLE_ENDINGS, header_of
from xling_tf.corpora.tables import read_table as read_table  # for the other modules
from xling_tf.errors import UserError, require_known
from xling_tf.evaluators.encoding import Evaluator, NotApplicableError

BITEXT_LAYOUT = (
    "bitext/<name>.<aa>-<bb>.tsv, a sentence TAB its translation under a line with the languages' "
    "codes (xling-tf prepare evaluation moses); or parallel/<name>.<aa>-<bb>.tsv, of which a "
    "tenth is held out"
)
Rows = Sequence[tuple[str, ...]]
Row = TypeVar("Row", bound=tuple[Any, ...])
Tables = Mapping[str, Mapping[str, Path]]  # by language and split ("" without one)
_TABLE_END = re.compile(rf"(?i:\.{TABLE_ENDINGS}){PACKED}$")
# Copies that tools make, as "x.tsv.1".
_LIKE_A_TABLE = re.compile(rf"\.{TABLE_ENDINGS}\b", re.IGNORECASE)
_not_read: set[Path] = set()  # files that were warned of
_TABLE = re.compile(rf"(.+?)\.((?!dev\b){LANGUAGE})(?:\.([a-z_]{{3,}}))?")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A data set in a folder."""

    name: str  # within the suite, such as "MR" or "stsb.en.dev"
    files: tuple[Path, ...]
    load: Callable[[], Evaluator]  # reads the files


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A kind of evaluation, usually one table of a paper."""

    name: str  # in `--suite` and result files
    title: str  # what it measures
    source: str  # the papers' sections and tables
    layout: str  # the files, with their columns and the format of `xling-tf prepare evaluation`
    find: Callable[[Path, int], Iterable[Dataset]]  # given a folder and the seed of the evaluators


def select(
    suites: Mapping[str, Suite], folder: Path, wanted: Sequence[str], seed: int
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """Finds the data sets of names and patterns, such as "sts", "sts/stsb.en.dev" or "bitext/*".

    Without any, those of all suites are found. Returns the data sets by their full names
    ("senteval/MR"), and the layouts of suites without data; raises a `UserError` if a pattern
    matches nothing.
    """
    if not folder.is_dir():
        raise UserError(
            f"expected a folder with evaluation data, but {folder} is not one; `xling-tf prepare "
            "papers` makes data/eval"
        )
    patterns = [name if "/" in name else f"{name}/*" for name in wanted or suites]
    selected: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    for pattern in patterns:
        name = pattern.partition("/")[0]
        require_known("suite", name, suites)
        datasets = {f"{name}/{d.name}": d for d in suites[name].find(folder, seed)}
        matches = {key: dataset for key, dataset in datasets.items() if fnmatchcase(key, pattern)}
        if wanted and not matches:
            raise UserError(
                f"{folder} does not have {pattern}; expected: {suites[name].layout}"
                + (f", or did you mean {folder / 'eval'}?" if (folder / "eval").is_dir() else "")
            )
        selected |= matches
        if not matches:
            missing[name] = suites[name].layout
    if not selected:
        layout = next(iter(missing.values()))
        raise UserError(
            f"{folder} has none of the expected files, such as {layout}; choose another"
        )
    return selected, missing


def tables_in(folder: Path) -> dict[str, Path]:
    """Finds a folder's tables by their `stem_of`; plain tables are preferred to compressed ones."""
    tables: dict[str, Path] = {}
    for path in sorted(folder.glob("[!.]*")):
        if path.is_file() and _TABLE_END.search(path.name):
            tables.setdefault(stem_of(path), path)
        elif path.is_file() and _LIKE_A_TABLE.search(path.name) and path not in _not_read:
            _not_read.add(path)
            logging.warning(
                "%s is not read, because its name goes on after the ending of a table", path
            )
    return dict(sorted(tables.items()))


def stem_of(path: Path) -> str:
    """The name of a table without an ending such as `.tsv.gz`: "stsb.en.dev"."""
    return _TABLE_END.sub("", path.name)


def find_tables(folder: Path) -> dict[str, Tables]:
    """Finds the tables `<name>.<language>[.<split>].tsv` of a folder, by name."""
    tables: dict[str, dict[str, dict[str, Path]]] = {}
    for stem, path in tables_in(folder).items():
        if match := _TABLE.fullmatch(stem):
            name, language, split = match.groups(default="")
            tables.setdefault(name, {}).setdefault(language, {})[split] = path
    return dict(tables)


def without_blanks(name: str, *lists: Sequence[Row], texts: slice = slice(None)) -> list[list[Row]]:
    """Leaves out the rows with a blank text, and those with the same numbers in the other lists.

    Args:
        name: The data set or file, for the warning that says how many rows are left out.
        *lists: Rows, of which those with the same number belong together.
        texts: The cells of a row that are texts.

    Raises:
        UserError: No row is left.
    """
    blank = {
        number
        for rows in lists
        for number, row in enumerate(rows)
        if any(map(is_blank, row[texts]))
    }
    if blank:
        num_rows = max(map(len, lists))
        logging.warning("%s: %d of %d rows have a blank text: left out", name, len(blank), num_rows)
        if len(blank) == num_rows:
            raise UserError(f"{name} must have rows without blank texts; correct it or remove it")
    return [[row for number, row in enumerate(rows) if number not in blank] for rows in lists]


def tables_dataset(name: str, tables: Tables, make: Callable[..., Evaluator]) -> Dataset:
    """A data set of labelled texts; `make` gets their rows by language and split, and the name."""

    def load() -> Evaluator:
        rows: dict[str, dict[str, Rows]] = {language: {} for language in tables}
        # Without splits, rows with the same number may translate each other.
        together = [(language, "") for language in tables if "" in tables[language]]
        alone = [[(code, split)] for code in tables for split in tables[code] if split]
        for places in [together, *alone]:
            paths = [tables[language][split] for language, split in places]
            parts = [read_table(path, ("label", "text")) for path in paths]
            whole = without_blanks(" ".join(map(stem_of, paths)), *parts, texts=slice(1, None))
            for (language, split), part in zip(places, whole, strict=True):
                rows[language][split] = part
        return make(rows, name=name)

    files = tuple(path for splits in tables.values() for path in splits.values())
    return Dataset(name=name, files=files, load=load)


class ParallelTexts(NamedTuple):
    """Files whose rows translate each other."""

    name: str
    languages: tuple[str, ...]
    files: tuple[Path, ...]
    load: Callable[[], list[tuple[str, ...]]]  # reads the rows, of which some may have blank texts
    fewest: int = 0  # with fewer rows, it is left out

    def read(self) -> list[tuple[str, ...]]:
        """Reads rows of a text for each language; those with a blank text translate nothing."""
        return without_blanks(self.name, self.load())[0]


def parallel_datasets(
    texts: Iterable[ParallelTexts], make: Callable[..., Evaluator]
) -> list[Dataset]:
    """Makes a data set of each: its evaluator is `make(rows, languages, name=name)`."""

    def load(corpus: ParallelTexts) -> Evaluator:
        if len(rows := corpus.read()) < corpus.fewest:
            raise NotApplicableError(f"it has fewer than {corpus.fewest} held-out pairs")
        return make(rows, corpus.languages, name=corpus.name)

    return [
        Dataset(name=corpus.name, files=corpus.files, load=partial(load, corpus))
        for corpus in texts
    ]


def find_bitexts(folder: Path) -> list[ParallelTexts]:
    """Finds `bitext/<name>.<aa>-<bb>.tsv`, XNLI's hypotheses and `parallel/`'s held-out tenth.

    No training on the folder from English (else from the first language) sees that:
    `<name>_held_out`.
    """
    texts = []
    for (name, languages), shards in _bitext_corpora(folder).items():
        files = tuple(shard.paths[0] for shard in shards)
        title = f"{name}_held_out.{'-'.join(languages)}"
        texts.append(ParallelTexts(title, languages, files, partial(_held_out_pairs, shards), 2))
    for name, path in tables_in(folder / "bitext").items():
        if match := re.fullmatch(rf".+\.({LANGUAGE})-({LANGUAGE})", name):
            read = partial(read_table, path, ("source", "target"), others=match.groups())
            texts.append(ParallelTexts(name, match.groups(), (path,), read))
    paths = xnli_paths(folder)
    if english := paths.pop("en", None):
        for language, path in paths.items():
            texts.append(_hypotheses(f".en-{language}", {"en": english, language: path}))
    return sorted(texts)


def _bitext_corpora(folder: Path) -> dict[tuple[str, tuple[str, ...]], list[CorpusFile]]:
    """Returns the shards of each bilingual corpus, by its name and languages, English first."""
    corpora: defaultdict[tuple[str, tuple[str, ...]], list[CorpusFile]] = defaultdict(list)
    for file in discover(folder) if (folder / "parallel").is_dir() else ():
        if file.record_type == "parallel":
            corpora[file.name, tuple(sorted(file.languages, key=lambda code: code != "en"))].append(
                file
            )
    return corpora


def _held_out_pairs(shards: Sequence[CorpusFile]) -> list[tuple[str, ...]]:
    """Reads the pairs, English first, whose first text is held out (`corpora.split`)."""
    rows = ((shard, record) for shard in shards for record, _ in shard.read(*shard.paths))
    pairs = (record[1::-1] if shard.languages[1] == "en" else record[:2] for shard, record in rows)
    return [pair for pair in pairs if held_out(pair[0])]


def find_multilingual(folder: Path) -> list[ParallelTexts]:
    """Finds texts in several languages.

    These are `similarity_search/<name>.tsv`, XNLI's hypotheses and, under `<name>_held_out`, the
    held-out sentences of `parallel/<name>.en-<language>.tsv` that are translated into every
    language of that corpus.
    """
    texts = []
    by_name: defaultdict[str, dict[str, list[CorpusFile]]] = defaultdict(dict)
    for (name, (first, second)), shards in _bitext_corpora(folder).items():
        if first == "en":
            by_name[name][second] = shards
    for name, by_language in by_name.items():
        if len(by_language) > 1:
            files = tuple(shard.paths[0] for shards in by_language.values() for shard in shards)
            load, languages = partial(_held_out_in_all, by_language), ("en", *by_language)
            texts.append(ParallelTexts(f"{name}_held_out", languages, files, load, 2))
    for name, path in tables_in(folder / "similarity_search").items():
        columns = tuple(header_of(path))
        languages = tuple(column.removeprefix("translation.") for column in columns)
        texts.append(ParallelTexts(name, languages, (path,), partial(read_table, path, columns)))
    if len(paths := xnli_paths(folder)) > 1:
        texts.append(_hypotheses("", paths))
    return sorted(texts)


def _held_out_in_all(by_language: Mapping[str, Sequence[CorpusFile]]) -> list[tuple[str, ...]]:
    """Joins held-out pairs by their English text; of several translations, the first counts."""
    columns = [
        {pair[0]: pair[1] for pair in reversed(_held_out_pairs(shards))}
        for shards in by_language.values()
    ]
    shared = [text for text in columns[0] if all(text in column for column in columns[1:])]
    return [(text, *(column[text] for column in columns)) for text in sorted(shared)]


def xnli_paths(folder: Path) -> dict[str, Path]:
    """Finds XNLI's development sets with the numbers of their pairs, by language."""
    languages = find_tables(folder / "nli").get("xnli", {})
    paths = {code: splits["dev"] for code, splits in languages.items() if "dev" in splits}
    return {code: path for code, path in paths.items() if "pair_id" in header_of(path)}


def _hypotheses(suffix: str, paths: Mapping[str, Path]) -> ParallelTexts:
    """XNLI's hypotheses, which occur once each; premises occur three times."""

    def read() -> list[tuple[str, ...]]:
        # The lexicographically first of rows with the same number is kept.
        columns = [
            {
                row[0]: row[1]
                for row in sorted(read_table(path, ("pair_id", "hypothesis")), reverse=True)
            }
            for path in paths.values()
        ]
        numbers = set.intersection(*map(set, columns))
        return [tuple(column[number] for column in columns) for number in sorted(numbers)]

    name = f"xnli.dev.hypotheses{suffix}"
    return ParallelTexts(name, tuple(paths), tuple(paths.values()), read)
