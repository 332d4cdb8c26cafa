import gzip
import io
import json
import zipfile

import pytest

from xling_tf.corpora import snli
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import InferencePair
from xling_tf.corpora.store import transient_store

NAMES = [f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train")]


def row(label, premise="p", hypothesis="h"):
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis})


def archive(names=NAMES):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(f"snli_1.0/{name}", row("neutral") + "\n")
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A stand-in for the web page: what is written to it is what comes."""
    path = tmp_path / "snli_1.0.zip"
    monkeypatch.setattr(snli, "SNLI_URL", path.as_uri())
    monkeypatch.setattr(snli.logging, "warning", lambda *args: None)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_reads_the_three_labels_and_counts_the_rest(tmp_path):
    path = tmp_path / "snli_1.0_dev.jsonl"
    lines = [row("entailment"), row("-"), "{", "[]", row("neutral", "", "h"), row("contradiction")]
    # A combining accent written as an escape.
    lines.append(r'{"gold_label": "neutral", "sentence1": "e\u0301", "sentence2": " h "}')
    path.write_text("\n".join(lines))
    reading = snli.read_snli(path)
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


def test_fetches_the_three_files(published, folder):
    published.write_bytes(archive())
    assert snli.fetch_snli(folder) == folder / "nli"
    assert sorted(path.name for path in folder.rglob("*")) == ["nli", *NAMES]
    assert list(snli.read_snli(folder / "nli" / NAMES[0])) == [(InferencePair("p", "h", 1), None)]


def test_keeps_other_files_of_the_folder(published, folder):
    (folder / "nli").mkdir()
    (folder / "nli" / "mine.en.train.tsv").write_text("x")
    published.write_bytes(archive())
    snli.fetch_snli(folder)
    assert (folder / "nli" / "mine.en.train.tsv").read_text() == "x"


@pytest.mark.parametrize("place", [".", "nli", "snli_1.0"])
def test_what_is_there_is_not_fetched(published, folder, place):
    (folder / place).mkdir(exist_ok=True)
    for name in NAMES:
        (folder / place / f"{name}.gz").write_bytes(b"")
    assert snli.fetch_snli(folder) == folder / place
    assert not published.exists()


def test_none_when_the_network_does_not_give_it(published, folder):
    assert snli.fetch_snli(folder) is None
    assert list(folder.iterdir()) == []


def damaged(data):
    position = data.index(b"gold_label")
    return data[:position] + b"GOLD" + data[position + 4 :]


@pytest.mark.parametrize(
    "content",
    [b"<html>moved</html>", archive()[:-30], archive(NAMES[:2]), damaged(archive())],
    ids=["not a zip", "truncated", "a file missing", "damaged inside"],
)
def test_none_and_nothing_left_for_a_corrupt_archive(published, folder, content, monkeypatch):
    warnings = []
    monkeypatch.setattr(snli.logging, "warning", lambda text, *args: warnings.append(text % args))
    published.write_bytes(content)
    assert snli.fetch_snli(folder) is None
    assert list(folder.iterdir()) == []
    assert len(warnings) == 1
    assert "is not the SNLI archive or came corrupt" in warnings[0]


MULTI_NLI = [f"multinli_1.0_{split}.jsonl" for split in ("train", "dev_matched", "dev_mismatched")]


@pytest.mark.parametrize("place", [".", "nli", "multinli_1.0"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_multi_nli_is_read_in_place_beside_snli(folder, place, ending):
    for path in ("parallel", place, "snli_1.0"):
        (folder / path).mkdir(exist_ok=True)
    (folder / "parallel" / "x.en-es.tsv").write_text("Hello\tHola\n")
    for i, name in enumerate(MULTI_NLI):
        content = row("neutral", f"premise {i}").encode()
        path = folder / place / f"{name}{ending}"
        path.write_bytes(gzip.compress(content) if ending else content)
    for i, name in enumerate(NAMES):
        (folder / "snli_1.0" / name).write_text(row("neutral", f"other premise {i}"))
    corpora = [c for c in load_folder(folder, source="en", targets=["es"]) if c.kind == "nli"]
    assert {(c.name, c.split): len(list(c)) for c in corpora} == {
        ("multinli_1.0", "train"): 1,
        ("multinli_1.0", "dev_matched"): 1,
        ("multinli_1.0", "dev_mismatched"): 1,
        ("snli_1.0", "train"): 1,
        ("snli_1.0", "dev"): 1,
        ("snli_1.0", "test"): 1,
    }
    stored = transient_store(corpora).corpora
    # `NAMES` are dev, test and train; the whole of a training file with a dev file is for training.
    trained = [record.premise for corpus in stored for record in corpus.train]
    held_out = [record.premise for corpus in stored for record in corpus.held_out]
    assert sorted(trained) == ["other premise 2", "premise 0"]
    assert sorted(held_out) == ["other premise 0", "premise 1", "premise 2"]
