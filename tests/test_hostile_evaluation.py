"""Readers of evaluation sets, results and answers on damaged files: all of a file, or one error."""

import json
from functools import partial
from pathlib import Path

import pytest
from hostile_bytes import FEW, damaged, odd_json, require_told
from hypothesis import given
from hypothesis import strategies as st
from result_files import results as make_results
<<<<<<< HEAD
from test_hostile_corpora import SNLI_LINE
from test_report import report

from xling_tf.errors import UserError
from xling_tf.evaluators.classification.document_files import read_mldoc
from xling_tf.evaluators.classification.nli_files import (
    read_labelled,
    read_published_snli,
    read_xnli,
)
from xling_tf.evaluators.classification.sentiment_files import read_reviews
from xling_tf.evaluators.classification.transfer_files import _TASKS
from xling_tf.evaluators.data import read_table
from xling_tf.evaluators.reqa import read_tables
=======
from test_hostile_corpora import SQUAD_FILE

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.mining_files import BuccFiles, read_bucc
from xling_tf.evaluators.bitext.parallel_files import read_aligned
from xling_tf.evaluators.data import read_table
from xling_tf.evaluators.inference import read_inference
from xling_tf.evaluators.ranking.paraphrase_files import read_askubuntu, read_pairs, read_quora
from xling_tf.evaluators.ranking.reqa_files import read_squad, read_tables
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)
from xling_tf.evaluators.running import _read
from xling_tf.evaluators.semantic_retrieval import read_pairs
from xling_tf.evaluators.sts import read_scored

<<<<<<< HEAD
REVIEWS = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<items>'
    + b"<item><rating>5.0</rating><summary>Good</summary><text>Very.</text></item>" * 2
    + b"</items>"
)
TREC = next(task.read for task in _TASKS if task.name == "TREC")
MRPC = next(task.read for task in _TASKS if task.name == "MRPC")
=======
QUORA = (
    b"id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    b'0\t1\t2\t"What is\nthis?"\tWhat?\t1\n1\t3\t4\tWho?\tWhy?\t0\n'
)
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)


def read_reqa(path: Path) -> object:
    sentences = path.with_name("sentences.tsv")
    sentences.write_text("sentence_id\tsentence\n1\tAda did.\n")
    return read_tables({"questions": path, "sentences": sentences})


# A reader, and a valid file of it.
READERS = {
    "table": (partial(read_table, columns=("a", "b")), b"a\tb\tc\n1\t2\t3\n4\t5\t6\n"),
<<<<<<< HEAD
    "scores": (read_scored, b"sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\n"),
    "mldoc": (read_mldoc, b"CCAT\tb'A \\xc3\\xb1 text.'\nMCAT\tPlain.\n"),
    "nli": (read_labelled, b"label\tpremise\thypothesis\nneutral\ta\tb\nentailment\tc\td\n"),
    "xnli": (
        partial(read_xnli, language="es"),
        b"language\tgold_label\tsentence1\tsentence2\nes\tneutral\ta\tb\n",
    ),
    "snli": (read_published_snli, f"{SNLI_LINE}\n".encode() * 2),
    "reviews": (read_reviews, REVIEWS),
    "trec": (TREC, b"DESC:manner How did it?\nENTY:cremat What films?\n"),
    "mrpc": (MRPC, b"Quality\tID1\tID2\t1\t2\n1\t2\t3\tOne.\tUno.\n"),
=======
    "scores": (read_scored_pairs, b"sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t5\n"),
    "benchmark": (read_benchmark, b"main\tf\t2012\t1\t5.000\tOne.\tUno.\n" * 2),
    "semeval": (lambda path: read_semeval(path, beside(path, ".gs", b"5\n\n")), b"a\tb\nc\td\n"),
    "aligned": (lambda path: read_aligned([path, beside(path, ".es", b"x\ny\n")]), b"a\nb\n"),
    "bucc": (
        lambda path: read_bucc(
            BuccFiles(path, beside(path, ".es", b"t1\tuno\n"), beside(path, ".gold", b"s1\tt1\n"))
        ),
        b"s1\tone\ns2\ttwo\n",
    ),
    "nli": (read_inference, b"label\tpremise\thypothesis\nneutral\ta\tb\nentailment\tc\td\n"),
    "quora": (read_quora, QUORA),
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)
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
def test_valid_files_are_read(name, tmp_path):
    read, valid = READERS[name]
    path = tmp_path / "x.file"
    path.write_bytes(valid)
    assert read(path)


@pytest.mark.parametrize("name", READERS)
@FEW
@given(data=st.data())
def test_damaged_files_are_read_or_told(name, data, tmp_path):
    read, valid = READERS[name]
    path = tmp_path / "x.file"
    path.write_bytes(data.draw(damaged(valid)))
    read_or_told(read, path, tmp_path)


<<<<<<< HEAD
@pytest.mark.parametrize("name", ["table", "reviews", "trec", "snli"])
=======
@pytest.mark.parametrize("name", ["table", "nli", "squad"])
>>>>>>> 8336b3f (Classification: five modules that take lists; folds by scikit-learn; published formats to data/convert.py; the zero-shot classifier keeps a tenth for development)
def test_a_folder_or_nothing_in_its_place_is_told(name, tmp_path):
    read, _ = READERS[name]
    path = tmp_path / "x.file"
    assert read_or_told(read, path, tmp_path) is None
    path.mkdir()
    assert read_or_told(read, path, tmp_path) is None


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
