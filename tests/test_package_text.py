"""The readers of formats in packages, on tiny files in each format's true layout."""

import json

from debian import aligned_sentences
from package_text import (
    Block,
    Extraction,
    extract_cataclysm,
    extract_json,
    extract_manual,
    extract_wesnoth,
    pair_blocks,
    plain_text,
    read_catalogues,
)
from raw_files import write_catalogue, write_files

from xling_tf.corpora.records import ResponsePair, TranslationPair


def test_plain_text():
    expected = {
        "_Open the file": "Open the file",
        "打开(_O)": "打开",
        "It is called a file_name; no accelerator.": "It is called a file_name; no accelerator.",
        "female^The <i>brave</i> witch": "The brave witch",
        "Cats &amp; dogs": "Cats & dogs",
        "One<br/>two": "One\n\ntwo",
        "It costs 50% of that.": "It costs 50% of that.",
        "%1$d of %2$d": None,
        "See <ref>dst='x' text='y'</ref>": None,
    }
    assert {message: plain_text(message) for message in expected} == expected


def test_alignment_by_paragraph_then_by_sentence_or_not_at_all():
    text = "It rains. We stay.\n\nGo home."
    pair = TranslationPair(text, "Llueve. Esperamos.\n\nVete a casa.")
    parts = [("It rains.", "Llueve."), ("We stay.", "Esperamos."), ("Go home.", "Vete a casa.")]
    assert list(aligned_sentences(pair, "en", "es")) == [TranslationPair(*part) for part in parts]
    translation = "Llueve y nos quedamos. Vete a casa."
    whole = TranslationPair("It rains. We stay. Go home.", translation)
    pair = TranslationPair(text, translation)
    assert list(aligned_sentences(pair, "en", "es")) == [whole]


def test_a_file_that_cannot_be_read_costs_only_itself(tmp_path, caplog):
    folder = tmp_path / "usr/share/locale/es/LC_MESSAGES"
    write_catalogue(folder / "b.mo", {"a text": "un texto"})
    # The plain locale is preferred to one of a country, and another language is not read.
    for locale in ("es_ES", "de"):
        write_catalogue(
            tmp_path / f"usr/share/locale/{locale}/LC_MESSAGES/b.mo", {"a text": locale}
        )
    for name, content in {"a.mo": b"\xde\x12\x04\x95" + b"\xff" * 40, "c.mo": b""}.items():
        (folder / name).write_bytes(content)
    assert read_catalogues([tmp_path], "es") == {"a text": "un texto"}
    assert sum("left out, because it cannot be read" in line for line in caplog.messages) == 2


def test_messages_in_json_are_paired_by_file_and_keys(tmp_path):
    texts = {
        "en": {"step": {"a": "Open the door", "b": "Close {name} now"}, "title": "A title"},
        # The locale of a country adds what the plain one lacks.
        "es_ES": {"step": {"a": "Abra la puerta", "b": "Cierre {name} ya"}},
        "es": {"step": {"a": "Abre la puerta"}, "title": 1},
    }
    for locale, content in texts.items():
        write_files(tmp_path, {f"lib/x/translations/{locale}.json": json.dumps(content)})
    # The same keys in another file are other messages.
    write_files(tmp_path, {"lib/y/translations/en.json": '{"step": {"a": "Go home now"}}'})
    extraction = extract_json("lib/*/translations/{locale}.json", [tmp_path], "en", "es")
    assert extraction == Extraction(parallel=[TranslationPair("Open the door", "Abre la puerta")])


_SCENARIO = """
[scenario]
    name= _ "The Bridge"
    [story]
        [part]
            story= _ "Long ago there was a bridge."
        [/part]
    [/story]
    [event]
        name=start
        [message]
            speaker=narrator
            message= _ "Night falls."
        [/message]
        # wmllint: a comment [message]
        [message]
            speaker=Konrad
            message= _ "Who said ""halt""?"
        [/message]
        [message]
            speaker=Delfador
            message= _ "I did,
as you see."
        [/message]
    [/event]
    [event]
        [message]
            id=Konrad
            message= _ "Another day."
        [/message]
    [/event]
[/scenario]
"""


