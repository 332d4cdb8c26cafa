"""Readers of evaluation sets, results and answers on damaged files: all of a file, or one error."""

import json
from functools import partial
from pathlib import Path

import pytest
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import given
from hypothesis import strategies as st
from result_files import results as make_results
from test_report import report

from xling_tf.errors import UserError
from xling_tf.evaluators.data import read_table
from xling_tf.evaluators.reqa import read_tables
from xling_tf.evaluators.running import _read
from xling_tf.evaluators.semantic_retrieval import read_pairs
from xling_tf.evaluators.sts import read_scored


def read_reqa(path: Path) -> object:
    sentences = path.with_name("sentences.tsv")
    sentences.write_text("sentence_id\tsentence\n1\tAda did.\n")
    return read_tables({"questions": path, "sentences": sentences})


# A reader, and a valid file of it.
READERS = {
    "table": (partial(read_table, columns=("a", "b")), b"a\tb\tc\n1\t2\t3\n4\t5\t6\n"),
    "scores": (read_scored, b"sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\n"),
    "pairs": (read_pairs, b"label\tquestion1\tquestion2\n1\ta\tb\n0\tc\td\n"),
    "reqa": (read_reqa, b"question_id\tquestion\tanswer_sentence_id\nq\tWho?\t1\n"),
}


def read_or_told(read, path: Path, folder: Path) -> object:
    try:
        return read(path)
    except UserError as error:
        require_told(error, folder)
        return None


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_damaged_files_are_read_or_told(name, data, tmp_path):
    read, valid = READERS[name]
    path = tmp_path / "x.file"
    path.write_bytes(data.draw(damaged(valid)))
    read_or_told(read, path, tmp_path)


RESULTS = json.dumps(make_results()).encode()


@FEW
@given(data=st.data())
def test_results_files_are_read_or_told(data, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(data.draw(st.one_of(odd_json(RESULTS), damaged(RESULTS))))
    read_or_told(_read, path, tmp_path)
    read_or_told(lambda path: report.read_results([path]), path, tmp_path)


LOGS = {
    "metrics.jsonl": b'{"step": 0, "task": "a", "loss": 1.5, "accuracy": 0.5}\n' * 3,
    "dev.jsonl": b'{"step": 1, "scores": {"a": {"loss": 1.0, "accuracy": 0.5}}}\n',
}


@pytest.mark.parametrize("name", LOGS)
@FEW
@given(data=st.data())
def test_learning_curves_are_read_or_told(name, data, tmp_path):
    for other, valid in LOGS.items():
        (tmp_path / other).write_bytes(valid)
    content = data.draw(st.one_of(damaged(LOGS[name]), odd_json(LOGS[name])))
    (tmp_path / name).write_bytes(content)
    read_or_told(report.learning_points, tmp_path, tmp_path)
