"""Pairs of texts in any form that users have: the meaning of columns, and what is refused."""

import csv
import io
import json

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf
from raw_files import write_files

from xling_tf.corpora.line_files import MAX_LINE
from xling_tf.corpora.pairs import Pair, read_pairs
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError

COUNT = 12
TEXTS = [(f"one text {number}", f"another text {number}") for number in range(COUNT)]
SCORES = [number / 4 for number in range(COUNT)]
WRONG = [f"a wrong text {number % 7}" for number in range(COUNT)]
SCORED = [Pair(*pair, score) for pair, score in zip(TEXTS, SCORES, strict=True)]
TRIPLETS = [Pair(*pair, None, (text,)) for pair, text in zip(TEXTS, WRONG, strict=True)]


def rows(column, at=2):
    """The texts with another column."""
    return [(*pair[:at], value, *pair[at:]) for pair, value in zip(TEXTS, column, strict=True)]


def table(*names, column=SCORES, at=2):
    return pd.DataFrame(rows(column, at), columns=[*names])


def test_scores_may_be_written_in_any_way():
    first, second = zip(*TEXTS, strict=True)
    # Some are numbers, others are written as text.
    mixed = [str(score) if score < 1 else score for score in SCORES]
    for column in (np.array(SCORES, np.float32), pa.array(SCORES), mixed):
        assert read_pairs({"first": first, "second": second, "score": column}) == SCORED


ALIKE = [Pair("a", "c", 1.0), Pair("b", "d", 0.0)]


@pytest.mark.parametrize(
    "labels",
    [
        ["entailment", "not_entailment"],
        ["Duplicate", "Not duplicate"],
        ["paraphrase", "non-paraphrase"],
        ["True", "False"],
        [True, False],
    ],
)
def test_labels_say_which_texts_are_alike(labels):
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": labels}
    assert read_pairs(columns) == read_pairs(pd.DataFrame(columns)) == ALIKE


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0, 1], ["entailment", "not_entailment"]),
        ([1, 0], ["not_equivalent", "equivalent"]),
        ([1, 0], ["0", "1"]),
    ],
)
def test_names_of_classes_say_which_texts_are_alike(labels, names):
    def data(*labels):
        columns = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": labels}
        return datasets.Dataset.from_dict(columns).cast_column(
            "label", datasets.ClassLabel(names=names)
        )

    assert read_pairs(data(*labels)) == ALIKE
    # -1 stands for no label, as in the test sets of GLUE.
    with pytest.raises(UserError, match=r"pair 2 must be two texts .*-1"):
        read_pairs(data(labels[0], -1))


def test_names_of_columns_say_what_they_are():
    frame = table("Text 1", "text_2", "Label")[["Label", "Text 1", "text_2"]]
    records = frame.to_dict("records")
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    for pairs in (
        frame,
        records,
        iter(records),
        frame.to_dict("list"),
        arrow,
        arrow.to_batches()[0],
    ):
        assert read_pairs(pairs) == SCORED


def test_a_file_is_a_table(tmp_path):
    files = {
        "named.csv": table("score", "query", "answer", at=0).to_csv(index=False),
        "plain.tsv": "".join("\t".join(row) + "\n" for row in rows(WRONG)),
    }
    write_files(tmp_path, files)
    assert read_pairs(tmp_path / "named.csv") == SCORED
    assert read_pairs(str(tmp_path / "plain.tsv")) == TRIPLETS
    faults = {
        "a\tb\nc\n": r"1 of 2 rows of .* cannot be used: not 2 columns: 1 \(first: 2\)",
        "answer\tquery\tquestion\nb\ta\tc\n": "x.tsv: .*answer, query, question",
        "a\tb\nc\t\n": r"1 of 2 rows .* cannot be used: empty column: 1 \(first: 2\); correct",
        "": "x.tsv: expected pairs, but there are none; correct the file",
        "a\nb\n": r"x.tsv: expected rows of two texts",
    }
    for content, message in faults.items():
        with pytest.raises(UserError, match=message):
            read_pairs(write_files(tmp_path, {"x.tsv": content}) / "x.tsv")


