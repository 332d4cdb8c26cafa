import gzip

import pytest

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.held_out import write_held_out
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "parallel").mkdir()
    for name, count in (("large", 12_000), ("small", 500)):
        lines = [f"{name} sentence {n}\t{name} frase {n}\n" for n in range(count)]
        (folder / "parallel" / f"{name}.en-es.tsv").write_text("".join(lines))
    return folder


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [tuple(line.rstrip("\n").split("\t")) for line in file]


def test_what_is_written_is_what_training_never_sees(data, tmp_path):
    written = write_held_out(data, tmp_path, source="en", targets=["es"], max_pairs=5000)
    # A tenth of 500 is no evaluation of its own, but among all.
    names = ["all_held_out.en-es.tsv.gz", "large_held_out.en-es.tsv.gz"]
    assert sorted(path.name for path in written) == names
    every = rows(tmp_path / "bitext" / names[0])
    assert every[0] == ("en", "es")
    store = transient_store(load_folder(data, source="en", targets=["es"]))
    held_out = {tuple(pair[:2]) for corpus in store.corpora for pair in corpus.held_out}
    trained = {tuple(pair[:2]) for corpus in store.corpora for pair in corpus.train}
    assert set(every[1:]) == held_out
    assert not held_out & trained
    assert all(pair[0].startswith("large") for pair in rows(tmp_path / "bitext" / names[1])[1:])


def test_pairs_are_taken_evenly(data, tmp_path):
    written = write_held_out(data, tmp_path, source="en", targets=["es"], max_pairs=1000)
    assert all(600 <= count <= 1000 for count in written.values())  # every second of about 1,200


def test_too_few_pairs_are_told(tmp_path):
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel" / "few.en-es.tsv").write_text("a\tb\nc\td\n")
    with pytest.raises(UserError, match="at least 1000 held-out pairs"):
        write_held_out(tmp_path, tmp_path, source="en", targets=["es"], max_pairs=5000)
