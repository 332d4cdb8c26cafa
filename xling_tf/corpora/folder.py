"""The data folder: what a corpus file's name says, and reading all files of a language pair."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from absl import logging

from xling_tf.corpora.readers import (
    ReadReport,
    ReadResult,
    read_conversations,
    read_documents,
    read_moses,
    read_nli,
    read_parallel,
)
from xling_tf.corpora.records import Record, TranslationPair
from xling_tf.corpora.snli import SNLI_FOLDERS, read_snli
from xling_tf.errors import UserError

Kind = Literal["parallel", "documents", "conversations", "nli"]

_NAME = r"(?P<name>[^.].*)"
_LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
_ONE = rf"{_NAME}\.(?P<language>{_LANGUAGE})"
_PAIR = rf"{_NAME}\.(?P<source>{_LANGUAGE})-(?P<target>{_LANGUAGE})"
_GZ = r"(\.gz)?"
_MOSES = re.compile(rf"{_PAIR}\.(?P<side>(?P=source)|(?P=target)){_GZ}")
_SNLI = re.compile(rf"(?P<name>snli_1\.0)_(?P<split>train|dev|test)\.jsonl{_GZ}")
_DATA_ENDINGS = (".tsv", ".txt", ".jsonl", ".gz")


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """The records of one file.

    Attributes:
        name: The file's name up to the languages.
        kind: What its records are.
        languages: "en-es" for translations, "en" for the others.
        split: The split that the file's name states, "" where it states none.
        records: The records in file order.
        report: What was kept of the file and what was left out.
        groups: For each record the key of its document; None where records stand alone.
    """

    name: str
    kind: Kind
    languages: str
    split: str
    records: Sequence[Record]
    report: ReadReport
    groups: Sequence[str] | None = None


@dataclass(frozen=True, kw_only=True)
class _File:
    name: str
    kind: Kind
    languages: tuple[str, ...]
    split: str = ""
    path: Path
    read: Callable[[Path], ReadResult[Any]]


@dataclass(frozen=True, kw_only=True)
class _Format:
    kind: Kind
    pattern: re.Pattern[str]
    read: Callable[[Path], ReadResult[Any]]


_FORMATS = (
    _Format(kind="parallel", pattern=re.compile(rf"{_PAIR}\.tsv{_GZ}"), read=read_parallel),
    _Format(kind="documents", pattern=re.compile(rf"{_ONE}\.txt{_GZ}"), read=read_documents),
    _Format(
        kind="conversations", pattern=re.compile(rf"{_ONE}\.tsv{_GZ}"), read=read_conversations
    ),
    _Format(
        kind="nli",
        pattern=re.compile(rf"{_ONE}\.(?P<split>train|dev|test)\.tsv{_GZ}"),
        read=read_nli,
    ),
)


def load_folder(folder: Path, *, source: str, targets: Sequence[str]) -> list[Corpus]:
    """Reads every corpus of a data folder that serves some language pairs.

    These are the translations between the source and a target language, in either direction of
    the file name, documents and conversations in all these languages, and natural language
    inference in the source language (the paper trains it on English, Chidambaram et al. 2019, sec.
    3.1). A warning is logged for each file with lines left out.

    Args:
        folder: A folder with `parallel`, `documents`, `conversations` and `nli` in it; all but
            `parallel` may be missing.
        source: The source language, as "en".
        targets: The target languages, as ["es"].

    Returns:
        The corpora, by kind and then by file name.

    Raises:
        UserError: There is no such folder, no translations of a pair are in it, two files claim
            the same name, or a file is not what its name says.

    Example:
        >>> corpora = load_folder(Path("xling_tf/corpora/sample"), source="en", targets=["es"])
        >>> {corpus.kind for corpus in corpora} >= {"parallel", "nli"}
        True
    """
    if not folder.is_dir():
        what = "a file" if folder.exists() else "missing"
        raise UserError(
            f"the data folder {folder} must be a folder, but is {what}; "
            f"make it with {_layout(source, targets[0])}"
        )
    found = list(_discover(folder))
    wanted = [file for file in found if _serves(file, source, targets)]
    translated = {
        language for file in wanted if file.kind == "parallel" for language in file.languages
    }
    for target in targets:
        if target not in translated:
            raise UserError(_nothing_found(folder, found, source, target))
    _require_distinct(wanted)
    return [_load(file, source) for file in wanted]


def _discover(folder: Path) -> Iterator[_File]:
    for form in _FORMATS:
        for path in _files(folder / form.kind):
            if match := form.pattern.fullmatch(path.name):
                parts = match.groupdict()
                names = ("source", "target") if form.kind == "parallel" else ("language",)
                yield _File(
                    name=parts["name"],
                    kind=form.kind,
                    languages=tuple(parts[name] for name in names),
                    split=parts.get("split", ""),
                    path=path,
                    read=form.read,
                )
            elif form.kind == "parallel" and (match := _MOSES.fullmatch(path.name)):
                yield from _moses_file(path, match)
            elif path.name.endswith(_DATA_ENDINGS) and not _SNLI.fullmatch(path.name):
                logging.warning("%s is not read: its name is not of the layout", path)
    for place in SNLI_FOLDERS:
        for path in _files(folder / place):
            if match := _SNLI.fullmatch(path.name):
                yield _File(
                    name=match["name"],
                    kind="nli",
                    languages=("en",),
                    split=match["split"],
                    path=path,
                    read=read_snli,
                )


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_file() and path.name[0] != ".")


def _moses_file(path: Path, match: re.Match[str]) -> Iterator[_File]:
    # The source side stands for the pair; the target side is looked at so that a source side
    # that is missing is noticed as well.
    languages = (match["source"], match["target"])
    other = languages[match["side"] == languages[0]]
    stem = f"{match['name']}.{'-'.join(languages)}.{other}"
    partners = [path.with_name(stem + ending) for ending in ("", ".gz")]
    partner = next((partner for partner in partners if partner.is_file()), None)
    if partner is None:
        raise UserError(
            f"{path} must have its translation in {partners[0]}[.gz], but that file is missing; "
            "add it or take this one out of the folder"
        )
    if match["side"] == languages[0]:
        yield _File(
            name=match["name"],
            kind="parallel",
            languages=languages,
            path=path,
            read=partial(read_moses, target_path=partner),
        )


def _serves(file: _File, source: str, targets: Sequence[str]) -> bool:
    if file.kind == "parallel":
        return source in file.languages and any(target in file.languages for target in targets)
    if file.kind == "nli":
        return file.languages == (source,)
    return file.languages[0] in (source, *targets)


def _require_distinct(files: Sequence[_File]) -> None:
    seen: dict[tuple[object, ...], Path] = {}
    for file in files:
        key = (file.kind, file.name, *sorted(file.languages), file.split)
        if key in seen:
            raise UserError(
                f"every corpus must have a name of its own, but {seen[key]} and {file.path} have "
                "the same; delete one of them, or rename it if they differ"
            )
        seen[key] = file.path


def _load(file: _File, source: str) -> Corpus:
    result = file.read(file.path)
    if result.report.malformed:
        logging.warning("%s", result.report.summary())
    records = result.records
    languages = file.languages
    if file.kind == "parallel" and languages[0] != source:
        records = [TranslationPair(pair.target, pair.source) for pair in records]
        languages = languages[::-1]
    return Corpus(
        name=file.name,
        kind=file.kind,
        languages="-".join(languages),
        split=file.split,
        records=records,
        report=result.report,
        groups=result.groups,
    )


def _nothing_found(folder: Path, found: Sequence[_File], source: str, target: str) -> str:
    pair = f"{source}-{target}"
    pairs = sorted({"-".join(file.languages) for file in found if file.kind == "parallel"})
    others = sorted({file.languages[0] for file in found if file.kind != "parallel"})
    close = pairs if len(pairs) == 1 else difflib.get_close_matches(pair, pairs, cutoff=0.75)
    return (
        f"the data folder {folder} must have translations for {pair}, but has pairs: "
        f"{', '.join(pairs) or 'none'}; other texts in: {', '.join(others) or 'none'}; "
        + (f"did you mean --pair {close[0]}? " if close else "")
        + f"The layout is {_layout(source, target)}"
    )


def _layout(source: str, target: str) -> str:
    return (
        f"parallel/NAME.{source}-{target}.tsv (or a Moses pair NAME.{source}-{target}.{source} "
        f"and .{target}), documents/NAME.{source}.txt, conversations/NAME.{source}.tsv, "
        f"nli/NAME.{source}.train.tsv, each plain or .gz"
    )
