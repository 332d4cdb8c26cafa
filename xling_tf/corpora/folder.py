"""The data folder: what its files' names say, the corpora of some languages, and the default ones.

`parallel/NAME.en-es.tsv`, `documents/NAME.en.txt`, `conversations/NAME.en.tsv`,
`nli/NAME.en.train.tsv`, `questions/NAME.en.tsv` and `similarity/NAME.en.tsv`, each plain or compressed, and
as shards `NAME.en-es-00000-of-00010.tsv`; Moses pairs; SNLI, MultiNLI and SQuAD as they are published; the
training parts of graded evaluation sets, `eval/sts/NAME.en.train.tsv` and `eval/senteval/SICK.train.tsv`.
"""

import dataclasses
import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from xling_tf.config import ALL_LANGUAGES, DataConfig
from xling_tf.corpora.cleaning import require_known
from xling_tf.corpora.questions import read_question_sentences, read_questions, read_squad
from xling_tf.corpora.readers import (
    MINED_FOLDER,
    Reading,
    mined_path,
    mining_command,
    read_conversations,
    read_documents,
    read_moses,
    read_nli,
    read_parallel,
    read_similarity,
    with_negatives,
)
from xling_tf.corpora.records import Corpus, Kind, Row, TranslationPair
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.snli import SNLI_FILE, SNLI_FOLDERS, read_snli
from xling_tf.errors import UserError
from xling_tf.files import NOTES, PACKED, first_names

Reader = Callable[..., Reading[Any]]

_LANGUAGE = r"[a-z]{2,3}(?:_[A-Za-z]{2,4})?"
_ONE = rf"(?P<name>[^.].*)\.(?P<source>{_LANGUAGE})"
_PAIR = rf"{_ONE}-(?P<target>{_LANGUAGE})"
_SPLIT = r"\.(?P<split>train|dev(?:_(?:mis)?matched)?|test)"
# As Apache Beam names shards. An empty one is nothing unusual.
_END = r"(?:-(?P<shard>\d{5,})-of-(?P<of>\d{5,}))?(?i:\.%s)" + PACKED
_MOSES = re.compile(rf"{_PAIR}\.(?P<side>(?P=source)|(?P=target)){PACKED}")
_SQUAD = re.compile(rf"{_ONE}(?i:\.json){PACKED}")
_SQUAD_TRAIN = "train-v1.1.json"  # the other published file is for evaluation
_ONE_TABLE = re.compile(_ONE + _END % "tsv")


class _Format(NamedTuple):
    """The files of a kind: a template of their names for messages, a pattern of all names, the reader."""

    template: str
    pattern: re.Pattern[str]
    read: Reader


_FORMATS: dict[Kind, _Format] = {
    "parallel": _Format("NAME.{source}-{target}.tsv", re.compile(_PAIR + _END % "tsv"), read_parallel),
    "documents": _Format("NAME.{source}.txt", re.compile(_ONE + _END % "txt"), read_documents),
    "conversations": _Format("NAME.{source}.tsv", _ONE_TABLE, read_conversations),
    "nli": _Format("NAME.{source}.train.tsv", re.compile(_ONE + _SPLIT + _END % "tsv"), read_nli),
    "questions": _Format("NAME.{source}.tsv", _ONE_TABLE, read_questions),
    "similarity": _Format("NAME.{source}.tsv", _ONE_TABLE, read_similarity),
}
# Conversations that are questions and their answers: the name says which part of a document answers.
_QUESTION_READERS = {"_question_sentence": read_question_sentences, "_question_passage": read_questions}
_SICK = re.compile(rf"(?P<name>SICK)\.train(?i:\.tsv){PACKED}")
# Corpora that are published in a layout of their own, by the folders in which they may lie.
_PUBLISHED: tuple[tuple[Kind, Sequence[str], re.Pattern[str], Reader], ...] = (
    ("nli", SNLI_FOLDERS, SNLI_FILE, read_snli),
    ("similarity", ["eval/sts"], re.compile(rf"{_ONE}\.train(?i:\.tsv){PACKED}"), read_similarity),
    ("similarity", ["eval/senteval"], _SICK, read_similarity),
)
_FOLDERS = (*_FORMATS, MINED_FOLDER, "eval", *(name for name in SNLI_FOLDERS[1:] if name not in _FORMATS))
_ANY = "LANGUAGE"  # in messages
# Where data/default.py puts the default corpora, and the languages that it has beside English.
_PREPARED = Path("data/prepared")
DEFAULT_TARGETS: tuple[str, ...] = ("es", "fr", "de", "zh")


