"""From a page of MediaWiki's XML to the sentences of an article."""

import pytest
from pipelines.articles import Page, article_sentences, file_prefixes, parse_page, prose
from raw_files import HEADER, page_xml

from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.records import SentenceTriplet
from xling_tf.corpora.tfds import wiki40b_sentences, wiki40b_triplets


def lines(wikitext: str, *prefixes: str) -> list[str]:
    return [block.text for block in prose(wikitext, prefixes)]


def test_the_last_revision_is_read_whatever_its_bytes():
    xml = page_xml("Some &lt;b&gt;text&lt;/b&gt; &amp; X.")
    revision = xml[xml.index("<revision>") : xml.index("</page>")]
    xml = xml.replace("<revision>", revision.replace("Some", "Old") + "<revision>", 1)
    page = parse_page(xml.encode().replace(b"X", b"\xff"))
    assert page == Page("Ada", "Some <b>text</b> & \ufffd.", None)


def test_pages_that_are_no_articles_say_why():
    expected = {
        page_xml("#REDIRECT [[X]]", extra='<redirect title="X" />'): "redirect",
        page_xml("Hi.", namespace=1): "no article, by its namespace",
        page_xml("p { }", model="css"): "no wikitext",
        page_xml(""): "no wikitext",
    }
    assert {xml: parse_page(xml.encode()).fault for xml in expected} == expected
    for bad in (
        "<page><title>cut",
        "<page></page>",
        page_xml("a < b"),
        page_xml("x").replace("<ns>0", "<ns>zero"),
        page_xml("\x00"),
    ):
        with pytest.raises(MalformedLineError):
            parse_page(bad.encode())


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


NESTED = "a{{x|{{y|{{{z|{{w}}}}}}}|<ref>{{q}}</ref>}} b" + "{{x|" * 30 + "}}" * 30 + " c"


def test_markup_becomes_plain_text():
    expected = {
        NESTED: ["a b c"],
        "one<ref>two <ref name=a/> three<ref>four</ref><!-- five <!-- six --> seven": [
            "one<ref>two three seven"
        ],
        "H<sub>2</sub>O &amp; ''so'' [[on]]&nbsp;– '''[[x|bold]]'''s.<br/>Next [[:Category:A|a]].": [
            "H2O & so on – bolds. Next a."
        ],
        "It is 3 < 4 and a <b>bold</b> word <i.": ["It is 3 < 4 and a bold word <i."],
        "* One\n* Two\n: Three\n<p>Four</p>Five": ["One", "Two", "Three", "Four", "Five"],
        # Sections without text leave no name.
        "Lead.\n== Gone ==\n{{x}}\n=== Gone too ===\n== Kept ==\nText.\n== References ==\n{{r}}": [
            *("Lead.", "Kept", "Text.")
        ],
    }
    assert {wikitext: lines(wikitext) for wikitext in expected} == expected


def test_an_article_is_its_title_section_names_and_sentences_in_order():
    text = "Dr. Ada wrote. She counted!\n== Life ==\n=== ''School'' ===\nShe was born."
    sentences = ["Dr. Ada wrote.", "She counted!", "Life", "School", "She was born."]
    assert [block.level for block in prose(text)] == [0, 2, 3, 0]
    assert article_sentences(Page("Ada L.", text, None), "en") == ["Ada L.", *sentences]
    page = Page("图灵", "他生于伦敦。他喜欢跑步。", None)
    assert article_sentences(page, "zh") == ["图灵", "他生于伦敦。", "他喜欢跑步。"]


def test_markup_without_end_is_no_obstacle():
    # A parser that reads on to the end for all that is not closed takes minutes.
    for unit in ("<ref ", "<b>", "[http://a ", "{{a|", "[[a|", "<nowiki>", "'''", "<i><b>", "\n{|", "="):
        assert isinstance(prose(f"Text. {unit * 8000}\n\nMore."), list)
    with pytest.raises(MalformedLineError, match="thousands of digits"):
        prose(f"Text &#{'9' * 5000};.")


# As the rows of the dataset are.
ARTICLE = (
    "\n_START_ARTICLE_\nAda Lovelace\n_START_PARAGRAPH_\nAda wrote programs. Dr. Babbage had the machine."
    "_NEWLINE_She died in 1852.\n_START_SECTION_\nDeath\n_START_SECTION_\nBurial\n_START_PARAGRAPH_\n"
    "It took place in Hucknall.\n"
)
SENTENCES = [
    *("Ada Lovelace", "Ada wrote programs.", "Dr. Babbage had the machine.", "She died in 1852."),
    *("Death", "Burial", "It took place in Hucknall."),
]


def test_wiki40b_is_read_in_order_and_titles_are_one_sentence_each():
    assert wiki40b_sentences(ARTICLE, "en") == SENTENCES
    triplets = list(wiki40b_triplets(ARTICLE, "en"))
    assert triplets == [SentenceTriplet(*SENTENCES[i : i + 3]) for i in range(5)]
    text = "\n_START_ARTICLE_\nWho? Me!\n_START_PARAGRAPH_\nWho? Me!"
    assert wiki40b_sentences(text, "en") == ["Who? Me!", "Who?", "Me!"]
    empty = "\n_START_ARTICLE_\n\n_START_PARAGRAPH_\n_NEWLINE_\n"
    assert wiki40b_sentences(empty, "en") == wiki40b_sentences("no mark", "en") == []


def test_no_triplet_spans_a_sentence_that_is_left_out():
    # The fourth of seven lines is a formula: only the first and the last three are contiguous.
    lines = ["One two.", "Three four.", "Five six.", "= 1 + 2 = 3", "Seven.", "Eight.", "Nine."]
    text = "_START_ARTICLE_\n" + "".join(f"_START_SECTION_\n{line}\n" for line in lines)
    assert list(wiki40b_triplets(text, "en")) == [
        SentenceTriplet("One two.", "Three four.", "Five six."),
        SentenceTriplet("Seven.", "Eight.", "Nine."),
    ]
