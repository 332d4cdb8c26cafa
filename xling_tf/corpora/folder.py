"""The data folder: the corpora of some languages, and the languages that it has."""

import difflib
from collections.abc import Sequence
from pathlib import Path

from absl import logging

from xling_tf.corpora.cleaning import require_known
from xling_tf.corpora.corpus_files import CorpusFile, discover, group_shards
from xling_tf.corpora.file_corpus import FileCorpus
from xling_tf.corpora.hard_negatives import mined_path, require_mined
from xling_tf.corpora.records import Corpus
from xling_tf.errors import UserError

_ANY = "LANGUAGE"  # in messages


def load_folder(
    folder: Path,
    *,
    source: str,
    targets: Sequence[str],
    all_pairs: bool = False,
    target_inference: bool = False,
    with_mined: bool = False,
) -> list[Corpus]:
    """Finds every corpus of a data folder that serves some language pairs.

    These are the translations between the source and a target language, in either direction of
    the file name, documents, conversations and questions with answers in all these languages, and
    natural language inference in the source language (the paper trains it on English, Chidambaram et
    al. 2019, sec. 3.1). A file `name.en-es.tsv` may come as shards `name.en-es-00000-of-00010.tsv`; they
    are read when the corpora are gone through.

    Args:
        folder: A folder with `parallel`, `documents`, `conversations`, `nli` and `questions` in it; all
            but `parallel` may be missing.
        source: The source language, as "en".
        targets: The target languages, as ["es"].
        all_pairs: Whether translations between target languages are wanted too (Yang et al. 2019, sec.
            3.1); the language that comes first in `targets` is their source.
        target_inference: Whether natural language inference in the target languages is (sec. 4.1).
        with_mined: Whether translations come with their mined hard negatives.

    Returns:
        The corpora, by kind and then by file name.

    Raises:
        UserError: There is no such folder, no translations of a target are in it, two files claim
            the same name, a shard is missing, or mined negatives are wanted and there are none.

    Example:
        >>> corpora = load_folder(Path("xling_tf/corpora/sample"), source="en", targets=["es"])
        >>> {corpus.kind for corpus in corpora} >= {"parallel", "nli"}
        True
    """
    _require_folder(folder, source, targets[0])
    languages = (source, *targets)
    found = list(discover(folder))
    # Of each kind, whether files without the source language are wanted.
    others = {"parallel": all_pairs, "nli": target_inference}
    wanted = [
        file
        for file in found
        if len({*file.languages} & {*languages}) == (2 if file.kind == "parallel" else 1)
        and (source in file.languages or others.get(file.kind, True))
    ]
    for target in targets:
        if not any(file.kind == "parallel" and target in file.languages for file in wanted):
            raise _nothing_found(folder, found, source, target)
    wholes = group_shards(wanted)
    _require_distinct([shards[0] for shards in wholes])
    if with_mined:
        require_mined(folder, source, targets)
    return [_corpus(shards, languages, folder if with_mined else None) for shards in wholes]


def find_targets(folder: Path, *, source: str, all_pairs: bool = False) -> tuple[str, ...]:
    """Finds the languages that a data folder has translations in.

    Args:
        folder: As `load_folder` takes it.
        source: The source language, as "en".
        all_pairs: Whether those between any two languages count, not only those with the source.

    Returns:
        The languages besides the source, in alphabetical order.

    Raises:
        UserError: There is no such folder, or no such language in it.

    Example:
        >>> find_targets(Path("xling_tf/corpora/sample"), source="en")
        ('de', 'es', 'fr', 'zh')
    """
    _require_folder(folder, source, _ANY)
    found = list(discover(folder))
    translated = {
        language
        for file in found
        if file.kind == "parallel" and (all_pairs or source in file.languages)
        for language in file.languages
    }
    if not translated - {source}:
        raise _nothing_found(folder, found, source, _ANY)
    return tuple(sorted(translated - {source}))


def _require_folder(folder: Path, source: str, target: str) -> None:
    if not folder.is_dir():
        what = "a file" if folder.exists() else "missing"
        raise UserError(
            f"the data folder {folder} must be a folder, but is {what}; "
            f"make it with {_layout(source, target)}"
        )


def _require_distinct(files: Sequence[CorpusFile]) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        key = (file.kind, file.name, *sorted(file.languages), file.split)
        if key in seen:
            raise UserError(
                f"every corpus must have a name of its own, but {seen[key]} and {file.pattern} have "
                "the same; delete one of them, or rename it if they differ"
            )
        seen[key] = file.pattern


def _corpus(shards: Sequence[CorpusFile], order: Sequence[str], mined_in: Path | None) -> Corpus:
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


def _nothing_found(
    folder: Path, found: Sequence[CorpusFile], source: str, target: str
) -> UserError:
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
    return (
        f"parallel/NAME.{source}-{target}.tsv (or a Moses pair NAME.{source}-{target}.{source} "
        f"and .{target}), documents/NAME.{source}.txt, conversations/NAME.{source}.tsv, "
        f"nli/NAME.{source}.train.tsv, questions/NAME.{source}.tsv, each plain or .gz, and "
        f"questions/NAME.{source}.json, as SQuAD is"
    )
