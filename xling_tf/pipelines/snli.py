"""SNLI and MultiNLI as they are published to a corpus for each of their splits."""

import argparse
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import IO

from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.line_files import MAX_LINE, Unreadable
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.snli import SNLI_FILE, parse_snli
from xling_tf.errors import UserError
from xling_tf.pipelines.command import Command
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.jobs import prepare
from xling_tf.pipelines.storage import Input, find_inputs, open_raw
from xling_tf.pipelines.streams import DamagedFileError, decompressed, split

# zipfile raises RuntimeError for passwords and for ways of packing that it does not know.
_DAMAGE = (DamagedFileError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)


def extract(path: str, account: Account, *, corpus: str) -> Iterator[Keyed]:
    """Yields the label and the two sentences of the lines that have them, and counts the others.

    Args:
        path: JSON lines, or the archive that holds them.
        account: Gets the counts, and the file's name if it is damaged.
        corpus: Name and split, as "snli_1.0_train".
    """
    counts = account.counts
    try:
        for line in _lines(path, corpus):
            counts["pairs"] += 1
            try:
                pair = parse_snli(_decoded(line))
            except MalformedLineError as error:
                counts[f"pairs dropped: {error}"] += 1
                continue
            texts = normalise(pair.premise), normalise(pair.hypothesis)
            yield Keyed("\t".join(texts), (NLI_LABELS[pair.label], *texts))
    except _DAMAGE as error:
        account.damaged[path] = f"{error} after {counts['pairs']} pairs of {corpus}"


def lines(records: Iterable[Keyed], account: Account) -> Iterator[str]:
    """Yields label TAB premise TAB hypothesis, and counts the labels."""
    for _, (label, *texts) in records:
        account.counts[label] += 1
        yield "\t".join((label, *texts))


def _lines(path: str, corpus: str) -> Iterator[bytes | None]:
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(open_raw(path))
        name = path
        if path.endswith(".zip"):
            archive = stack.enter_context(zipfile.ZipFile(file))
            name = _members(archive)[corpus]
            file = stack.enter_context(archive.open(name))
        for line in split(decompressed(file, name), b"\n", MAX_LINE):
            if line is None or line.strip():
                yield line


def _decoded(line: bytes | None) -> str:
    if line is None:
        raise MalformedLineError(str(Unreadable.TOO_LONG))
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise MalformedLineError(str(Unreadable.NOT_UTF8)) from None


def _members(archive: zipfile.ZipFile) -> dict[str, str]:
    """The names of the files in an archive, by corpus."""
    # What macOS adds has the same file names in a folder of its own.
    names = (name for name in archive.namelist() if not name.startswith("__MACOSX"))
    return {corpus: name for name in names if (corpus := _corpus(name))}


def _corpus(path: str) -> str | None:
    match = SNLI_FILE.fullmatch(re.split(r"[/\\]", path)[-1])
    return match and f"{match['name']}_{match['split']}"


def _held(file: Input) -> list[str]:
    """Names the corpora that a file holds."""
    if not file.path.endswith(".zip"):
        return [corpus] if (corpus := _corpus(file.path)) else []
    try:
        with open_raw(file.path) as raw, zipfile.ZipFile(raw) as archive:
            return sorted(_members(archive))
    except zipfile.BadZipFile as error:
        raise UserError(
            f"{file.path} must be a whole zip archive, but is damaged: {error}; fetch it again"
        ) from error


def _inputs(files: Sequence[Input]) -> dict[str, Input]:
    """The file that holds each corpus."""
    found: dict[str, Input] = {}
    for file in files:
        held = _held(file)
        if not held:
            raise UserError(
                "--input must name the files as published, such as snli_1.0_train.jsonl, "
                f"multinli_1.0_dev_matched.jsonl or their archives, but got {file.path}"
            )
        for corpus in held:
            if corpus in found:
                raise UserError(
                    f"{corpus} must be in one file, but is in {found[corpus].path} and "
                    f"{file.path}; name one of them"
                )
            found[corpus] = file
    return found


def _run(arguments: argparse.Namespace, options: PipelineOptions) -> Account:
    total = Account()
    for corpus, file in _inputs(find_inputs(arguments.input)).items():
        name, _, part = corpus.partition("_1.0_")
        preparation = Preparation(
            corpus=f"nli/{name}_1.0.en.{part}",
            suffix=".tsv.gz",
            settings={},
            extract=partial(extract, corpus=corpus),
            combine=lines,
        )
        account = prepare(
            preparation,
            inputs=[file],
            output=arguments.output,
            num_shards=arguments.num_shards,
            options=options,
        )
        counts = {f"{corpus}: {outcome}": count for outcome, count in account.counts.items()}
        total.add({"counts": counts, "damaged": account.damaged})
    return total


COMMAND = Command(
    description="SNLI and MultiNLI (JSON lines, or the archives) to a corpus for each split.",
    add_arguments=lambda parser: None,
    run=_run,
)
