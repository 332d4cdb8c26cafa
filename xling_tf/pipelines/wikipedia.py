"""Wikipedia's XML dumps to documents of contiguous sentences (appendix A.1)."""

import argparse
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from importlib.metadata import version

from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.corpora.cleaning import sentence_fault
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.wikipedia import Page, article_sentences, file_prefixes, parse_page
from xling_tf.pipelines.command import Command, language_code
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.jobs import prepare
from xling_tf.pipelines.storage import find_inputs, open_raw
from xling_tf.pipelines.streams import DamagedFileError, decompressed, split

_MAX_PAGE = 1 << 24  # bytes; MediaWiki allows 2 MiB, and several revisions may be in a dump
_MIN_SENTENCES = 3  # quick thought needs a sentence with both of its neighbours
_PAGE_BEGIN, _PAGE_END, _DUMP_END = b"<page>", b"</page>", b"</mediawiki>"


def extract(path: str, account: Account, *, language: str) -> Iterator[Keyed]:
    """Yields the runs of contiguous sentences of each article under its title.

    Args:
        path: A MediaWiki XML dump, compressed or not by the name's ending.
        account: Gets the counts, and the file's name if it is damaged.
        language: ISO code.
    """
    counts = account.counts
    try:
        for page, prefixes in _pages(path, account):
            if page.fault:
                counts[f"pages dropped: {page.fault}"] += 1
                continue
            counts["articles"] += 1
            try:
                sentences = article_sentences(page, language, prefixes)
            except MalformedLineError as error:
                counts[f"articles dropped: {error}"] += 1
                continue
            if runs := list(_runs(sentences, language, account)):
                yield Keyed(page.title, runs)
            else:
                counts["articles dropped: nothing left"] += 1
    except (DamagedFileError, MalformedLineError) as error:
        account.damaged[path] = f"{error} after {counts['pages']} pages"


def documents(records: Iterable[Keyed], account: Account) -> Iterator[str]:
    """Yields the lines of documents: their sentences, and a blank line after each document."""
    counts = account.counts
    titles: set[str] = set()
    for title, runs in records:
        if title in titles:
            counts["articles dropped: title seen before"] += 1
            continue
        titles.add(title)
        for run in runs:
            counts["documents"] += 1
            counts["sentences"] += len(run)
            counts["triplets"] += len(run) - _MIN_SENTENCES + 1
            yield from run
            yield ""


def _pages(path: str, account: Account) -> Iterator[tuple[Page, Collection[str]]]:
    counts = account.counts
    prefixes: Collection[str] | None = None
    piece: bytes | None = b""
    with open_raw(path) as file:
        for piece in split(decompressed(file, path), _PAGE_END, _MAX_PAGE):
            if piece is None:
                counts["pages"] += 1
                counts["pages dropped: more than 16 MiB"] += 1
                continue
            header, begin, page = piece.partition(_PAGE_BEGIN)
            if prefixes is None:
                prefixes = file_prefixes(header.partition(_DUMP_END)[0])
            if not begin and (_DUMP_END in piece or not piece.strip()):
                continue
            counts["pages"] += 1
            try:
                yield parse_page(begin + page + _PAGE_END), prefixes
            except MalformedLineError as error:
                counts[f"pages dropped: {error}"] += 1
    if _DUMP_END not in (piece or b""):
        raise DamagedFileError(f"truncated, without {_DUMP_END.decode()}")


def _runs(sentences: Iterable[str], language: str, account: Account) -> Iterator[list[str]]:
    # A sentence that is left out parts the document: its neighbours are no neighbours.
    runs: list[list[str]] = [[]]
    for sentence in sentences:
        if fault := sentence_fault(sentence, language, min_words=1):
            account.counts[f"sentences dropped: {fault}"] += 1
            runs.append([])
        else:
            runs[-1].append(sentence)
    for run in runs:
        if len(run) >= _MIN_SENTENCES:
            yield run
        elif run:
            account.counts["sentences dropped: fewer than three in a row"] += len(run)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language", type=language_code, required=True, help="the dump's language, as en"
    )


def _run(arguments: argparse.Namespace, options: PipelineOptions) -> Account:
    preparation = Preparation(
        corpus=f"documents/wikipedia.{arguments.language}",
        suffix=".txt.gz",
        settings={"sentences": f"sentencex {version('sentencex')}"},
        extract=partial(extract, language=arguments.language),
        combine=documents,
    )
    return prepare(
        preparation,
        inputs=find_inputs(arguments.input),
        output=arguments.output,
        num_shards=arguments.num_shards,
        options=options,
    )


COMMAND = Command(
    description="MediaWiki XML dumps (enwiki-*-pages-articles.xml.bz2) to documents.",
    add_arguments=_add_arguments,
    run=_run,
)
