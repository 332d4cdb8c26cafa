"""The corpora of an experiment: read once, kept for the restart, refused where they have changed."""

import os
import shutil
from pathlib import Path

import pytest

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.store import CorpusStore
from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides
from xling_tf.presets import get_preset
from xling_tf.tasks.base import build_tasks
from xling_tf.trainer.experiment import _find_corpora, _read_corpora, _with_examples
from xling_tf.trainer.run_folder import RunFolder

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


def texts(store: CorpusStore) -> dict[str, list[str]]:
    return {language: list(of) for language, of in store.training_texts_by_language().items()}


def test_a_restart_reads_no_corpus_again(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    before = content(run.path)
    again = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    assert content(run.path) == before
    assert again.counts() == store.counts()
    assert texts(again) == texts(store)


def test_files_that_were_only_touched_are_read_again(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    (path, *_) = sorted(data.glob("parallel/*"))
    os.utime(path, ns=(0, 0))
    again = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    assert texts(again) == texts(store)


def test_changed_corpora_are_refused_and_the_run_is_left_as_it_was(
    data: Path, run: RunFolder
) -> None:
    store = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    before = content(run.path)
    (data / "parallel" / "more.en-es.tsv").write_text("new\tnuevo\n")
    with pytest.raises(
        UserError, match=r"holds a run with data\.parallel/more\.en-es=None, not 1 records"
    ):
        _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    assert content(run.path) == before


def test_an_edited_corpus_of_the_same_size_is_refused(data: Path, run: RunFolder) -> None:
    store = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)
    run.start(CONFIG, CONFIG, ["word"], store.contents())
    (path, *_) = sorted(data.glob("parallel/*.en-es.*"))
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    path.write_text(f"{first}!\n{rest}", encoding="utf-8")
    with pytest.raises(
        UserError, match=r"data\.parallel/everyday\.en-es=320 records, \w+, not 320"
    ):
        _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True)


def test_other_workers_write_nothing(data: Path, run: RunFolder) -> None:
    counts = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=True).counts()
    shutil.rmtree(run.path)
    store = _read_corpora(run, CONFIG, _find_corpora(CONFIG, data), is_chief=False)
    assert store.counts() == counts
    assert len(texts(store)["en"]) > 100
    assert not run.path.exists()


def test_data_that_should_be_there_are_missed(caplog: pytest.LogCaptureFixture) -> None:
    every = ("data.targets=es,fr", "data.all_pairs=true", "tasks.target_inference=true")
    questions = "tasks.question_answering.weight=1"
    tasks = build_tasks(apply_overrides(ExperimentConfig(), [*every, questions]))
    found = {task.name: None for task in tasks if task.kind in ("conversations", "documents")}
    kept = _with_examples(tasks, found, "en")
    assert {task.name for task in kept} == set(found)
    starts = [record.message.partition(":")[0] for record in caplog.records]
    # Not: translations between Spanish and French, and inference in these.
    expected = ["no translations"] * 2 + ["no en NLI data"] + ["no questions"] * 3
    assert starts == expected
    assert "question_answering_es is left out; put questions/<name>.es.tsv" in caplog.text
    with pytest.raises(UserError, match="at least one task with examples"):
        _with_examples(tasks, {}, "en")
