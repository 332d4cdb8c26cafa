"""Damaged evaluation sets and results are read completely or reported."""

import json
from pathlib import Path

import pytest
import report
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import given
from hypothesis import strategies as st
from test_report import RESULTS

from xling_tf.errors import UserError
from xling_tf.evaluators import running
from xling_tf.evaluators.reqa import read_tables
from xling_tf.evaluators.sts import read_scored


def read_reqa(path: Path) -> object:
    sentences = path.with_name("sentences.tsv")
    sentences.write_text("sentence_id\tsentence\n1\tAda did.\n")
    return read_tables({"questions": path, "sentences": sentences})


RESULTS_FILE = json.dumps(RESULTS).encode()
# A valid file, and what reads it.
READERS = {
    "scores": (b"sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\n", read_scored),
    "reqa": (b"question_id\tquestion\tanswer_sentence_id\nq\tWho?\t1\n", read_reqa),
    "before.json": (RESULTS_FILE, running._read),
    "results.json": (RESULTS_FILE, lambda path: report.read_results([path])),
}


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_damaged_files_are_read_or_told(name, data, tmp_path):
    valid, read = READERS[name]
    kinds = [damaged(valid), odd_json(valid)] if ".json" in name else [damaged(valid)]
    path = tmp_path / name
    path.write_bytes(data.draw(st.one_of(kinds)))
    try:
        read(path)
    except UserError as error:
        require_told(error, tmp_path)