def test_a_missing_file_is_said_once(tmp_path):
    path = tmp_path / "none.csv"
    with pytest.raises(UserError) as error:
        read_pairs(path)
    message = f"{path} cannot be read: No such file or directory; correct the path"
    assert str(error.value) == message


def test_a_column_without_a_name_is_said_by_its_place(tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    write_files(tmp_path, {"x.csv": ",question,answer\n0,a,b\n"})
    assert read_pairs(tmp_path / "x.csv") == [("a", "b", None, ())]
    assert "columns left out: column 1" in caplog.text


@pytest.mark.parametrize(
    "pairs",
    [
        np.array(rows(WRONG)),
        pd.Series(rows(WRONG)),
        table("here", "there", "elsewhere", column=WRONG),
        tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*rows(WRONG), strict=True)))),
        [TranslationPair(*pair, (wrong,)) for *pair, wrong in rows(WRONG)],
        [{"query": a, "answer": b, "negatives": [wrong]} for a, b, wrong in rows(WRONG)],
        [
            {"negative_1": None, "hard_neg": wrong, "pos": b, "question": a}
            for a, b, wrong in rows(WRONG)
        ],
    ],
)
def test_wrong_texts_in_any_form(pairs):
    assert read_pairs(pairs) == TRIPLETS


def test_texts_can_be_encoded_as_utf8():
    named = [{"anchor": "\ud83d one", "positive": "two", "negatives": ["t\udc00hree"]}]
    assert read_pairs(named) == [Pair("  one", "two", None, ("t hree",))]


@pytest.mark.parametrize("blank", ["", "\ud83d", "\u200b\ufeff", "\u00a0\u00ad", "\u3164", "\x00"])
def test_a_text_that_shows_nothing_is_empty(blank):
    for pair in (("one", blank), (blank, "one")):
        with pytest.raises(UserError, match="pair 2 must be two texts that are not empty"):
            read_pairs([("a", "b"), pair])
    assert read_pairs([("one", "two", blank)]) == [Pair("one", "two")]
    # A joiner or a variation selector beside a letter or a heart is part of the text.
    assert read_pairs([("می\u200cخواهم", "\u2764\ufe0f")]) == [
        Pair("می\u200cخواهم", "\u2764\ufe0f")
    ]


def test_a_missing_value_is_neither_a_wrong_text_nor_a_score():
    column = [None, *WRONG[1:6], float("nan"), " ", *WRONG[8:]]
    wrong = [() if number in (0, 6, 7) else (text,) for number, text in enumerate(WRONG)]
    frame = table("anchor", "positive", "negative", column=column)
    for pairs in (frame, frame.to_dict("records"), frame.astype("string")):
        assert [pair.wrong for pair in read_pairs(pairs)] == wrong
    for missing in (None, float("nan"), "", "NaN", "inf", pd.NA):
        column = [*SCORES[:6], missing, *SCORES[7:]]
        scored = table("sentence1", "sentence2", "score", column=column)
        assert read_pairs(scored) == SCORED[:6] + SCORED[7:]
        with pytest.raises(UserError, match=r"pair 2 must be .*finite number.*1 of 7 rows"):
            read_pairs(scored[5:])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        # Without names: two texts or three, and nothing else.
        (rows(SCORES), '"sentence1", "sentence2", "score"'),
        (
            [("hello", "hallo", "17"), ("dog", "Hund", "18")],
            "column 3 has numbers or classes, such as '18'",
        ),
        (rows(["entailment", "contradiction", "neutral"] * 4), "column 3 has numbers or classes"),
        ([(*row, "another wrong text") for row in rows(WRONG)], "pair 1 is list"),
        ([*TEXTS[:9], ("a", "b", "c")], "pair 10 must be"),
        # The first line of a file.
        (
            [("number", "text", "note"), ("1", "hello", "x"), ("2", "dog", "y")],
            "column 1 has numbers",
        ),
        ([("source", "target"), *TEXTS], "first row names columns"),
        (table("query", "one", "another", column=[row[0] for row in TEXTS]), "query, one, another"),
        (
            pa.table([["a"], ["b"], ["c"]], names=["query", "answer", "answer"]),
            "query, answer, answer",
        ),
        (table("sentence1", "sentence2", "label", column=[0, 1, 2] * 4), "classes of inference"),
        (table("premise", "hypothesis", "label", column=[0, 1] * 6), "classes of inference"),
        (table("text1", "text2", "label", column=["entailment", "neutral"] * 6), "pair 2 must be"),
        ([("a", "b"), None], "1 of 2 rows of pairs cannot be used"),
        ([{"translation": {"en": "a", "es": "b", "fr": "c"}}], "translation.en, translation.es"),
        ([{"translation": "a", "id": 1}], "got translation, id"),
        (datasets.DatasetDict(train=datasets.Dataset.from_dict({"en": ["a"]})), r'data\["train"\]'),
        (pd.DataFrame([("a", "b", "c")], columns=["en", "es", "fr"]), "en, es, fr"),
        ([], "there are none"),
        ({"hello": "hola"}, "expected pairs in a list"),
        ({"anchor": ["a"], "positive": ["b", "c"]}, "columns of equal length"),
        ("no file.csv", "cannot be read"),
    ],
)
def test_what_is_neither_texts_nor_scores_is_refused(pairs, message):
    with pytest.raises(UserError, match=message):
        read_pairs(pairs)


