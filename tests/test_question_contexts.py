"""Contexts for answers without one: the answers around them."""

import gzip

from programs import ROOT, run_python, the_error

from xling_tf.corpora.sentences import surroundings

PROGRAM = str(ROOT / "data" / "questions.py")


def test_a_sentence_stands_between_its_neighbours():
    around = {"A.": "A. B.", "B.": "A. B. C.", "C.": "B. C. D.", "D.": "C. D."}
    assert surroundings(["A.", "B.", "C.", "D."], 1) == around
    assert surroundings(["A.", "B.", "A."], 5) == {"A.": "A. B. A.", "B.": "A. B. A."}
    # No space follows a wide full stop.
    around = {"下雨。": "下雨。OK.", "OK.": "下雨。OK. 好", "好": "OK. 好"}
    assert surroundings(["下雨。", "OK.", "好"], 1) == around


def test_the_program_writes_three_columns(tmp_path):
    lines = ["Who?\tAda.", "no columns", "Why?\tIt rains.", "Who wrote?\tAda."]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines))
    flags = ["--pairs=pairs.tsv", "--output=data/questions/x.en.tsv.gz", "--neighbours=1"]
    run = run_python(tmp_path, PROGRAM, *flags)
    assert run.status == 0
    assert run.output == "data/questions/x.en.tsv.gz: questions 3, answers 2, contexts 1\n"
    assert "1 not 2 or 3 columns (first lines: 2)" in run.errors
    written = tmp_path / "data" / "questions" / "x.en.tsv.gz"
    assert gzip.decompress(written.read_bytes()).decode().splitlines() == [
        "Who?\tAda.\tAda. It rains.",
        "Why?\tIt rains.\tAda. It rains.",
        "Who wrote?\tAda.\tAda. It rains.",
    ]


def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path):
    (tmp_path / "pairs.tsv").write_text("Who?\tAda.\tAda came.\n")
    run = run_python(tmp_path, PROGRAM, "--pairs=pairs.tsv", "--output=x.en.tsv")
    assert "that of 'Who?' has a context already" in the_error(run)
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]