def test_wesnoth_package(tmp_path):
    write_files(
        tmp_path, {"usr/share/games/wesnoth/1.16/data/campaigns/x/scenarios/01.cfg": _SCENARIO}
    )
    translations = {'Who said "halt"?': "¿Quién fue?", "I did,\nas you see.": "Yo, como ves."}
    write_catalogue(
        tmp_path / "usr/share/games/wesnoth/1.16/translations/es/LC_MESSAGES/x.mo", translations
    )
    extraction = extract_wesnoth([tmp_path], "en", "es")
    assert set(extraction.parallel) == {TranslationPair(*texts) for texts in translations.items()}
    assert extraction.conversations["es"] == [("¿Quién fue?", "Yo, como ves.")]
    assert extraction.conversations["en"] == [('Who said "halt"?', "I did,\nas you see.")]
    assert ["¿Quién fue?", "Yo, como ves."] in extraction.documents["es"]
    night = ["Night falls.", 'Who said "halt"?', "I did, as you see."]
    assert extraction.documents["en"][:3] == [
        ["Long ago there was a bridge."],
        night,
        ["Another day."],
    ]


_TALK = [
    {
        "type": "talk_topic",
        "id": "TALK_HELLO",
        "dynamic_line": {"npc_female": True, "yes": "Hello, sir.", "no": ["Hi.", "&You nod."]},
        "responses": [
            {"text": "Who are you?", "topic": "TALK_WHO"},
            {"text": "Bye.", "topic": "TALK_DONE"},
        ],
    },
    {"type": "talk_topic", "id": ["TALK_WHO"], "dynamic_line": "Just a guard.", "responses": []},
    {"type": "talk_topic", "id": "TALK_TEST_A", "dynamic_line": "Test!", "responses": []},
    {"type": "npc_class", "id": "NC_GUARD"},
]


def test_cataclysm_package_whose_topics_are_walked_both_ways(tmp_path):
    write_files(
        tmp_path, {"usr/share/games/cataclysm-dda/json/npcs/guard/talk.json": json.dumps(_TALK)}
    )
    messages = {"Who are you?": "¿Quién eres?", "Just a guard.": "Un guardia."}
    write_catalogue(tmp_path / "usr/share/locale/es_ES/LC_MESSAGES/cataclysm-dda.mo", messages)
    extraction = extract_cataclysm([tmp_path], "en", "es")
    answered = [
        (line, answer) for line in ("Hello, sir.", "Hi.") for answer in ("Who are you?", "Bye.")
    ]
    assert extraction.conversations["en"] == [*answered, ("Who are you?", "Just a guard.")]
    assert extraction.conversations["es"] == [ResponsePair("¿Quién eres?", "Un guardia.")]
    assert TranslationPair("Just a guard.", "Un guardia.") in extraction.parallel


_PAGE = """<!DOCTYPE html><html><head><title>Help</title></head><body>
<header><p>LibreOffice Help</p></header><nav><p>Menu</p></nav>
<h1 id="h1"><a name="x"></a>{title}</h1>
<p id="p1">{first} <span class="emph">X</span><span hidden="true" class="MAC">⌘</span>.</p>
<ul><li><p id="p2">{second}</p></li></ul><pre>Sub Main</pre></body></html>"""


def test_blocks_are_paired_by_id_or_by_place():
    ours = [Block("p", "a", "One day."), Block("p", "b", "Two days.")]
    theirs = [Block("p", "b", "Dos días."), Block("p", "c", "Tres días.")]
    pairs = pair_blocks(ours, theirs, ("en", "es"))
    assert pairs == [TranslationPair("Two days.", "Dos días.")]
    ours, theirs = ([block._replace(identity="") for block in page] for page in (ours, theirs))
    assert pair_blocks(ours, theirs, ("en", "es")) == [
        TranslationPair("One day.", "Dos días."),
        TranslationPair("Two days.", "Tres días."),
    ]
    # Pages of another shape or length give nothing.
    for other in (Block("h1", "", "Un día."), Block("p", "", "Un día " * 20)):
        assert not pair_blocks(ours[:1], [other], ("en", "es"))


def test_manual_packages_without_the_frame_of_pages(tmp_path):
    for locale, title, second in (("en", "Paste", "Stay here."), ("es", "Pegar", "Stay here.")):
        page = _PAGE.format(title=title, first=title, second=second)
        write_files(tmp_path, {f"usr/share/help/{locale}/text/a.html": page})
    extraction = extract_manual("usr/share/help/{locale}/text", [tmp_path], "en", "es")
    assert TranslationPair("Paste X.", "Pegar X.") in extraction.parallel
    # What was left in English is no Spanish document.
    assert extraction.documents == {"en": [["Paste X.", "Stay here."]], "es": [["Pegar X."]]}
