"""Files become UTF-8 by the encoding that they name, else UTF-8, else Windows-1252."""

import logging

import pytest

from xling_tf.corpora.encodings import as_utf8, named_encoding
from xling_tf.errors import UserError

TEXT = "Größe, été, niño: 5 € “quoted”"


def recoded(content, size=7):
    pieces = [content[begin : begin + size] for begin in range(0, len(content), size)]
    return b"".join(as_utf8(pieces, "a.txt")).decode()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_name_an_encoding(encoding, caplog):
    assert recoded(TEXT.encode(encoding)) == TEXT
    big_endian = "\ufeff".encode("utf-16-be") + TEXT.encode("utf-16-be")
    assert recoded(big_endian) == TEXT
    assert not caplog.records


@pytest.mark.parametrize(
    ("page", "encoding"),
    [
        ('<?xml version="1.0" encoding="ISO-8859-15"?><a>', "iso8859-15"),
        ('<!doctype html><html><head><meta charset="windows-1250">', "cp1250"),
        ('<html><meta http-equiv="Content-Type" content="text/html; charset=gb2312">', "gb18030"),
        ("<html><meta charset=us-ascii>", "cp1252"),
        ("<html><meta charset=utf-8>", "utf-8"),
        ("<html><meta charset=utf-16>", None),  # not with one byte a letter
        ("<html><meta charset=rot13>", None),
        ("<html><meta charset=none-such>", None),
        ('A page has <meta charset="cp1250">', None),  # a text about pages
    ],
)
def test_pages_name_their_encoding(page, encoding):
    assert named_encoding(page.encode()) == encoding


def test_declared_pages_are_recoded():
    page = '<html><meta charset="windows-1250"><p>žluťoučký'
    assert recoded(page.encode("cp1250"), size=64) == page


def test_latin_1_is_assumed_and_said(caplog):
    with caplog.at_level(logging.WARNING):
        assert recoded(TEXT.encode("cp1252")) == TEXT
    assert [record.message.count("Windows-1252") for record in caplog.records] == [1]


def test_utf8_cut_within_a_character_and_other_bytes_pass(caplog):
    assert recoded("été".encode(), size=1) == "été"
    # Accents stand alone; a NUL is in no text.
    for content in (b"\xff\x81", b"\xff\0a"):
        assert b"".join(as_utf8([content], "a.txt")) == content
    assert [*as_utf8([], "a.txt")] == []
    assert not caplog.records


@pytest.mark.parametrize("text", ["Costs £5 – more", "niño\nnaïve\n", "It’s “so”"])
def test_marks_and_accents_are_western(text):
    assert recoded(text.encode("cp1252")) == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp1251", "Где вокзал?"), ("cp1253", "Πού είναι ο σταθμός;"), ("gbk", "车站在哪里？")],
)
def test_other_letters_stand_together_and_are_left_to_the_reader(encoding, text, caplog):
    content = text.encode(encoding)
    assert b"".join(as_utf8([content], "a.txt")) == content
    assert not caplog.records


def test_a_file_that_is_read_again_is_not_warned_of_twice(caplog):
    content = TEXT.encode("cp1252")
    assert b"".join(as_utf8([content], "a.txt", is_quiet=True)).decode() == TEXT
    assert not caplog.records


def test_a_damaged_character_of_many_is_left_to_the_reader(caplog):
    content = "été naïf".encode() + b" \xff"
    assert b"".join(as_utf8([content], "a.txt")) == content
    assert not caplog.records


def test_a_false_name_is_told():
    with pytest.raises(UserError, match="must be in utf-16, but is not"):
        recoded("Hola".encode("utf-16")[:-1])
    with pytest.raises(UserError, match="must be in gb18030, but is not"):
        recoded(b'<meta charset="gb2312">\xff', size=64)
