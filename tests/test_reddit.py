"""Which comments of Reddit are kept: every filter of appendix A.1."""

import pytest
from raw_files import comment_line

from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.reddit import Comment, comment_fault, parse_comment


def comment(text: str = "A sentence of letters.", author: str = "ann") -> Comment:
    return Comment("t1_c1", "t1_c0", author, text)


def test_a_line_becomes_a_comment():
    assert parse_comment(comment_line()) == Comment("t1_cyhpv3x", "t1_cyhpq1n", "ann", "Hello there.")
    # What replies to a submission, not to a comment, is no reply.
    assert parse_comment(comment_line()).is_reply
    assert not parse_comment(comment_line(parent_id="t3_3yvq4k")).is_reply


def test_text_is_one_line_of_nfc_without_entities():
    expected = {
        # "e" and a combining acute are one character in NFC.
        "&gt; Cafe\u0301\tau  lait\n\nR&amp;D\u200b": "> Café au lait R&D",
        # Nothing parts columns or lines, and half a surrogate pair can still be written.
        "a\tb\rc\x0bd\x1ee\x85f\u2028g\0h": "a b c d e f g h",
        "Fine \ud83d here": "Fine ? here",
    }
    assert {body: parse_comment(comment_line(body=body)).text for body in expected} == expected


@pytest.mark.parametrize(
    "bad",
    [b"", b'{"id": "c1", "body": "cut o', b"17", comment_line(body=None), b"\xff\xfe{}", b"[" * 100_000],
)
def test_lines_that_are_no_comments_are_named(bad: bytes):
    with pytest.raises(MalformedLineError):
        parse_comment(bad)


def test_comments_that_are_dropped():
    start, letters = "begins with https, @ or /r/", "70% letters or fewer"
    expected = {
        "a" * 349: None,
        "a" * 350: "350 characters or more",
        "https://example.org is it": start,
        "See https://example.org": None,
        "@ann look": start,
        "/r/pics is over there": start,
        "[deleted]": "deleted or removed",
        "[removed]": "deleted or removed",
        "": "deleted or removed",
        # 7 letters of 10 characters are 70%; 8 of 11 are 73%.
        "abcdefg 123": letters,
        "abcdefgh 123": None,
        # Spaces do not count: 4 letters of 4.
        "a b c d": None,
        "это тоже буквы": None,
    }
    assert {text: comment_fault(comment(text)) for text in expected} == expected
    assert comment_fault(comment(author="RoBoTfan")) == "author's name has bot"
    assert comment_fault(comment(author="bo_t")) is None
