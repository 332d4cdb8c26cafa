"""Raw files, whole and damaged, to sharded corpora, by Beam's local runner; the program's flags."""

import bz2
import importlib.util
from collections import Counter
from contextlib import nullcontext, suppress
from pathlib import Path
from unittest.mock import Mock

import apache_beam as beam
import pytest
import zstandard
from apache_beam.io.filesystems import FileSystems
from hostile_bytes import FEW, damaged, odd_json
from hypothesis import given
from hypothesis import strategies as st
from pipelines.common import find_files, prepare
from pipelines.reddit import Comment, Conversations, comment_fault, kept_comments
from pipelines.wikipedia import Documents, articles
from programs import ROOT, run_python, the_error
from raw_files import HEADER, comment_line, flipped, pack, page_xml, shards

from xling_tf.errors import UserError

_SPEC = importlib.util.spec_from_file_location("prepare_raw", ROOT / "data/prepare_raw.py")
PROGRAM = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(PROGRAM)


def run(name: str, lines: beam.PTransform, output: Path, num_shards: int = 2) -> Counter[str]:
    options = PROGRAM.beam_options([])
    return prepare(name, lines, output=str(output), options=options, num_shards=num_shards)


def written(output: Path) -> list[str]:
    return sorted("".join(shards(output).values()).splitlines())


def comment(name: str, parent: str, body: str, author: str = "ann") -> bytes:
    return comment_line(id=name, parent_id=parent, body=body, author=author) + b"\n"


def test_dumps_of_comments_become_pairs(tmp_path):
    first = comment("a", "t3_s", "How are you?") + comment("b", "t1_a", "Fine,\n\nthank you.")
    second = comment("c", "t1_a", "Not so well.") + comment("d", "t1_b", "Nice.", author="A_Bot")
    zst, bz = tmp_path / "RC_2016-01.zst", tmp_path / "RC_2016-02.bz2"
    zst.write_bytes(b"".join(map(zstandard.ZstdCompressor().compress, (first, second))))
    # A reply in a later month, one to a comment that is dropped, one said twice; a bad line.
    third = (
        comment("e", "t1_b", "You are welcome.\tBye")
        + comment("f", "t1_d", "Who asked?")
        + comment("g", "t1_a", "Not so well.")
        + b'{"id": "h", "parent_id\n\n'
    )
    bz.write_bytes(bz2.compress(third))
    output = tmp_path / "out"
    paths = find_files([f"{tmp_path}/RC_2016-*"])
    counts = run("conversations/reddit.en.tsv.gz", Conversations(paths), output)
    assert sorted(shards(output)) == [f"reddit.en-0000{n}-of-00002.tsv.gz" for n in (0, 1)]
    assert written(output) == [
        "Fine, thank you.\tYou are welcome. Bye",
        "How are you?\tFine, thank you.",
        "How are you?\tNot so well.",
    ]
    # 7 comments and a bad line; of the 6 that are kept, all but a are replies.
    assert counts == {
        **{"comments": 8, "comments kept": 6, "replies": 5, "lines written": 3},
        "comments dropped: author's name has bot": 1,
        "comments dropped: not JSON with id, parent_id, author, body": 1,
        "replies dropped: repeated under the same comment": 1,
        "replies dropped: their comment was dropped": 1,
    }
    assert not list(output.glob(".*"))


PAGES = (
    page_xml("Ada wrote. She counted.\n== Life ==\nShe was born."),
    page_xml(f"One. {'Very long ' * 50}. 1815. Two. Three ||. Four. Five. Six.", title="Bo"),
    page_xml("x", title="C", extra='<redirect title="Ada" />'),
    page_xml("Talk.", title="Talk:Ada", namespace=1),
    page_xml("a < b", title="D"),
    page_xml("Short.", title="E"),
)
DUMP = "".join((HEADER, *(f"  {page}\n" for page in PAGES), "</mediawiki>\n")).encode()


def test_a_dump_of_wikipedia_becomes_documents(tmp_path):
    # The same articles twice: of two with one title, one stays.
    for name in ("a.xml", "b.xml"):
        (tmp_path / name).write_bytes(DUMP)
    paths = find_files([f"{tmp_path}/*.xml"])
    counts = run("documents/wikipedia.en.txt.gz", Documents(paths, "en"), tmp_path / "out", 1)
    (text,) = shards(tmp_path / "out").values()
    # Long sentences and numbers are neighbours too; a leftover of markup splits the second article.
    documents = {
        "Ada\nAda wrote.\nShe counted.\nLife\nShe was born.",
        f"Bo\nOne.\n{'Very long ' * 50}.\n1815.\nTwo.".replace(" .", "."),
        "Four.\nFive.\nSix.",
    }
    assert set(text.strip().split("\n\n")) == documents
    assert text.endswith("\n\n")
    del counts["lines written"]
    assert counts == {
        **{"pages": 12, "articles": 6, "documents": 3, "sentences": 13},
        **{"pages dropped: redirect": 2, "pages dropped: not an article, by its namespace": 2},
        "pages dropped: not a page in MediaWiki's XML": 2,
        **{"articles dropped: nothing left": 2, "articles dropped: title seen before": 2},
        "sentences dropped: empty, or markup is left": 2,
        "sentences dropped: fewer than three in a row": 4,
    }


