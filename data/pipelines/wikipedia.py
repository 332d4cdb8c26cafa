"""Documents of contiguous sentences from Wikipedia's dumps (Chidambaram et al. 2018, sec. A.1)."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.articles import Page, article_sentences, file_prefixes, parse_page
from pipelines.common import count, dropping, open_raw
from xling_tf.compressed import unpacked
from xling_tf.corpora.cleaning import has_leftovers
from xling_tf.corpora.line_files import split_blocks
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.errors import UserError

_MAX_PAGE = 1 << 24  # bytes; MediaWiki allows 2 MiB, and a dump may have several revisions
_MIN_SENTENCES = 3  # quick thought needs a sentence with both of its neighbours
_PAGE_BEGIN, _PAGE_END, _DUMP_END = b"<page>", b"</page>", b"</mediawiki>"


class Documents(beam.PTransform[Any, Any]):
    """Makes documents of the articles of dumps, one article for each title."""

    def __init__(self, paths: Sequence[str], language: str) -> None:
        super().__init__()
        self._paths = list(paths)
        self._language = language

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Returns documents, with a line feed after each sentence."""
        return (
            pipeline
            | beam.Create(self._paths)
            | beam.Reshuffle()
            | beam.FlatMap(articles, language=self._language)
            | beam.GroupByKey()
            | beam.FlatMapTuple(documents)
        )


def articles(path: str, language: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yields the title and the runs of contiguous sentences of each article of a dump."""
    for page, prefixes in _pages(path):
        if page.fault:
            count(f"pages dropped: {page.fault}")
            continue
        count("articles")
        with dropping("articles"):
            runs = list(_runs(article_sentences(page, language, prefixes)))
            if not runs:
                raise MalformedLineError("nothing left")
            yield page.title, runs


def _pages(path: str) -> Iterator[tuple[Page, Collection[str]]]:
    """Yields the pages of a dump, each with the prefixes of links to files."""
    prefixes: Collection[str] | None = None
    has_end = False
    with open_raw(path) as file:
        blocks = split_blocks(unpacked(file, path), _PAGE_END, _MAX_PAGE)
        for piece in (piece for block in blocks for piece in block):
            if piece is None:
                has_end = False
                count("pages")
                count("pages dropped: more than 16 MiB")
                continue
            header, begin, page = piece.partition(_PAGE_BEGIN)
            has_end = not begin and _DUMP_END in header
            try:
                if prefixes is None:
                    prefixes = file_prefixes(header.partition(_DUMP_END)[0])
                if begin:
                    count("pages")
                    yield parse_page(begin + page + _PAGE_END), prefixes
            except MalformedLineError as error:
                count(f"pages dropped: {error}")
                prefixes = prefixes or ()
    if not has_end:
        raise UserError(
            f"{path} must be a whole dump of MediaWiki, but does not end with "
            f"{_DUMP_END.decode()}; download it again"
        )


def _runs(sentences: Iterable[str]) -> Iterator[list[str]]:
    # The paper drops no sentence, short or long. Only what no reader sees is dropped here, and
    # splits the document, because its neighbours are not contiguous.
    runs: list[list[str]] = [[]]
    for sentence in sentences:
        if not sentence or has_leftovers(sentence):
            count("sentences dropped: empty, or markup is left")
            runs.append([])
        else:
            runs[-1].append(sentence)
    for run in runs:
        if len(run) >= _MIN_SENTENCES:
            yield run
        elif run:
            count("sentences dropped: fewer than three in a row", len(run))


def documents(title: str, versions: Iterable[list[list[str]]]) -> Iterator[str]:
    """Yields documents of a title's lexicographically first article, the same on every runner."""
    first, *others = sorted(versions)
    if others:
        count("articles dropped: title seen before", len(others))
    for run in first:
        count("documents")
        count("sentences", len(run))
        yield "".join(f"{sentence}\n" for sentence in run)
