"""Readers of corpora on damaged files: what is bad is counted with its place, what is good is kept."""

import gzip
import json
import os
import sys
import tarfile
import tracemalloc
import unicodedata
import zipfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import example, given
from hypothesis import strategies as st
from raw_files import pack, snli_line, write_files

from xling_tf.corpora.folder import discover, load_folder
from xling_tf.corpora.line_files import MAX_LINE, normal_form, read_lines
from xling_tf.corpora.questions import read_question_sentences, read_questions, read_squad
from xling_tf.corpora.readers import (
    MalformedLineError,
    read_conversations,
    read_documents,
    read_nli,
    read_parallel,
    read_similarity,
)
from xling_tf.corpora.records import SentenceTriplet
from xling_tf.corpora.snli import parse_snli, read_snli
from xling_tf.errors import UserError

SNLI_LINE = snli_line("neutral", "A man.", "He ñ.").strip()
ASKED = {"id": "1", "question": "What falls?", "answers": [{"answer_start": 0, "text": "Rain"}]}
RAIN = {"context": "Rain falls. It is wet.", "sentence_breaks": [[0, 12], [12, 22]], "qas": [ASKED]}
SQUAD_FILE = json.dumps({"data": [{"title": "Rain", "paragraphs": [RAIN]}]}).encode()
# One line of each format that gives one record.
LINES = {
    read_parallel: "Good mörning.\tBuenos días.",
    read_conversations: "How are yöu?\tFine.",
    read_nli: "neutral\tA man sleeps.\tHe dreams.",
    read_questions: "Who?\tAda.\tAda did.",
    read_question_sentences: "Who?\tAda.",
    read_snli: SNLI_LINE,
}
# What is one line in none of them.
BAD_LINES = [
    *(b"", b"one", b"\t\t\t\t\t", b"\xff\tb\tc", b"a\x00\tb", b"\xef\xbb\xbf", b"{}", b"[1"),
    *(b"[" * 100_000, b'{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": "b"}'),
    *(b'{"gold_label": 1, "sentence1": [], "sentence2": {}}', b'{"gold_label": "maybe"}', b"\r"),
    *(b"x" * (MAX_LINE + 1), "é\tb\tc\td".encode("utf-16-le"), b"9" * 5000, b"NaN"),
]


FILES = {"parallel/x.en-es.tsv": "one\tuno\n"}


def read_or_told(read, path: Path) -> list:
    """The rows of a file; nothing but a `UserError` with the file's name may come in their place."""
    try:
        reading = read(path)
        rows = list(reading)
        if not rows and hasattr(reading, "nothing_usable"):
            raise reading.nothing_usable()
    except UserError as error:
        require_told(error, path)
        return []
    for row in rows:
        str(row).encode()  # no half characters
    return rows


@pytest.mark.parametrize("read", LINES)
@FEW
@given(bad=st.lists(st.one_of(st.none(), st.sampled_from(BAD_LINES)), min_size=1, max_size=12))
@example(bad=[None, *BAD_LINES, None])
def test_bad_lines_are_counted_and_those_around_them_kept(read, bad, tmp_path):
    good = LINES[read].encode()
    content = b"\n".join(good if line is None else line for line in bad) + b"\n"
    reading = read(write_files(tmp_path, {"x.tsv.gz": content}) / "x.tsv.gz")
    records = [record for record, _ in reading]
    assert len(records) == bad.count(None)
    assert len(set(records)) <= 1
    assert reading.malformed.total() == len(bad) - bad.count(None)
    # Of each reason the first five places are told, and of a file they are in order.
    for reason, numbers in reading.first_lines.items():
        assert len(numbers) == min(5, reading.malformed[reason])
        assert all(bad[number - 1] is not None for number in numbers)


# What is more than a line.
WHOLE = {
    read_documents: "One.\nTwo.\nThree.\n",
    read_similarity: "sentence1\tsentence2\tscore\nA man.\tHe ñ.\t2.5\na\tb\t5",
}


