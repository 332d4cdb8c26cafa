"""Finds the corpora of a data folder by their file names, and selects those of some languages."""

import dataclasses
import hashlib
import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, permutations
from pathlib import Path
from typing import Any, NamedTuple

from absl import logging

from xling_tf.compressed import PACKED
from xling_tf.config import ALL_LANGUAGES, DataConfig
from xling_tf.corpora.cleaning import require_known
from xling_tf.corpora.readers import (
    MINED_FOLDER,
    Reading,
    mined_path,
    mining_command,
    read_similarity,
    read_similarity_across,
    score_scale,
    with_negatives,
)
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import Corpus, Row
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import NOTES, first_names, read_json_dict

# Everyday sentences, chats, stories and questions, written for this project, for trial runs.
SAMPLE_FOLDER: Path = Path(__file__).parent / "sample"
# The folder into which xling-tf prepare writes the default corpora, and their languages besides
# English.
_PREPARED = Path("data/prepared")
DEFAULT_TARGETS: tuple[str, ...] = ("es", "fr", "de", "zh")
# The hyphen of "pt-BR", where file names need "pt_BR": hyphens separate a pair's languages.
_REGION = re.compile("(?:(?<=[.-][a-z]{2})|(?<=[.-][a-z]{3}))-(?=[A-Z][A-Za-z]{1,3}(?:[.-]|$))")


class CorpusFile(NamedTuple):
    """A file whose name says that it holds a corpus or a shard; or two files of scored pairs, the
    second a translation of the first.
    """

    record_type: str
    name: str
    languages: tuple[str, ...]
    split: str
    paths: tuple[Path, ...]
    read: Callable[..., Reading[Any]]
    shard: int = 0
    num_shards: int = 1

    @property
    def pattern(self) -> str:
        """The path with "*" for the number of the shard, the same for all shards of a corpus."""
        return re.sub(r"-\d+(?=-of-\d+(?:\.|$))", "-*", str(self.paths[0]))


@dataclass(frozen=True, kw_only=True)
class FileCorpus(Corpus):
    """A corpus in one or more files. Reading it warns of each file with lines left out."""

    files: tuple[CorpusFile, ...]  # its shards; source and target may be in the other order
    mined: Path | None = None  # the file of hard negatives

    def version(self) -> str:
        """Returns a digest of the names, sizes and modification times of the files."""
        paths = [path for file in self.files for path in file.paths]
        digest = hashlib.blake2b(digest_size=8)
        for path in [*paths, *([self.mined] if self.mined else [])]:
            message = f"{path} disappeared while it was used ({{error}}); put it back"
            with as_user_error(message, OSError):
                status = path.stat()
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Row]:
        if self.mined is None:
            return self._rows()
        pairs: Iterator[Any] = (pair for pair, _ in self._rows())
        return ((pair, None) for pair in with_negatives(pairs, self.mined))

    def _rows(self) -> Iterator[Row]:
        options = {}
        if self.record_type == "similarity" and len(self.files) > 1:  # one scale for all shards
            options = {"scale": score_scale(path for file in self.files for path in file.paths)}
        readings = [file.read(*file.paths, **options) for file in self.files]
        is_reversed = self.languages != "-".join(self.files[0].languages)
        for reading in readings:
            for record, key in reading:
                yield (type(record)(record[1], record[0]) if is_reversed else record), key
            if reading.malformed:
                logging.warning("%s", reading.summary())
        if not any(reading.num_records for reading in readings):
            raise readings[0].nothing_usable()
        for reading in readings:
            reading.require_few_left_out()


def load_corpora(data: Path | None, config: DataConfig, **options: Any) -> list[Corpus]:
    """Finds the corpora in the languages of a config; see `load_folder`.

    Without a folder, they are the built-in sample if the config asks for it, otherwise the default
    corpora, which `xling-tf prepare` writes to `data/prepared` in the working folder.
    """
    options |= {"source": config.source, "all_pairs": config.all_pairs}
    if data or config.sample:
        return load_folder(data or SAMPLE_FOLDER, targets=config.targets, **options)
    corpora: dict[str, Corpus] = {}
    for target in config.targets:
        folder = _PREPARED / f"{config.source}-{target}"
        if not folder.is_dir():
            raise UserError(
                f"the default corpora of {folder} are missing; prepare them with "
                f"xling-tf prepare --target {target}, or give a folder of corpora"
            )
        for corpus in load_folder(folder, targets=[target], **options):
            # The folders of all pairs hold the same corpora in the source language.
            corpora.setdefault(corpus.title, corpus)
    return list(corpora.values())