def test_words_are_texts():
    codes = [(f"q{number}", f"{1900 + number}") for number in range(COUNT)]
    assert read_pairs(codes)[0] == Pair("q0", "1900")
    assert read_pairs([("dog", "perro", "gato")]) == [Pair("dog", "perro", None, ("gato",))]
    named = table("anchor", "positive", "negative", column=["entailment", "neutral"] * 6)
    assert read_pairs(named)[0].wrong == ("entailment",)
    assert read_pairs(rows(["狗"] * COUNT))[0].wrong == ("狗",)
    assert read_pairs(dict(TEXTS).items()) == [Pair(*row) for row in TEXTS]


TRANSLATIONS = [{"id": n, "translation": {"en": f"one {n}", "es": f"uno {n}"}} for n in range(3)]
TRANSLATED = [Pair(f"one {number}", f"uno {number}") for number in range(3)]
FLAT = [(str(row["id"]), *row["translation"].values()) for row in TRANSLATIONS]


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "tsv", "csv"])
def test_translations_by_language_are_pairs_in_files(ending, tmp_path):
    path = tmp_path / f"x.{ending}"
    table = datasets.Dataset.from_list(TRANSLATIONS)
    header = ("id", "translation.en", "translation.es")
    match ending:
        case "jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in TRANSLATIONS))
        case "parquet":
            table.to_parquet(path)
        case "tsv":
            path.write_text("".join("\t".join(row) + "\n" for row in [header, *FLAT]))
        case "csv":
            table.flatten().to_csv(path)
    assert read_pairs(path) == TRANSLATED


def test_translations_by_language_are_pairs_in_memory():
    dataset = datasets.Dataset.from_list(TRANSLATIONS)
    frame = pd.DataFrame(TRANSLATIONS)
    tables = [
        TRANSLATIONS,
        dataset,
        dataset.flatten(),
        frame,
        frame[["translation"]],
        dataset.data.table,
    ]
    tables += [
        iter(TRANSLATIONS),
        [row["translation"] for row in TRANSLATIONS],
        frame.to_dict("list"),
    ]
    for pairs in tables:
        assert read_pairs(pairs) == TRANSLATED
    # The first row has the order.
    back = [{"translation": {"es": "a", "en": "b"}}, {"translation": {"en": "d", "es": "c"}}]
    assert read_pairs(back) == [Pair("a", "b"), Pair("c", "d")]
    assert read_pairs(back, ("en", "es")) == [Pair("b", "a"), Pair("d", "c")]
    # Of more languages, two are chosen.
    three = [{"id": "x", "translation": {"en": "one", "fr": "un", "es": "uno"}}]
    assert read_pairs(three, ("fr", "en")) == [Pair("un", "one")]
    with pytest.raises(UserError, match=r"translation\.fr"):
        read_pairs(three)
    with pytest.raises(UserError, match="pair 2 must be two texts"):
        read_pairs([TRANSLATIONS[0], {"id": 1, "translation": None}])