class CorpusFile(NamedTuple):
    """A file that its name tells to be a corpus, or a shard of one; of a Moses pair both files."""

    kind: Kind
    name: str
    languages: tuple[str, ...]
    split: str
    paths: tuple[Path, ...]
    read: Reader
    shard: int = 0
    num_shards: int = 1

    @property
    def pattern(self) -> str:
        """The path, which all shards of a corpus share but for their numbers."""
        return re.sub(r"-\d+(?=-of-\d+\.)", "-*", str(self.paths[0]))


@dataclass(frozen=True, kw_only=True)
class FileCorpus(Corpus):
    """Records of the shards of a file, of which `mined` may hold the hard negatives.

    A warning is logged for each file with lines left out. With `is_reversed`, source and target
    change places.
    """

    shards: tuple[tuple[Path, ...], ...]
    read: Reader
    is_reversed: bool = False
    mined: Path | None = None

    def version(self) -> str:
        """Tells the files as they are now from others, by their names, sizes and times."""
        paths = [path for shard in self.shards for path in shard]
        digest = hashlib.blake2b(digest_size=8)
        for path in [*paths, *([self.mined] if self.mined else [])]:
            try:
                status = path.stat()
            except OSError as error:
                raise UserError(
                    f"{path} must stay where it is while it is used, but is not there now "
                    f"({error.strerror}); bring it back, or start again without it"
                ) from error
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows of shard after shard, or raises a `UserError` that says what is wrong."""
        if self.mined is None:
            return self._rows()
        pairs = (record for record, _ in self._rows() if isinstance(record, TranslationPair))
        return ((pair, None) for pair in with_negatives(pairs, self.mined))

    def _rows(self) -> Iterator[Row]:
        readings = [self.read(*paths) for paths in self.shards]
        for reading in readings:
            for record, group in reading:
                if self.is_reversed:
                    yield TranslationPair(record.target, record.source), group
                else:
                    yield record, group
            if reading.malformed:
                logging.warning("%s", reading.summary())
        if not any(reading.num_records for reading in readings):
            raise readings[0].nothing_usable()


def load_corpora(
    data: Path | None,
    config: DataConfig,
    *,
    with_mined: bool = False,
    target_inference: bool = False,
) -> list[Corpus]:
    """Finds the corpora of languages that `resolve_languages` gave, in a data folder or the default ones.

    The default corpora are where data/default.py puts them, in `data/prepared` of the working folder.
    """
    load = partial(
        load_folder,
        source=config.source,
        all_pairs=config.all_pairs,
        target_inference=target_inference,
        with_mined=with_mined,
    )
    if data or config.sample:
        return load(data or SAMPLE_FOLDER, targets=config.targets)
    corpora: dict[str, Corpus] = {}
    for target in config.targets:
        folder = _PREPARED / f"{config.source}-{target}"
        if not folder.is_dir():
            raise UserError(
                f"the default corpora are expected in {folder}, which is missing; prepare them with "
                f"python data/default.py --target {target}, or give corpora with --data DIR"
            )
        for corpus in load(folder, targets=[target]):
            # Every pair's folder has texts in the source language, largely the same ones.
            corpora.setdefault(corpus.title, corpus)
    return list(corpora.values())


def resolve_languages(data: Path | None, config: DataConfig) -> DataConfig:
    """Puts the languages that the data (by default the default corpora) have in the place of "all".

    Example:
        >>> resolve_languages(None, DataConfig(targets=("all",))).targets
        ('es', 'fr', 'de', 'zh')
    """
    if ALL_LANGUAGES not in config.targets:
        return config
    targets = DEFAULT_TARGETS
    if data or config.sample:
        folder = data or SAMPLE_FOLDER
        _require_folder(folder, config.source, _ANY)
        found = list(discover(folder))
        parallel = [file.languages for file in found if file.kind == "parallel"]
        wanted = [pair for pair in parallel if config.all_pairs or config.source in pair]
        targets = tuple(sorted({*chain.from_iterable(wanted)} - {config.source}))
        if not targets:
            raise _nothing_found(folder, found, config.source, _ANY)
    logging.info("languages: %s", ", ".join((config.source, *targets)))
    return dataclasses.replace(config, targets=targets)


def load_folder(
    folder: Path,
    *,
    source: str,
    targets: Sequence[str],
    all_pairs: bool = False,
    target_inference: bool = False,
    with_mined: bool = False,
) -> list[Corpus]:
    """Finds every corpus of a data folder that serves some language pairs, by kind and then by name.

    These are the translations between the source and a target language, in either direction of
    the file name, documents, conversations, questions with answers and graded pairs in all these languages,
    and natural language inference in the source language (the paper trains it on English, Chidambaram et
    al. 2019, sec. 3.1). They are read when the corpora are gone through.

    Example:
        >>> corpora = load_folder(Path("xling_tf/corpora/sample"), source="en", targets=["es"])
        >>> {corpus.kind for corpus in corpora} >= {"parallel", "nli"}
        True
    """
    logging.info("corpora of %s", folder)
    _require_folder(folder, source, targets[0])
    languages = (source, *targets)
    found = list(discover(folder))
    # Of each kind, whether files without the source language are wanted.
    others = {"parallel": all_pairs, "nli": target_inference}
    wanted: list[CorpusFile] = []
    unused: list[CorpusFile] = []
    for file in found:
        is_ours = len({*file.languages} & {*languages}) == (2 if file.kind == "parallel" else 1)
        is_wanted = is_ours and (source in file.languages or others.get(file.kind, True))
        (wanted if is_wanted else unused).append(file)
    _log_unread(folder, found, unused, languages)
    for target in targets:
        if not any(file.kind == "parallel" and target in file.languages for file in wanted):
            raise _nothing_found(folder, found, source, target)
        if with_mined and not any((folder / MINED_FOLDER).glob(f"[!.]*.{source}-{target}.tsv.gz")):
            raise UserError(
                f"tasks.hard_negatives needs mined files in {folder / MINED_FOLDER}, but there is none "
                f"for {source}-{target}; {mining_command(folder, source, target)}, or set it to 0"
            )
    shards: defaultdict[tuple[Kind, str], list[CorpusFile]] = defaultdict(list)
    for file in wanted:
        shards[file.kind, file.pattern].append(file)
    seen: dict[tuple[object, ...], str] = {}
    for (_, pattern), files in shards.items():
        file = files[0]
        present = {each.shard for each in files if each.shard < file.num_shards}
        if num_missing := file.num_shards - len(present):
            # A name may claim any number of shards, so that not all of them are named.
            first = next(number for number in range(file.num_shards) if number not in present)
            raise UserError(
                f"{pattern} must be {file.num_shards} shards, but {num_missing} of them are missing "
                f"(the first is {first:05}); fetch or make them again, or take the others out of the folder"
            )
        other = seen.setdefault((file.kind, file.name, *sorted(file.languages), file.split), pattern)
        if other != pattern:
            raise UserError(
                f"every corpus must have a name of its own, but {other} and {pattern} have the "
                "same; delete one of them, or rename it if they differ"
            )
    corpora = [_corpus(files, languages, folder if with_mined else None) for files in shards.values()]
    if with_mined:
        used = {corpus.mined for corpus in corpora}
        pairs = tuple(f".{source}-{target}." for target in targets)
        mined = [path for path in _files_of(folder / MINED_FOLDER) if path.suffix != ".json"]
        if idle := [path.name for path in mined if path not in used and any(p in path.name for p in pairs)]:
            _warn_of_unread(folder / MINED_FOLDER, idle, "what data/mine.py makes of parallel/")
    return [*corpora]


def discover(folder: Path) -> Iterator[CorpusFile]:
    """Finds the corpus files of a data folder, in all languages, by kind and then by name."""
    for kind, (_, pattern, read) in _FORMATS.items():
        for path in _files_of(folder / kind):
            if match := pattern.fullmatch(path.name):
                file = _corpus_file(kind, match, read, path)
                yield file
                for ending, read_answers in _QUESTION_READERS.items():
                    if kind == "conversations" and file.name.endswith(ending):
                        yield file._replace(kind="questions", read=read_answers)
            elif kind == "parallel" and (match := _MOSES.fullmatch(path.name)):
                yield from _moses_file(path, match)
            elif kind == "questions" and (match := _SQUAD.fullmatch(path.name)):
                yield _corpus_file(kind, match, partial(read_squad, language=match["source"]), path)
    for kind, places, pattern, read in _PUBLISHED:
        for path in chain.from_iterable(_files_of(folder / place) for place in places):
            if match := pattern.fullmatch(path.name):
                yield _corpus_file(kind, match, read, path)
    read_english = partial(read_squad, language="en")
    for place in (".", "questions"):
        if (path := folder / place / _SQUAD_TRAIN).is_file():
            yield CorpusFile("questions", "squad_train", ("en",), "", (path,), read_english)


def _log_unread(
    folder: Path, found: Sequence[CorpusFile], unused: Sequence[CorpusFile], languages: Sequence[str]
) -> None:
    """Logs which files of a folder are not trained on, as a warning if they may be meant for training."""
    in_others = []
    for file in unused:
        try:
            for language in file.languages:
                require_known(language, languages)
            in_others.append(f"{file.kind}/{Path(file.pattern).name}")
        except UserError as error:
            logging.warning("%s is not read: %s", file.pattern, error)
    if in_others:
        logging.info("not used for %s: %s", ", ".join(languages), first_names([*dict.fromkeys(in_others)]))
    known = {path for file in found for path in file.paths}
    expected = {".": f"the folders {', '.join(_FOLDERS)}"}
    expected |= dict.fromkeys(SNLI_FOLDERS[1:], "the files as published")
    expected |= {place: "tables, NAME.tsv" for _, places, *_ in _PUBLISHED[1:] for place in places}
    pair = {"source": languages[0], "target": languages[-1]}
    expected |= {kind: file.template.format(**pair) for kind, file in _FORMATS.items()}
    for place, names in expected.items():
        strange = []
        for path in _entries(folder / place):
            is_layout = place == "." and path.name in _FOLDERS
            is_table = place.startswith("eval/") and re.search(rf"(?i)\.tsv{PACKED}$", path.name)
            if path in known or NOTES.fullmatch(path.name) or (is_layout and path.is_dir()) or is_table:
                continue
            what = "a folder" if path.is_dir() else "" if path.is_file() else "no file"
            if is_layout:
                what = "no folder"
            elif place == "." and (close := difflib.get_close_matches(path.name.lower(), _FOLDERS, 1, 0.8)):
                what = f"did you mean {close[0]}?"
            strange.append(path.name + (f" ({what})" if what else ""))
        if strange:
            _warn_of_unread(folder / place, strange, names)


def _warn_of_unread(folder: Path, names: Sequence[str], expected: str) -> None:
    logging.warning("not read in %s: %s; expected there: %s", folder, first_names(names), expected)


def _corpus_file(kind: Kind, match: re.Match[str], read: Reader, *paths: Path) -> CorpusFile:
    parts = match.groupdict()
    languages = tuple(parts[side] for side in ("source", "target") if side in parts) or ("en",)
    shard, num_shards = int(parts.get("shard") or 0), int(parts.get("of") or 1)
    return CorpusFile(kind, match["name"], languages, parts.get("split", ""), paths, read, shard, num_shards)


def _moses_file(path: Path, match: re.Match[str]) -> Iterator[CorpusFile]:
    # The source side stands for the pair; the target side is looked at so that a source side
    # that is missing is noticed as well.
    languages = (match["source"], match["target"])
    other = languages[match["side"] == languages[0]]
    stem = f"{match['name']}.{'-'.join(languages)}.{other}"
    partners = [p for p in _files_of(path.parent) if re.fullmatch(re.escape(stem) + PACKED, p.name)]
    if len(partners) != 1:
        came = " and ".join(partner.name for partner in partners) or "missing"
        raise UserError(
            f"{path} must have its translation in one file, {path.with_name(stem)} (plain or compressed), "
            f"but it is {came}; add it, or take the others out of the folder"
        )
    if match["side"] == languages[0]:
        yield _corpus_file("parallel", match, read_moses, path, *partners)


def _entries(folder: Path) -> list[Path]:
    """The entries of a folder, sorted, without hidden ones; none if there is no such folder."""
    if not folder.is_dir():
        return []
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] != ".")
    except OSError as error:
        raise UserError(
            f"{folder} must be a readable folder, but is not ({error.strerror}); correct its permissions"
        ) from error


def _files_of(folder: Path) -> list[Path]:
    # Names that are not UTF-8 have lone surrogates, which cannot be written into a results file.
    return [
        path for path in _entries(folder) if path.is_file() and not re.search("[\ud800-\udfff]", path.name)
    ]


def _require_folder(folder: Path, source: str, target: str) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "missing"
        raise UserError(
            f"the data folder {folder} must be a folder, but is {what}; "
            f"make it with {_layout(source, target)}"
        )


def _corpus(shards: Sequence[CorpusFile], order: Sequence[str], mined_in: Path | None) -> FileCorpus:
    file = shards[0]
    ordered = tuple(sorted(file.languages, key=order.index))
    languages = "-".join(ordered)
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
        is_reversed=ordered != file.languages,
        mined=mined,
    )


def _nothing_found(folder: Path, found: Sequence[CorpusFile], source: str, target: str) -> UserError:
    pair = f"{source}-{target}"
    pairs = sorted({"-".join(file.languages) for file in found if file.kind == "parallel"})
    others = sorted({file.languages[0] for file in found if file.kind != "parallel"})
    for language in (source, target):
        require_known(language, {_ANY, *(code for file in found for code in file.languages)})
    close = pairs if len(pairs) == 1 else difflib.get_close_matches(pair, pairs, cutoff=0.75)
    return UserError(
        f"the data folder {folder} must have translations for {pair}, but has pairs: "
        f"{', '.join(pairs) or 'none'}; other texts in: {', '.join(others) or 'none'}; "
        + (f"did you mean --pair {close[0]}? " if close else "")
        + f"The layout is {_layout(source, target)}"
    )


def _layout(source: str, target: str) -> str:
    pair = {"source": source, "target": target}
    names = (f"{kind}/{file.template.format(**pair)}" for kind, file in _FORMATS.items())
    return f"{', '.join(names)}, each plain or compressed (.gz, .bz2, .xz, .zst)"
