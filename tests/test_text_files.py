"""Texts out of files of every format, whole and damaged, local and remote."""

import csv
import gzip
import json
import math
from functools import partial
from typing import Any
from unittest.mock import Mock

import fsspec
import pyarrow as pa
import pytest
from pyarrow import parquet
from raw_files import write_files

from xling_tf.bulk.text_files import InputFile, TextFiles, find_files
from xling_tf.errors import UserError

ROWS = [
    {"id": f"r{n}", "text": text} for n, text in enumerate(["Hola, señor", "", "東京", "a\u2028b"])
]
TABLE = pa.Table.from_pylist(ROWS)


def lines(*parts: str) -> bytes:
    return "".join(f"{part}\n" for part in parts).encode()


TSV = lines("id\ttext", *(f"{row['id']}\t{row['text']}" for row in ROWS))
PARQUET = pa.BufferOutputStream()
parquet.write_table(TABLE, PARQUET)
FILES = {
    "x.parquet": PARQUET.getvalue().to_pybytes(),
    "x.jsonl.gz": lines(*map(json.dumps, ROWS)),
    "x.json": lines(*(json.dumps(row, ensure_ascii=False) for row in ROWS)),
    "x.tsv.xz": TSV,
    "x.tsv": b"\xef\xbb\xbf" + TSV.replace(b"\n", b"\r\n"),
    "x.csv.bz2": lines("id,text", *(f'{row["id"]},"{row["text"]}"' for row in ROWS)),
}


def read(*patterns: Any, text_column: str = "text", row: int = 0, **options: Any) -> TextFiles:
    """Reads all rows, into the attribute `rows`."""
    files = TextFiles(find_files([str(pattern) for pattern in patterns]), text_column, **options)
    files.rows = [row for batch in files.batches(row) for row in batch.to_pylist()]
    return files


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_rows(tmp_path, name):
    files = read(write_files(tmp_path, {name: FILES[name]}) / name)
    assert files.rows == ROWS
    assert files.counts["empty texts"] == 1
    assert files.bytes_read == (tmp_path / name).stat().st_size
    # Other columns are left out; reading begins anywhere.
    assert read(tmp_path / name, columns=["text"], row=2).rows == [
        {"text": row["text"]} for row in ROWS[2:]
    ]
    with pytest.raises(UserError, match=rf"{name} must have the column sentence, .* only id, text"):
        read(tmp_path / name, text_column="sentence")


def test_plain_lines_and_tables_without_header(tmp_path):
    content = lines(*(row["text"] for row in ROWS))
    windows = b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n").rstrip(b"\r\n")
    write_files(tmp_path, {"a.txt": windows, "b.zst": content})
    expected = [{"line": row["text"]} for row in ROWS]
    assert read(tmp_path / "*", text_column="line").rows == 2 * expected
    (tmp_path / "c.tsv").write_text("de\tHallo\nen\tHello\n")
    assert read(tmp_path / "c.tsv", text_column="f1", header=False).rows == [
        {"f0": "de", "f1": "Hallo"},
        {"f0": "en", "f1": "Hello"},
    ]
    (tmp_path / "empty.tsv").touch()
    assert read(tmp_path / "empty.tsv").rows == []


def test_remote_files(tmp_path):
    for name in ("x.json", "x.parquet"):
        with fsspec.open(f"memory://texts/{name}", "wb") as file:
            file.write(FILES[name])
    assert read("memory://texts/*").rows == 2 * ROWS
    for pattern, message in {
        "memory://texts/*.tsv": "matches none",
        tmp_path / "none": "matches none",
        tmp_path: "matches none",
        "nosuch://x": "cannot be looked up",
    }.items():
        with pytest.raises(UserError, match=message):
            read(pattern)


