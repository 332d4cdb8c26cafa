"""The files of a data folder: what the name of each says."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from absl import logging

from xling_tf.corpora.file_corpus import Reader
from xling_tf.corpora.questions import read_questions, read_squad
from xling_tf.corpora.readers import (
    read_conversations,
    read_documents,
    read_moses,
    read_nli,
    read_parallel,
)
from xling_tf.corpora.records import Kind
from xling_tf.corpora.snli import SNLI_FILE, SNLI_FOLDERS, read_snli
from xling_tf.corpora.squad import SQUAD_FILES
from xling_tf.errors import UserError

_NAME = r"(?P<name>[^.].*)"
_LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
_ONE = rf"{_NAME}\.(?P<language>{_LANGUAGE})"
_PAIR = rf"{_NAME}\.(?P<source>{_LANGUAGE})-(?P<target>{_LANGUAGE})"
_SPLIT = r"(?P<split>train|dev(?:_(?:mis)?matched)?|test)"
# As Apache Beam names shards. An empty one is nothing unusual.
_SHARD = r"(?:-(?P<shard>\d{5,})-of-(?P<of>\d{5,}))?"
_GZ = r"(\.gz)?"
_MOSES = re.compile(rf"{_PAIR}\.(?P<side>(?P=source)|(?P=target)){_GZ}")
_SQUAD = re.compile(rf"{_ONE}\.json")
_SQUAD_FOLDERS = (".", "questions")
_SQUAD_TRAIN = "train-v1.1.json"  # the other published file is for evaluation
_NAMED = 5  # missing shards in a message
_DATA_ENDINGS = (".tsv", ".txt", ".json", ".jsonl", ".gz")


@dataclass(frozen=True, kw_only=True)
class CorpusFile:
    """A file that its name tells to be a corpus, or a shard of one.

    Attributes:
        name: Of the corpus.
        kind: What its records are.
        languages: In the order of the name: one, or those of the two sides.
        split: As `Corpus` has it.
        paths: The file; of a Moses pair both.
        read: The reader of its format, which takes `paths`.
        shard: Its number, from 0.
        num_shards: How many there must be.
    """

    name: str
    kind: Kind
    languages: tuple[str, ...]
    split: str = ""
    paths: tuple[Path, ...]
    read: Reader
    shard: int = 0
    num_shards: int = 1

    @property
    def pattern(self) -> str:
        """The path, which all shards of a corpus share but for their numbers."""
        return re.sub(r"-\d+(?=-of-\d+\.)", "-*", str(self.paths[0]))


@dataclass(frozen=True, kw_only=True)
class _Format:
    kind: Kind
    pattern: re.Pattern[str]
    read: Reader


_FORMATS = (
    _Format(kind="parallel", pattern=re.compile(rf"{_PAIR}{_SHARD}\.tsv{_GZ}"), read=read_parallel),
    _Format(
        kind="documents", pattern=re.compile(rf"{_ONE}{_SHARD}\.txt{_GZ}"), read=read_documents
    ),
    _Format(
        kind="conversations",
        pattern=re.compile(rf"{_ONE}{_SHARD}\.tsv{_GZ}"),
        read=read_conversations,
    ),
    _Format(kind="nli", pattern=re.compile(rf"{_ONE}\.{_SPLIT}{_SHARD}\.tsv{_GZ}"), read=read_nli),
    _Format(
        kind="questions", pattern=re.compile(rf"{_ONE}{_SHARD}\.tsv{_GZ}"), read=read_questions
    ),
)


def discover(folder: Path) -> Iterator[CorpusFile]:
    """Finds the corpus files of a data folder, in all languages, by kind and then by name.

    A warning is logged for data files whose names are not of the layout, and for what has such a name but
    is no file, as a folder or a link to nothing.

    Raises:
        UserError: One side of a Moses pair is missing, or a folder cannot be read.
    """
    for form in _FORMATS:
        for path in _files_of(folder / form.kind):
            if match := form.pattern.fullmatch(path.name):
                yield _table(form, path, match)
            elif form.kind == "parallel" and (match := _MOSES.fullmatch(path.name)):
                yield from _moses_file(path, match)
            elif form.kind == "questions" and (match := _SQUAD.fullmatch(path.name)):
                yield _squad_file(path, match["name"], match["language"])
            elif path.name.endswith(_DATA_ENDINGS) and not _is_published(path.name):
                logging.warning("%s is not read: its name is not of the layout", path)
    for place in SNLI_FOLDERS:
        for path in _files_of(folder / place):
            if match := SNLI_FILE.fullmatch(path.name):
                yield CorpusFile(
                    name=match["name"],
                    kind="nli",
                    languages=("en",),
                    split=match["split"],
                    paths=(path,),
                    read=read_snli,
                )
    for place in _SQUAD_FOLDERS:
        if (path := folder / place / _SQUAD_TRAIN).is_file():
            yield _squad_file(path, SQUAD_FILES[_SQUAD_TRAIN], "en")


def language_in(name: str) -> str | None:
    """The language that the name of a table says, as "en" of "squad.en.tsv.gz"; None if it says none.

    Example:
        >>> language_in("squad.en.tsv.gz")
        'en'
    """
    match = re.fullmatch(rf"{_ONE}\.tsv{_GZ}", name)
    return match["language"] if match else None


def _table(form: _Format, path: Path, match: re.Match[str]) -> CorpusFile:
    parts = match.groupdict()
    names = ("source", "target") if form.kind == "parallel" else ("language",)
    return CorpusFile(
        name=parts["name"],
        kind=form.kind,
        languages=tuple(parts[name] for name in names),
        split=parts.get("split", ""),
        paths=(path,),
        read=form.read,
        shard=int(parts["shard"] or 0),
        num_shards=int(parts["of"] or 1),
    )


def _squad_file(path: Path, name: str, language: str) -> CorpusFile:
    return CorpusFile(
        name=name,
        kind="questions",
        languages=(language,),
        paths=(path,),
        read=partial(read_squad, language=language),
    )


def _is_published(name: str) -> bool:
    return name == _SQUAD_TRAIN or SNLI_FILE.fullmatch(name) is not None


def _files_of(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    try:
        paths = sorted(path for path in folder.iterdir() if path.name[0] != ".")
    except OSError as error:
        raise UserError(
            f"{folder} must be a readable folder, but is not ({error.strerror}); correct its permissions"
        ) from error
    for path in paths:
        if path.name.endswith(_DATA_ENDINGS) and not path.is_file():
            logging.warning("%s is not read: it is no file", path)
        elif not _is_text(path.name):
            logging.warning("%s is not read: its name is not UTF-8", ascii(str(path)))
    return [path for path in paths if path.is_file() and _is_text(path.name)]


def _is_text(name: str) -> bool:
    # Other bytes of a name become halves of surrogate pairs, which no results file takes.
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _moses_file(path: Path, match: re.Match[str]) -> Iterator[CorpusFile]:
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
        yield CorpusFile(
            name=match["name"],
            kind="parallel",
            languages=languages,
            paths=(path, partner),
            read=read_moses,
        )


def group_shards(files: Sequence[CorpusFile]) -> list[list[CorpusFile]]:
    """Puts the shards of each corpus together, in the order of their numbers.

    Raises:
        UserError: Some are missing.
    """
    found: defaultdict[str, list[CorpusFile]] = defaultdict(list)
    for file in files:
        found[file.pattern].append(file)
    for pattern, shards in found.items():
        num_shards = shards[0].num_shards
        present = {file.shard for file in shards}
        num_missing = num_shards - sum(shard < num_shards for shard in present)
        if num_missing:
            # A name may claim any number of shards.
            missing = (number for number in range(num_shards) if number not in present)
            named = ", ".join(f"{number:05}" for number in islice(missing, _NAMED))
            more = ", ..." if num_missing > _NAMED else ""
            raise UserError(
                f"{pattern} must be {num_shards} shards, but {num_missing} of them are missing "
                f"({named}{more}); fetch or make them again, or take the others out of the folder"
            )
    return list(found.values())
