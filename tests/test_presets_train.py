"""Every preset trains: on the sample corpus, with few and narrow layers, for a few steps."""

import dataclasses
import gzip
import shutil
from pathlib import Path

import pytest

from xling_tf.config import ExperimentConfig
from xling_tf.corpora.default import load_corpora, resolve_languages
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.store import transient_store
from xling_tf.model import Model
from xling_tf.overrides import apply_overrides
from xling_tf.presets import PRESETS, get_preset
from xling_tf.text.preprocessor import fit_text
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.examples import task_examples
from xling_tf.trainer.loop import Trainer
from xling_tf.trainer.workers import Workers

NARROW = (
    *("encoder.embedding_dim=8", "encoder.hidden_dim=8", "encoder.intermediate_dim=8"),
    *("encoder.num_layers=1", "encoder.num_heads=2", "encoder.num_filters=8"),
    *("tasks.tower_dims=8,8", "tasks.inference_dim=8", "tasks.alignment_steps=0"),
    *("text.num_oov_buckets=8", "text.num_ngram_buckets=64", "text.sentencepiece_size=700"),
    *("training.precision=float32", "training.minutes=0", "training.steps=3"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample corpus, with mined negatives (any other sentence will do) for the literal recipe."""
    folder = tmp_path_factory.mktemp("data") / "sample"
    shutil.copytree(SAMPLE_FOLDER, folder)
    (folder / "hard_negatives").mkdir()
    for path in sorted((folder / "parallel").iterdir()):
        lines = path.read_text(encoding="utf-8").splitlines()
        mined = (folder / "hard_negatives" / path.name).with_suffix(".tsv.gz")
        with gzip.open(mined, "wt", encoding="utf-8") as file:
            for line, other in zip(lines, lines[1:] + lines[:1], strict=True):
                file.write(f"{line}\t{other.split(chr(9))[1]}\n")
    return folder


def make_trainer(config: ExperimentConfig, folder: Path, run_dir: Path) -> Trainer:
    config = dataclasses.replace(config, data=resolve_languages(folder, config.data))
    with_mined = config.tasks.hard_negatives > 0
    store = transient_store(
        load_corpora(
            folder,
            config.data,
            with_mined=with_mined,
            target_inference=config.tasks.target_inference,
        )
    )
    text, vocabulary = fit_text(config.text, store.training_texts_by_language())
    workers = Workers(make_strategy())
    with workers.strategy.scope():
        model = Model.build(dataclasses.replace(config, text=text), vocabulary)
    examples = task_examples(model.tasks, store.corpora)
    missing = [task for task in model.tasks if task.name not in examples]
    # The sample has no translations between targets, and few data in target languages alone.
    assert not [task for task in missing if config.data.source in task.languages.split("-")]
    assert config.data.all_pairs or not missing
    model = model._replace(tasks=[task for task in model.tasks if task.name in examples])
    return Trainer(
        model=model,
        examples={task: parts.train for task, parts in examples.items()},
        workers=workers,
        run_dir=run_dir,
    )


# The others, with other texts, languages, sizes or tasks, are trained by the slow tests.
QUICK = ("en-es",)
# They start from a model: test_best_presets.py.
TRAINED = [name for name in PRESETS if not name.endswith("-best")]


def slow_unless_quick(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in names]


@pytest.mark.parametrize("name", slow_unless_quick(TRAINED))
def test_it_trains(name: str, folder: Path, tmp_path: Path) -> None:
    trainer = make_trainer(apply_overrides(get_preset(name), NARROW), folder, tmp_path)
    assert trainer.train()
    assert trainer.step == 3


@pytest.mark.parametrize(
    "name", slow_unless_quick([name for name in PRESETS if name.startswith("multilingual")])
)
def test_questions_and_inference_train(name: str, folder: Path, tmp_path: Path) -> None:
    # Translation ranking has so many steps of a cycle that three show nothing else.
    others = ("tasks.translation_ranking.weight=0", "data.sampling_temperature=0")
    config = apply_overrides(get_preset(name), [*NARROW, *others])
    trainer = make_trainer(config, folder, tmp_path)
    steps = [trainer._schedule.task(step) for step in range(4)]
    assert {"inference", "question_answering_en", "question_answering_es"} <= set(steps)
    assert trainer.train()
