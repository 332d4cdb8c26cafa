"""A new type of record is one row of the table: its files are found, read, stored and split."""

from typing import NamedTuple

import numpy as np
from raw_files import write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.readers import read_records
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import FileLayout, RecordType
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import transient_store


class Rhyme(NamedTuple):
    """Two lines that rhyme, the sound, and lines that do not rhyme with them."""

    first: str
    second: str
    negatives: tuple[str, ...]
    label: int


COLUMNS = ("first", "second", "sound", "wrong 1", "wrong 2")


def rhyme(first: str, second: str, sound: str, *wrong: str) -> Rhyme:
    return Rhyme(first, second, (*filter(None, wrong),), int(sound))


RHYMES = RecordType(
    name="rhymes",
    description="rhymes",
    record=Rhyme,
    layouts=(
        FileLayout(
            ("rhymes",),
            r"(?P<name>\w+)\.(?P<source>[a-z]+)",
            lambda path: read_records(path, COLUMNS, rhyme, optional=2),
            "rhy",
        ),
    ),
    template="NAME.{source}.rhy",
    split_by="first",
    hidden=("second",),
)


def test_a_new_type_is_read_stored_and_split(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(RECORD_TYPES, "data", dict(RECORD_TYPES.data))
    RECORD_TYPES.register("rhymes", RHYMES)
    texts = [f"line {number}" for number in range(100)]
    kept, out = ([text for text in texts if held_out(text) is is_out] for is_out in (False, True))
    records = [
        Rhyme(kept[0], "a", ("x", "y"), 3),
        Rhyme(kept[1], "ñ", (), 4),
        Rhyme(out[0], "b", ("z",), 5),
        Rhyme(kept[2], "B", (), 6),  # the second line of a held-out record
        Rhyme(kept[3], "c", ("w", out[1]), 7),
        Rhyme(kept[4], "d", (), 8),  # whose first line is held out as a translation
    ]
    lines = ["\t".join([*r[:2], str(r.label), *r.negatives]) for r in records]
    files = {
        "parallel/x.en-es.tsv": f"{out[1]}\t{kept[4]}\n",
        "rhymes/r.en.rhy": "".join(f"{line}\n" for line in lines),
        "rhymes/r.de.txt": "x",
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    assert [corpus.title for corpus in corpora] == ["parallel/x.en-es", "rhymes/r.en"]
    assert "do not fit: r.de.txt;" in caplog.text
    _, stored = transient_store(corpora).corpora
    assert list(stored.train) == [records[0], records[1], records[4]._replace(negatives=("w",))]
    assert list(stored.held_out) == [records[2]]
    part = stored.train[np.array([1, 0])]
    # A record without a negative has its second line there.
    assert part.negatives(1, part.column("second")).tolist() == ["ñ".encode(), b"y"]
    assert part.labels.tolist() == [4, 3]
    assert RHYMES.missing(["en", "es"]).startswith("no rhymes in en, es; add rhymes/NAME.en.rhy")
