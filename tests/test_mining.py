"""Mining of translations out of folders of vectors: margins, memory, duplicates, a kill, faults."""

import io
import json
import lzma
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from programs import ROOT, run_and_kill, run_program, run_python, the_error
from pyarrow import parquet

from xling_tf.bulk import mining
from xling_tf.bulk.mining import describe_mining, mine_translations, mining_blocks
from xling_tf.client.quantization import quantize_units
from xling_tf.client.search import bitext_mining
from xling_tf.errors import UserError
from xling_tf.models import BOX_FOLDER

SMALL = mining._PROGRAM_BYTES / 2**30 + 3e-4  # GiB: room for a shard of some vectors


def write_vectors(folder, texts, vectors, *, precision="float32", rows=20, **changes):
    """Writes a folder as `encode_files` does, of given vectors."""
    folder.mkdir()
    values = quantize_units(np.asarray(vectors, np.float32), precision)
    settings = {"model": "m", "dim": np.shape(vectors)[1], "precision": precision, "columns": None}
    settings |= {
        "text_column": "text",
        "format": "parquet",
        "rows_per_shard": rows,
        "input": str(texts),
    }
    starts = range(0, len(texts), rows)
    for shard, start in enumerate(starts):
        part = values[start : start + rows]
        column = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), part.shape[1])
        table = pa.table(
            {"text": pa.array(texts[start : start + rows], pa.string()), "vector": column}
        )
        parquet.write_table(table, folder / f"shard-{shard:05}.parquet")
    counts = {"shards": len(starts), "counts": {"rows": len(texts)}}
    (folder / "vectors.json").write_text(json.dumps({**settings, **changes, **counts}))
    return folder


