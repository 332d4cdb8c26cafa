"""Raw files, whole and damaged, to sharded corpora; the command line and the program."""

import bz2
import gzip
import importlib
import re
import shlex
import sys
from pathlib import Path

import pytest
import zstandard
from apache_beam.options.pipeline_options import PipelineOptions
from programs import ROOT, run_python, the_error
from raw_files import HEADER, comment_line, page_xml, report, shards

import xling_tf.pipelines
from xling_tf.errors import UserError
from xling_tf.pipelines import reddit, wikipedia
from xling_tf.pipelines.command import beam_options, format_account, parse_command, run_command
from xling_tf.pipelines.common import Account
from xling_tf.pipelines.registry import COMMANDS


def comment(name: str, parent: str, body: str, author: str = "ann") -> bytes:
    return comment_line(id=name, parent_id=parent, body=body, author=author) + b"\n"


def test_dumps_of_comments_become_pairs(tmp_path: Path):
    first = comment("a", "t3_s", "How are you?") + comment("b", "t1_a", "Fine,\n\nthank you.")
    second = comment("c", "t1_a", "Not so well.") + comment("d", "t1_b", "Nice.", author="A_Bot")
    (tmp_path / "RC_2016-01.zst").write_bytes(
        b"".join(map(zstandard.ZstdCompressor().compress, (first, second)))
    )
    # A reply in a later month, one of a comment that is dropped, one said twice; bad lines.
    third = (
        comment("e", "t1_b", "You are welcome.\tBye")
        + comment("f", "t1_d", "Who asked?")
        + comment("g", "t1_a", "Not so well.")
        + b'{"id": "h", "parent_id\n'
        + b"\n"
        + b'{"body": "'
        + b"x" * (1 << 20)
        + b'"}\n'
    )
    (tmp_path / "RC_2016-02.bz2").write_bytes(bz2.compress(third))
    output = tmp_path / "out"
    argv = ["reddit", "--input", f"{tmp_path}/RC_2016-*", "--output", str(output), "--num_shards=2"]
    account = run_command(COMMANDS, argv)
    found = shards(output)
    assert list(found) == [f"reddit.en-0000{n}-of-00002.tsv.gz" for n in (0, 1)]
    assert sorted("".join(found.values()).splitlines()) == [
        "Fine, thank you.\tYou are welcome. Bye",
        "How are you?\tFine, thank you.",
        "How are you?\tNot so well.",
    ]
    # 7 comments and 2 bad lines; of the 6 that are kept, all but a are replies.
    assert account.counts == {
        "comments": 9,
        "comments kept": 6,
        "comments dropped: author's name has bot": 1,
        "comments dropped: line of more than 1 MiB": 1,
        "comments dropped: not JSON with id, parent_id, author, body": 1,
        "replies": 5,
        "replies dropped: said before to the same comment": 1,
        "replies dropped: the comment they answer is not kept": 1,
        "lines written": 3,
    }
    entry = report(output)["conversations/reddit.en"]
    assert entry["counts"] == dict(account.counts)
    assert [Path(file["path"]).name for file in entry["inputs"]] == [
        "RC_2016-01.zst",
        "RC_2016-02.bz2",
    ]
    assert [path.name for path in output.iterdir() if path.name.startswith(".")] == []


def test_a_damaged_dump_is_named_and_read_as_far_as_it_goes(tmp_path: Path):
    lines = b"".join(
        comment(f"c{i}", "t3_s", "Words " + "".join(chr(97 + i**k % 26) for k in range(2, 40)))
        for i in range(5000)
    )
    path = tmp_path / "RC_2016-03.gz"
    path.write_bytes(gzip.compress(lines)[:-500])
    account = Account()
    kept = list(reddit.comments(str(path), account))
    assert 4000 < len(kept) < 5000
    assert account.damaged == {
        str(path): f"truncated .gz after {account.counts['comments']} comments"
    }
    assert "RC_2016-03.gz: truncated .gz" in format_account(account)


# Wikipedia

FIRST = page_xml("Ada wrote. She counted.\n== Life ==\nShe was born.")
SECOND = page_xml(f"One. {'far too long ' * 30}. Two. Three. Four.", title="Bo")
PAGES = (
    FIRST,
    SECOND,
    page_xml("x", title="C", extra='<redirect title="Ada" />'),
    page_xml("Talk.", title="Talk:Ada", namespace=1),
    page_xml("a < b", title="D"),
    page_xml("Short.", title="E"),
)
DUMP = "".join((HEADER, *(f"  {page}\n" for page in PAGES), "</mediawiki>\n")).encode()


def test_a_dump_of_wikipedia_becomes_documents(tmp_path: Path):
    path = tmp_path / "enwiki.xml"
    path.write_bytes(DUMP)
    account = Account()
    records = list(wikipedia.extract(str(path), account, language="en"))
    lines = list(wikipedia.documents([*records, records[0]], account))
    # What is too long parts the second article; "Bo" and "One." before it are only two sentences.
    assert "\n".join(lines) == (
        "Ada\nAda wrote.\nShe counted.\nLife\nShe was born.\n\nTwo.\nThree.\nFour.\n"
    )
    assert account.damaged == {}
    assert account.counts == {
        "pages": 6,
        "pages dropped: redirect": 1,
        "pages dropped: no article, by its namespace": 1,
        "pages dropped: not a page in MediaWiki's XML": 1,
        "articles": 3,
        "articles dropped: nothing left": 1,
        "articles dropped: title seen before": 1,
        "sentences dropped: too long": 1,
        "sentences dropped: fewer than three in a row": 4,
        "documents": 2,
        "sentences": 8,
        "triplets": 4,
    }


