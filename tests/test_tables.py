"""Tables in every format, with and without headers: training and evaluation read the same rows."""

import csv
import json

import pyarrow as pa
import pytest
from pyarrow import parquet
from raw_files import write_files

from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.pairs import read_pairs
from xling_tf.corpora.readers import (
    read_nli,
    read_parallel,
    read_similarity,
    read_snli,
    with_negatives,
)
from xling_tf.corpora.tables import read_columns, read_table
from xling_tf.errors import UserError
from xling_tf.evaluators.data import find_bitexts, tables_in
from xling_tf.evaluators.sts import read_scored

ROWS = [('one, "1"', "uno"), ("Caf\u00e9 two", "dos")]
OBJECTS = [
    {"id": 1, "target": b, "more": [1, {}], "source": a.replace("\u00e9", "e\u0301")}
    for a, b in ROWS
]
TABLES = {
    "plain.en-es.tsv": "".join(f"{a}\t{b}\n" for a, b in ROWS),
    "named.en-es.tsv.gz": "".join(f"{b}\tx\t{a}\n" for a, b in [("source", "target"), *ROWS]),
    "codes.es-en.tsv": "".join(f" {a} \t{b}\n" for a, b in [("EN", "es"), *ROWS]),
    "plain.en-es.csv.xz": '"one, ""1""",uno\nCafe\u0301 two,dos\n',
    "named.en-es.csv": 'Target,Source\nuno,"one, ""1"""\ndos,"Caf\u00e9\ntwo"\n',
    "plain.en-es.jsonl.bz2": "".join(f"{json.dumps(row)}\n" for row in OBJECTS),
}


@pytest.mark.parametrize("name", [*TABLES, "named.en-es.parquet"])
def test_training_and_evaluation_read_the_same_rows_of_every_format(name, tmp_path):
    path = write_files(tmp_path, {f"bitext/{name}": TABLES.get(name, "")}) / "bitext" / name
    if path.suffix == ".parquet":
        columns = [[row[key] for row in OBJECTS] for key in ("id", "target", "source")]
        parquet.write_table(pa.table(columns, names=["id", "target", "source"]), path)
    languages = ("es", "en") if name.startswith("codes") else ("en", "es")
    expected = [pair[::-1] for pair in ROWS] if name.startswith("codes") else ROWS
    reading = read_parallel(path, languages)
    assert [record[:2] for record, _ in reading] == expected
    assert not reading.malformed
    (texts,) = find_bitexts(tmp_path)
    assert (texts.name, texts.languages) == (".".join(name.split(".")[:2]), languages)
    assert texts.read() == expected


def test_each_type_has_names_for_its_columns(tmp_path):
    files = {
        "nli.tsv": "hypothesis\tlabel\tpremise\nh\tneutral\tp\n",
        "snli.jsonl": '{"gold_label": "neutral", "sentence2": "h", "sentence1": "p"}\n',
        "sts.tsv": "Relatedness\tid\tsentence_2\tsentence_1\n5\t1\tb\ta\n1\t2\td\tc\n",
        "sts.jsonl": '{"sentence1": "a", "sentence2": "b", "score": 5}\n'
        '{"sentence1": "x", "sentence2": "y", "score": null}\n'
        '{"sentence1": "c", "sentence2": "d", "score": 1.0}\n',
    }
    write_files(tmp_path, files)
    for reading in (read_nli(tmp_path / "nli.tsv"), read_snli(tmp_path / "snli.jsonl")):
        assert [record for record, _ in reading] == [("p", "h", 1)]
    for name in ("sts.tsv", "sts.jsonl"):
        reading = read_similarity(tmp_path / name)
        assert [record for record, _ in reading] == [("a", "b", 100), ("c", "d", 0)]
        assert reading.malformed == ({"empty column": 1} if name == "sts.jsonl" else {})
    assert read_scored(tmp_path / "sts.tsv") == [("a", "b", 5), ("c", "d", 1)]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.tsv", "a\tb\nc\n", "line 2: not 2 columns"),
        ("x.tsv", "label\tsentence\nc\td\n", "line 1: line of names"),
        ("x.jsonl", '{"label": "a", "text": "b", "Text": "c"}\n', "line 1: without the columns"),
        ("x.csv", 'a,b\n"c"x,d\n', "line 2: not CSV"),
        ("x.jsonl", '{"label": "a"}\n', "line 1: without the columns"),
        ("x.jsonl", '["a", "b"]\n', "line 1: not a JSON object"),
        ("x.jsonl", '{"label": "a", "text": "b", "text": "c"}\n', "line 1: not a JSON object"),
        ("x.jsonl", '{"label": "a", "text": "\\ud800"}\n', "line 1: not UTF-8"),
        ("x.parquet", "no Parquet", "cannot be read"),
        ("x.tsv", "label\ttext\n", "has no rows"),
    ],
)
def test_evaluation_refuses_what_training_leaves_out(name, content, reason, tmp_path):
    path = write_files(tmp_path, {name: content}) / name
    with pytest.raises(UserError, match=reason):
        read_table(path, ("label", "text"))
    if reason.startswith("line"):
        left_out: list[str] = []
        list(read_columns(path, ("label", "text"), lambda reason, number: left_out.append(reason)))
        assert len(left_out) == 1