def test_types_are_those_of_the_first_file(tmp_path):
    parquet.write_table(
        pa.table({"n": pa.array([1], pa.int64()), "text": ["a"]}), tmp_path / "1.parquet"
    )
    parquet.write_table(pa.table({"text": ["b"]}), tmp_path / "2.parquet")
    with pytest.raises(
        UserError, match=r"2.parquet must have .* n int64, text string, but has text string"
    ):
        read(tmp_path / "*")
    assert len(read(tmp_path / "*", columns=["text"]).rows) == 2
    parquet.write_table(pa.table({"text": [["a"], ["b"]]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="expected texts in the column text, but it holds"):
        read(tmp_path / "x.parquet", skip_damaged=True)


@pytest.mark.parametrize(
    ("name", "content", "rows", "message"),
    [
        ("x.txt", b"a\0\nc\n", ["c"], "row 1 of .*x.txt is not UTF-8"),
        (
            "x.jsonl",
            b'{"text": "a"}\n{"text": "", "n": "\xff"}\n',
            ["a"],
            "row 2 of .*x.jsonl is not UTF-8",
        ),
        ("x.txt", b"a\n" + b"b" * (1 << 20) + b"b\nc\n", ["a", "c"], "row 2 of .*x.txt is longer"),
        (
            "x.tsv",
            b"text\tid\na\t1\nb\nc\t3\n",
            ["a", "c"],
            "row 2 of .*x.tsv has 1 columns, not 2",
        ),
        ("x.csv", b'text,id\n"a\nb",1\nb\xff,2\n', ["a\nb"], "row 2 of .*x.csv is not UTF-8"),
        ("x.csv", b"text\na\rb\nc\n", ["c"], "row 1 of .*x.csv has an unquoted carriage return"),
        ("x.jsonl", b'{"text": "a"}\n[1]', ["a"], "row 2 of .*x.jsonl is not a JSON object"),
        (
            "x.jsonl",
            b'{"text": "a"}\n{"text": "b", "n": {"k": 1, "k": 2}}',
            ["a"],
            "row 2 of .*x.jsonl",
        ),
        (
            "x.jsonl",
            b'{"text": "\\ud83d\\ude00"}\n{"text": "a", "n": "\\ud83d"}',
            ["\U0001f600"],
            "row 2 of",
        ),
        # The types are those of all sound lines, not only of the first one.
        (
            "x.jsonl",
            b'?\n{"text": "a", "n": null}\n\n{"text": "b", "n": 1}',
            ["a", "b"],
            "row 1 of .*x",
        ),
    ],
)
def test_damaged_rows(tmp_path, name, content, rows, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{message}.*`skip_damaged`"):
        read(tmp_path / name)
    files = read(tmp_path / name, skip_damaged=True)
    assert [row["text"] for row in files.rows] == rows
    assert files.counts["damaged rows"] == 1


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl.gz", "x.tsv.xz", "x.csv.bz2"])
def test_damaged_files(tmp_path, name):
    write_files(tmp_path, {name: FILES[name], "y.json": FILES["x.json"]})
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(UserError, match=rf"{name} is damaged after row \d+: .*`skip_damaged`"):
        read(tmp_path / "*")
    files = read(tmp_path / "*", skip_damaged=True)
    assert files.rows[-len(ROWS) :] == ROWS
    assert files.counts["damaged files"] == 1


def test_an_open_quote_is_damage(tmp_path):
    sound = b"".join(b'%d,"a ""b"", c"\r\n' % row for row in range(10_000))
    (tmp_path / "x.csv").write_bytes(b"id,text\n" + sound + b'7,"oops\n2,b\n3,c')
    with pytest.raises(
        UserError, match=r"x.csv is damaged after row 10000: the next row .* an open quote"
    ):
        read(tmp_path / "x.csv")
    files = read(tmp_path / "x.csv", skip_damaged=True)
    assert files.rows == [{"id": str(row), "text": 'a "b", c'} for row in range(10_000)]
    assert files.counts["damaged files"] == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b'id,text\n1,b\n2,"a \\"b\\" c"\n',
            "row 2 of .*x.csv has text behind a closing quote; .*Spark",
        ),
        (
            b'"id"x,text\n1,b\n',
            "x.csv is damaged after row 0: its first row has text behind a closing quote",
        ),
        (
            b'id,text\n1,"' + b"a\n" * (1 << 22) + b'",b"\n',
            "row is longer than 4 MiB, or has an open quote",
        ),
    ],
)
def test_quotes_of_other_dialects_are_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read(tmp_path / "x.csv")


def test_the_limit_of_csv_in_the_process_is_not_changed(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"text\n" + b"a" * 200_000 + b"\nb\n")
    (batch,) = TextFiles(find_files([str(tmp_path / "x.csv")]), "text").batches()
    assert (len(batch), csv.field_size_limit()) == (2, 131_072)


