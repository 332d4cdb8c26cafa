"""The data folder: what a corpus file's name says, and the corpora of a language pair."""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from xling_tf.corpora.corpus import Corpus, Kind
from xling_tf.corpora.file_corpus import FileCorpus, Reader
from xling_tf.corpora.hard_negatives import mined_path, require_mined
from xling_tf.corpora.readers import (
    read_conversations,
    read_documents,
    read_moses,
    read_nli,
    read_parallel,
)
from xling_tf.corpora.snli import SNLI_FILE, SNLI_FOLDERS, read_snli
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
_NAMED = 5  # missing shards in a message
_DATA_ENDINGS = (".tsv", ".txt", ".jsonl", ".gz")


@dataclass(frozen=True, kw_only=True)
class _File:
    name: str
    kind: Kind
    languages: tuple[str, ...]
    split: str = ""
    paths: tuple[Path, ...]  # of a Moses pair both
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
)


def load_folder(
    folder: Path, *, source: str, targets: Sequence[str], with_mined: bool = False
) -> list[Corpus]:
    """Finds every corpus of a data folder that serves some language pairs.

    These are the translations between the source and a target language, in either direction of
    the file name, documents and conversations in all these languages, and natural language
    inference in the source language (the paper trains it on English, Chidambaram et al. 2019, sec.
    3.1). A file `name.en-es.tsv` may come as shards `name.en-es-00000-of-00010.tsv`; they are read when
    the corpora are gone through.

    Args:
        folder: A folder with `parallel`, `documents`, `conversations` and `nli` in it; all but
            `parallel` may be missing.
        source: The source language, as "en".
        targets: The target languages, as ["es"].
        with_mined: Whether translations come with their mined hard negatives.

    Returns:
        The corpora, by kind and then by file name.

    Raises:
        UserError: There is no such folder, no translations of a pair are in it, two files claim
            the same name, a shard is missing, or mined negatives are wanted and there are none.

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
    wholes = _wholes(wanted)
    _require_distinct([shards[0] for shards in wholes])
    if with_mined:
        require_mined(folder, source, targets)
    return [_corpus(shards, source, folder if with_mined else None) for shards in wholes]


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
                    paths=(path,),
                    read=form.read,
                    shard=int(parts["shard"] or 0),
                    num_shards=int(parts["of"] or 1),
                )
            elif form.kind == "parallel" and (match := _MOSES.fullmatch(path.name)):
                yield from _moses_file(path, match)
            elif path.name.endswith(_DATA_ENDINGS) and not SNLI_FILE.fullmatch(path.name):
                logging.warning("%s is not read: its name is not of the layout", path)
    for place in SNLI_FOLDERS:
        for path in _files(folder / place):
            if match := SNLI_FILE.fullmatch(path.name):
                yield _File(
                    name=match["name"],
                    kind="nli",
                    languages=("en",),
                    split=match["split"],
                    paths=(path,),
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
            paths=(path, partner),
            read=read_moses,
        )


def _serves(file: _File, source: str, targets: Sequence[str]) -> bool:
    if file.kind == "parallel":
        return source in file.languages and any(target in file.languages for target in targets)
    if file.kind == "nli":
        return file.languages == (source,)
    return file.languages[0] in (source, *targets)


def _wholes(files: Sequence[_File]) -> list[list[_File]]:
    """Puts the shards of each corpus together, in the order of their numbers."""
    wholes: defaultdict[str, list[_File]] = defaultdict(list)
    for file in files:
        wholes[file.pattern].append(file)
    for pattern, shards in wholes.items():
        num_shards = shards[0].num_shards
        missing = sorted(set(range(num_shards)) - {file.shard for file in shards})
        if missing:
            named = ", ".join(f"{number:05}" for number in missing[:_NAMED])
            more = ", ..." if len(missing) > _NAMED else ""
            raise UserError(
                f"{pattern} must be {num_shards} shards, but {len(missing)} of them are missing "
                f"({named}{more}); fetch or make them again, or take the others out of the folder"
            )
    return list(wholes.values())


def _require_distinct(files: Sequence[_File]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        key = (file.kind, file.name, *sorted(file.languages), file.split)
        if key in seen:
            raise UserError(
                f"every corpus must have a name of its own, but {seen[key]} and {file.pattern} have "
                "the same; delete one of them, or rename it if they differ"
            )
        seen[key] = file.pattern


def _corpus(shards: Sequence[_File], source: str, mined_in: Path | None) -> Corpus:
    file = shards[0]
    is_reversed = file.kind == "parallel" and file.languages[0] != source
    languages = "-".join(file.languages[::-1] if is_reversed else file.languages)
    mined = None
    if file.kind == "parallel" and mined_in is not None:
        mined = mined_path(mined_in, file.name, languages)
        if not mined.is_file():
            logging.warning("%s has no hard negatives: there is no %s", file.pattern, mined)
            mined = None
    return FileCorpus(
        name=file.name,
        kind=file.kind,
        languages=languages,
        split=file.split,
        shards=tuple(shard.paths for shard in shards),
        read=file.read,
        is_reversed=is_reversed,
        mined=mined,
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