def test_a_name_that_goes_on_after_the_ending_is_told(tmp_path, caplog):
    write_files(tmp_path, {"a.en.tsv.1": "", "b.en.TSV.gz": "", "README.md": ""})
    assert [*tables_in(tmp_path)] == [*tables_in(tmp_path)] == ["b.en"]
    assert caplog.text.count("a.en.tsv.1") == 1


@pytest.mark.parametrize("kind", ["binary", "large_binary", "dictionary"])
def test_binary_columns_are_utf8(kind, tmp_path):
    types = {"dictionary": pa.binary()}
    kept = [pa.array([b"Hello", b"\xff"], types.get(kind) or getattr(pa, kind)())]
    kept += [pa.array(["Adi\u00f3s".encode(), b"Hola"], kept[0].type)]
    columns = [column.dictionary_encode() for column in kept] if kind == "dictionary" else kept
    path = tmp_path / "x.en-es.parquet"
    parquet.write_table(pa.table(columns, names=["source", "target"]), path)
    reading = read_parallel(path)
    assert [record[:2] for record, _ in reading] == [("Hello", "Adi\u00f3s")]
    assert reading.malformed == {"not UTF-8": 1}
    parquet.write_table(pa.table([c[:1] for c in columns], names=["source", "target"]), path)
    assert [pair[:2] for pair in read_pairs(path)] == [("Hello", "Adi\u00f3s")]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_numbers_and_missing_values_are_no_texts(ending, tmp_path):
    path = tmp_path / f"x.en-es.{ending}"
    for value, reason in [
        (float("nan"), "empty column"),
        (None, "empty column"),
        (True, "not a text"),
        (7, "not a text"),
    ]:
        row = {"source": "Hello", "target": value}
        if ending == "jsonl":
            path.write_text(json.dumps(row))
        else:
            parquet.write_table(pa.Table.from_pylist([row]), path)
        reading = read_parallel(path)
        assert not [*reading]
        assert [reason in left_out for left_out in reading.malformed] == [True]


def test_a_boolean_may_be_a_score(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"sentence1": "a", "sentence2": "b", "is_duplicate": true}')
    assert [pair.score for pair in read_pairs(path)] == [1.0]


LONG = "word " * 209_710  # with the lines before it, longer than a cell


@pytest.mark.parametrize(
    ("ending", "sources", "faulty"),
    [
        ([], ["6", "7"], [5]),  # up to the end of the file
        (['"eight",ocho', "9,nueve"], ["6", "7", "eight", "9"], [5]),
        (['8,"ocho"', "9,nueve"], ["6", "7", "8", "9"], [5]),
        (['"Open,8', "9,nueve", '"ten",diez'], ["6", "7", "9", "ten"], [5, 8]),
        ([f"{LONG},ocho", "9,nueve"], ["6", "7", LONG.strip(), "9"], [5]),
        # The quote may end a text of several lines, or these lines are other text than rows.
        (['8 "eight",ocho', "9,nueve"], ["9"], [5, 6, 7, 8]),
        (["8, eight, ocho", '"nine",nueve', "10,diez"], ["10"], [5, 6, 7, 8, 9]),
        (["8, eight, ocho"], [], [5, 6, 7, 8]),
    ],
)
def test_rows_that_an_open_quote_takes_are_read_if_they_are_surely_rows(
    ending, sources, faulty, tmp_path
):
    # The row of lines 3 and 4 is right; the quote of line 5 takes the next ones.
    lines = ["source,target", "one,uno", '"two', 'too",dos', '"Open,Abierta', "6,seis", "7,siete"]
    path = write_files(tmp_path, {"x.en-es.csv": "\n".join([*lines, *ending])}) / "x.en-es.csv"
    reading = read_parallel(path)
    assert [record[0] for record, _ in reading] == ["one", "two too", *sources]
    assert reading.malformed.total() == len(faulty)
    assert [*reading.malformed.first_rows.values()] == [tuple(faulty[:5])]
    with pytest.raises(UserError, match="line 5: not CSV"):
        read_table(path, ("source", "target"))


