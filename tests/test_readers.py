from pathlib import Path

import pytest
from raw_files import squad, write_files

from xling_tf.corpora.questions import read_questions, read_squad
from xling_tf.corpora.readers import (
    read_conversations,
    read_documents,
    read_nli,
    read_parallel,
    read_similarity,
)
from xling_tf.corpora.records import InferencePair, QuestionAnswer, SentenceTriplet, TranslationPair
from xling_tf.corpora.sentences import surroundings
from xling_tf.errors import UserError


def read(reading):
    return [record for record, _ in reading]


def write(path: Path, content: str | bytes) -> Path:
    return write_files(path.parent, {path.name: content}) / path.name


def test_text_is_stripped_nfc_and_without_bom(tmp_path):
    # "e" and a combining acute become one character; CRLF and outer spaces go.
    path = write(tmp_path / "x.tsv", b"\xef\xbb\xbf Cafe\xcc\x81 \t uno\r\na\xe2\x80\xa8b\tz")
    pairs = [TranslationPair("Caf\u00e9", "uno"), TranslationPair("a\u2028b", "z")]
    assert read(read_parallel(path)) == pairs


def test_malformed_lines_are_counted_with_their_first_numbers(tmp_path):
    lines = [b"a\tb", b"only one", b"a\t ", b"\xff\tb", b"a\tb\tc", b"", b"q\tr"]
    lines += [b"one"] * 4
    report = read_parallel(write(tmp_path / "x.tsv", b"\n".join(lines)))
    assert len(read(report)) == report.num_records == 2
    # Lines 2, 5, 6 and the last four (8 to 11) have another number of columns: 7 in all.
    assert report.malformed == {"not 2 columns": 7, "empty column": 1, "not UTF-8": 1}
    assert report.malformed.first_rows["not 2 columns"] == (2, 5, 6, 8, 9)
    assert "not 2 columns: 7 (first: 2, 5, 6, 8, 9); empty column: 1" in report.summary()


def test_what_shows_nothing_is_empty_in_every_kind_of_file(tmp_path):
    blank = "\ufeff \u200b"
    sides = f"a\t{blank}\n{blank}\tb\nc\td\n"
    path = write(tmp_path / "x.tsv", sides)
    for reader in (read_parallel, read_conversations, read_questions):
        assert [record[:2] for record in read(reader(path))] == [("c", "d")]
    scored = write(tmp_path / "s.tsv", f"sentence1\tsentence2\tscore\n{blank}\tb\t1\nc\td\t2\n")
    assert [record[:2] for record in read(read_similarity(scored))] == [("c", "d")]
    pairs = write(tmp_path / "n.tsv", f"neutral\t{blank}\th\nneutral\tp\th\n")
    assert read(read_nli(pairs)) == [InferencePair("p", "h", 1)]
    assert read(read_documents(write(tmp_path / "x.txt", f"a\nb\n{blank}\nc\n"))) == []


def test_another_encoding_is_named_as_the_cause(tmp_path):
    texts = {"utf-16-le": "añado\tmañana\n", "cp1251": "Где вокзал?\tТам\n", "gbk": "车站\t在\n"}
    for encoding, text in texts.items():
        reading = read_parallel(write(tmp_path / "x.tsv", text.encode(encoding)))
        assert read(reading) == []
        assert "iconv" in str(reading.nothing_usable())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"])
def test_encodings_of_spreadsheets_are_read_alike(encoding, tmp_path, caplog):
    # The mark of UTF-16 names it; Latin-1 is an assumption, and so is said.
    text = "añado\tmañana\nseñor\taño\n" * 40_000  # 1.2 MB, more than the sample
    path = write(tmp_path / "x.en-es.tsv.gz", text.encode(encoding))
    rows = read(read_parallel(path))
    assert {row[:2] for row in rows} == {("añado", "mañana"), ("señor", "año")}
    assert len(rows) == 80_000
    assert caplog.text.count("is not UTF-8") == (encoding in ("latin-1", "cp1252"))


def test_nli_labels_are_indices(tmp_path):
    labels = ("contradiction", "entailment", "neutral", "maybe", "not_entailment")
    reading = read_nli(write(tmp_path / "x.tsv", "".join(f"{label}\tp\th\n" for label in labels)))
    assert read(reading) == [InferencePair("p", "h", label) for label in (2, 0, 1)]
    other = "label not of entailment, neutral, contradiction"
    assert reading.malformed == {other: 1, "not_entailment": 1}
    with pytest.raises(UserError, match=f"1 of 4 rows.*{other}"):
        reading.require_few_left_out()


