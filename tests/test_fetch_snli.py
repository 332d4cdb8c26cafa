"""SNLI from its page into a data folder."""

import io
import json
import zipfile

import default
import pytest

from xling_tf.corpora.records import InferencePair
from xling_tf.corpora.snli import read_snli

NAMES = [f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train")]


def archive(names=NAMES):
    row = json.dumps({"gold_label": "neutral", "sentence1": "p", "sentence2": "h"})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(f"snli_1.0/{name}", row + "\n")
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A stand-in for the web page: what is written to it is what comes."""
    path = tmp_path / "snli_1.0.zip"
    monkeypatch.setattr(default, "SNLI_URL", path.as_uri())
    monkeypatch.setattr(default.logging, "warning", lambda *args: None)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data"
    path.mkdir()
    return path


def test_fetches_the_three_files_beside_others(published, folder):
    (folder / "nli").mkdir()
    (folder / "nli" / "mine.en.train.tsv").write_text("x")
    published.write_bytes(archive())
    assert default.fetch_snli(folder) == folder / "nli"
    assert sorted(path.name for path in folder.rglob("*")) == ["mine.en.train.tsv", "nli", *NAMES]
    assert list(read_snli(folder / "nli" / NAMES[0])) == [(InferencePair("p", "h", 1), None)]


@pytest.mark.parametrize("place", [".", "nli", "snli_1.0"])
def test_what_is_there_is_not_fetched(published, folder, place):
    (folder / place).mkdir(exist_ok=True)
    for name in NAMES:
        (folder / place / f"{name}.gz").write_bytes(b"")
    assert default.fetch_snli(folder) == folder / place
    assert not published.exists()


def test_none_when_the_network_does_not_give_it(published, folder):
    assert default.fetch_snli(folder) is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "content",
    [
        b"<html>moved</html>",
        archive()[:-30],
        archive(NAMES[:2]),
        archive().replace(b"gold", b"GOLD"),
    ],
    ids=["not a zip", "truncated", "a file missing", "damaged inside"],
)
def test_none_and_nothing_left_for_a_corrupt_archive(published, folder, content):
    published.write_bytes(content)
    assert default.fetch_snli(folder) is None
    assert list(folder.iterdir()) == []