@pytest.mark.parametrize(
    ("content", "articles", "fault"),
    [
        (DUMP[: DUMP.index(b"Two.")], ["Ada"], "truncated, without </mediawiki> after 2 pages"),
        (b"Once upon a time", [], "no MediaWiki dump: its siteinfo cannot be read after 0 pages"),
        (b"", [], "truncated, without </mediawiki> after 0 pages"),
    ],
)
def test_a_damaged_dump_of_wikipedia(
    tmp_path: Path, content: bytes, articles: list[str], fault: str
):
    path = tmp_path / "enwiki.xml"
    path.write_bytes(content)
    account = Account()
    records = wikipedia.extract(str(path), account, language="en")
    assert [record.key for record in records] == articles
    assert account.damaged == {str(path): fault}


# The command line

PAGES_TEXT = "".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *ROOT.glob("*/README.md"))
)
SHOWN = re.findall(r"python data/main\.py ((?:\\\n|[^`\n])+)", PAGES_TEXT)


@pytest.mark.parametrize("command", [line for line in SHOWN if "--help" not in line])
def test_commands_on_the_pages_have_no_unknown_flag(command: str):
    parse_command(COMMANDS, shlex.split(command.replace("\\\n", " "), comments=True))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_shard=3"], "got --num_shard=3"),
        (["--rnner=DirectRunner"], "got --rnner=DirectRunner"),
        (["stray", "words"], "got stray words"),
        (["--direct_num_workers=x"], "argument --direct_num_workers: invalid int value: 'x'"),
        (["--runner=NoRunner"], "Unexpected pipeline runner: NoRunner"),
        (["--num_shards=0"], "1 to 500 is expected, got '0'"),
        (["--language=English"], "a language code such as en is expected, got 'English'"),
        (["--input=missing-*.zst"], "missing-*.zst has none"),
    ],
)
def test_mistakes_in_flags_are_told(tmp_path: Path, flags: list[str], message: str):
    argv = ["reddit", "--input", __file__, f"--output={tmp_path}", *flags]
    with pytest.raises(UserError, match=re.escape(message)):
        run_command(COMMANDS, argv)


def test_the_plain_runner_needs_no_other_program():
    for flags in ([], ["--runner=DirectRunner"]):
        assert beam_options(flags).get_all_options()["runner"] == "FnApiRunner"


def test_flags_of_beam_reach_it():
    options = beam_options(["--runner=FlinkRunner", "--flink_master=host:8081", "--streaming"])
    assert isinstance(options, PipelineOptions)
    assert options.get_all_options()["flink_master"] == "host:8081"


def test_without_beam_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match=r"pip install 'xling_tf\[beam\]'"):
        importlib.reload(xling_tf.pipelines)


def test_the_program_prints_and_reports_what_it_did(tmp_path: Path):
    (tmp_path / "enwiki-1.xml.bz2").write_bytes(bz2.compress(DUMP))
    (tmp_path / "enwiki-2.xml.bz2").write_bytes(bz2.compress(DUMP)[:-20])
    flags = "wikipedia --input enwiki-*.bz2 --language=en --output=out --num_shards=1"
    run = run_python(tmp_path, str(ROOT / "data/main.py"), *flags.split())
    assert run.status == 0, run.errors
    assert re.search(r"^articles +3$", run.output, re.MULTILINE)
    assert re.search(
        r"^damaged: \S*enwiki-2.xml.bz2: truncated .bz2 after 0 pages$", run.output, re.M
    )
    assert (tmp_path / "out/documents/wikipedia.en-00000-of-00001.txt.gz").exists()
    assert report(tmp_path / "out")["documents/wikipedia.en"]["counts"]["triplets"] == 4


def test_the_program_tells_of_a_full_disk_in_one_line(tmp_path: Path):
    (tmp_path / "RC_2016-01").write_bytes(
        b"".join(comment(f"c{i}", "t3_s", "Hi") for i in range(9))
    )
    program = str(ROOT / "data/main.py")
    # No file may have more than 40 bytes, which a packed shard has.
    code = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40));"
        f"sys.argv = [{program!r}, 'reddit', '--input=RC_2016-01', '--output=out'];"
        f"runpy.run_path({program!r}, run_name='__main__')"
    )
    error = the_error(run_python(tmp_path, "-B", "-c", code))
    assert "[Errno 27] File too large; mend that and start the same command again" in error


@pytest.mark.slow
def test_several_processes_give_the_same_bytes(tmp_path: Path):
    for month in (1, 2):
        lines = (
            comment(f"{month}{i}", f"t1_{3 - month}{i // 2}", f"Say{i % 9 * ' so'}!")
            for i in range(99)
        )
        (tmp_path / f"RC_{month}").write_bytes(b"".join(lines))
    written = []
    for folder, flags in (("one", ()), ("two", ("--direct_running_mode=multi_processing",))):
        command = ("reddit", "--input=RC_*", f"--output={folder}", "--direct_num_workers=2", *flags)
        run = run_python(tmp_path, str(ROOT / "data/main.py"), *command)
        assert run.status == 0, run.errors
        written.append({path.name: path.read_bytes() for path in (tmp_path / folder).rglob("*.gz")})
    assert written[0] == written[1]
