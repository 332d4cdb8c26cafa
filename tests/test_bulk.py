"""From files of texts to shards of vectors: contents, kills, settings, faults; Arrow batches."""

import gzip
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from encode_functions import Counting
from programs import ROOT, run_and_kill, run_python
from pyarrow import parquet
from raw_files import read_files, small_disk, write_files
from serving_models import DIM, hashed, save_hashed

from xling_tf.bulk import vector_files
from xling_tf.bulk.record_batches import encode_batches, model_archive, vectors_of
from xling_tf.bulk.vector_files import VectorFolder, encode_files
from xling_tf.client.quantization import quantize_units
from xling_tf.errors import UserError
from xling_tf.files import write_json
from xling_tf.sentence_encoder import SentenceEncoder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_hashed(tmp_path_factory.mktemp("models") / "hashed")


def expected(texts: list[str]) -> np.ndarray:
    return hashed(tf.constant(texts)).numpy()


def write_texts(folder: Path, texts: list[str], *, num_files: int = 3) -> str:
    """Writes texts with their numbers into Parquet files; returns their pattern."""
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(texts)), num_files)):
        table = pa.table(
            {"id": part, "text": [texts[row] for row in part], "language": ["en"] * len(part)}
        )
        parquet.write_table(table, folder / f"{number}.parquet")
    return str(folder / "*.parquet")


def content(folder: Path) -> dict[str, bytes]:
    """An output's files; a killed run may leave temporary ones, which are removed hours later."""
    files = read_files(folder).items()
    return {name: data for name, data in files if name != "lock" and not name.endswith(".tmp")}


TEXTS = [f"text {number % 70}" for number in range(250)]


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
def test_shards_hold_columns_and_vectors_in_order(model, tmp_path, precision):
    pattern, output = write_texts(tmp_path / "in", TEXTS), tmp_path / "out"
    options = {"precision": precision, "columns": ["language", "id"]}
    assert encode_files(model, [pattern], output, rows_per_shard=100, **options) == {"rows": 250}
    folder = VectorFolder.open(output)
    assert (len(folder), folder.num_shards, folder.description["dim"]) == (250, 3, DIM)
    vectors = [folder.vectors(shard) for shard in range(3)]
    assert list(map(len, vectors)) == [100, 100, 50]
    # Sums may be rounded differently.
    tolerance = {"float32": 1e-6, "int8": 1, "ubinary": 0}[precision]
    quantized = quantize_units(expected(TEXTS), precision)
    np.testing.assert_allclose(np.concatenate(vectors), quantized, atol=tolerance)
    columns = pa.concat_tables(folder.columns(shard, ["language", "id"]) for shard in range(3))
    assert columns.to_pydict() == {"language": ["en"] * 250, "id": list(range(250))}
    kind = parquet.read_schema(output / "shard-00000.parquet").field("vector").type
    assert kind.value_type == pa.from_numpy_dtype(vectors[0].dtype)
    assert kind.list_size == vectors[0].shape[1]
    # Earlier versions could write vectors to files beside the columns.
    np.save(output / "shard-00000.npy", vectors[0] + 1)
    earlier = VectorFolder(output, {**folder.description, "format": "npy"}, {})
    np.testing.assert_array_equal(earlier.vectors(0), vectors[0] + 1)


def test_chunks_end_at_shards_and_depend_on_the_texts_alone(monkeypatch):
    def sizes(lengths, shard_rows, batch_rows):
        texts = pa.array(["x" * length for length in lengths])
        batches = pa.table({"text": texts}).to_batches(max_chunksize=batch_rows)
        chunks = [*vector_files._chunks(iter(batches), "text", shard_rows)]
        assert (
            pa.chunked_array([chunk["text"] for chunk in chunks]).to_pylist() == texts.to_pylist()
        )
        return [chunk.num_rows for chunk in chunks]

    monkeypatch.setattr(vector_files, "_CHUNK_ROWS", 4)
    monkeypatch.setattr(vector_files, "_CHUNK_BYTES", 10)
    for batch_rows in (1, 3, 25):
        # Four rows at a time, and the two that are left of a shard of ten.
        assert sizes([1] * 25, 10, batch_rows) == [4, 4, 2, 4, 4, 2, 4, 1]
        # 4 + 4 bytes, the third text would be beyond 10; a long text is alone, and is not divided.
        assert sizes([4, 4, 4, 20, 1, 1], 100, batch_rows) == [2, 1, 1, 2]


