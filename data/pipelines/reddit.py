"""Reddit's dumps of comments to pairs of a comment and its reply (Chidambaram et al. 2018, sec. A.1)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from pipelines.common import ReadLines, count
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.reddit import Comment, comment_fault, parse_comment


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
            | beam.Filter(lambda comment: comment.is_reply)
            | "By parent" >> beam.Map(lambda comment: (comment.parent, comment.text))
        )
        joined = {"messages": messages, "replies": replies} | beam.CoGroupByKey()
        return joined | beam.FlatMapTuple(pairs)


def kept_comments(line: bytes) -> Iterator[Comment]:
    """Yields the comment of a line if it is kept, and counts it."""
    if not line.strip():
        return
    count("comments")
    try:
        comment = parse_comment(line)
    except MalformedLineError as error:
        count(f"comments dropped: {error}")
        return
    if fault := comment_fault(comment):
        count(f"comments dropped: {fault}")
        return
    count("comments kept")
    yield comment


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
