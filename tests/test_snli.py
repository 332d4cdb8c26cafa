"""SNLI and MultiNLI: their lines, where they lie in a data folder, and how SNLI is fetched into one."""

import io
import zipfile

import default
import pytest
from raw_files import snli_line, write_files

from xling_tf.corpora import snli
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import InferencePair
from xling_tf.corpora.store import transient_store

SNLI = [f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train")]
MULTI_NLI = [f"multinli_1.0_{split}.jsonl" for split in ("train", "dev_matched", "dev_mismatched")]


def test_reads_the_three_labels_and_counts_the_rest(tmp_path):
    lines = [snli_line("entailment"), snli_line("-"), "{\n", "[]\n", snli_line("neutral", "", "h")]
    # JSON writes a combining accent as an escape.
    lines += [snli_line("contradiction"), snli_line("neutral", "e\u0301", " h ")]
    write_files(tmp_path, {SNLI[0]: "".join(lines)})
    reading = snli.read_snli(tmp_path / SNLI[0])
    assert [record for record, _ in reading] == [
        InferencePair("p", "h", 0),
        InferencePair("p", "h", 2),
        InferencePair("\u00e9", "h", 1),
    ]
    assert reading.malformed == {
        "no gold label": 1,
        "not JSON with gold_label, sentence1, sentence2": 2,
        "empty sentence": 1,
    }
    assert reading.first_lines["no gold label"] == (2,)


@pytest.mark.parametrize(("place", "ending"), [(".", ""), ("nli", ".gz"), ("multinli_1.0", "")])
def test_multi_nli_is_read_in_place_beside_snli(tmp_path, place, ending):
    write_files(tmp_path, {"parallel/x.en-es.tsv": "Hello\tHola\n"})
    for i, (name, other) in enumerate(zip(MULTI_NLI, SNLI, strict=True)):
        write_files(tmp_path, {f"{place}/{name}{ending}": snli_line("neutral", f"premise {i}")})
        write_files(tmp_path, {f"snli_1.0/{other}": snli_line("neutral", f"other premise {i}")})
    corpora = [c for c in load_folder(tmp_path, source="en", targets=["es"]) if c.kind == "nli"]
    stored = transient_store(corpora).corpora
    # `SNLI` are dev, test and train; the whole of a training file with a dev file is for training.
    trained = [record.premise for corpus in stored for record in corpus.train]
    held_out = [record.premise for corpus in stored for record in corpus.held_out]
    assert sorted(trained) == ["other premise 2", "premise 0"]
    assert sorted(held_out) == ["other premise 0", "premise 1", "premise 2"]


def archive(names=SNLI):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(f"snli_1.0/{name}", snli_line("neutral"))
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A stand-in for the web page: what is written to it is what comes."""
    path = tmp_path / "snli_1.0.zip"
    monkeypatch.setattr(default, "SNLI_URL", path.as_uri())
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_fetches_the_three_files_beside_others(published, folder):
    write_files(folder, {"nli/mine.en.train.tsv": "x"})
    published.write_bytes(archive())
    assert default.fetch_snli(folder) == folder / "nli"
    assert sorted(path.name for path in folder.rglob("*")) == ["mine.en.train.tsv", "nli", *SNLI]
    assert list(snli.read_snli(folder / "nli" / SNLI[0])) == [(InferencePair("p", "h", 1), None)]


def test_what_is_there_is_not_fetched(published, folder):
    write_files(folder, {f"snli_1.0/{name}.gz": "" for name in SNLI})
    assert default.fetch_snli(folder) == folder / "snli_1.0"
    assert not published.exists()


DAMAGED = {
    "no network": None,
    "not a zip": b"<html>moved</html>",
    "truncated": archive()[:-30],
    "a file missing": archive(SNLI[:2]),
    "damaged inside": archive().replace(b"gold", b"GOLD"),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_none_and_nothing_left_for_a_corrupt_archive(published, folder, content):
    if content is not None:
        published.write_bytes(content)
    assert default.fetch_snli(folder) is None
    assert list(folder.iterdir()) == []