def test_the_same_command_has_nothing_to_do_and_another_one_is_refused(
    model, tmp_path, monkeypatch
):
    pattern, output = write_texts(tmp_path / "in", TEXTS), tmp_path / "out"
    encode_files(model, [pattern], output)
    before = content(output)
    with monkeypatch.context() as patched:  # the model is not even loaded
        patched.delattr("xling_tf.bulk.vector_files.SentenceEncoder")
        assert encode_files(model, pattern, str(output)) == {"rows": 250}
    for name, value in {"columns": [], "precision": "int8", "rows_per_shard": 50}.items():
        with pytest.raises(UserError, match=f"another {name}"):
            encode_files(model, [pattern], output, **{name: value})
    changed = shutil.copytree(model, tmp_path / "changed")
    write_files(changed, {"assets/more.txt": "words"})
    for other, files, folder, message in (
        (changed, pattern, output, "another model"),
        (model, pattern.replace("*", "1"), output, "another input"),
        (model, pattern, tmp_path / "in", r"must be empty, but has 0\.parquet"),
    ):
        with pytest.raises(UserError, match=message):
            encode_files(other, [files], folder)
    assert content(output) == before
    assert not (tmp_path / "in/lock").exists()
    with pytest.raises(UserError, match="the column body"):
        encode_files(model, [pattern], tmp_path / "new", text_column="body")
    assert content(tmp_path / "new") == {}  # the corrected command can use it


@pytest.mark.slow
def test_a_killed_program_continues(model, tmp_path):
    texts = [f"text {number}" for number in range(3000)]
    pattern = write_texts(tmp_path / "in", texts, num_files=7)
    flags = [f"--model={model}", f"--input={pattern}", "--rows_per_shard=20"]
    program = [str(ROOT / "export/encode.py"), *flags, "--output=killed"]
    run_and_kill([sys.executable, *program], tmp_path / "killed/shard-00020.parquet")
    with pytest.raises(UserError, match="not finished; run the same"):
        VectorFolder.open(tmp_path / "killed")
    done = run_python(tmp_path, *program)
    assert (done.status, done.output) == (0, "killed: 3000 rows\n"), done.errors
    options: dict[str, Any] = {"rows_per_shard": 20, "precision": "float32"}
    encode_files(model, [pattern], tmp_path / "whole", **options)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")
    # A shard that was removed is made again.
    (tmp_path / "killed/shard-00100.parquet").unlink()
    with pytest.raises(UserError, match="shard 100 is missing or damaged; run the same"):
        VectorFolder.open(tmp_path / "killed")
    encode_files(model, [pattern], tmp_path / "killed", **options)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(
    "damage", ["empty", "cut", "fewer rows", "removed", "last cut", "last fewer rows"]
)
def test_a_shard_that_lost_rows_does_not_count_as_done(model, tmp_path, damage, is_finished):
    pattern, output = write_texts(tmp_path / "in", TEXTS), tmp_path / "out"
    encode_files(model, [pattern], output, rows_per_shard=40)
    whole = content(output)
    shard = output / f"shard-0000{6 if 'last' in damage else 3}.parquet"
    if "rows" in damage:
        parquet.write_table(parquet.read_table(shard)[:7], shard)
    elif damage == "removed":
        shard.unlink()
    else:
        shard.write_bytes(shard.read_bytes()[:-9] if "cut" in damage else b"")
    if not is_finished:
        description = json.loads(whole["vectors.json"])
        for name in ("shards", "counts"):
            del description[name]
        write_json(output / "vectors.json", description)
    with pytest.raises(UserError, match="run the same `xling-tf encode` again"):
        VectorFolder.open(output)
    assert encode_files(model, [pattern], output, rows_per_shard=40) == {"rows": 250}
    assert content(output) == whole


def test_the_share_and_the_speed_are_reported(model, tmp_path):
    pattern, states = write_texts(tmp_path / "in", TEXTS), list[str]()
    encode_files(model, [pattern], tmp_path / "out", rows_per_shard=100, report=states.append)
    assert len(states) == 4  # at the beginning, and after each of three shards
    assert re.fullmatch(r"250 of about 250 sentences, 100%, [\d,]+ rows/s", states[-1])


