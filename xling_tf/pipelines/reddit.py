"""Reddit's dumps of comments to pairs of a comment and its reply (appendix A.1)."""

import argparse
from collections.abc import Iterable, Iterator

from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.corpora.line_files import MAX_LINE
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.reddit import Comment, comment_fault, parse_comment
from xling_tf.pipelines.command import Command, language_code
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.jobs import prepare
from xling_tf.pipelines.storage import find_inputs, open_raw
from xling_tf.pipelines.streams import DamagedFileError, decompressed, split

_MESSAGE, _REPLY = 0, 1


def comments(path: str, account: Account) -> Iterator[Comment]:
    """Yields the comments of a dump that are kept, and counts them and the others.

    Args:
        path: JSON lines, compressed or not by the name's ending.
        account: Gets the counts, and the file's name if it is damaged.
    """
    counts = account.counts
    with open_raw(path) as file:
        try:
            for line in split(decompressed(file, path), b"\n", MAX_LINE):
                if line is not None and not line.strip():
                    continue
                counts["comments"] += 1
                if (comment := _parsed(line, account)) and not (fault := comment_fault(comment)):
                    counts["comments kept"] += 1
                    yield comment
                elif comment:
                    counts[f"comments dropped: {fault}"] += 1
        except DamagedFileError as error:
            account.damaged[path] = f"{error} after {counts['comments']} comments"


def extract(path: str, account: Account) -> Iterator[Keyed]:
    """Yields each comment under its own name, and each reply under its parent's."""
    for comment in comments(path, account):
        yield Keyed(comment.name, (_MESSAGE, comment.text))
        if comment.is_reply:
            yield Keyed(comment.parent, (_REPLY, comment.text))


def pairs(records: Iterable[Keyed], account: Account) -> Iterator[str]:
    """Joins the comments and replies of a partition to lines of message TAB response."""
    counts = account.counts
    messages: dict[str, str] = {}
    replies: dict[str, dict[str, None]] = {}
    for key, (role, text) in records:
        if role == _MESSAGE:
            messages[key] = text
            continue
        texts = replies.setdefault(key, {})
        counts["replies"] += 1
        if text in texts:
            counts["replies dropped: said before to the same comment"] += 1
        texts[text] = None
    for key, texts in replies.items():
        if key in messages:
            yield from (f"{messages[key]}\t{text}" for text in texts)
        else:
            counts["replies dropped: the comment they answer is not kept"] += len(texts)


def _parsed(line: bytes | None, account: Account) -> Comment | None:
    if line is None:
        account.counts["comments dropped: line of more than 1 MiB"] += 1
        return None
    try:
        return parse_comment(line)
    except MalformedLineError as error:
        account.counts[f"comments dropped: {error}"] += 1
        return None


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--language",
        type=language_code,
        default="en",
        help="the comments' language, for the name of the corpus (default: %(default)s)",
    )


def _run(arguments: argparse.Namespace, options: PipelineOptions) -> Account:
    preparation = Preparation(
        corpus=f"conversations/reddit.{arguments.language}",
        suffix=".tsv.gz",
        settings={},
        extract=extract,
        combine=pairs,
    )
    return prepare(
        preparation,
        inputs=find_inputs(arguments.input),
        output=arguments.output,
        num_shards=arguments.num_shards,
        options=options,
    )


COMMAND = Command(
    description="Reddit's dumps of comments (RC_2016-01.zst) to pairs of a comment and its reply.",
    add_arguments=_add_arguments,
    run=_run,
)
