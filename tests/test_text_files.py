"""Texts out of files of every format, whole and damaged, local and remote."""

import bz2
import gzip
import json
import lzma
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
import zstandard
from pyarrow import feather, ipc, parquet

from xling_tf.bulk.text_files import InputFile, Position, TextFiles, find_files
from xling_tf.errors import UserError

ROWS = [
    {"id": f"r{number}", "text": text} for number, text in enumerate(["Hola, señor", "", "東京", "a\u2028b"])
]
TABLE = pa.Table.from_pylist(ROWS)


def stream(path: Path) -> None:
    with ipc.new_stream(path, TABLE.schema) as file:
        file.write_table(TABLE, max_chunksize=3)


def lines(*parts: str) -> bytes:
    return "".join(f"{part}\n" for part in parts).encode()


TSV = lines("id\ttext", *(f"{row['id']}\t{row['text']}" for row in ROWS))
FILES = {
    "x.parquet": lambda path: parquet.write_table(TABLE, path),
    "x.feather": lambda path: feather.write_feather(TABLE, path),
    "x.arrow": stream,
    "x.jsonl.gz": lambda path: path.write_bytes(gzip.compress(lines(*map(json.dumps, ROWS)))),
    "x.json": lambda path: path.write_bytes(lines(*(json.dumps(row, ensure_ascii=False) for row in ROWS))),
    "x.tsv.xz": lambda path: path.write_bytes(lzma.compress(TSV)),
    "x.tsv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + TSV.replace(b"\n", b"\r\n")),
    "x.csv.bz2": lambda path: path.write_bytes(
        bz2.compress(lines("id,text", *(f'{row["id"]},"{row["text"]}"' for row in ROWS)))
    ),
}


def read(*patterns: Any, text_column: str = "text", row: int = 0, **options: Any) -> TextFiles:
    """Reads all rows, into the attribute `rows`."""
    files = TextFiles(find_files([str(pattern) for pattern in patterns]), text_column, **options)
    files.rows = [row for batch in files.batches(Position(0, row), 0) for row in batch.to_pylist()]
    return files


@pytest.mark.parametrize("name", FILES)
def test_every_format_has_the_same_rows(tmp_path, name):
    FILES[name](tmp_path / name)
    files = read(tmp_path / name)
    assert files.rows == ROWS
    assert files.counts["empty texts"] == 1
    assert files.bytes_read == (tmp_path / name).stat().st_size
    # Other columns are left out; reading begins anywhere.
    assert read(tmp_path / name, columns=["text"], row=2).rows == [{"text": row["text"]} for row in ROWS[2:]]
    with pytest.raises(UserError, match=rf"{name}: expected the column sentence, .* only id, text"):
        read(tmp_path / name, text_column="sentence")


def test_plain_lines_and_tables_without_header(tmp_path):
    content = lines(*(row["text"] for row in ROWS))
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n").rstrip(b"\r\n"))
    (tmp_path / "b.zst").write_bytes(zstandard.compress(content))
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
    with fsspec.open("memory://bucket/x.jsonl", "wb") as file:
        file.write(lines(*map(json.dumps, ROWS)))
    with fsspec.open("memory://bucket/y.parquet", "wb") as file:
        parquet.write_table(TABLE, file)
    assert read("memory://bucket/*").rows == 2 * ROWS
    for pattern, message in {
        "memory://bucket/*.tsv": "matches none",
        tmp_path / "none": "matches none",
        tmp_path: "matches none",
        "nosuch://x": "cannot be looked up",
    }.items():
        with pytest.raises(UserError, match=message):
            read(pattern)


def test_types_are_those_of_the_first_file(tmp_path):
    parquet.write_table(pa.table({"n": pa.array([1], pa.int64()), "text": ["a"]}), tmp_path / "1.parquet")
    parquet.write_table(
        pa.table({"text": pa.array(["b"]).dictionary_encode(), "n": pa.array([2], pa.int8())}),
        tmp_path / "2.parquet",
    )
    assert read(tmp_path / "*").rows == [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}]
    parquet.write_table(pa.table({"text": ["b"]}), tmp_path / "3.parquet")
    with pytest.raises(UserError, match=r"3.parquet must have .* n int64, text string, but has text string"):
        read(tmp_path / "*")
    assert len(read(tmp_path / "*", columns=["text"]).rows) == 3


