"""From a page of MediaWiki's XML to the sentences of an article."""

import pytest
from pipelines.articles import Page, article_sentences, parse_page, prose
from raw_files import page_xml

from xling_tf.corpora.readers import MalformedLineError


def lines(wikitext: str, *prefixes: str) -> list[str]:
    return [block.text for block in prose(wikitext, prefixes)]


def test_the_last_revision_is_read_whatever_its_bytes():
    xml = page_xml("Some &lt;b&gt;text&lt;/b&gt; &amp; X.")
    revision = xml[xml.index("<revision>") : xml.index("</page>")]
    xml = xml.replace("<revision>", revision.replace("Some", "Old") + "<revision>", 1)
    page = parse_page(xml.encode().replace(b"X", b"\xff"))
    assert page == Page("Ada", "Some <b>text</b> & \ufffd.", None)


def test_pages_that_are_no_articles_say_why():
    for page in (page_xml("p { }", model="css"), page_xml("")):
        assert parse_page(page.encode()).fault == "no wikitext"
    for bad in ("<page><title>cut", "<page></page>", page_xml("\x00")):
        with pytest.raises(MalformedLineError):
            parse_page(bad.encode())


def test_what_is_no_prose_is_dropped():
    text = """{{Ficha|nombre={{x}}}}'''Ada''' (en {{lang|en|x}}; 1815) [[wrote|writes]].<ref>n</ref>
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


NESTED = "a{{x|{{y|{{{z|{{w}}}}}}}|<ref>{{q}}</ref>}} b" + "{{x|" * 30 + "}}" * 30 + " c"


def test_markup_becomes_plain_text():
    expected = {
        NESTED: ["a b c"],
        "one<ref>two <ref name=a/> three<ref>four</ref><!-- five <!-- six --> seven": [
            "one<ref>two three seven"
        ],
        "H<sub>2</sub>O &amp; ''so'' [[on]]&nbsp;– '''[[x|bold]]'''s.<br/>A [[:Category:A|b]].": [
            "H2O & so on – bolds. A b."
        ],
        "It is 3 < 4 and a <b>bold</b> word <i.": ["It is 3 < 4 and a bold word <i."],
        "* One\n* Two\n: Three\n<p>Four</p>Five": ["One", "Two", "Three", "Four", "Five"],
        # Sections without text leave no name.
        "Lead.\n== Gone ==\n{{x}}\n=== Gone too ===\n== Kept ==\nText.\n== References ==\n{{r}}": [
            "Lead.",
            "Kept",
            "Text.",
        ],
    }
    assert {wikitext: lines(wikitext) for wikitext in expected} == expected


def test_an_article_is_its_title_section_names_and_sentences_in_order():
    page = Page("图灵", "他生于伦敦。他喜欢跑步。\n== 生平 ==\n=== ''早年'' ===\n他上学。", None)
    sentences = ["图灵", "他生于伦敦。", "他喜欢跑步。", "生平", "早年", "他上学。"]
    assert article_sentences(page, "zh") == sentences


def test_markup_without_end_is_no_obstacle():
    # A parser that reads on to the end for all that is not closed takes minutes.
    for unit in (
        "<ref ",
        "<b>",
        "[http://a ",
        "{{a|",
        "[[a|",
        "<nowiki>",
        "'''",
        "<i><b>",
        "\n{|",
        "=",
    ):
        assert isinstance(prose(f"Text. {unit * 8000}\n\nMore."), list)
