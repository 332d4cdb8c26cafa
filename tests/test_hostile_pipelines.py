"""Pipelines and package readers on damaged dumps: counted or named, never a crash, and in bounded time."""

import io
import json
import logging as std_logging
import zipfile
from pathlib import Path

import polib
import pytest
from hostile_bytes import FEW, damaged, odd_json
from hypothesis import given
from hypothesis import strategies as st
from raw_files import HEADER, comment_line, page_xml

from xling_tf.corpora.debian.cataclysm import extract_cataclysm
from xling_tf.corpora.debian.gettext import extract_gettext
from xling_tf.corpora.debian.manuals import manual_extractor
from xling_tf.corpora.debian.packages import _remembered
from xling_tf.corpora.debian.prepare import _preparation
from xling_tf.corpora.debian.sword import extract_bibles
from xling_tf.corpora.debian.unpacking import unpacked_version
from xling_tf.corpora.debian.wesnoth import extract_wesnoth
from xling_tf.corpora.wikitext import prose
from xling_tf.errors import UserError
from xling_tf.pipelines import bitext, reddit, snli, wikipedia
from xling_tf.pipelines.common import Account
from xling_tf.pipelines.storage import read_json

DUMP = f"{HEADER}{page_xml('One. Two. Three.')}{page_xml('One. Two. Three.', title='B')}</mediawiki>".encode()
COMMENTS = (comment_line() + b"\n") * 2
PAIR = json.dumps({"gold_label": "neutral", "sentence1": "A man.", "sentence2": "He."}).encode()


def extracted(extract, path: Path, **options) -> tuple[list, Account]:
    account = Account()
    records = list(extract(str(path), account, **options))
    json.dumps([records, account.as_json()]).encode()
    str(records).encode()  # no half characters
    assert all(count > 0 for count in account.counts.values())
    return records, account


@pytest.mark.parametrize("ending", ["", ".gz", ".bz2", ".xz", ".zst"])
@FEW
@given(data=st.data())
def test_damaged_dumps_of_comments(ending, data, tmp_path):
    path = tmp_path / f"RC_2016{ending}"
    path.write_bytes(data.draw(st.one_of(damaged(COMMENTS), odd_json(comment_line()))))
    records, account = extracted(reddit.extract, path)
    if not ending and not account.damaged:
        dropped = sum(
            n for name, n in account.counts.items() if name.startswith("comments dropped")
        )
        assert account.counts["comments"] == account.counts["comments kept"] + dropped
    assert len(records) >= account.counts["comments kept"]


def test_an_entity_of_thousands_of_digits_costs_one_comment(tmp_path):
    path = tmp_path / "RC_2016"
    lines = [
        comment_line(),
        comment_line(body=f"&#{'9' * 5000};"),
        comment_line(body="&#xD800; Hi you."),
    ]
    path.write_bytes(b"\n".join(lines))
    records, account = extracted(reddit.extract, path)
    assert account.counts == {
        "comments": 3,
        "comments kept": 2,
        "comments dropped: an entity's number has thousands of digits": 1,
    }
    assert len(records) == 4  # each under its own name and under its parent's


@FEW
@given(data=st.data())
def test_damaged_dumps_of_wikipedia(data, tmp_path):
    path = tmp_path / "enwiki.xml"
    path.write_bytes(data.draw(damaged(DUMP)))
    extracted(wikipedia.extract, path, language="en")


def test_a_dump_opens_no_other_file_and_its_entities_do_not_grow(tmp_path):
    (tmp_path / "secret").write_text("a secret")
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    for entity in (
        f'<!ENTITY e11 SYSTEM "file://{tmp_path / "secret"}">',
        f'<!ENTITY e0 "ha">{entities}',
    ):
        path = tmp_path / "enwiki.xml"
        header = f"<!DOCTYPE mediawiki [{entity}]>{HEADER}".replace("eswiki", "&e11;")
        path.write_text(f"{header}{page_xml('One &e11;. Two. Three.')}</mediawiki>")
        records, account = extracted(wikipedia.extract, path, language="en")
        assert "secret" not in str(records)
        assert (
            account.damaged or account.counts["pages dropped: not a page in MediaWiki's XML"] == 1
        )


# Each took the parser minutes and more: it reads on to the end for all that is not closed.
@pytest.mark.parametrize(
    "unit", ["<ref ", "<b>", "[http://a ", "{{a|", "[[a|", "<nowiki>", "'''", "<i><b>", "\n{|"]
)
def test_markup_without_end_is_parsed_in_seconds_or_dropped(unit, tmp_path):
    path = tmp_path / "enwiki.xml"
    text = (unit * 8000).replace("&", "&amp;").replace("<", "&lt;")
    path.write_text(
        f"{HEADER}{page_xml(text)}{page_xml('One. Two. Three.', title='B')}</mediawiki>"
    )
    records, account = extracted(wikipedia.extract, path, language="en")
    assert records[-1].key == "B"
    assert not account.damaged
    assert account.counts["pages"] == 2