def test_texts_of_several_lines_in_a_table_of_one_column_are_no_rows(tmp_path):
    (tmp_path / "x.csv").write_text('sentence\n"open\nmore\n')
    faults = []
    rows = read_columns(tmp_path / "x.csv", ["sentence"], lambda reason, n: faults.append(n))
    assert ([*rows], faults) == ([], [2, 3])


def test_a_header_of_several_lines_is_one(tmp_path):
    path = write_files(tmp_path, {"x.csv": '"source","target\n"\na,b\n'}) / "x.csv"
    assert read_table(path, ("source", "target")) == [("a", "b")]


def test_cells_of_csv_are_as_long_as_those_of_tsv(tmp_path):
    long = "word " * 40_000 + "end"  # 200,003 characters
    files = {"x.csv": f'one,uno\n"{long}",dos\n', "x.tsv": f"one\tuno\n{long}\tdos\n"}
    write_files(tmp_path, files)
    limit = csv.field_size_limit()
    for name in files:
        rows = read_columns(tmp_path / name, ("source", "target"), pytest.fail)
        for row, expected in zip(rows, (["one", "uno"], [long, "dos"]), strict=True):
            assert row[1] == expected
            assert csv.field_size_limit() == limit


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_marks_of_byte_order_and_nul_are_read_alike_in_every_format(ending, tmp_path):
    pairs = [
        ("\ufeffHello there", " \ufeff Hola"),
        ("One\ufeff", "\ufeffUno\ufeff"),
        ("T\0wo", "Dos"),
    ]
    pairs = pairs if ending != "csv" else pairs[:2]  # whose reader refuses a file with NUL
    path = tmp_path / f"x.en-es.{ending}"
    if ending in ("tsv", "csv"):
        mark = "\t" if ending == "tsv" else ","
        path.write_text("".join(f"{a}{mark}{b}\n" for a, b in pairs), encoding="utf-8")
    elif ending == "jsonl":
        path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in pairs))
    else:
        columns = [[*side] for side in zip(*pairs, strict=True)]
        parquet.write_table(pa.table(columns, names=["source", "target"]), path)
    reading = read_parallel(path)
    assert [record[:2] for record, _ in reading] == [("Hello there", "Hola"), ("One", "Uno")]
    assert reading.malformed.total() == len(pairs) - 2


def test_mined_negatives_of_any_pair_come_back(tmp_path):
    path = tmp_path / "x.en-es.jsonl"
    around = ["\ufeff", "\u3000", "\x1c", "\x85", "\u2028", " \ufeff ", "\r", "\t", "\u200b"]
    texts = [(f"{mark}one {n}{mark}", f"{mark}uno{mark}{n}{mark}") for n, mark in enumerate(around)]
    path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in texts))
    pairs = [record for record, _ in read_parallel(path)]
    assert len(pairs) == len(around)
    wrong = tuple(pair.target for pair in pairs)
    mined = tmp_path / "hard_negatives/x.en-es.tsv.gz"
    write_lines(mined, ("\t".join((*pair[:2], *wrong)) for pair in pairs))
    assert [*with_negatives(pairs, mined)] == [pair._replace(negatives=wrong) for pair in pairs]


