"""Reddit's dumps of comments to pairs of a comment and its reply.

Chidambaram et al. 2018, appendix A.1, after Yang et al. 2018: comments and their children are
input-response pairs; comments that are long, begin like a link or a mention, come from bots or have
few letters are left out.
"""

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.common import ReadLines, count, dropping
from xling_tf.corpora.cleaning import letter_share, normalise
from xling_tf.corpora.readers import MalformedLineError

_TOO_MANY_CHARACTERS = 350  # and more are too many
_TOO_FEW_LETTERS = 0.7  # and fewer are too few
_STARTS = ("https", "@", "/r/")
_REMOVED = frozenset({"", "[deleted]", "[removed]"})
_COMMENT = "t1_"  # what a comment's full name begins with; a submission's with t3_


class Comment(NamedTuple):
    """A comment: its and its parent's full name, the user's name, and the text on one line."""

    name: str
    parent: str
    author: str
    text: str


class Conversations(beam.PTransform[Any, Any]):
    """Joins comments with their replies, from whatever dumps (a JSON object a line) they come."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = paths

    def expand(self, pipeline: beam.Pipeline) -> PCollection[str]:
        """Gives lines of message TAB response."""
        comments = pipeline | ReadLines(self._paths) | beam.FlatMap(kept_comments)
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
    """Reads a line of a dump of comments (RC_2016-01 and the like), or raises a `MalformedLineError`.

    The text's HTML entities, as the dumps have them, are resolved; it is normalised to NFC, and runs
    of white space become one space.
    """
    try:
        row = json.loads(line)
        fields = [row[key] for key in ("id", "parent_id", "author", "body")]
    # A JSON parser raises RecursionError for brackets without end.
    except (ValueError, KeyError, TypeError, RecursionError):
        raise MalformedLineError("not JSON with id, parent_id, author, body") from None
    if not all(isinstance(value, str) for value in fields):
        raise MalformedLineError("id, parent_id, author, body are not all text")
    name, parent, author, body = fields
    # Half a surrogate pair, where a dump cut an emoji, has no UTF-8; and no corpus holds NUL.
    text = body.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")
    try:
        plain = normalise(html.unescape(text))
    except ValueError:  # from `int`
        raise MalformedLineError("an entity's number has thousands of digits") from None
    return Comment(_COMMENT + name.removeprefix(_COMMENT), parent, author, plain)


def comment_fault(comment: Comment) -> str | None:
    """The first reason of appendix A.1 against a comment, or None.

    The share of letters is taken of the characters that are not spaces, so that it does not depend
    on how long the words are.
    """
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


def pairs(name: str, found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yields a comment, none of the "messages" if it was dropped, with each of its different "replies"."""
    del name
    messages, replies = sorted(found["messages"]), sorted(set(found["replies"]))
    count("replies", len(found["replies"]))
    if messages:
        count("replies dropped: said before to the same comment", len(found["replies"]) - len(replies))
        yield from (f"{messages[0]}\t{reply}" for reply in replies)
    else:
        count("replies dropped: the comment they answer is not kept", len(found["replies"]))
