"""From a page of MediaWiki's XML to the sentences of an article."""

from contextlib import suppress

import pytest
from raw_files import HEADER, page_xml

from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.wikipedia import Page, article_sentences, file_prefixes, parse_page
from xling_tf.corpora.wikitext import Block, prose


def lines(wikitext: str, *prefixes: str) -> list[str]:
    return [block.text for block in prose(wikitext, prefixes)]


def test_a_page_is_read():
    page = parse_page(page_xml("Some &lt;b&gt;text&lt;/b&gt; &amp; more.").encode())
    assert page == Page("Ada", "Some <b>text</b> & more.", None)


@pytest.mark.parametrize(
    ("xml", "fault"),
    [
        (page_xml("#REDIRECT [[X]]", extra='<redirect title="X" />'), "redirect"),
        (page_xml("Hi.", namespace=1), "no article, by its namespace"),
        (page_xml("p { }", model="css"), "no wikitext"),
        (page_xml(""), "no wikitext"),
    ],
)
def test_pages_that_are_no_articles_say_why(xml: str, fault: str):
    assert parse_page(xml.encode()).fault == fault


@pytest.mark.parametrize(
    "bad",
    [
        "<page><title>cut",
        "<page></page>",
        page_xml("a < b"),
        page_xml("x").replace("<ns>0", "<ns>zero"),
        page_xml("\x00"),
    ],
)
def test_pages_that_are_no_such_xml_are_named(bad: str):
    with pytest.raises(MalformedLineError):
        parse_page(bad.encode())


def test_bytes_that_are_not_utf8_cost_no_page():
    xml = page_xml("one X two").encode().replace(b"X", b"\xff")
    assert parse_page(xml).text == "one \ufffd two"


def test_the_last_revision_counts():
    xml = page_xml("Old.")
    revision = xml[xml.index("<revision>") : xml.index("</page>")]
    xml = xml.replace("</page>", revision.replace("Old.", "New.") + "</page>")
    assert parse_page(xml.encode()).text == "New."


def test_namespaces_without_text_are_read_from_the_header():
    assert file_prefixes(HEADER.encode()) == ["medio", "archivo", "categoría"]
    with pytest.raises(MalformedLineError):
        file_prefixes(b"Once upon a time")


def test_what_is_no_prose_is_dropped():
    text = """{{Ficha|nombre={{x}}}}'''Ada''' (en {{lang|en|x}}; 1815) [[wrote|writes]].<ref>No.</ref>
<!-- no -->[[Archivo:a.jpg|thumb|Un [[pie]] de foto]][[File:b.jpg]]
{| class="wikitable"
! no !! no
|-
| no || no
|}
<gallery>
No.jpg|no
</gallery><math>n+o</math>__NOTOC__
See [http://x.org the site], [http://no.org] and [[Portal:Arte|art]].
[[Categoría:No]][[fr:Non]]"""
    assert lines(text, "archivo", "categoría") == [
        "Ada (en; 1815) writes.",
        "See the site, and art.",
    ]


def test_templates_within_templates_and_open_ones_are_no_text():
    nested = "a{{x|{{y|{{{z|{{w}}}}}}}|<ref>{{q}}</ref>}} b" + "{{x|" * 30 + "}}" * 30 + " c"
    assert lines(nested) == ["a b c"]
    assert lines("one<ref>two <ref name=a/> three<ref>four</ref><!-- five <!-- six --> seven") == [
        "one<ref>two three seven"
    ]


def test_markup_and_entities_become_plain_text():
    text = (
        "H<sub>2</sub>O &amp; ''so'' [[on]]&nbsp;– '''[[x|bold]]'''s.<br/>Next [[:Category:A|a]]."
    )
    assert lines(text) == ["H2O & so on – bolds. Next a."]


def test_items_of_lists_are_paragraphs():
    assert lines("* One\n* Two\n: Three\n<p>Four</p>Five") == [
        "One",
        "Two",
        "Three",
        "Four",
        "Five",
    ]


def test_section_names_stand_in_line_with_their_levels():
    assert prose("Lead.\n== Life ==\n=== ''School'' ===\nText.\n") == [
        Block(0, "Lead."),
        Block(2, "Life"),
        Block(3, "School"),
        Block(0, "Text."),
    ]


def test_sections_without_text_leave_no_name():
    text = "Lead.\n== Gone ==\n{{x}}\n=== Gone too ===\n== Kept ==\nText.\n== References ==\n{{r}}"
    assert lines(text) == ["Lead.", "Kept", "Text."]


def test_an_article_is_its_title_and_its_sentences_in_order():
    page = Page("Ada Lovelace", "Dr. Ada wrote. She counted!\n== Life ==\nShe was born.", None)
    assert article_sentences(page, "en") == [
        "Ada Lovelace",
        "Dr. Ada wrote.",
        "She counted!",
        "Life",
        "She was born.",
    ]


def test_sentences_of_other_languages():
    page = Page("图灵", "他生于伦敦。他喜欢跑步。", None)
    assert article_sentences(page, "zh") == ["图灵", "他生于伦敦。", "他喜欢跑步。"]


@pytest.mark.parametrize(
    "broken", ["{{" * 5000, "[[" * 5000, "{|" * 2000, "<ref>" * 2000, "=" * 9999]
)
def test_broken_markup_is_no_obstacle(broken: str):
    assert isinstance(prose(f"Text. {broken}\n\nMore."), list)


# Each took the parser minutes and more: it reads on to the end for all that is not closed.
@pytest.mark.parametrize(
    "unit", ["<ref ", "<b>", "[http://a ", "{{a|", "[[a|", "<nowiki>", "'''", "<i><b>", "\n{|"]
)
def test_markup_without_end_is_parsed_in_seconds_or_dropped(unit: str):
    with suppress(MalformedLineError):
        list(prose(unit * 8000))


def test_less_than_is_text():
    assert lines("It is 3 < 4 and a <b>bold</b> word <i.") == ["It is 3 < 4 and a bold word <i."]