def resolve_languages(data: Path | None, config: DataConfig) -> DataConfig:
    """Replaces the target "all" by the languages of the data."""
    if ALL_LANGUAGES not in config.targets:
        return config
    targets = DEFAULT_TARGETS
    if data or config.sample:
        folder = data or SAMPLE_FOLDER
        files = [*discover(folder)]
        pairs = [file.languages for file in files if file.record_type == "parallel"]
        used = [pair for pair in pairs if config.all_pairs or config.source in pair]
        targets = tuple(sorted({*chain.from_iterable(used)} - {config.source}))
        if not targets:
            raise _no_translations(folder, files, config.source, "LANGUAGE")
    logging.info("languages: %s", ", ".join((config.source, *targets)))
    return dataclasses.replace(config, targets=targets)


def corpus_licences(data: Path | None, config: DataConfig) -> dict[str, str]:
    """Returns the packages, versions and licences of the default corpora, by the corpus' name.

    The arguments are those of `load_corpora`. Nothing is known about other corpora.
    """
    folders = [_PREPARED / f"{config.source}-{target}" for target in config.targets]
    packages: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for folder in [data] if data else [] if config.sample else folders:
        for source in read_json_dict(folder / "preparation.json").get("sources", []):
            for package, (version, licence) in source["packages"].items():
                packages[source["name"]][f"{package} {version} ({licence})"] = None
    return {name: ", ".join(listed) for name, listed in packages.items()}


def load_folder(
    folder: Path,
    *,
    source: str,
    targets: Sequence[str],
    all_pairs: bool = False,  # also translations between two targets
    target_inference: bool = False,  # also inference in the targets
    with_mined: bool = False,  # also mined hard negatives; every target must have some
) -> list[Corpus]:
    """Finds the corpora of a data folder in some languages, ordered by type, layout and name.

    They are translations between the source and a target, in either order in the file name; natural
    language inference in the source language (the paper trains on English, Chidambaram et al. 2019,
    sec. 3.1); and all other types in the source and the targets. They are read when they are
    iterated.
    """
    logging.info("corpora of %s", folder)
    languages = (source, *targets)
    files = [*discover(folder)]
    # Whether files without the source language are used.
    without_source = {"parallel": all_pairs, "nli": target_inference}
    used: list[CorpusFile] = []
    for file in files:
        is_known = (
            len({*file.languages} & {*languages}) == 1 + RECORD_TYPES[file.record_type].is_bilingual
        )
        if is_known and (source in file.languages or without_source.get(file.record_type, True)):
            used.append(file)
    _log_unread(folder, files, [file for file in files if file not in used], languages)
    used += _scored_across(used, source)
    for target in targets:
        if not any(file.record_type == "parallel" and target in file.languages for file in used):
            raise _no_translations(folder, files, source, target)
        if with_mined and not any((folder / MINED_FOLDER).glob(f"[!.]*.{source}-{target}.tsv.gz")):
            raise UserError(
                "tasks.translation_ranking.hard_negatives needs files in "
                f"{folder / MINED_FOLDER}, but there is none for {source}-{target}; "
                f"{mining_command(folder, source, target)}, or set it to 0"
            )
    shards: defaultdict[tuple[Any, ...], list[CorpusFile]] = defaultdict(list)
    for file in used:
        shards[file.record_type, file.pattern, file.languages].append(file)
    _require_complete(shards.values())
    corpora = [_corpus(p, languages, folder if with_mined else None) for p in shards.values()]
    if with_mined:
        joined = {corpus.mined for corpus in corpora}
        pairs = tuple(f".{source}-{target}." for target in targets)
        mined = [path for path in _files_of(folder / MINED_FOLDER) if path.suffix != ".json"]
        unmatched = [
            path.name for path in mined if path not in joined and any(p in path.name for p in pairs)
        ]
        _warn_of_unread(folder / MINED_FOLDER, unmatched)
    return [*corpora]


def _scored_across(files: Sequence[CorpusFile], source: str) -> Iterator[CorpusFile]:
    """Pairs files of scored sentences in the source language with translations of equal scores."""
    scored = [file for file in files if file.record_type == "similarity" and file.num_shards == 1]
    for file, other in permutations(scored, 2):
        is_same = (file.name, file.split) == (other.name, other.split)
        if (
            is_same
            and file.languages == (source,)
            and _scores(*file.paths) == _scores(*other.paths)
        ):
            languages, paths = (source, *other.languages), (*file.paths, *other.paths)
            yield file._replace(languages=languages, paths=paths, read=read_similarity_across)


def _scores(path: Path) -> list[int]:
    return [pair.label for pair, _ in read_similarity(path)]


def _require_complete(corpora: Iterable[list[CorpusFile]]) -> None:
    """Raises an error if shards are missing, or if two corpora have the same name."""
    seen: dict[tuple[object, ...], str] = {}
    for files in corpora:
        file = files[0]
        present = {shard.shard for shard in files if shard.shard < file.num_shards}
        if num_missing := file.num_shards - len(present):
            first = next(number for number in range(file.num_shards) if number not in present)
            raise UserError(
                f"{file.pattern} must be {file.num_shards} shards, but {num_missing} of them are "
                f"missing (first {first:05}); download or make them again"
            )
        key = (file.record_type, file.name, *sorted(file.languages), file.split)
        if (other := seen.setdefault(key, file.pattern)) != file.pattern:
            raise UserError(
                f"{other} and {file.pattern} have the same name; delete or rename one of them"
            )