def test_less_than_is_text():
    assert [block.text for block in prose("It is 3 < 4 and a <b>bold</b> word <i.")] == [
        "It is 3 < 4 and a bold word <i."
    ]


@FEW
@given(data=st.data())
def test_damaged_nli_and_bitext(data, tmp_path):
    path = tmp_path / "snli_1.0_train.jsonl"
    path.write_bytes(data.draw(st.one_of(damaged(PAIR + b"\n" + PAIR), odd_json(PAIR))))
    extracted(snli.extract, path, corpus="snli_1.0_train")
    pairs = tmp_path / "x.en-es.tsv"
    pairs.write_bytes(data.draw(damaged(b"The cat sleeps.\tEl gato duerme.\n" * 3)))
    extracted(bitext.extract, pairs, source="en", target="es")


@FEW
@given(data=st.data())
def test_damaged_archives(data, tmp_path):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("snli_1.0/snli_1.0_train.jsonl", PAIR * 3)
    path = tmp_path / "snli_1.0.zip"
    path.write_bytes(data.draw(damaged(memory.getvalue())))
    extracted(snli.extract, path, corpus="snli_1.0_train")


def catalogue(folder: Path, source: str, target: str) -> bytes:
    entries = polib.MOFile()
    entries.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    entries.append(polib.POEntry(msgid=source, msgstr=target))
    entries.save(str(folder / "x.mo"))
    return (folder / "x.mo").read_bytes()


TALK = {
    "type": "talk_topic",
    "id": "T",
    "dynamic_line": "Hi there.",
    "responses": [{"text": "Bye now.", "topic": "T"}],
}
PAGE = b"<html><body><p id='a'>A red <b>cat</b>.</p><ul><li>One.</li></ul></body></html>"


@FEW
@given(data=st.data())
def test_a_damaged_file_of_a_package_is_named_and_the_others_are_read(data, tmp_path):
    texts = tmp_path / "es/LC_MESSAGES"
    texts.mkdir(parents=True, exist_ok=True)
    (texts / "good.mo").write_bytes(catalogue(tmp_path, "A red cat.", "Un gato rojo."))
    bad = catalogue(tmp_path, "A green dog.", "Un perro verde.")
    (texts / "bad.mo").write_bytes(data.draw(damaged(bad)))
    talk = json.dumps(TALK).encode()
    for folder, name, content in (
        ("npcs", "good.json", talk),
        ("npcs", "bad.json", data.draw(st.one_of(damaged(talk), odd_json(talk)))),
        ("man/en", "bad.html", data.draw(damaged(PAGE))),
        ("man/es", "bad.html", data.draw(damaged(PAGE))),
        ("man/es", "good.html", PAGE),
        ("man/en", "good.html", PAGE),
        ("mods.d", "x.conf", data.draw(damaged(b"[X]\nLang=es\nModDrv=zText\nDataPath=./m\n"))),
        (
            "",
            "x.cfg",
            data.draw(damaged(b'[message]\nspeaker=A\nmessage=_ "A red cat."\n[/message]\n')),
        ),
    ):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / name).write_bytes(content)
    assert ("A red cat.", "Un gato rojo.", ()) in extract_gettext([tmp_path], "en", "es").parallel
    assert extract_cataclysm([tmp_path], "en", "es").conversations["en"]
    assert manual_extractor("man/{locale}")([tmp_path], "en", "es").documents["es"]
    extract_bibles([tmp_path], "en", "es")
    extract_wesnoth([tmp_path], "en", "es")


def test_a_page_without_anything_is_named(tmp_path, caplog):
    (tmp_path / "man/en").mkdir(parents=True)
    (tmp_path / "man/en/empty.html").write_bytes(b"")
    (tmp_path / "man/en/folder.html").mkdir()
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        manual_extractor("man/{locale}")([tmp_path], "en", "es")
    for name in ("empty.html", "folder.html"):
        assert f"{name} is left out, since it cannot be read" in caplog.text


@pytest.mark.parametrize(
    "content", [b"", b"[", b"[]", b'"x"', b"{}", b"null", b"\xff", b"[" * 100_000]
)
def test_what_is_kept_beside_packages_is_made_anew(content, tmp_path):
    for name in ("preparation.json", ".package.json", "packages.json"):
        (tmp_path / name).write_bytes(content)
    assert _preparation(tmp_path) is None
    assert unpacked_version(tmp_path) is None
    assert _remembered(tmp_path) == {}
    if content != b"{}":
        with pytest.raises(UserError, match=r"preparation\.json must be .* delete it"):
            read_json(str(tmp_path / "preparation.json"))
