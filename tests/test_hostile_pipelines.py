"""Pipelines and package readers on damaged dumps: counted or named, never a crash, and in bounded time."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from hostile_bytes import FEW, damaged, odd_json
from hypothesis import given
from hypothesis import strategies as st
from raw_files import HEADER, comment_line, page_xml

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


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_damaged_account_of_a_preparation_is_named(content, tmp_path):
    (tmp_path / "preparation.json").write_bytes(content)
    with pytest.raises(UserError, match=r"preparation\.json"):
        read_json(str(tmp_path / "preparation.json"))