@pytest.mark.parametrize(
    "names", [("en", "es"), ("English", "Spanish"), ("text_en", "text_es"), ("en-US", "es-ES")]
)
def test_languages_name_the_columns_of_a_pair(names, tmp_path):
    files = {
        "x.tsv": "\t".join(names) + "\none\tuno\n",
        "y.csv": f"idx,{','.join(names)}\n4,one,uno\n",
    }
    for name in files:
        assert read_pairs(write_files(tmp_path, files) / name) == [Pair("one", "uno")]
    assert read_pairs(pd.DataFrame([("one", "uno")], columns=[*names])) == [Pair("one", "uno")]


@pytest.mark.parametrize(
    "name", ["idx", "id", "pair_ID", "__index_level_0__", "Unnamed: 0", "qid1"]
)
def test_numbers_of_rows_are_left_out(name, tmp_path):
    names = ["label", "sentence1", "sentence2", name]
    frame = pd.DataFrame([(1, "a", "c", 7), (0, "b", "d", 8)], columns=names)
    assert read_pairs(frame) == read_pairs(frame.to_dict("records")) == ALIKE
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.to_json(tmp_path / "x.jsonl", lines=True, orient="records")
    frame.to_csv(tmp_path / "with_index.csv")  # its first column has no name
    for path in sorted(tmp_path.iterdir()):
        assert read_pairs(path) == ALIKE


def forms(names, *rows):
    """The same rows as dictionaries, a pandas table and columns."""
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    records = [dict(zip(names, row, strict=True)) for row in rows]
    return records, pd.DataFrame(columns, dtype=object), columns


@pytest.mark.parametrize(
    "value", [float("nan"), None, pd.NA, pd.NaT, True, 7, np.float32(3.5), b"\xff"]
)
def test_what_is_no_text_is_refused_in_every_form(value):
    for pairs in forms(("source", "target"), ("one", "uno"), ("two", value)):
        with pytest.raises(UserError, match="pair 2 must be two texts"):
            read_pairs(pairs)
    is_missing = value is None or str(value) in ("nan", "<NA>", "NaT")
    for wrong in (value, ["no", value]):
        for pairs in forms(("anchor", "positive", "negatives"), ("one", "uno", wrong)):
            if is_missing:
                kept = ("no",) if isinstance(wrong, list) else ()
                assert read_pairs(pairs) == [Pair("one", "uno", None, kept)]
            else:
                with pytest.raises(UserError, match="pair 1 must be two texts"):
                    read_pairs(pairs)


def test_bytes_are_utf8_in_every_form():
    row = (b"one", "a\u00f1o".encode(), [b"no", "two"])
    for pairs in forms(("anchor", "positive", "negatives"), row):
        assert read_pairs(pairs) == [Pair("one", "a\u00f1o", None, ("no", "two"))]


FAQ = [
    ("How do I reset\nmy password?", 'Press "Forgot it", then wait; it takes a minute, no more.'),
    ("Where is the añejo rum?", "In the cellar, on the left; ask for the key."),
    *((f"Where is number {n}, please?", f"It is in room {n}; go upstairs.") for n in range(20)),
]


def as_csv(separator, header=("question", "answer"), rows=FAQ):
    file = io.StringIO()
    csv.writer(file, delimiter=separator, lineterminator="\r\n").writerows([header, *rows])
    return file.getvalue()


def write_xlsx(path, rows):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.create_sheet("notes").append(["not a pair"])
    book.save(path)


