"""From a page of MediaWiki's XML to the sentences of an article."""

import pytest
from raw_files import HEADER, page_xml

from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.records import SentenceTriplet
from xling_tf.corpora.wikipedia import (
    Block,
    Page,
    article_sentences,
    file_prefixes,
    parse_page,
    prose,
    wiki40b_sentences,
    wiki40b_triplets,
)


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


# A parser that reads on to the end for all that is not closed takes minutes.
@pytest.mark.parametrize(
    "unit", ["<ref ", "<b>", "[http://a ", "{{a|", "[[a|", "<nowiki>", "'''", "<i><b>", "\n{|", "="]
)
def test_markup_without_end_is_no_obstacle(unit: str):
    assert isinstance(prose(f"Text. {unit * 8000}\n\nMore."), list)


def test_less_than_is_text():
    assert lines("It is 3 < 4 and a <b>bold</b> word <i.") == ["It is 3 < 4 and a bold word <i."]


# As the rows of the dataset are.
ARTICLE = (
    "\n_START_ARTICLE_\nAda Lovelace\n_START_PARAGRAPH_\nAda Lovelace wrote programs. Dr. Babbage "
    "had the machine._NEWLINE_She died in 1852.\n_START_SECTION_\nEarly life\n_START_PARAGRAPH_\n"
    "She was born in London.\n_START_SECTION_\nDeath\n_START_SECTION_\nBurial\n_START_PARAGRAPH_\n"
    "It took place in Hucknall.\n"
)
SENTENCES = [
    "Ada Lovelace",
    "Ada Lovelace wrote programs.",
    "Dr. Babbage had the machine.",
    "She died in 1852.",
    "Early life",
    "She was born in London.",
    "Death",
    "Burial",
    "It took place in Hucknall.",
]


def test_titles_and_section_names_are_sentences_in_their_places():
    assert wiki40b_sentences(ARTICLE, "en") == SENTENCES


def test_a_section_name_is_one_sentence_whatever_is_in_it():
    text = "\n_START_ARTICLE_\nWho? Me!\n_START_PARAGRAPH_\nWho? Me!"
    assert wiki40b_sentences(text, "en") == ["Who? Me!", "Who?", "Me!"]


def test_what_is_no_article_has_no_sentences():
    assert wiki40b_sentences("", "en") == []
    assert wiki40b_sentences("no mark", "en") == []
    assert wiki40b_sentences("\n_START_ARTICLE_\n\n_START_PARAGRAPH_\n_NEWLINE_\n", "en") == []


def test_triplets_are_contiguous():
    triplets = list(wiki40b_triplets(ARTICLE, "en"))
    assert triplets == [SentenceTriplet(*SENTENCES[i : i + 3]) for i in range(7)]


def test_no_triplet_spans_a_sentence_that_is_left_out():
    # The fourth of seven lines is a formula: only the first and the last three are contiguous.
    lines = ["One two.", "Three four.", "Five six.", "= 1 + 2 = 3", "Seven.", "Eight.", "Nine."]
    text = "_START_ARTICLE_\n" + "".join(f"_START_SECTION_\n{line}\n" for line in lines)
    assert list(wiki40b_triplets(text, "en")) == [
        SentenceTriplet("One two.", "Three four.", "Five six."),
        SentenceTriplet("Seven.", "Eight.", "Nine."),
    ]


def test_chinese_sentences_are_split():
    text = "\n_START_ARTICLE_\n北京\n_START_PARAGRAPH_\n北京是中国的首都。它有很多人口。"
    assert wiki40b_sentences(text, "zh") == ["北京", "北京是中国的首都。", "它有很多人口。"]
