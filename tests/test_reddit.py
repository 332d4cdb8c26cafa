"""Which comments of Reddit are kept: every filter of appendix A.1."""

import pytest
from raw_files import comment_line

from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.reddit import Comment, comment_fault, parse_comment


def comment(text: str = "A sentence of letters.", author: str = "ann") -> Comment:
    return Comment("t1_c1", "t1_c0", author, text)


def test_a_line_becomes_a_comment():
    assert parse_comment(comment_line()) == Comment("t1_cyhpv3x", "t1_cyhpq1n", "ann", "Hello there.")


def test_replies_are_told_from_comments_on_submissions():
    assert parse_comment(comment_line()).is_reply
    assert not parse_comment(comment_line(parent_id="t3_3yvq4k")).is_reply


def test_text_is_one_line_of_nfc_without_entities():
    # "e" and a combining acute are one character in NFC.
    body = "&gt; Cafe\u0301\tau  lait\n\nR&amp;D\u200b"
    assert parse_comment(comment_line(body=body)).text == "> Café au lait R&D"


def test_no_character_parts_columns_or_lines():
    assert parse_comment(comment_line(body="a\tb\rc\x0bd\x1ee\x85f\u2028g\0h")).text == "a b c d e f g h"


def test_half_a_surrogate_pair_can_still_be_written():
    text = parse_comment(comment_line(body="Fine \ud83d here")).text
    assert text == "Fine ? here"
    text.encode("utf-8")


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"not JSON",
        b'{"id": "c1", "body": "cut o',
        b"[]",
        b"17",
        b'{"id": "c1"}',
        comment_line(body=None),
        comment_line(parent_id=17),
        b"\xff\xfe{}",
        b"[" * 100_000,
    ],
)
def test_lines_that_are_no_comments_are_named(bad: bytes):
    with pytest.raises(MalformedLineError):
        parse_comment(bad)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a" * 349, None),
        ("a" * 350, "350 characters or more"),
        ("https://example.org is it", "begins with https, @ or /r/"),
        ("See https://example.org", None),
        ("@ann look", "begins with https, @ or /r/"),
        ("/r/pics is over there", "begins with https, @ or /r/"),
        ("[deleted]", "deleted or removed"),
        ("[removed]", "deleted or removed"),
        ("", "deleted or removed"),
        # 7 letters of 10 characters are 70%; 8 of 11 are 73%.
        ("abcdefg 123", "70% letters or fewer"),
        ("abcdefgh 123", None),
        # Spaces do not count: 4 letters of 4.
        ("a b c d", None),
        ("это тоже буквы", None),
    ],
)
def test_texts_that_are_dropped(text: str, fault: str | None):
    assert comment_fault(comment(text)) == fault


@pytest.mark.parametrize("author", ["bot", "AutoBot", "RoBoTfan", "abbott"])
def test_authors_with_bot_in_their_names_are_dropped(author: str):
    assert comment_fault(comment(author=author)) == "author's name has bot"


def test_other_authors_are_kept():
    assert comment_fault(comment(author="bo_t")) is None