FIRST = b'{"text": "a", "n": 1}\n' * 10_000  # more than is read at once


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b'{"text": "a", "n": 1, "language": "en"}', "n int64, but has .* language string; choose"),
        (b'{"text": "a", "n": "007"}', "one type in the field n, .*'007' with type str"),
        (b'{"text": "a", "n": 18446744073709551615}', "one type in the field n, .* too large"),
    ],
)
def test_types_and_fields_that_differ_are_no_damage(tmp_path, lines, message):
    (tmp_path / "x.jsonl").write_bytes(FIRST + lines + b"\n")
    with pytest.raises(UserError, match=f"x.jsonl must have .*{message}.*`columns`"):
        read(tmp_path / "x.jsonl", skip_damaged=True)
    assert len(read(tmp_path / "x.jsonl", columns=[]).rows) == 10_001


@pytest.mark.parametrize(
    ("first", "second", "is_kept"),
    [
        (pa.array([17]), pa.array(["007"]), False),
        (pa.array([1]), pa.array([2**64 - 1], pa.uint64()), False),
        (pa.array([1]), pa.array([2], pa.int8()), True),
        (pa.array([1]), pa.array([7.5]), False),
        (pa.array([1.0], pa.float32()), pa.array([0.1]), False),
        (pa.array([1.0]), pa.array([math.nan], pa.float32()), True),
        (pa.nulls(1), pa.array(["x"]), True),
        (pa.array(["x"]).dictionary_encode(), pa.array(["y"], pa.large_string()), True),
    ],
)
def test_no_value_changes_by_the_types_of_earlier_rows(tmp_path, first, second, is_kept):
    for name, values in {"1": first, "2": second}.items():
        parquet.write_table(pa.table({"n": values, "text": ["a"]}), tmp_path / f"{name}.parquet")
    if is_kept:
        values = [row["n"] for row in read(tmp_path / "*").rows]
        assert str(values) == str([first[0].as_py(), second[0].as_py()])
    else:
        with pytest.raises(UserError, match=r"2.parquet must have the columns of earlier rows, n "):
            read(tmp_path / "*", skip_damaged=True)


def test_strings_in_tables_of_arrow_must_be_utf8(tmp_path):
    texts = pa.array([b"a\0", None, b"\xff", b"d"], pa.binary())
    for name, kind in (("strings", pa.string()), ("bytes", pa.binary())):
        parquet.write_table(
            pa.table({"text": texts.cast(kind, safe=False)}), tmp_path / f"{name}.parquet"
        )
    with pytest.raises(
        UserError, match=r"strings.parquet is damaged after row 0: .*UTF8.*`skip_damaged`"
    ):
        read(tmp_path / "strings.parquet")
    with pytest.raises(UserError, match="expected UTF-8 in the column text"):
        read(tmp_path / "bytes.parquet", skip_damaged=True)
    parquet.write_table(pa.table({"text": texts[:2]}), tmp_path / "bytes.parquet")
    files = read(tmp_path / "*", skip_damaged=True)
    assert [row["text"] for row in files.rows] == [b"a\0", None]
    assert files.counts == {"damaged files": 1, "empty texts": 1}


@pytest.mark.parametrize(
    ("name", "content", "header", "rows"),
    [
        ("x.csv", b'"a\nb",text\n1,x\n', True, [{"a\nb": "1", "text": "x"}]),
        # An empty line of a single column is an empty text, as in plain lines; of several, it is
        # nothing.
        ("x.tsv", b"\ntext\r\na\r\n\r\nb\n", True, [{"text": "a"}, {"text": ""}, {"text": "b"}]),
        ("x.csv", b'text\n"a"\n\n""\n\n', True, [{"text": text} for text in ("a", "", "", "")]),
        ("x.csv", b'\xef\xbb\xbf"text",id\n\na,1\n\n', True, [{"text": "a", "id": "1"}]),
        ("x.tsv", b"\nb", False, [{"f0": ""}, {"f0": "b"}]),
        # Quotes that begin no field are text.
        ("x.csv", b'text,id\n5" x,"7""\\"""\n', True, [{"text": '5" x', "id": '7"\\"'}]),
    ],
)
def test_first_rows_of_any_form_name_the_columns(tmp_path, name, content, header, rows):
    (tmp_path / name).write_bytes(content)
    text_column = "text" if header else list(rows[0])[-1]
    assert read(tmp_path / name, text_column=text_column, header=header).rows == rows