def test_comments_that_are_dropped():
    start, letters = "begins with https, @ or /r/", "70% letters or fewer"
    expected = {
        "a" * 349: None,
        "a" * 350: "350 characters or more",
        "https://example.org is it": start,
        "See https://example.org": None,
        "/r/pics is over there": start,
        "[removed]": "deleted or removed",
        # 7 letters of 10 characters are 70%; 8 of 11 are 73%. Spaces do not count.
        "abcdefg 123": letters,
        "abcdefgh 123": None,
    }
    assert {
        text: comment_fault(Comment("t1_b", "t1_a", "ann", text)) for text in expected
    } == expected
    assert (
        comment_fault(Comment("t1_b", "t1_a", "RoBoTfan", "Of letters.")) == "author's name has bot"
    )


@FEW
@given(data=st.data())
def test_no_input_stops_a_pipeline(data, tmp_path):
    for line in data.draw(st.one_of(damaged(comment_line()), odd_json(comment_line()))).split(
        b"\n"
    ):
        assert all("\n" not in each.text for each in kept_comments(line))
    path = tmp_path / "enwiki.xml"
    content = data.draw(damaged(DUMP))
    path.write_bytes(content)
    has_end = b"</mediawiki>" in content.rpartition(b"</page>")[2]
    with (
        nullcontext() if has_end else pytest.raises(UserError, match=f"{path} must be a whole dump")
    ):
        assert all(runs for _, runs in articles(str(path), "en"))


ARTICLES = [
    page_xml(f"Of {n} one. Of {n} two. Of {n} three.", title=f"Article {n}") for n in range(80)
]
STREAMS = [HEADER.encode(), *("".join(ARTICLES[n : n + 20]).encode() for n in (0, 20, 40, 60))]
MULTISTREAM = [*map(bz2.compress, STREAMS), bz2.compress(b"</mediawiki>")]


def test_new_shards_replace_earlier_ones_but_those_of_a_cut_damaged_or_empty_input_do_not(tmp_path):
    path, corpus = tmp_path / "enwiki.xml.bz2", "documents/wikipedia.en.txt.gz"
    path.write_bytes(content := b"".join(MULTISTREAM))
    for num_shards in (2, 1):
        run(corpus, Documents([str(path)], "en"), tmp_path / "out", num_shards)
    before = shards(tmp_path / "out")
    assert list(before) == ["wikipedia.en-00000-of-00001.txt.gz"]
    assert sum(map(len, before.values())) > 100
    # Between two streams of a dump nothing but its own end is missing.
    whole = f"{path}.* must be a whole"
    damaged = dict.fromkeys((flipped(content), content[:-10], b"".join(MULTISTREAM[:3])), whole)
    for each, message in {**damaged, bz2.compress(b"</mediawiki>"): "there are none"}.items():
        path.write_bytes(each)
        with pytest.raises(UserError, match=message):
            run(corpus, Documents([str(path)], "en"), tmp_path / "out")
        assert shards(tmp_path / "out") == before
        assert not list((tmp_path / "out").glob(".*"))


@pytest.mark.parametrize("num_shards", [2, 3, 5])
@pytest.mark.parametrize("renames", range(5))
def test_a_kill_between_the_renames_loses_no_shard(tmp_path, monkeypatch, renames, num_shards):
    corpus, output, pipeline = "documents/x.en.txt.gz", tmp_path / "out", beam.Create
    run(corpus, pipeline([f"old {n}" for n in range(40)]), output, 3)
    rename = FileSystems.rename
    left = iter(range(renames))

    def rename_some(sources, destinations):
        for pair in zip(sources, destinations, strict=True):
            if next(left, None) is None:
                raise KeyboardInterrupt
            rename(*([path] for path in pair))

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr("pipelines.common.FileSystems", killed := Mock(wraps=FileSystems))
        killed.rename = rename_some
        run(corpus, pipeline([f"new {n}" for n in range(40)]), output, num_shards)
    in_place = {name.split("-of-")[0] for name in shards(output)}
    assert in_place >= {"x.en-00000", "x.en-00001"}
    # The next run fails; what was complete is nevertheless in place.
    with suppress(UserError):
        run(corpus, pipeline([]), output, num_shards)
    texts = written(output)
    whole = {name: sorted(f"{name} {n}" for n in range(40)) for name in ("old", "new")}
    assert texts == (whole["new"] if renames else whole["old"])
    assert len(shards(output)) == (num_shards if renames else 3)
    assert not list(output.glob(".*"))


def test_a_language_that_nobody_knows_is_refused(tmp_path):
    flags = ["wikipedia", "--language=english", "--input=x", "--output=y"]
    run = run_python(tmp_path, str(ROOT / "data/prepare_raw.py"), *flags)
    assert "--language must be a language code such as en" in the_error(run)


@pytest.mark.slow
def test_two_processes_write_the_same_lines(tmp_path):
    for month in range(4):
        lines = [
            comment(f"{month}_{i}", f"t1_{(month + 1) % 4}_{i}", "Yes, it is.") for i in range(50)
        ]
        (tmp_path / f"RC_2016-{month}").write_bytes(b"".join(lines))
    command = ["data/prepare_raw.py", "reddit", "--input", f"{tmp_path}/RC_*", "--language=en"]
    two = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    for name, flags in (("one", []), ("two", two)):
        result = run_python(ROOT, *command, f"--output={tmp_path / name}", *flags)
        assert result.status == 0, result.errors
        assert "lines written" in result.output
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert len(written(tmp_path / "one")) == 200
    cut = tmp_path / "RC_2016-4.zst"
    cut.write_bytes(pack(".zst", b"".join(lines))[:-10])
    result = run_python(ROOT, *command, f"--output={tmp_path / 'two'}", *two)
    assert result.status == 2
    assert result.errors.splitlines()[-1].startswith(f"error: {cut} must be a whole .zst file")