DIALECTS = {
    **{f"{n}.csv": as_csv(mark).encode() for n, mark in enumerate(",;\t|")},
    "marked.csv": as_csv(";").encode("utf-8-sig"),
    "unicode_text.txt": as_csv("\t").encode("utf-16"),
    "european.csv": as_csv(";").encode("cp1252"),
    "bars.txt": as_csv("|").encode("utf-8"),
    "lines.txt": "".join(json.dumps({"answer": b, "question": a}) + "\n" for a, b in FAQ).encode(),
    "categories.csv": as_csv(
        ";", ("id", "question", "answer", "kind"), [(n, *row, "faq") for n, row in enumerate(FAQ)]
    ).encode(),
    # Names in any language: known ones in any order, others by their being unlike the rows.
    "reversed.csv": as_csv(",", ("Resposta", "Pergunta"), [row[::-1] for row in FAQ]).encode(),
    "unknown.csv": as_csv(",", ("Tybivka", "Vidbul")).encode(),
    "unknown_more.csv": as_csv(
        ",", ("Nr", "Tybivka", "Vidbul", "Grupa"), [(f"Q-{n}", *r, "x") for n, r in enumerate(FAQ)]
    ).encode(),
}  # fmt: skip


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_of_spreadsheets_has_the_same_pairs(name, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    (tmp_path / name).write_bytes(DIALECTS[name])
    expected = [Pair(*(text.replace("\n", " ") for text in row)) for row in FAQ]
    assert read_pairs(tmp_path / name) == expected
    left_out = {"categories.csv": "id, kind", "unknown_more.csv": "Nr, Grupa"}.get(name)
    assert (f"columns left out: {left_out}" in caplog.text) == (left_out is not None)
    assert ("names the columns" in caplog.text) == name.startswith("unknown")


def test_the_first_quotes_may_be_late_in_the_file(tmp_path):
    # Text as Excel saves it, which has quotes only around cells with quotes, tabs or line breaks.
    rows = [(f"Where is number {n}?", f"In room {n}.") for n in range(150)]
    quoted = ('"Come in," she said.', 'He said "Thanks."')
    (tmp_path / "x.txt").write_text(as_csv("\t", rows=[*rows, quoted]), encoding="utf-16")
    assert [pair[:2] for pair in read_pairs(tmp_path / "x.txt")] == [*rows, quoted]
    # Text whose quotes are no more than that.
    plain = "".join(f"{a}\t{b}\n" for a, b in [("question", "answer"), *rows, quoted])
    (tmp_path / "y.txt").write_text(plain + "x" * (MAX_LINE + 1))
    assert [pair[:2] for pair in read_pairs(tmp_path / "y.txt")] == [*rows, quoted]


def test_an_excel_file_is_a_table(tmp_path, caplog):
    write_xlsx(tmp_path / "x.xlsx", [("question", "answer", "n"), *((*r, 7) for r in FAQ), (None,)])
    expected = [Pair(*(text.replace("\n", " ") for text in row)) for row in FAQ]
    assert read_pairs(tmp_path / "x.xlsx") == expected
    assert "left out: notes" in caplog.text
    (tmp_path / "y.xlsx").write_bytes(b"PK no zip")
    with pytest.raises(UserError, match=r"y\.xlsx cannot be read .*save it as \.csv"):
        read_pairs(tmp_path / "y.xlsx")
    with pytest.raises(UserError, match=r"save it as \.xlsx or \.csv"):
        read_pairs(tmp_path / "y.xls")


def test_a_first_pair_like_the_others_is_no_header(tmp_path):
    pairs = [("Danke", "Thanks"), ("Guten Morgen", "Good morning")]
    pairs += [(f"Wort {n}", f"word {n}") for n in range(20)]
    path = tmp_path / "x.csv"
    path.write_text(as_csv(",", pairs[0], pairs[1:]))
    assert [pair[:2] for pair in read_pairs(path)] == pairs


@pytest.mark.parametrize("header", [("Frase", "Traducción"), ("Question", "Saved reply")])
def test_one_known_name_is_enough_for_two_columns_of_texts(header, tmp_path):
    rows = [(number, *row) for number, row in enumerate(FAQ[1:])]
    for order in (1, -1):
        (tmp_path / "x.csv").write_text(
            as_csv(";", ("Nr", *header)[::order], [row[::order] for row in rows])
        )
        assert read_pairs(tmp_path / "x.csv") == [Pair(*row) for row in FAQ[1:]]


def test_names_that_stand_for_no_two_columns_are_asked_for(tmp_path):
    rows = [(*pair, f"Another text of its own, number {n}") for n, pair in enumerate(FAQ * 3)]
    (tmp_path / "x.csv").write_text(as_csv(",", ("Eins", "Zwei", "Drei", "Vier"), [
        (*row, f"One more, {n * 7}") for n, row in enumerate(rows)
    ]))  # fmt: skip
    with pytest.raises(UserError, match="Eins, Zwei, Drei, Vier; choose two"):
        read_pairs(tmp_path / "x.csv")