def test_a_file_that_changes_while_it_is_encoded_leaves_no_finished_folder(model, tmp_path):
    path, output = tmp_path / "in.txt", tmp_path / "out"
    path.write_text("".join(f"hola {row}\n" for row in range(30_000)))

    def change(state: str) -> None:
        with path.open("r+") as file:
            file.writelines(f"adios {row}\n" for row in range(30_000))

    with pytest.raises(UserError, match=r"in.txt must stay the same .* changed"):
        encode_files(model, [str(path)], output, rows_per_shard=1000, report=change)
    with pytest.raises(UserError, match="not finished"):
        VectorFolder.open(output)
    with pytest.raises(UserError, match="another input"):
        encode_files(model, [str(path)], output, rows_per_shard=1000)


def test_a_dry_run_says_what_would_be_done(model, tmp_path):
    write_files(tmp_path, {"texts.txt": "Hola\n" * 5000})
    flags = ("--dry_run", f"--model={model}", "--input=texts.txt", "--output=vectors")
    done = run_python(tmp_path, str(ROOT / "export" / "encode.py"), *flags)
    assert done.output.startswith("about 5,000 rows, "), done.errors
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt"}


def test_a_full_disk_loses_nothing(model, tmp_path):
    texts = [text + ("" if row < 100 else f" {row**999}") for row, text in enumerate(TEXTS)]
    pattern, output = write_texts(tmp_path / "in", texts), tmp_path / "out"
    # There is room for the first shard.
    with small_disk(40_000), pytest.raises(OSError, match="File too large"):
        encode_files(model, [pattern], output, rows_per_shard=100)
    assert sorted(content(output)) == ["shard-00000.parquet", "vectors.json"]
    for folder in (output, tmp_path / "whole"):
        assert encode_files(model, [pattern], folder, rows_per_shard=100) == {"rows": 250}
    assert content(output) == content(tmp_path / "whole")


def test_a_model_whose_files_are_links_is_sent_whole_to_workers(model, tmp_path):
    folder = tmp_path / "snapshot"
    for file in filter(Path.is_file, model.rglob("*")):
        link = folder / file.relative_to(model)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    with fsspec.open("memory://bucket/hashed.tar.gz", "wb") as file:
        file.write(gzip.compress(model_archive(folder).read_bytes()))
    [batch] = encode_batches([pa.record_batch({"text": ["a"]})], "memory://bucket/hashed.tar.gz")
    np.testing.assert_allclose(vectors_of(batch.column("vector")), expected(["a"]), atol=1e-6)


def test_damage_stops_it_or_is_counted(model, tmp_path):
    pattern, output = write_texts(tmp_path / "in", TEXTS, num_files=5), tmp_path / "out"
    damaged = tmp_path / "in/2.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"2.parquet is damaged after row 0"):
        encode_files(model, [pattern], output, rows_per_shard=40)
    assert sorted(content(output)) == ["shard-00000.parquet", "shard-00001.parquet", "vectors.json"]
    for name in ("out", "whole"):
        counts = encode_files(
            model, [pattern], tmp_path / name, rows_per_shard=40, skip_damaged=True
        )
        assert counts == {"rows": 200, "damaged files": 1}
    assert content(output) == content(tmp_path / "whole")
    columns = pa.concat_tables(VectorFolder.open(output).columns(shard) for shard in range(5))
    assert columns["id"].to_pylist() == [*range(100), *range(150, 250)]


def test_batches_get_a_column_and_duplicates_are_encoded_once():
    counting = Counting(
        lambda texts: np.array([[len(text), 1] for text in texts] or np.zeros((0, 2)), np.float32)
    )
    batch = pa.record_batch({"id": [1, 2, 3, 4], "sentence": ["a", None, "bcd", "a"]})
    encoder = SentenceEncoder(counting)
    (encoded, empty) = encode_batches(
        [batch, batch.slice(0, 0)], encoder, "sentence", vector_column="v"
    )
    assert encoded.to_pydict() == {**batch.to_pydict(), "v": [[1, 1], [0, 0], [3, 1], [1, 1]]}
    assert empty.schema == encoded.schema
    assert sum(map(len, counting.batches)) == 2  # a blank text is not encoded
    with pytest.raises(UserError, match="the column v exists already"):
        next(encode_batches([encoded], encoder, "sentence", vector_column="v"))