def random_sides(count: int, dim: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors of sources, and noisy ones of their translations in another order."""
    rng = np.random.default_rng(seed)
    sources = rng.normal(size=(count, dim))
    targets = sources[rng.permutation(count)] + rng.normal(size=(count, dim)) * 0.3
    sides = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (sources, targets))
    return tuple(side.astype(np.float32) for side in sides)


def write_sides(folder: Path, vectors: Any, **options: Any) -> tuple[Path, Path]:
    folders = []
    for name, side in zip("st", vectors, strict=True):
        texts = [f"{name}{row}" for row in range(len(side))]
        folders.append(write_vectors(folder / name, texts, side, **options))
    return folders[0], folders[1]


def read(path: Path) -> list[tuple[float, str, str]]:
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == "source\ttarget\tscore"
    rows = (line.split("\t") for line in lines)
    return [(float(score), source, target) for source, target, score in rows]


@pytest.mark.parametrize(
    ("kind", "memory"), [("flat", 4), ("flat", SMALL), ("ivf", 4), ("ivf", SMALL)]
)
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_blocks_of_any_size_give_what_bitext_mining_gives(
    tmp_path, kind, memory, precision, monkeypatch
):
    # All lists are searched, and all of their rows rescored.
    monkeypatch.setattr(mining, "_CANDIDATES", 130)
    monkeypatch.setattr(mining, "_MAX_CLUSTERS", 2)
    sources, targets = random_sides(130)
    folders = write_sides(tmp_path, (sources, targets[:117]), precision=precision)
    output = tmp_path / "out.tsv"
    monkeypatch.setattr(mining, "index_kind", lambda count: kind)
    mine_translations(*folders, output, threshold=0, memory=memory)
    if precision == "int8":
        sources, targets = (quantize_units(side, "int8") + 0.5 for side in (sources, targets))
    expected = bitext_mining(sources, targets[:117])
    scores, *pairs = zip(*read(output), strict=True)
    assert [*zip(*pairs, strict=True)] == [
        (f"s{pair.first}", f"t{pair.second}") for pair in expected
    ]
    np.testing.assert_allclose(scores, [pair.score for pair in expected], atol=1e-5)


def test_margins_by_hand_where_the_same_sentence_counts_once(tmp_path):
    # Cosines of "a b " and "c" with "A" and "B": 1 and .6; .28 and .168 + .768 = .936. The means of
    # the rows are .8 and .608, those of the columns .64 and .768. Tabs and line feeds become
    # spaces.
    vectors = np.array([[1, 0], [1, 0], [0.28, 0.96], [1, 0]])
    source = write_vectors(tmp_path / "s", ["a\tb\n", "a\tb\n", "c", "a\tb\n"], vectors, rows=3)
    target = write_vectors(
        tmp_path / "t", ["B", "A", "B"], [[0.6, 0.8], [1, 0], [0.6, 0.8]], rows=1
    )
    expected = [(1 / ((0.8 + 0.64) / 2), "a b ", "A"), (0.936 / ((0.608 + 0.768) / 2), "c", "B")]
    for threshold, num_pairs in ((0, 2), (1.37, 1)):
        counts = mine_translations(source, target, tmp_path / "out.tsv", threshold=threshold)
        assert counts == {"sources": 2, "targets": 2, "pairs": num_pairs}
        pairs = [(pytest.approx(score, abs=1e-5), *pair) for score, *pair in expected]
        assert read(tmp_path / "out.tsv") == pairs[:num_pairs]


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("kind", ["flat", "ivf"])
def test_blank_sentences_and_zero_vectors_are_in_no_pair(tmp_path, kind, precision, monkeypatch):
    monkeypatch.setattr(mining, "index_kind", lambda count: kind)
    monkeypatch.setattr(mining, "_CANDIDATES", 130)
    monkeypatch.setattr(mining, "_MAX_CLUSTERS", 1)
    vectors = random_sides(60)[0]
    texts = ["", " ", "\u200b", "zero", *map(str, range(56))]
    unit = vectors.copy()
    unit[3] = 0
    folders = [write_vectors(tmp_path / side, texts, unit, precision=precision) for side in "st"]
    counts = mine_translations(*folders, tmp_path / "out.tsv.xz", threshold=0)
    assert counts == {"sources": 57, "targets": 57, "pairs": 56}
    lines = lzma.decompress((tmp_path / "out.tsv.xz").read_bytes()).decode().splitlines()[1:]
    pairs = [tuple(line.split("\t")[:2]) for line in lines]
    assert sorted(pairs) == sorted((text, text) for text in texts[4:])


def test_a_plan_says_how_often_the_memory_is_filled(tmp_path):
    folders = write_sides(tmp_path, random_sides(1500), rows=10)
    blocks = [
        re.findall(r"in (\d+)", describe_mining(*folders, memory=memory)) for memory in (4, SMALL)
    ]
    assert blocks[0] == ["1", "1"]
    assert 1 < int(blocks[1][0]) == int(blocks[1][1]) <= 150


def test_nothing_to_find(tmp_path):
    source = write_vectors(tmp_path / "s", ["a"], [[1.0, 0]])
    target = write_vectors(tmp_path / "t", [], np.zeros((0, 2)))
    blank = write_vectors(tmp_path / "b", ["", " "], np.zeros((2, 2)))
    sides = [(source, target), (target, target), (source, blank), (blank, source), (blank, blank)]
    for number, folders in enumerate(sides):
        counts = mine_translations(*folders, tmp_path / f"{number}.tsv")
        sizes = [int(folder == source) for folder in folders]
        assert counts == {"sources": sizes[0], "targets": sizes[1], "pairs": 0}
        assert read(tmp_path / f"{number}.tsv") == []
    with pytest.raises(UserError, match="must be a file, but is a folder; choose another `output`"):
        mine_translations(source, target, tmp_path / "s")


needs_box = pytest.mark.skipif(
    not (BOX_FOLDER / "runtime.json").is_file(), reason=f"{BOX_FOLDER} is made by `make model`"
)


@needs_box
def test_files_of_texts_are_encoded_with_the_model_in_the_box(tmp_path):
    english = ["The cat sleeps.", "Where is the station?", "I like tea.", "The door is open."]
    spanish = ["¿Dónde está la estación?", "El gato duerme.", "Mi coche es rojo."]
    (tmp_path / "news.en.txt").write_text("\n".join(english), "utf-8")
    (tmp_path / "news.es.txt").write_text("\n".join(spanish), "utf-8")
    command = ["data/mine.py", "news.en.txt", "news.es.txt", "--output=mined.tsv"]
    run = run_program(tmp_path, *command)
    assert run.errors.count("multilingual-mini, the model in the box") == 1
    rows = (tmp_path / "mined.tsv").read_text("utf-8").splitlines()[1:]
    pairs = {tuple(row.split("\t")[:2]) for row in rows}
    assert {(english[0], spanish[1]), (english[1], spanish[0])} <= pairs
    # The vectors stay, so that another margin takes little time; a folder can be given for a side.
    names = ["mined.tsv", "mined.tsv.neighbours", "mined.tsv.source", "mined.tsv.target"]
    assert sorted(path.name for path in tmp_path.glob("mined*")) == names
    run_program(tmp_path, "data/mine.py", "mined.tsv.source", "news.es.txt", "--output=again.tsv")
    # A mistake is reported before the texts are encoded.
    for flag in ("--output=bad.xlsx", "--output=bad.tsv --known=none.tsv"):
        the_error(run_python(tmp_path, str(ROOT / command[0]), *command[1:-1], *flag.split()))
    assert not [*tmp_path.glob("bad*")]
    again = (tmp_path / "again.tsv").read_bytes()
    assert again == (tmp_path / "mined.tsv").read_bytes()


# The command line, in a process that cannot import what the extra `tensorflow` alone installs.
WITHOUT_TENSORFLOW = """
import sys
sys.modules |= dict.fromkeys(("tensorflow", "tensorflow_text", "keras", "safetensors", "scipy"))
sys.argv[0] = "xling-tf"
from xling_tf import cli
cli.main()
"""


@needs_box
def test_encode_mine_and_align_need_no_tensorflow(tmp_path):
    (tmp_path / "a.en.txt").write_text("The cat sleeps.\nWhere is the station?\n", "utf-8")
    (tmp_path / "a.es.txt").write_text("El gato duerme.\n¿Dónde está la estación?\n", "utf-8")
    for words in (
        "encode --input a.en.txt --output vectors",
        "mine vectors a.es.txt --output mined.tsv",
        "align a.en.txt a.es.txt --output aligned.tsv",
    ):
        command = [sys.executable, "-c", WITHOUT_TENSORFLOW, *words.split()]
        environment = {"PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
    for name in ("mined", "aligned"):
        rows = (tmp_path / f"{name}.tsv").read_text("utf-8").splitlines()[1:]
        found = {tuple(row.split("\t")[:2]) for row in rows}
        assert ("The cat sleeps.", "El gato duerme.") in found, name


@pytest.mark.slow
def test_a_killed_program_continues(tmp_path):
    folders = write_sides(tmp_path, random_sides(1500), rows=10)
    mine_translations(*folders, tmp_path / "whole.tsv", threshold=0)
    output, work = tmp_path / "killed.tsv", tmp_path / "killed.tsv.neighbours"
    flags = [
        str(folders[0]),
        str(folders[1]),
        f"--output={output}",
    ]
    command = [
        sys.executable,
        str(ROOT / "data/mine.py"),
        *flags,
        "--threshold=0",
        f"--memory={SMALL}",
    ]
    size = mining._plan(*folders, output, SMALL)[0].shards_at_once
    run_and_kill(command, work / f"forward-00020-00000-{size:05}.npz")
    assert not output.exists()
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("forward-0000*.npz")}
    with pytest.raises(UserError, match="another source"):
        mine_translations(*folders[::-1], output)
    # With more memory, the rest is searched in one block.
    mine_translations(*folders, output, threshold=0)
    assert output.read_text(encoding="utf-8") == (tmp_path / "whole.tsv").read_text(
        encoding="utf-8"
    )
    # Another threshold searches nothing.
    after = {path.name: path.stat().st_mtime_ns for path in work.glob("*.npz")}
    assert before.keys() < after.keys()
    mine_translations(*folders, output, threshold=1.2)
    assert {path.name: path.stat().st_mtime_ns for path in work.glob("*.npz")} == after


def test_what_a_loss_of_power_left_of_the_neighbours_is_searched_again(tmp_path):
    folders, output = write_sides(tmp_path, random_sides(60)), tmp_path / "out.tsv"
    mine_translations(*folders, output, threshold=0)
    whole = output.read_bytes()
    files = sorted((tmp_path / "out.tsv.neighbours").glob("*.npz"))
    contents = [path.read_bytes() for path in files]
    zeros = contents[3][:200] + bytes(100) + contents[3][300:]
    other_rows = io.BytesIO()
    np.savez(other_rows, scores=np.zeros((3, 4), np.float32), indices=np.zeros((3, 4), np.int64))
    for path, damage in zip(
        files, (b"", b"PK", contents[2][:-30], zeros, other_rows.getvalue()), strict=False
    ):
        path.write_bytes(damage)
    output.unlink()
    mine_translations(*folders, output, threshold=0)
    assert output.read_bytes() == whole
    for path, content in zip(files, contents, strict=True):
        with np.load(path) as again, np.load(io.BytesIO(content)) as before:
            np.testing.assert_array_equal(again["indices"], before["indices"])


@pytest.mark.parametrize("changed_in", ["nearest", "texts_of"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_folder_that_changes_while_it_is_mined_is_an_error(
    side, changed_in, tmp_path, monkeypatch
):
    """Whether its vectors or its texts are being read."""
    folders, output = write_sides(tmp_path, random_sides(60)), tmp_path / "out.tsv"
    part = mining._Block if changed_in == "nearest" else mining._Side
    method, shard = getattr(part, changed_in), folders[side] / "shard-00001.parquet"

    def change(*arguments):
        os.utime(shard, (1, 1))
        return method(*arguments)

    monkeypatch.setattr(part, changed_in, change)
    with pytest.raises(UserError, match=f"{folders[side].name} must stay the same"):
        mine_translations(*folders, output, threshold=0)
    assert not output.exists()
    assert not [*tmp_path.glob("*/*.npz")] or changed_in == "texts_of"
    monkeypatch.undo()
    mine_translations(*folders, output, threshold=0)
    assert len(read(output)) == 60


def test_neighbours_of_other_vectors_are_not_used(tmp_path):
    """Even if another program wrote the folder anew under the same description."""
    source, target = write_sides(tmp_path, random_sides(60))
    mine_translations(source, target, tmp_path / "out.tsv", threshold=0)
    shard = target / "shard-00001.parquet"
    vectors = parquet.read_table(shard)["vector"]
    texts = pa.array([f"another text {row}" for row in range(20)])
    parquet.write_table(pa.table({"text": texts, "vector": vectors}), shard)
    with pytest.raises(UserError, match="another target"):
        mine_translations(source, target, tmp_path / "out.tsv", threshold=0)


def test_blocks_are_searched_in_any_order_and_process_and_again_after_a_kill(tmp_path, monkeypatch):
    folders, output = write_sides(tmp_path, random_sides(1495), rows=10), tmp_path / "out.tsv"
    mine_translations(*folders, tmp_path / "whole.tsv", threshold=0)
    blocks = mining_blocks(*folders, output, memory=SMALL)
    assert len(blocks) == 4
    find, killed = mining._Block.nearest, iter([True])

    def nearest(block, queries, k):
        if len(queries) < 10 and next(killed, False):  # the last shard of queries
            raise KeyboardInterrupt
        return find(block, queries, k)

    monkeypatch.setattr(mining._Block, "nearest", nearest)
    last = pickle.loads(pickle.dumps(blocks[-1]))
    with pytest.raises(KeyboardInterrupt):
        last()
    # With more memory, all but what is found is searched.
    monkeypatch.setattr(mining._Block, "nearest", find)
    for block in reversed(blocks[1:]):
        block()
    found = {path: path.stat().st_mtime_ns for path in tmp_path.glob("out.tsv.neighbours/*.npz")}
    mine_translations(*folders, output, threshold=0)
    assert output.read_text(encoding="utf-8") == (tmp_path / "whole.tsv").read_text(
        encoding="utf-8"
    )
    assert found == {path: path.stat().st_mtime_ns for path in found}


def test_what_does_not_fit_is_refused(tmp_path):
    vectors = random_sides(30)[0]
    texts = [str(row) for row in range(30)]
    folder = write_vectors(tmp_path / "a", texts, vectors)
    bits = write_vectors(tmp_path / "bits", texts, vectors, precision="ubinary")
    for source, target, message in (
        (
            folder,
            write_vectors(tmp_path / "b", texts, vectors, model="other"),
            "one model, but .* has m and",
        ),
        (folder, bits, "one (dim|precision), but .* has"),
        (bits, bits, "expected vectors in float32 or int8, but .* has binary ones"),
        (
            folder,
            write_vectors(tmp_path / "c", texts, vectors, columns=["id"]),
            "with the `columns` id,text",
        ),
        (folder, tmp_path, "expected a folder that `xling-tf encode` has written"),
    ):
        with pytest.raises(UserError, match=message):
            mine_translations(source, target, tmp_path / "out")
    with pytest.raises(UserError, match=r"shards of 20 rows need .* GiB more; raise `memory`"):
        mine_translations(folder, folder, tmp_path / "out", memory=0.5)
    with pytest.raises(UserError, match=r"lines of text, but .*; name it \.tsv"):
        mine_translations(folder, folder, tmp_path / "out.parquet")
    assert not (tmp_path / "out").exists()
