"""Damaged files: corpora give good lines; evaluation sets and results are read or refused."""

import json
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import pytest
import report
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import example, given
from hypothesis import strategies as st
from raw_files import flipped, pack, snli_line, write_files
from test_report import RESULTS

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
from xling_tf.evaluators import running
from xling_tf.evaluators.reqa import ReqaData, read_tables
from xling_tf.evaluators.sts import read_scored

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
    b"",
    b"one",
    b"\t\t\t\t\t",
    b"\xff\tb\tc",
    b"a\x00\tb",
    b"\xef\xbb\xbf",
    b"{}",
    b"[1",
    b"\r",
    b'{"gold_label": "neutral", "sentence1": "\\ud800", "sentence2": "b"}',
    b'{"gold_label": 1, "sentence1": [], "sentence2": {}}',
    b"x" * (MAX_LINE + 1),
]


def read_or_told(read, path: Path) -> list:
    """The rows of a file; only a `UserError` with its folder's name may replace them."""
    try:
        rows = list(read(path))
    except UserError as error:
        require_told(error, path.parent)
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


def read_reqa(path: Path) -> ReqaData:
    sentences = path.with_name("sentences.tsv")
    sentences.write_text("sentence_id\tsentence\n1\tAda did.\n")
    return read_tables({"questions": path, "sentences": sentences})


SCORES = b"sentence1\tsentence2\tscore\nA man.\tHe.\t2.5\na\tb\t5"
RESULTS_FILE = json.dumps(RESULTS).encode()
# A valid file, and what reads it.
READERS = {
    "similarity.tsv": (SCORES, read_similarity),
    "squad.json": (SQUAD_FILE, partial(read_squad, languages=["en"])),
    "snli.jsonl": (SNLI_LINE.encode(), read_snli),
    "sts.tsv": (SCORES, read_scored),
    "reqa.tsv": (b"question_id\tquestion\tanswer_sentence_id\nq\tWho?\t1\n", read_reqa),
    "before.json": (RESULTS_FILE, running._read),
    "results.json": (RESULTS_FILE, lambda path: report.read_results([path])),
}


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_damaged_tables_and_json_are_read_or_one_error(name, data, tmp_path):
    valid, read = READERS[name]
    kinds = [damaged(valid), odd_json(valid)] if ".json" in name else [damaged(valid)]
    path = tmp_path / name
    path.write_bytes(data.draw(st.one_of(kinds)))
    rows = read_or_told(read, path)
    if read is read_snli:
        assert all({*map(type, pair)} == {str, int} for pair, _ in rows)


def test_a_document_larger_than_the_memory_gives_all_its_triplets_under_one_key(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("xling_tf.corpora.readers._MAX_DOCUMENT", 300)  # of some 60 bytes each
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{number}\n" for number in range(40)) + "\nx\ny\nz\n")
    rows = list(read_documents(path))
    expected = [SentenceTriplet(*map(str, (n, n + 1, n + 2))) for n in range(38)]
    assert [triplet for triplet, _ in rows[:-1]] == expected
    assert len({key for _, key in rows[:-1]}) == 1
    assert rows[-1][1] != rows[0][1]


def test_files_that_go_or_cannot_be_opened(tmp_path):
    path = write_files(tmp_path, {"parallel/x.en-es.tsv": "one\tuno\n"}) / "parallel/x.en-es.tsv"
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    path.unlink()
    with pytest.raises(UserError, match=f"{path} .*No such file"):
        list(corpus)
    with pytest.raises(UserError, match=f"{path} disappeared"):
        corpus.version()


def test_a_line_without_end_takes_no_memory(tmp_path):
    files = {"bomb.tsv.gz": b"one\tuno\n" + b"a" * 2**26 + b"\ntwo\tdos\n"}
    reading = read_parallel(write_files(tmp_path, files) / "bomb.tsv.gz")
    tracemalloc.start()
    assert len(list(reading)) == 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reading.malformed == {"longer than 1 MiB": 1}
    assert peak < 10 * 2**20
