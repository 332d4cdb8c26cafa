"""Wikipedia's dumps: a page's XML to the sentences of an article (appendix A.1).

Chidambaram et al. 2018, appendix A.1: articles are split into sentences, and "all article titles and
article section names are treated as sentences inline".
"""

import io
from collections.abc import Collection
from typing import NamedTuple
from xml.etree.ElementTree import ParseError

import mwxml
from mwxml.errors import MalformedXML

from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.sentences import sentences
from xling_tf.corpora.wikitext import prose

_NO_TEXT_NAMESPACES = frozenset({-2, 6, 14})  # media, files, categories
_WIKITEXT = (None, "wikitext")
# What mwxml raises for other XML, and for none.
_NOT_SUCH_XML = (
    *(ParseError, MalformedXML, StopIteration),
    *(AssertionError, AttributeError, TypeError, ValueError),
)


class Page(NamedTuple):
    """A page of a dump.

    Attributes:
        title: With its namespace, where that is not the articles'.
        text: The source of its last revision.
        fault: Why it is no article, or None.
    """

    title: str
    text: str
    fault: str | None


def parse_page(xml: bytes) -> Page:
    """Reads a page of a MediaWiki dump (export-0.10 and its like).

    Args:
        xml: From "<page>" to "</page>".

    Raises:
        MalformedLineError: It is no such XML.
    """
    try:
        # What is not UTF-8 becomes U+FFFD, which costs the sentence it is in.
        page = next(mwxml.Dump.from_page_xml(xml.decode("utf-8", "replace")))
        # A page reads its revisions when they are asked for.
        revisions = list(page)
    except _NOT_SUCH_XML:
        raise MalformedLineError("not a page in MediaWiki's XML") from None
    last = revisions[-1] if revisions else None
    if page.redirect is not None:
        fault = "redirect"
    elif page.namespace != 0:
        fault = "no article, by its namespace"
    elif not last or not last.text or last.model not in _WIKITEXT:
        fault = "no wikitext"
    else:
        fault = None
    return Page(page.title or "", (last.text if last else None) or "", fault)


def file_prefixes(header: bytes) -> list[str]:
    """The names, in lower case, of the namespaces whose links show no text.

    Args:
        header: A dump up to its first page.

    Raises:
        MalformedLineError: It is no such XML.
    """
    try:
        dump = mwxml.Dump.from_file(io.BytesIO(header + b"</mediawiki>"))
        found = dump.site_info.namespaces or ()
    except _NOT_SUCH_XML:
        raise MalformedLineError("no MediaWiki dump: its siteinfo cannot be read") from None
    return [space.name.lower() for space in found if space.id in _NO_TEXT_NAMESPACES]


def article_sentences(page: Page, language: str, file_prefixes: Collection[str] = ()) -> list[str]:
    r"""The sentences of an article, with its title and section names among them.

    Args:
        page: An article.
        language: ISO code.
        file_prefixes: As `file_prefixes` gives them.

    Returns:
        The sentences in order, unfiltered.

    Raises:
        MalformedLineError: As `prose` does.

    Example:
        >>> article_sentences(Page("Ada", "She wrote. \n== Life ==\nBorn. Died.", None), "en")
        ['Ada', 'She wrote.', 'Life', 'Born.', 'Died.']
    """
    found = [normalise(page.title)]
    for block in prose(page.text, file_prefixes):
        found += [block.text] if block.level else sentences(block.text, language)
    return found