@pytest.mark.parametrize("languages", [("en", "es"), ("es", "en")])
@pytest.mark.parametrize("key", ["translation", "translations"])
def test_translations_by_language_are_in_the_order_of_the_file_name(languages, key, tmp_path):
    rows = [
        {"id": "7", key: {"en": "one", "es": "uno"}},
        {"id": "8", key: {"es": "dos", "en": "two"}},
    ]
    folder = write_files(tmp_path, {"bitext/x.jsonl": ""}) / "bitext"
    (folder / "x.jsonl").unlink()
    name = "-".join(languages)
    (folder / f"json.{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    table = pa.Table.from_pylist(rows)
    parquet.write_table(table, folder / f"struct.{name}.parquet")
    parquet.write_table(table.flatten(), folder / f"flat.{name}.parquet")
    expected = [("one", "uno"), ("two", "dos")]
    expected = [pair[:: 1 if languages[0] == "en" else -1] for pair in expected]
    for path in folder.iterdir():
        reading = read_parallel(path, languages)
        assert [record[:2] for record, _ in reading] == expected
        assert not reading.malformed
    assert [texts.read() for texts in find_bitexts(tmp_path)] == [expected] * 3


def test_a_row_without_translations_is_counted(tmp_path):
    path = tmp_path / "x.en-es.jsonl"
    rows = [
        {"en": "one", "es": "uno"},
        None,
        {"en": "two"},
        {"en": "six", "es": ""},
        {"en": "a", "es": 7},
    ]
    path.write_text("".join(f"{json.dumps({'translation': row})}\n" for row in rows))
    reading = read_parallel(path, ("en", "es"))
    assert [record[:2] for record, _ in reading] == [("one", "uno")]
    assert [*reading.malformed.values()] == [2, 1, 1]


@pytest.mark.parametrize(
    ("header", "languages"),
    [
        (("Spanish", "English"), ("en", "es")),
        (("text_es", "text_en"), ("en", "es")),
        (("es-ES", "en-US"), ("en", "es")),
        (("pt-PT", "pt-BR"), ("pt_BR", "pt_PT")),
        (("Portuguese", "EN"), ("en", "pt_BR")),
        (("Chinese (Traditional)", "English sentence"), ("en", "zh_Hant")),
        (("es", "Source en"), ("en", "es")),
        (("non_english", "english"), ("en", "es")),
        (("English", "Non-English"), ("es", "en")),
    ],
)
def test_names_of_languages_order_the_columns(header, languages, tmp_path):
    for name, mark in {"x.tsv": "\t", "x.csv": ","}.items():
        path = write_files(tmp_path, {name: f"{mark.join(header)}\nsecond{mark}first\n"}) / name
        reading = read_parallel(path, languages)
        assert [record[:2] for record, _ in reading] == [("first", "second")]
        assert not reading.malformed


def test_words_and_other_languages_are_no_header(tmp_path):
    rows = [("French", "German"), ("a text", "un texto"), ("it", "lo")]
    path = (
        write_files(tmp_path, {"x.tsv": "".join("\t".join(row) + "\n" for row in rows)}) / "x.tsv"
    )
    assert [record[:2] for record, _ in read_parallel(path, ("en", "es"))] == rows
    # A column cannot be both languages.
    path.write_text("pt\ten\na\tb\n")
    assert len([*read_parallel(path, ("pt_BR", "pt_PT"))]) == 2


@pytest.mark.parametrize("ending", ["tsv", "csv", "jsonl", "parquet"])
def test_a_label_is_a_score(ending, tmp_path):
    rows = [
        {"label": 1, "sentence1": "a", "sentence2": "b", "idx": 0},
        {"label": 0, "sentence1": "c", "sentence2": "d", "idx": 1},
    ]
    path = tmp_path / f"eval/sts/stsb.en.dev.{ending}"
    path.parent.mkdir(parents=True)
    if ending == "parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif ending == "jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        mark = "\t" if ending == "tsv" else ","
        path.write_text(
            "".join(
                mark.join(map(str, row)) + "\n" for row in [rows[0], *(r.values() for r in rows)]
            )
        )
    reading = read_similarity(path)
    assert [record for record, _ in reading] == [("a", "b", 100), ("c", "d", 0)]
    assert not reading.malformed
    assert read_scored(path) == [("a", "b", 1), ("c", "d", 0)]
    assert read_pairs(path) == [("a", "b", 1, ()), ("c", "d", 0, ())]


def test_names_of_scored_pairs_in_widespread_sets(tmp_path):
    for header in (
        "question1\tquestion2\tis_duplicate",
        "sentence_A\tsentence_B\trelatedness_score",
        "text1\ttext2\tsimilarity",
        "sentence1\tsentence2\tscore\tlabel",
    ):
        more = "\tneutral" if header.endswith("label") else ""
        path = (
            write_files(tmp_path, {"x.tsv": f"{header}\na\tb\t1{more}\nc\td\t0{more}\n"}) / "x.tsv"
        )
        assert [record for record, _ in read_similarity(path)] == [("a", "b", 100), ("c", "d", 0)]
    path = tmp_path / "x.jsonl"
    path.write_text('{"question1": "a", "question2": "b", "is_duplicate": true}\n')
    assert read_scored(path) == [("a", "b", 1)]
