"""Pairs comments with their replies in Reddit's dumps (Chidambaram et al. 2018, appendix A.1)."""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.common import count, dropping, read_lines
from xling_tf.corpora.cleaning import letter_share, normalise
from xling_tf.corpora.readers import MalformedLineError

_TOO_MANY_CHARACTERS = 350
_TOO_FEW_LETTERS = 0.7
_STARTS = ("https", "@", "/r/")
_REMOVED = frozenset({"", "[deleted]", "[removed]"})
_COMMENT = "t1_"  # prefix of the full name of a comment; submissions have t3_


class Comment(NamedTuple):
    """A comment: its full name and its parent's, the user's name, and the text on one line."""

    name: str
    parent: str
    author: str
    text: str


class Conversations(beam.PTransform[Any, Any]):
    """Joins comments with their replies, which may be in different dumps (JSON lines)."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = paths

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Returns lines of message TAB response."""
        comments = pipeline | read_lines(self._paths) | beam.FlatMap(kept_comments)
        messages = comments | "By name" >> beam.Map(lambda comment: (comment.name, comment.text))
        replies = (
            comments
            | beam.Filter(lambda comment: comment.parent.startswith(_COMMENT))
            | "By parent" >> beam.Map(lambda comment: (comment.parent, comment.text))
        )
        joined = {"messages": messages, "replies": replies} | beam.CoGroupByKey()
        return joined | beam.FlatMapTuple(pairs)


def kept_comments(line: bytes) -> Iterator[Comment]:
    """Yields the comment of a line if it is kept, and counts it."""
    if not line.strip():
        return
    count("comments")
    with dropping("comments"):
        comment = parse_comment(line)
        if fault := comment_fault(comment):
            raise MalformedLineError(fault)
        count("comments kept")
        yield comment


def parse_comment(line: bytes) -> Comment:
    """Reads a line of a dump of comments (such as RC_2016-01), or raises a `MalformedLineError`."""
    try:
        row = json.loads(line)
        fields = [row[key] for key in ("id", "parent_id", "author", "body")]
    # The JSON parser raises RecursionError for endless brackets.
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedLineError("not JSON with id, parent_id, author, body") from None
    if not all(isinstance(value, str) for value in fields):
        raise MalformedLineError("id, parent_id, author, body are not all text")
    name, parent, author, body = fields
    # Half a surrogate pair, from a cut emoji, has no UTF-8; and a corpus must not hold NUL.
    text = body.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    return Comment(
        _COMMENT + name.removeprefix(_COMMENT), parent, author, normalise(html.unescape(text))
    )


def comment_fault(comment: Comment) -> str | None:
    """Returns the first reason of appendix A.1 for dropping a comment, or None."""
    if comment.text in _REMOVED:
        return "deleted or removed"
    if len(comment.text) >= _TOO_MANY_CHARACTERS:
        return "350 characters or more"
    if comment.text.startswith(_STARTS):
        return "begins with https, @ or /r/"
    if "bot" in comment.author.lower():
        return "author's name has bot"
    if letter_share(comment.text) <= _TOO_FEW_LETTERS:
        return "70% letters or fewer"
    return None


def pairs(name: str, joined: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a comment (if dropped, not in "messages") with each of its distinct "replies"."""
    messages, replies = sorted(joined["messages"]), sorted(set(joined["replies"]))
    count("replies", len(joined["replies"]))
    if messages:
        count(
            "replies dropped: repeated under the same comment",
            len(joined["replies"]) - len(replies),
        )
        yield from (f"{messages[0]}\t{reply}" for reply in replies)
    else:
        count("replies dropped: their comment was dropped", len(joined["replies"]))