@pytest.mark.parametrize("read", [*LINES, *WHOLE])
@FEW
@given(data=st.data())
def test_whatever_is_in_a_file_is_rows_or_one_error(read, data, tmp_path):
    line = {**LINES, **WHOLE}[read]
    path = tmp_path / "x.tsv"
    path.write_bytes(data.draw(damaged(f"{line}\n".encode() * 3)))
    read_or_told(read, path)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".zst"])
@FEW
@given(data=st.data())
def test_a_damaged_packed_file_is_whole_or_an_error(ending, data, tmp_path):
    path = tmp_path / f"x.tsv{ending}"
    whole = pack(ending, b"a\tb\n" * 50) + pack(ending, b"c\td\n" * 50)
    path.write_bytes(data.draw(damaged(whole)))
    rows = read_or_told(read_parallel, path)
    # Up to where a second member begins it may be whole; else the checksum tells.
    assert len(rows) % 50 == 0


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".lzma", ".zst", ".deflate"])
def test_every_packing_is_read_to_its_end_or_named(ending, tmp_path):
    lines = b"".join(b"%d\t%d\n" % (n, n * 7919 % 100_003) for n in range(8000))
    packed = pack(ending, lines)
    path = tmp_path / f"x.tsv{ending}"
    second = pack(ending, b"one\tuno\n")
    wholes = {8000: packed, 8001: packed + second, 8002: packed + b"\0" * 512 + second + second}
    for count, content in wholes.items():
        path.write_bytes(content)
        assert len(read_or_told(read_parallel, path)) == count
    # Whose name does not tell the packing, or tells another one.
    for name in ["x.tsv", "x.tsv.gz"] if ending not in (".lzma", ".deflate") else []:
        (tmp_path / name).write_bytes(packed)
        assert len(read_or_told(read_parallel, tmp_path / name)) == 8000
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    second_flipped = packed + b"\xff" + second[1:]
    cuts = [packed[: len(packed) * share // 100] for share in (0, 1, 60, 99)]
    for content in (*cuts, packed[:-1], bytes(flipped), packed + b"garbage", second_flipped, b"a\tb\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="must be a whole") as error:
            list(read_parallel(path))
        require_told(error.value, path)


def test_an_archive_is_named_and_a_text_that_begins_like_a_packed_file_is_read(tmp_path):
    path = tmp_path / "x.tsv"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.tsv", "a\tb\n")
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        archive.add(path, "x.tsv")
    (tmp_path / "x.7z").write_bytes(b"7z\xbc\xaf\x27\x1c\0\4")
    (tmp_path / "x.tsv.gz").write_bytes(pack(".gz", pack(".gz", b"a\tb\n")))
    for name in ("x.tsv", "x.tar.gz", "x.7z", "x.tsv.gz"):
        with pytest.raises(UserError, match="unpack it") as error:
            list(read_parallel(tmp_path / name))
        require_told(error.value, tmp_path / name)
    path.write_text("BZh9 is how bzip2 begins\tAsí empieza\n")
    assert len(list(read_parallel(path))) == 1


def test_zst_without_its_package_names_the_extra(tmp_path, monkeypatch):
    path = tmp_path / "x.tsv.zst"
    path.write_bytes(pack(".zst", b"a\tb\n"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(UserError, match=r"zstandard.*\[beam\]"):
        list(read_parallel(path))


@FEW
@given(data=st.data())
def test_any_json_in_the_place_of_squads_or_snlis_is_records_or_one_error(data, tmp_path):
    path = tmp_path / "x.en.json"
    path.write_bytes(data.draw(st.one_of(odd_json(SQUAD_FILE), damaged(SQUAD_FILE))))
    read_or_told(partial(read_squad, language="en"), path)
    with suppress(MalformedLineError):
        pair = parse_snli(data.draw(odd_json(SNLI_LINE.encode())).decode())
        assert {*map(type, pair)} == {str, int}
        str(pair).encode()


def test_the_longest_line_is_kept_and_a_longer_one_counted(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"a\n" + b"x" * MAX_LINE + b"\n" + b"x" * (MAX_LINE + 1) + b"\nb")
    lines = list(read_lines(path))
    assert [len(str(line)) for _, line in lines] == [1, MAX_LINE, len("longer than 1 MiB"), 1]
    assert lines[-1] == (4, "b")


def test_a_document_larger_than_the_memory_gives_all_its_triplets_under_one_key(tmp_path, monkeypatch):
    monkeypatch.setattr("xling_tf.corpora.readers._MAX_DOCUMENT", 300)  # of some 60 bytes each
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{number}\n" for number in range(40)) + "\nx\ny\nz\n")
    rows = list(read_documents(path))
    assert [triplet for triplet, _ in rows[:-1]] == [
        SentenceTriplet(*map(str, (n, n + 1, n + 2))) for n in range(38)
    ]
    assert len({key for _, key in rows[:-1]}) == 1
    assert rows[-1][1] != rows[0][1]


@pytest.mark.parametrize(
    ("mark", "form", "letter", "sorted_marks"),
    [
        ("\u0301\u0316", "NFC", "\u00e9", ("\u0316", "\u0301")),
        ("\u0f73", "NFC", "e", ("\u0f71", "\u0f72")),
        ("\u0301\uff9e", "NFKC", "\u00e9", ("\u3099", "\u0301")),
    ],
)
def test_a_flood_of_marks_takes_no_time(mark, form, letter, sorted_marks):
    # `unicodedata` alone takes 15 minutes for this megabyte, n * n steps.
    first, last = sorted_marks
    # The first acute accent becomes one character with its letter.
    expected = letter + first * 250_000 + last * (250_000 - (letter != "e"))
    assert normal_form("e" + mark * 250_000, form) == expected


@given(st.text(alphabet="ae\u0301\u0316\u0f73\u212b\ufb01\u1100\u1161 ", max_size=80))
@FEW
def test_texts_of_any_language_are_as_the_standard_has_them(text):
    for form in ("NFC", "NFKC"):
        assert normal_form(text, form) == unicodedata.normalize(form, text)


def test_what_is_no_file_is_named(tmp_path, caplog):
    parallel = write_files(tmp_path, FILES) / "parallel"
    (parallel / "folder.en-es.tsv").mkdir()
    (parallel / "gone.en-es.tsv").symlink_to(tmp_path / "nowhere")
    (parallel / "loop.en-es.tsv").symlink_to(parallel / "loop.en-es.tsv")
    os.mkfifo(parallel / "pipe.en-es.tsv")
    Path(os.fsdecode(os.fsencode(parallel) + b"/\xff.en-es.tsv")).write_text("a\tb\n")
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    assert corpus.name == "x"
    (message,) = caplog.messages
    for name in ("folder", "gone", "loop", "pipe", r"\udcff"):
        assert f"{name}.en-es.tsv" in message


def test_files_that_go_or_cannot_be_opened(tmp_path):
    path = write_files(tmp_path, FILES) / "parallel" / "x.en-es.tsv"
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    path.unlink()
    with pytest.raises(UserError, match="No such file") as error:
        list(corpus)
    require_told(error.value, path)
    with pytest.raises(UserError, match="not there now") as error:
        corpus.version()
    require_told(error.value, path)
    path.mkdir()
    with pytest.raises(UserError, match="Is a directory") as error:
        list(corpus)
    require_told(error.value, path)
    assert list(discover(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bomb.tsv.gz", "line.tsv"])
def test_a_line_without_end_takes_no_memory(tmp_path, name):
    path = tmp_path / name
    megabytes = 1000 if name.endswith(".gz") else 300
    with gzip.open(path, "wb", 1) if name.endswith(".gz") else path.open("wb") as file:
        file.write(b"one\tuno\n")
        for _ in range(megabytes):
            file.write(b"a" * 2**20)
        file.write(b"\ntwo\tdos\n")
    tracemalloc.start()
    reading = read_parallel(path)
    assert len(list(reading)) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.malformed == {"longer than 1 MiB": 1}
    assert peak < 10 * 2**20