@pytest.mark.parametrize("name", ["what?.TSV.ZST", "s3://b/x?.tsv", "https://x.org/x.tsv?a=x.csv"])
def test_compressed_tables_are_no_plain_lines(tmp_path, name):
    path = write_files(tmp_path, {"x.zst": TSV}) / "x.zst"
    [batch] = TextFiles([InputFile(name, 1, "", partial(path.open, "rb"))], "text").batches()
    assert batch.to_pylist() == ROWS


@pytest.mark.parametrize(
    "name", ["x.csv.1", "x.JSONL.bak", "x.parquet~", "x.tsv.xz.old", "x.arrow"]
)
def test_names_that_only_contain_a_format_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(TSV)
    with pytest.raises(UserError, match=rf"{name} must end in \.parquet, .*; rename it"):
        find_files([str(tmp_path / "*")])


@pytest.mark.parametrize("error", [TimeoutError(), OSError(5, "I/O error")])
def test_a_file_that_cannot_be_read_is_not_skipped(error):
    files = TextFiles(
        [InputFile("s3://b/x.txt", 1, "", Mock(side_effect=error))], "text", skip_damaged=True
    )
    with pytest.raises(
        UserError, match=r"s3://b/x.txt cannot be read: .+; run the same command again"
    ):
        next(files.batches())


def test_names_of_columns_that_are_not_clear_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b",,text\n1,2,x\n")
    with pytest.raises(
        UserError, match=r"must have only one column '', but has several; rename .*`columns`"
    ):
        read(tmp_path / "x.csv", skip_damaged=True)
    assert read(tmp_path / "x.csv", columns=[]).rows == [{"text": "x"}]
    (tmp_path / "y.csv").write_bytes("text,año\nx,1\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"y.csv is damaged after row 0: its header is not UTF-8"):
        read(tmp_path / "y.csv")


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz", "x.parquet", "x.jsonl"])
@pytest.mark.parametrize("skip_damaged", [False, True])
def test_a_file_that_changes_while_it_is_read_is_an_error(tmp_path, name, skip_damaged):
    """Whether it was written in place, cut, or only grew; damage by the change is not skipped."""
    path = tmp_path / name
    old, new = (
        [f'{{"text": "{word} {n**99}"}}' for n in range(9000)] for word in ("hola", "adios")
    )
    contents = [gzip.compress(lines(*old)), gzip.compress(lines(*new))]
    if ".gz" not in name:
        contents = [lines(*old), lines(*new)]
    if name == "x.parquet":
        contents = []
        for texts in (old, new):
            parquet.write_table(pa.table({"text": texts}), path, row_group_size=1000)
            contents.append(path.read_bytes())
    for change in (contents[1], contents[0][:-5000], contents[0] + contents[0][-9:]):
        path.write_bytes(contents[0])
        batches = TextFiles(find_files([str(path)]), "text", skip_damaged=skip_damaged).batches()
        next(batches)
        with path.open("r+b") as file:  # the same file, not another one of its name
            file.write(change)
            file.truncate()
        with pytest.raises(UserError, match=f"{name} must stay the same .* changed"):
            list(batches)
    # A change before its first row is read, too: the folder's description has the state that was
    # found.
    files = TextFiles(find_files([str(path)]), "text", skip_damaged=skip_damaged)
    path.write_bytes(contents[0][:-1])
    with pytest.raises(UserError, match=f"{name} must stay the same"):
        next(files.batches())


def test_a_remote_file_that_changes_while_it_is_read_is_an_error():
    with fsspec.open("memory://bucket/x.txt", "wb") as file:
        file.write(b"hola\n" * 9000)
    batches = TextFiles(find_files(["memory://bucket/*.txt"]), "text").batches()
    next(batches)
    with fsspec.open("memory://bucket/x.txt", "wb") as file:
        file.write(b"adios\n" * 9000)
    with pytest.raises(UserError, match=r"x.txt must stay the same .* changed"):
        list(batches)