def discover(folder: Path) -> Iterator[CorpusFile]:
    """Finds a data folder's corpus files, in all languages, ordered by type, layout and name."""
    require_data_folder(folder)
    for record_type, description in RECORD_TYPES.items():
        for layout in description.layouts:
            for path in chain.from_iterable(_files_of(folder / place) for place in layout.folders):
                if match := layout.pattern.fullmatch(path.name):
                    parts = match.groupdict()
                    languages = tuple(parts[s] for s in ("source", "target") if s in parts) or (
                        "en",
                    )
                    read = layout.read
                    if "languages" in inspect.signature(read).parameters:
                        read = partial(read, languages=languages)
                    yield CorpusFile(
                        record_type=record_type,
                        name=parts["name"],
                        languages=languages,
                        split=parts.get("split", ""),
                        paths=(path,),
                        read=read,
                        shard=int(parts["shard"] or 0),
                        num_shards=int(parts["of"] or 1),
                    )


def _corpus(
    shards: Sequence[CorpusFile], order: Sequence[str], mined_in: Path | None
) -> FileCorpus:
    file = shards[0]
    languages = "-".join(sorted(file.languages, key=order.index))
    mined = None
    if file.record_type == "parallel" and mined_in is not None:
        mined = mined_path(mined_in, file.name, languages)
        if not mined.is_file():
            logging.warning("%s has no hard negatives: there is no %s", file.pattern, mined)
            mined = None
    return FileCorpus(
        name=file.name,
        record_type=file.record_type,
        languages=languages,
        split=file.split,
        files=tuple(shards),
        mined=mined,
    )


def _log_unread(
    folder: Path,
    files: Sequence[CorpusFile],
    unused: Sequence[CorpusFile],
    languages: Sequence[str],
) -> None:
    """Logs which files are not trained on; warns of those that may be meant for training."""
    in_others = []
    for file in unused:
        try:
            for language in file.languages:
                require_known(language, languages)
            in_others.append(f"{file.record_type}/{Path(file.pattern).name}")
        except UserError as error:
            logging.warning("%s is left out: %s", file.pattern, error)
    if in_others:
        logging.info(
            "not used for %s: %s", ", ".join(languages), first_names([*dict.fromkeys(in_others)])
        )
    known = {path for file in files for path in file.paths}
    places = dict.fromkeys(
        p for t in RECORD_TYPES.values() for layout in t.layouts for p in layout.folders
    )
    known |= {folder / place.split("/")[0] for place in (MINED_FOLDER, *places)}
    for place in places:
        # Tables in eval/ are for evaluation.
        other = re.compile(
            NOTES.pattern + (rf"|.*\.(?i:tsv){PACKED}" if place.startswith("eval/") else "")
        )
        unknown = [path.name for path in _entries(folder / place) if path not in known]
        _warn_of_unread(folder / place, [name for name in unknown if not other.fullmatch(name)])


def _warn_of_unread(folder: Path, names: Sequence[str]) -> None:
    names = [
        f"{name} (call it {new})" if (new := _REGION.sub("_", name)) != name else name
        for name in names
    ]
    if names:
        logging.warning(
            "left out in %s, because their names do not fit: %s; docs/data.md describes the layout",
            folder,
            first_names(names),
        )


def _entries(folder: Path) -> list[Path]:
    """Returns the entries of a folder, sorted, without hidden ones; none if there is no folder."""
    return sorted(p for p in folder.iterdir() if p.name[0] != ".") if folder.is_dir() else []


def _files_of(folder: Path) -> list[Path]:
    # Names that are not UTF-8 have lone surrogates, which cannot be written into a results file.
    return [p for p in _entries(folder) if p.is_file() and not re.search("[\ud800-\udfff]", p.name)]


def require_data_folder(folder: Path) -> None:
    """Raises a `UserError` unless there is such a folder."""
    if not folder.is_dir():
        raise UserError(
            f"expected a folder of data, but {folder} is not a folder; correct the path, or make "
            "one as in docs/data.md"
        )


def _no_translations(
    folder: Path, files: Sequence[CorpusFile], source: str, target: str
) -> UserError:
    pairs = sorted({"-".join(file.languages) for file in files if file.record_type == "parallel"})
    for language in (source, target):
        require_known(language, {"LANGUAGE", *(code for file in files for code in file.languages)})
    return UserError(
        f"the data folder {folder} must have translations for {source}-{target}, as "
        f"parallel/NAME.{source}-{target}.tsv, but has pairs: {', '.join(pairs) or 'none'}; add a "
        "file, or choose other languages"
    )
