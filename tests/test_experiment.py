"""The corpora of an experiment: read once, stored for restarts, refused if they have changed."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from raw_files import read_files, write_files
from testing import accept, tiny_config, tiny_model
from testing import corpus as corpus_of

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.corpora.records import NLI_LABELS, InferencePair, SentenceTriplet
from xling_tf.corpora.store import open_store, transient_store
from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, get_preset
from xling_tf.settings import apply_overrides
from xling_tf.trainer import resolution
from xling_tf.trainer.context import (
    Run,
    find_corpora,
    plan_tasks,
    read_corpora,
    require_order,
)
from xling_tf.trainer.experiment import _with_examples, run_experiment, trained_on
from xling_tf.trainer.resolution import Resolved, fit_to_machine


@pytest.fixture
def run(tmp_path):
    """A run that is about to start, on a copy of the sample corpus."""
    data = shutil.copytree(SAMPLE_FOLDER, tmp_path / "data")
    (tmp_path / "run").mkdir()
    folders = {"data": data, "run_dir": tmp_path / "run", "output": tmp_path / "model"}
    return Run(name="smoke", config=get_preset("smoke"), **folders)


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    files = read_files(folder)
    return {name: ((folder / name).stat().st_ino, content) for name, content in files.items()}


def test_what_tasks_learn_from_is_known_without_the_held_out_and_what_has_no_weight(run):
    tasks = tiny_model(run.config).tasks
    store = read_corpora(run, run.config.data, tasks, is_chief=True)
    known = trained_on(run.config, tasks, store)
    for corpus in store.corpora:
        is_used = any(
            (corpus.record_type, corpus.languages) == (task.record_type, task.languages)
            for task in tasks
        )
        for records, expected in ((corpus.train, float(is_used)), (corpus.held_out, 0.0)):
            if len(records):
                share = known.share_of_pairs([tuple(record)[:2] for record in records])
                assert share == expected, corpus.title
    names = {corpus.name for corpus in store.corpora}
    weightless = apply_overrides(run.config, [f"data.corpus_weights.{name}=0" for name in names])
    assert not len(trained_on(weightless, tasks, store).texts)
    # Vectors of words are learnt from translations.
    vectors = apply_overrides(weightless, ["initial.vectors=bivcd:8", "tokenizer.ngram_sizes="])
    parallel = [c.train for c in store.corpora if c.record_type == "parallel"]
    pairs = [tuple(record)[:2] for records in parallel for record in records]
    assert trained_on(vectors, tasks, store).share_of_pairs(pairs) == 1


def test_contradictions_are_learnt_from_too_and_neutral_sentences_are_not(tmp_path):
    pairs = [
        InferencePair(f"premise {n // 3}", f"{NLI_LABELS[n % 3]} {n}", n % 3) for n in range(60)
    ]
    store = open_store(tmp_path / "store", [corpus_of("nli", pairs, split="train")], accept)
    config = tiny_config("tasks.entailment_ranking.weight=1", "tasks.inference.weight=0")
    known = trained_on(config, tiny_model(config).tasks, store)
    for label, share in zip(NLI_LABELS, (1, 0, 1), strict=True):
        hypotheses = [
            pair.hypothesis for pair in store.corpora[0].train if pair.hypothesis.startswith(label)
        ]
        assert known.share_of_texts(hypotheses) == share


@pytest.mark.parametrize(
    ("folders", "message"),
    [
        ({"output": "runs/x", "run_dir": "runs/x"}, "would replace the run folder"),
        ({"output": "runs", "run_dir": "runs/x"}, "would replace the run folder"),
        ({"output": "run/../runs/x", "run_dir": "runs/x"}, "would replace the run folder"),
        ({"output": "mine"}, "`output` must be a new folder, .*mine holds something else"),
        ({"run_dir": "mine"}, "mine has files, but none of a run"),
        ({"run_dir": "mine/todo.txt/run"}, r"todo\.txt/run must be a writable folder, .*run_dir"),
        ({"data": "empty"}, "/empty"),
    ],
)
def test_folders_that_will_not_do_are_refused_at_once(folders, message, run, tmp_path):
    (tmp_path / "empty").mkdir()
    before = read_files(write_files(tmp_path, {"mine/todo.txt": "mine"}))
    with pytest.raises(UserError, match=message):
        run_experiment(
            replace(run, **{name: tmp_path / folder for name, folder in folders.items()})
        )
    after = read_files(tmp_path)
    after.pop("run/lock", None)
    assert after == before


def test_a_training_needs_a_budget(run):
    without = apply_overrides(run.config, ["training.steps=0"])
    with pytest.raises(UserError, match=r"training\.minutes or training\.steps"):
        run_experiment(replace(run, config=without))


def test_lines_in_no_order_are_refused_as_documents_unless_a_setting_names_them(run):
    rooms = [[f"room{n // 4} is {word}" for n in range(1600)] for word in ("open", "old", "big")]
    # In a document, three sentences are about one room; in shuffled lines, about others.
    for shift, is_refused in ((0, False), (77, True)):
        lines = [rooms[0], rooms[1][shift:] + rooms[1][:shift], rooms[2]]
        triplets = [SentenceTriplet(*each) for each in zip(*lines, strict=True)]
        documents = [f"{n // 4}" for n in range(1600)]
        news = corpus_of("documents", triplets, name="news", languages="en", groups=documents)
        store = transient_store([news])
        for settings in ([], ["tasks.quick_thought.weight=0"], ["data.corpus_weights.news=1"]):
            config = apply_overrides(run.config, ["tasks.quick_thought.weight=1", *settings])
            tasks = plan_tasks(config, config.data)
            if is_refused and not settings:
                with pytest.raises(UserError, match=r"documents/news.en .*corpus_weights\.news=1"):
                    require_order(store, tasks, config.data)
            else:
                require_order(store, tasks, config.data)


def test_changed_corpora_are_refused_and_the_run_is_left_as_it_was(run):
    tasks = plan_tasks(run.config, run.config.data)
    store = read_corpora(run, run.config.data, tasks, is_chief=True)
    run.folder.begin(
        run.config, store.contents(), Resolved(precision="float32", model={}, files={})
    )
    before = content(run.run_dir)
    # As large as before, but edited.
    (path, *_) = sorted(run.data.glob("parallel/*.en-es.*"))
    first, rest = path.read_text(encoding="utf-8").split("\n", 1)
    path.write_text(f"{first}!\n{rest}", encoding="utf-8")
    with pytest.raises(UserError, match=r"everyday\.en-es=320 records, \w+, not 320"):
        read_corpora(run, run.config.data, tasks, is_chief=True)
    assert content(run.run_dir) == before


@pytest.mark.parametrize(("of_bfloat16", "chosen"), [(110, "float32"), (130, "mixed_bfloat16")])
def test_the_precision_is_the_faster_one_where_it_is_worth_it(of_bfloat16, chosen, monkeypatch):
    rates = {"float32": 100.0, "bfloat16": of_bfloat16}
    monkeypatch.setattr(resolution, "matmul_gflops", rates.__getitem__)
    config = apply_overrides(ExperimentConfig(), ["encoder.num_layers=2"])
    assert fit_to_machine(config) == (chosen, None)
    fixed = apply_overrides(config, ["training.precision=float32"])
    assert fit_to_machine(fixed) == ("float32", None)


@pytest.mark.parametrize(
    ("gflops", "minutes", "layers"),
    # 60 s * 10^9 * GFLOP/s * minutes: 126, 756, 1512 and 198e12; without minutes, steps are the
    # budget.
    [(210, 10, 1), (420, 30, 1), (420, 60, 3), (110, 30, 1), (210, 0, 3)],
)
def test_few_minutes_teach_one_layer(gflops, minutes, layers, monkeypatch):
    monkeypatch.setattr(
        resolution, "matmul_gflops", lambda dtype: gflops / 2 ** (dtype == "float32")
    )
    config = apply_overrides(get_preset("multi-task"), [f"training.minutes={minutes}"])
    assert fit_to_machine(config)[1] == layers
    deep = apply_overrides(config, ["encoder.num_layers=2"])
    assert fit_to_machine(deep)[1] is None


def test_data_that_should_be_there_are_missed(caplog):
    every = (
        "data.all_pairs=true",
        "tasks.inference.in_targets=true",
        "tasks.question_answering.weight=1",
    )
    tasks = tiny_model(tiny_config("data.targets=es,fr", *every)).tasks
    caplog.set_level("INFO", logger="absl")
    examples = {
        task.name: None for task in tasks if task.record_type in ("conversations", "documents")
    }
    assert {task.name for task in _with_examples(tasks, examples, "en")} == set(examples)
    # Not: translations between Spanish and French.
    missing = {"translations in en-es, en-fr;": "WARNING", "NLI data in en, es, fr;": "WARNING"}
    missing["questions with answers in en, es,"] = "INFO"
    for (what, level), record in zip(missing.items(), caplog.records, strict=True):
        assert (record.message.startswith(f"no {what}"), record.levelname) == (True, level)
    # Who has inference in one of the targets does not miss the others'.
    caplog.clear()
    _with_examples(tasks, {"inference": None, "inference_es": None}, "en")
    assert "NLI" not in caplog.text
    with pytest.raises(UserError, match="at least one task with examples"):
        _with_examples(tasks, {}, "en")


def test_the_records_that_tasks_read_are_what_is_loaded(tmp_path):
    data = shutil.copytree(SAMPLE_FOLDER, tmp_path / "data")
    shutil.copy(data / "nli" / "everyday.en.train.tsv", data / "nli" / "translated.es.train.tsv")
    (data / "similarity").mkdir()
    for language in ("en", "es"):
        scored = f"score\tsentence1\tsentence2\n5\t{language} a\t{language} b\n1\tc\td\n"
        (data / "similarity" / f"s.{language}.tsv").write_text(scored)
    inference = {}
    for preset in (*PRESETS, "infersent-mt", "infersent-td", "infersent-mt-td"):
        # A model to start from has its vocabulary, so that nothing but the tasks decides what is
        # read.
        settings = ["data.targets=es", "initial.model=exported/any"]
        config = apply_overrides(get_preset(preset), settings)
        run = Run(
            name=preset,
            config=config,
            data=data,
            run_dir=tmp_path / "run",
            output=tmp_path / "model",
        )
        tasks = plan_tasks(config, config.data)
        if any(task.hard_negatives for task in tasks):
            with pytest.raises(UserError, match="hard_negatives"):
                find_corpora(run, config.data, tasks)
            continue
        read = {(task.record_type, task.languages) for task in tasks}
        corpora = find_corpora(run, config.data, tasks)
        loaded = {(corpus.record_type, corpus.languages) for corpus in corpora}
        assert read <= loaded, preset
        inference[preset] = sorted(languages for kind, languages in loaded if kind == "nli")
        assert inference[preset] == sorted(languages for kind, languages in read if kind == "nli")
    # Rücklé et al. 2018, sec. 5.1: MT learns inference in each language, TD translations, MT+TD
    # both.
    assert inference["multi-task"] == inference["infersent"] == ["en"]
    assert inference["infersent-mt"] == inference["infersent-mt-td"] == ["en", "es"]
    assert inference["infersent-td"] == []
