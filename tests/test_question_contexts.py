"""Contexts for answers without one: the answers around them."""

import gzip

import pytest
from programs import ROOT, run_python, the_error

from xling_tf.corpora.question_contexts import add_contexts, with_neighbours
from xling_tf.errors import UserError

PROGRAM = str(ROOT / "data" / "questions.py")


def contexts(answers, num_neighbours):
    pairs = [(f"{number}?", answer) for number, answer in enumerate(answers)]
    records = list(with_neighbours(pairs, num_neighbours))
    assert [record[:2] for record in records] == pairs
    return [record.context for record in records]


def test_the_context_is_the_distinct_answers_around():
    # Distinct are A B C D, in this order; the second A is as the first.
    assert contexts(["A.", "A.", "B.", "A.", "C.", "D."], 1) == [
        *("A. B.", "A. B.", "A. B. C.", "A. B.", "B. C. D.", "C. D."),
    ]
    assert contexts(["A.", "B.", "C.", "D."], 2) == [
        *("A. B. C.", "A. B. C. D.", "A. B. C. D.", "B. C. D."),
    ]


def test_no_neighbours_repeat_the_answer():
    assert contexts(["A.", "B."], 0) == ["A.", "B."]
    assert contexts([], 2) == []


def test_no_space_follows_a_wide_full_stop():
    assert contexts(["下雨了。", "我们在家。", "OK.", "好！"], 3)[0] == "下雨了。我们在家。OK. 好！"


def test_the_program_writes_three_columns(tmp_path):
    (tmp_path / "pairs.tsv").write_text("Who?\tAda.\nno columns\nWhy?\tIt rains.\n")
    flags = ["--pairs=pairs.tsv", "--output=data/questions/x.en.tsv.gz", "--neighbours=1"]
    run = run_python(tmp_path, PROGRAM, *flags)
    assert run.status == 0
    assert run.output == "data/questions/x.en.tsv.gz: questions 2, answers 2, contexts 1\n"
    assert "1 not 2 or 3 columns (first lines: 2)" in run.errors
    written = tmp_path / "data" / "questions" / "x.en.tsv.gz"
    text = "Who?\tAda.\tAda. It rains.\nWhy?\tIt rains.\tAda. It rains.\n"
    assert gzip.decompress(written.read_bytes()).decode() == text


def test_a_mistake_is_one_line(tmp_path):
    (tmp_path / "pairs.tsv").write_text("Who?\tAda.\n")
    run = run_python(tmp_path, PROGRAM, "--pairs=pairs.tsv", "--output=questions.tsv")
    assert "a name that says the language, as squad.en.tsv.gz, got 'questions.tsv'" in the_error(
        run
    )
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Who?\tAda.\tAda came.\n", "that of 'Who\\?' has a context already"),
        ("one column\n", "has no usable record: 1 not 2 or 3 columns"),
        ("Who?\t\n", "1 question without an answer"),
        ("", "nothing of that kind"),
    ],
)
def test_what_are_no_pairs_is_refused_and_leaves_nothing(tmp_path, content, message):
    (tmp_path / "pairs.tsv").write_text(content)
    with pytest.raises(UserError, match=message):
        add_contexts(tmp_path / "pairs.tsv", tmp_path / "x.en.tsv", 2)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


def test_an_output_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("Who?\tAda.\n")
    with pytest.raises(UserError, match="--output"):
        add_contexts(tmp_path / "file", tmp_path / "file" / "x.en.tsv", 2)