def test_pairs_of_two_labels_are_left_out_without_an_error(tmp_path):
    # As in RTE-1: half of the pairs say only that the premise does not entail the hypothesis.
    path = write(tmp_path / "rte.tsv", "entailment\tp\th\nnot_entailment\tp\th\n" * 5)
    reading = read_nli(path)
    assert len(read(reading)) == 5
    reading.require_few_left_out()


def test_documents_give_their_contiguous_triplets(tmp_path):
    # Documents of 4, 2 and 3 sentences have 2, 0 and 1 triplets.
    # None of the fourth spans the line that is not UTF-8.
    path = write(tmp_path / "x.txt", b"a\nb\nc\nd\n\ne\nf\n\n\ng\nh\ni\n\nj\nk\n\xff\nl\nm\n")
    reading = read_documents(path)
    assert read(reading) == [
        SentenceTriplet("a", "b", "c"),
        SentenceTriplet("b", "c", "d"),
        SentenceTriplet("g", "h", "i"),
    ]
    first, second, third = (key for _, key in read_documents(path))
    assert first == second != third
    assert reading.malformed == {"not UTF-8": 1}


FOX = "The fox sleeps. It is red.\nCafe\u0301s are closed."


def test_tables_have_a_context_or_not_and_rows_without_an_answer_are_counted(tmp_path):
    rows = "Who? \tAda did.\nWhere?\tHere.\t We sit. Here. \nHow?\tSo.\t\n"
    rows += "Who?\t\nWho?\t \tAda came.\n\tAda.\nWho?\na\tb\tc\td\n"
    reading = read_questions(write(tmp_path / "x.en.tsv", rows))
    assert [record for record, _ in reading] == [
        QuestionAnswer("Who?", "Ada did.", "Ada did."),
        QuestionAnswer("Where?", "Here.", "We sit. Here."),
        QuestionAnswer("How?", "So.", "So."),
    ]
    assert reading.malformed.first_rows == {"empty column": (4, 5, 6), "not 2 or 3 columns": (7, 8)}


def test_answers_are_the_distinct_sentences_in_which_they_begin(tmp_path):
    # "It" is the 17th character of the text, "fox" the fifth and "Cafés" the 28th.
    content = squad(FOX, ("Who?", [4, 4]), (" What? ", [16, 4]), ("Which? ", [27]))
    path = write(tmp_path / "x.json", content)
    # Records are sentences with their paragraphs.
    context = "The fox sleeps. It is red. Caf\u00e9s are closed."
    assert [record for record, _ in read_squad(path, ["en"])] == [
        QuestionAnswer("Who?", "The fox sleeps.", context),
        QuestionAnswer("What?", "It is red.", context),
        QuestionAnswer("What?", "The fox sleeps.", context),
        QuestionAnswer("Which?", "Caf\u00e9s are closed.", context),
    ]


def test_questions_without_an_answer_are_counted_by_their_numbers(tmp_path):
    def reading(content: str):
        return read_squad(write(tmp_path / "x.en.json", content), ["en"])

    # As SQuAD v2 has them; what only looks like an answer is none.
    looks = {"is_impossible": True, "plausible_answers": [{"answer_start": 4}]}
    found = reading(squad(FOX, ("Who?", [4]), ("Why?", []), (" ", [4]), ("How?", []), **looks))
    assert len(list(found)) == 1
    with pytest.raises(UserError, match="begins at 99, outside"):
        list(reading(squad(FOX, ("Who?", [99]))))
    assert found.malformed.first_rows == {"question without an answer": (2, 3, 4)}


def test_a_sentence_stands_between_its_neighbours():
    around = {"A.": "A. B.", "B.": "A. B. C.", "C.": "B. C. D.", "D.": "C. D."}
    assert surroundings(["A.", "B.", "C.", "D."], 1) == around
    assert surroundings(["A.", "B.", "A."], 5) == {"A.": "A. B. A.", "B.": "A. B. A."}
    # No space follows a wide full stop.
    around = {"下雨。": "下雨。OK.", "OK.": "下雨。OK. 好", "好": "OK. 好"}
    assert surroundings(["下雨。", "OK.", "好"], 1) == around
