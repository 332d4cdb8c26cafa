"""Readers on damaged corpora: bad lines are counted with their numbers, good ones are read."""

import gzip
import json
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import pytest
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import example, given
from hypothesis import strategies as st
from raw_files import flipped, pack, snli_line, write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import MAX_LINE
from xling_tf.corpora.questions import read_question_sentences, read_questions, read_squad
from xling_tf.corpora.readers import (
    read_conversations,
    read_documents,
    read_nli,
    read_parallel,
    read_similarity,
    read_snli,
)
from xling_tf.corpora.records import SentenceTriplet
from xling_tf.errors import UserError

SNLI_LINE = snli_line("neutral", "A man.", "He ñ.").strip()
ASKED = {"id": "1", "question": "What falls?", "answers": [{"answer_start": 0, "text": "Rain"}]}
RAIN = {"context": "Rain falls. It is wet.", "sentence_breaks": [[0, 12], [12, 22]], "qas": [ASKED]}
SQUAD_FILE = json.dumps({"data": [{"title": "Rain", "paragraphs": [RAIN]}]}).encode()
# One line of each format that gives one record.
LINES = [
    (read_parallel, "Good mörning.\tBuenos días."),
    (read_conversations, "How are yöu?\tFine."),
    (read_nli, "neutral\tA man sleeps.\tHe dreams."),
    (read_snli, SNLI_LINE),
    (read_questions, "Who?\tAda.\tAda did."),
    (read_question_sentences, "Who?\tAda."),
]
# What is one line in none of them.
BAD_LINES = [
    *(b"", b"one", b"\t\t\t\t\t", b"\xff\tb\tc", b"a\x00\tb", b"\xef\xbb\xbf", b"{}", b"[1", b"\r"),
    b'{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": "b"}',
    *(b'{"gold_label": 1, "sentence1": [], "sentence2": {}}', b"x" * (MAX_LINE + 1)),
]


def read_or_told(read, path: Path) -> list:
    """The rows of a file; nothing but a `UserError` with the file's name may come in their place."""
    try:
        rows = list(read(path))
    except UserError as error:
        require_told(error, path)
        return []
    for row in rows:
        str(row).encode()  # no half characters
    return rows


@pytest.mark.parametrize(("read", "line"), LINES)
@FEW
@given(bad=st.lists(st.one_of(st.none(), st.sampled_from(BAD_LINES)), min_size=1, max_size=12))
@example(bad=[None, *BAD_LINES, None])
def test_bad_lines_are_counted_and_those_around_them_kept(read, line, bad, tmp_path):
    good = line.encode()
    content = b"\n".join(good if line is None else line for line in bad) + b"\n"
    name = "x.jsonl.gz" if read is read_snli else "x.tsv.gz"
    reading = read(write_files(tmp_path, {name: content}) / name)
    records = [record for record, _ in reading]
    assert len(records) == bad.count(None)
    assert len(set(records)) <= 1
    assert reading.malformed.total() == len(bad) - bad.count(None)


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".lzma", ".zst", ".deflate"])
def test_every_compression_is_read_to_its_end_or_named(ending, tmp_path):
    lines = b"".join(b"%d\t%d\n" % (n, n * 7919 % 100_003) for n in range(8000))
    packed = pack(ending, lines)
    path = tmp_path / f"x.tsv{ending}"
    second = pack(ending, b"one\tuno\n")
    for count, content in {8000: packed, 8001: packed + second}.items():
        path.write_bytes(content)
        assert len(read_or_told(read_parallel, path)) == count
    # The names do not tell the compression.
    if ending not in (".lzma", ".deflate"):
        (tmp_path / "x.tsv").write_bytes(packed)
        assert len(read_or_told(read_parallel, tmp_path / "x.tsv")) == 8000
    for content in (packed[:-1], flipped(packed), packed + b"garbage", b"a\tb\n"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="must be a whole") as error:
            list(read_parallel(path))
        require_told(error.value, path)


def test_an_archive_is_named_and_a_text_that_begins_like_a_packed_file_is_read(tmp_path):
    path = tmp_path / "x.tsv"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.tsv", "a\tb\n")
    with pytest.raises(UserError, match="unpack it") as error:
        list(read_parallel(path))
    require_told(error.value, path)
    path.write_text("BZh9 is how bzip2 begins\tAsí empieza\n")
    assert len(list(read_parallel(path))) == 1


@FEW
@given(data=st.data())
def test_damaged_tables_and_json_are_records_or_one_error(data, tmp_path):
    path = tmp_path / "x.en.json"
    path.write_bytes(data.draw(damaged(b"sentence1\tsentence2\tscore\nA man.\tHe.\t2.5\na\tb\t5")))
    read_or_told(read_similarity, path)
    path.write_bytes(data.draw(st.one_of(odd_json(SQUAD_FILE), damaged(SQUAD_FILE))))
    read_or_told(partial(read_squad, languages=["en"]), path)
    path = path.with_suffix(".jsonl")
    path.write_bytes(data.draw(odd_json(SNLI_LINE.encode())))
    for pair, _ in read_or_told(read_snli, path):
        assert {*map(type, pair)} == {str, int}


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


def test_files_that_go_or_cannot_be_opened(tmp_path):
    path = write_files(tmp_path, {"parallel/x.en-es.tsv": "one\tuno\n"}) / "parallel/x.en-es.tsv"
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    path.unlink()
    with pytest.raises(UserError, match=f"{path} .*No such file"):
        list(corpus)
    with pytest.raises(UserError, match=f"{path} has disappeared"):
        corpus.version()


@pytest.mark.slow
def test_a_line_without_end_takes_no_memory(tmp_path):
    path = tmp_path / "bomb.tsv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"one\tuno\n")
        for _ in range(1000):
            file.write(b"a" * 2**20)
        file.write(b"\ntwo\tdos\n")
    tracemalloc.start()
    reading = read_parallel(path)
    assert len(list(reading)) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.malformed == {"longer than 1 MiB": 1}
    assert peak < 10 * 2**20