@pytest.mark.parametrize("values", [[1, 2], [["a"], ["b"]]])
def test_columns_of_other_types_are_refused(tmp_path, values):
    parquet.write_table(pa.table({"text": values}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match="expected texts in the column text, but it holds"):
        read(tmp_path / "x.parquet", skip_damaged=True)


@pytest.mark.parametrize(
    ("name", "content", "rows", "message"),
    [
        ("x.txt", "a\n".encode("utf-16-le") + b"\nc\n", ["c"], "row 1 of .*x.txt is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n', ["a"], "line 2 of .*x.jsonl is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": "", "n": "\xff"}\n', ["a"], "line 2 of .*x.jsonl is not UTF-8"),
        ("x.txt", b"a\nb\xff\nc\n", ["a", "c"], "row 2 of .*x.txt is not UTF-8"),
        ("x.txt", b"a\n" + b"b" * (1 << 20) + b"b\nc\n", ["a", "c"], "row 2 of .*x.txt is longer"),
        ("x.tsv", b"text\tid\na\t1\nb\nc\t3\n", ["a", "c"], "x.tsv .* Row #3: Expected 2 columns, got 1"),
        ("x.csv", b'text,id\n"a\nb",1\nb\xff,2\n', ["a\nb"], "row 2 of .*x.csv is not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text"\n{"text": "c"}\n', ["a", "c"], "line 2 of .*x.jsonl is no JSON"),
        ("x.jsonl", b'?\n\n{"text": "2020-01-01"}\n{"text": 3}', ["2020-01-01"], "line 1 of .*x.jsonl"),
    ],
)
def test_damaged_rows(tmp_path, name, content, rows, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{message}.*--skip_damaged"):
        read(tmp_path / name)
    files = read(tmp_path / name, skip_damaged=True)
    assert [row["text"] for row in files.rows] == rows
    assert files.counts["damaged rows"] == content.count(b"\n") + (content[-1:] != b"\n") - len(rows) - (
        name.endswith(("tsv", "csv")) + content.count(b"\n\n") + content.count(b'a\nb"')
    )


@pytest.mark.parametrize("name", ["x.parquet", "x.feather", "x.arrow", "x.jsonl.gz", "x.tsv.xz", "x.csv.bz2"])
def test_damaged_files(tmp_path, name):
    FILES[name](tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    FILES["x.json"](tmp_path / "y.json")
    with pytest.raises(UserError, match=rf"{name} is damaged after row \d+: .*--skip_damaged"):
        read(tmp_path / "*")
    files = read(tmp_path / "*", skip_damaged=True)
    assert files.rows[-len(ROWS) :] == ROWS
    assert files.counts["damaged files"] == 1


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_damaged_texts_in_tables_of_arrow(tmp_path, name, kind):
    texts = pa.array([b"a", None, b"\xff", b"d"], pa.binary()).cast(kind, safe=False)
    table = pa.table({"n": [1, 2, 3, 4], "text": texts})
    if name == "x.parquet":
        parquet.write_table(table, tmp_path / name)
    else:
        feather.write_feather(table, tmp_path / name)
    with pytest.raises(UserError, match=rf"row 3 of .*{name} is not UTF-8.*--skip_damaged"):
        read(tmp_path / name)
    files = read(tmp_path / name, skip_damaged=True)
    assert [row["n"] for row in files.rows] == [1, 2, 4]
    assert files.counts == {"damaged rows": 1, "empty texts": 1}


@pytest.mark.parametrize(
    ("name", "content", "header", "rows"),
    [
        ("x.csv", b'"a\nb",text\n1,x\n', True, [{"a\nb": "1", "text": "x"}]),
        ("x.csv", b'"a\nb",x\nc,y\n', False, [{"f0": "a\nb", "f1": "x"}, {"f0": "c", "f1": "y"}]),
        ("x.csv", b"\ntext,id\nx,1\n", True, [{"text": "x", "id": "1"}]),
        ("x.tsv", b"a" * 99_999 + b"\tx\n", False, [{"f0": "a" * 99_999, "f1": "x"}]),
        ("x.tsv", b"text\tid\rx\t1\r", True, [{"text": "x", "id": "1"}]),
    ],
)
def test_first_rows_of_any_form_name_the_columns(tmp_path, name, content, header, rows):
    (tmp_path / name).write_bytes(content)
    text_column = "text" if header else "f1"
    assert read(tmp_path / name, text_column=text_column, header=header).rows == rows


@pytest.mark.parametrize("ending", ["zstd", "ZST", "zst?download=true"])
def test_compressed_tables_are_no_plain_lines(tmp_path, ending):
    name = f"x.tsv.{ending}"
    (tmp_path / name).write_bytes(zstandard.compress(TSV))
    [file] = [InputFile(str(tmp_path / name), 1, "", partial((tmp_path / name).open, "rb"))]
    [batch] = TextFiles([file], "text").batches(Position(), 0)
    assert batch.to_pylist() == ROWS


@pytest.mark.parametrize("error", [TimeoutError(), PermissionError(13, "denied"), OSError(5, "I/O error")])
def test_a_file_that_cannot_be_read_is_not_skipped(error):
    def fail() -> None:
        raise error

    files = TextFiles([InputFile("s3://b/x.txt", 1, "", fail)], "text", skip_damaged=True)
    with pytest.raises(UserError, match=r"s3://b/x.txt cannot be read: .+; run the same command again"):
        next(files.batches(Position(), 0))


def test_names_of_columns_that_are_not_clear_are_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(b",,text\n1,2,x\n")
    with pytest.raises(UserError, match=r"must have one column '', but has more; rename .*--columns"):
        read(tmp_path / "x.csv", skip_damaged=True)
    assert read(tmp_path / "x.csv", columns=[]).rows == [{"text": "x"}]
    (tmp_path / "y.csv").write_bytes("text,año\nx,1\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"y.csv is damaged after row 0: 'utf-8' codec can't decode"):
        read(tmp_path / "y.csv")
    assert read(tmp_path / "y.csv", skip_damaged=True).counts == {"damaged files": 1}
