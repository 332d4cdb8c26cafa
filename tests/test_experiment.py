"""The corpora of an experiment: read once, kept for the restart, refused where they have changed."""

import os
import shutil
from pathlib import Path

import pytest

from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.experiment import _read_corpora
from xling_tf.presets import get_preset
from xling_tf.run_folder import RunFolder

CONFIG = get_preset("smoke")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return shutil.copytree(SAMPLE_FOLDER, tmp_path / "data")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    (tmp_path / "run").mkdir()
    return RunFolder(tmp_path / "run")


def content(folder: Path) -> dict[Path, tuple[int, bytes]]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.stat().st_ino, path.read_bytes()) for path in paths}


def test_a_restart_reads_no_corpus_again(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, data, is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    before = content(run.path)
    again = _read_corpora(run, CONFIG, data, is_chief=True)
    assert content(run.path) == before
    assert again.counts() == store.counts()
    assert list(again.training_texts()) == list(store.training_texts())


def test_files_that_were_only_touched_are_read_again(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, data, is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    (path, *_) = sorted(data.glob("parallel/*"))
    os.utime(path, ns=(0, 0))
    again = _read_corpora(run, CONFIG, data, is_chief=True)
    assert list(again.training_texts()) == list(store.training_texts())


def test_changed_corpora_are_refused_and_the_run_is_left_as_it_was(
    data: Path, run: RunFolder
) -> None:
    store = _read_corpora(run, CONFIG, data, is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    before = content(run.path)
    (data / "parallel" / "more.en-es.tsv").write_text("new\tnuevo\n")
    with pytest.raises(
        UserError, match=r"holds a run with data\.parallel/more\.en-es=None, not 1 records"
    ):
        _read_corpora(run, CONFIG, data, is_chief=True)
    assert content(run.path) == before


def test_an_edited_corpus_of_the_same_size_is_refused(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, data, is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    (path, *_) = sorted(data.glob("parallel/*.en-es.*"))
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    path.write_text(f"{first}!\n{rest}", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"data\.parallel/everyday\.en-es=320 records, \w+, not 320"
    ):
        _read_corpora(run, CONFIG, data, is_chief=True)


def test_other_workers_write_nothing(data: Path, run: RunFolder) -> None:
    counts = _read_corpora(run, CONFIG, data, is_chief=True).counts()
    shutil.rmtree(run.path)
    store = _read_corpora(run, CONFIG, data, is_chief=False)
    assert store.counts() == counts
    assert len(list(store.training_texts())) > 100
    assert not run.path.exists()
