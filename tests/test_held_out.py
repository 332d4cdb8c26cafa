from programs import ROOT, run_python
from raw_files import shards, write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.store import transient_store

PROGRAM = str(ROOT / "data" / "held_out.py")


def test_what_is_written_is_what_training_never_sees(tmp_path):
    for name, count in (("large", 12_000), ("small", 500)):
        lines = [f"{name} sentence {n}\t{name} frase {n}\n" for n in range(count)]
        write_files(tmp_path, {f"data/parallel/{name}.en-es.tsv": "".join(lines)})
    flags = ("--data=data", "--output=out", "--max_pairs=1000")
    run = run_python(tmp_path, PROGRAM, *flags)
    assert run.status == 0, run.errors
    # A tenth of 500 is no evaluation of its own, but among all. Of about 1,200 every second is taken.
    names = ["all_held_out.en-es.tsv.gz", "large_held_out.en-es.tsv.gz"]
    tables = shards(tmp_path / "out" / "bitext")
    assert list(tables) == names
    every, large = ([tuple(row.split("\t")) for row in table.splitlines()] for table in tables.values())
    assert every.pop(0) == large.pop(0) == ("en", "es")
    assert 600 <= len(large) <= 1000
    assert run.output.count(f"{len(every)} pairs") >= 1
    store = transient_store(load_folder(tmp_path / "data", source="en", targets=["es"]))
    held_out = {tuple(pair[:2]) for corpus in store.corpora for pair in corpus.held_out}
    trained = {tuple(pair[:2]) for corpus in store.corpora for pair in corpus.train}
    assert {*large, *every} <= held_out
    assert not held_out & trained
