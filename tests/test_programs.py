"""The training program: one whole smoke run with its files, and the messages about mistakes."""

import inspect
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict

import numpy as np
import pytest
import tensorflow as tf
import yaml
from programs import ONE_TASK, ROOT, read_lines, run_python, the_error, train
from raw_files import write_files

from training.curves import write_curves
from training.plan import plan
from xling_tf.bulk.mining import mine_translations
from xling_tf.bulk.vector_files import encode_files
from xling_tf.errors import UserError
from xling_tf.exporters import compact
from xling_tf.presets import get_preset
from xling_tf.search.hard_negatives import mine_hard_negatives
from xling_tf.serving.app import ServerConfig
from xling_tf.serving.batching import BatchingParameters
from xling_tf.settings import apply_overrides
from xling_tf.trainer.experiment import Run, run_experiment

SIGNATURES = {"serving_default", "default", "raw", "question_encoder", "response_encoder", "inference"}


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """A run with two of its tasks, in one phase; test_presets.py trains all."""
    left_out = ("response_prediction", "quick_thought")
    flags = ("--preset=smoke", "--steps=30", *(f"--set=tasks.{task}.weight=0" for task in left_out))
    settings = ("encoder.num_layers=1", "training.bow_share=0", "training.precision=float32")
    return train(tmp_path_factory.mktemp("smoke"), *flags, *map("--set={}".format, settings))


def test_a_smoke_run_prints_a_table_and_nothing_alarming(smoke):
    assert smoke.status == 0, smoke.errors
    assert not [line for line in smoke.errors.splitlines() if not re.match(r"[\d:]{8} INFO ", line)]
    lines = smoke.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    score = r"retrieval/en-es/all +en-es/precision_at_1 +[01]\.\d+$"
    assert any(re.match(score, line) for line in lines)
    assert "exported/smoke" in lines[-1]


def test_results_hold_scores_corpora_versions_machine_and_config(smoke):
    results = smoke.results
    assert (results["preset"], results["steps"]) == ("smoke", 30)
    assert re.match(r"python \S*training/main.py --preset=smoke --steps=30 ", results["command"])
    assert results["corpora"]["parallel/everyday.en-es"] > 100
    assert {"minutes", "num_parameters", "versions", "machine"} <= set(results)
    task = results["scores"]["task/translation_ranking_en-es"]
    assert set(task) == {"loss", "accuracy", "num_examples"}


def test_the_run_folder_holds_metrics_checkpoints_and_tensorboard(smoke):
    records = read_lines(smoke.run_dir / "metrics.jsonl")
    assert [record["step"] for record in records] == list(range(30))
    assert {record["task"] for record in records} == {"translation_ranking_en-es", "inference"}
    assert np.isfinite([record["loss"] for record in records]).all()
    (checkpoint,) = (smoke.run_dir / "checkpoints").iterdir()
    assert checkpoint.name == "step-000000030"
    assert list((smoke.run_dir / "tensorboard").glob("events*"))
    assert list(smoke.folder.rglob(".*")) == []  # no temporary file stays


def test_the_exported_model_loads_with_its_card_and_config(smoke):
    model = tf.saved_model.load(str(smoke.model))
    vectors = model(["Hola", "Hello", ""]).numpy()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert set(model.signatures) == SIGNATURES
    card = (smoke.model / "README.md").read_text(encoding="utf-8")
    parts = ("`smoke`", "parallel/everyday", "retrieval/en-es/all", "(losses.svg)", "30 steps in ")
    assert all(part in card for part in parts)
    config = json.loads((smoke.model / "config.json").read_text(encoding="utf-8"))
    assert config == smoke.results["model"]


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--preset=en-xx", ["preset", "en-es", "paper-en-es", "smoke", "'en-xx'"]),
        ("--set=tokenizer.max_token=3", ["tokenizer.max_token", "max_tokens"]),
        ("--piar=smoke", ["piar", "pair"]),
        ("--data=nowhere", ["nowhere", "docs/data.md"]),
        ("--init=exported/nothing", ["'exported/nothing' does not exist"]),
    ],
)
def test_a_mistake_in_the_flags_is_one_line_before_anything_starts(flag, said, tmp_path):
    line = the_error(train(tmp_path, flag))
    assert all(words in line for words in said), line
    assert not list(tmp_path.iterdir())


def test_a_preset_is_shown_as_settings_in_lines(tmp_path):
    shown = train(tmp_path, "--show=multilingual-e5-best").output.splitlines()
    assert {"data.targets=es,fr,de,zh", "tasks.question_answering.with_towers=false"} < set(shown)
    assert not any(line.startswith(("tokenizer.", "encoder.")) for line in shown)  # the starting model's


@pytest.mark.parametrize(
    ("given", "minutes", "steps"),
    [
        # The preset has 60 minutes and 1,500 steps.
        (["--minutes=90"], 90, 1500),
        (["--minutes=0", "--steps=7"], 0, 7),
    ],
)
def test_a_limit_on_the_command_line_leaves_the_other_one(given, minutes, steps):
    code = (
        "import sys, main; main.flags.FLAGS(sys.argv); c = main._config().training; print(c.minutes, c.steps)"
    )
    done = run_python(ROOT / "training", "-c", code, "--preset=multilingual-best", *given)
    assert [float(number) for number in done.output.split()] == [minutes, steps]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": "empty"}, ["empty"]),
        ({"run_dir": "file/run"}, ["run_dir", "file/run"]),
        ({"output": "notes"}, ["output", "notes"]),
        ({"run_dir": "other"}, ["training.minutes", "training.steps"]),  # without a budget
    ],
)
def test_folders_and_budgets_that_will_not_do_are_refused_at_once(changes, said, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes").mkdir()
    for name in ("file", "notes/todo.txt"):
        (tmp_path / name).write_text("mine")
    steps = 0 if "training.steps" in said else 1
    config = apply_overrides(get_preset("smoke"), [*ONE_TASK, f"training.steps={steps}"])
    folders = {"run_dir": "run", "output": "model"} | changes
    with pytest.raises(UserError) as caught:
        run_experiment(Run(name="smoke", config=config, **{n: tmp_path / f for n, f in folders.items()}))
    assert all(words in str(caught.value) for words in said)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "notes" / "todo.txt").read_text() == "mine"


def defaults(function):
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("export/main.py", defaults(compact.export)),
        ("export/encode.py", defaults(encode_files)),
        ("export/serve.py", asdict(BatchingParameters()) | asdict(ServerConfig())),
        ("data/mine.py", defaults(mine_translations)),
        ("data/hard_negatives.py", defaults(mine_hard_negatives)),
    ],
)
def test_a_program_has_the_defaults_of_the_library(program, expected, tmp_path):
    described = ET.fromstring(run_python(tmp_path, str(ROOT / program), "--helpxml").output)
    names = {"top": "num_negatives", "max_body_bytes": "body_bytes", "max_connections": "connections"}
    names |= {"file_system_poll_wait_seconds": "poll_seconds"}
    compared = 0
    for flag in described.iter("flag"):
        name = names.get(flag.findtext("name"), flag.findtext("name"))
        if (wanted := expected.get(name, ())) not in ((), "", inspect.Parameter.empty):
            actual = yaml.safe_load(flag.findtext("default") or "null")
            assert (name, actual) == (name, wanted)
            compared += 1
    assert compared


def test_losses_are_drawn_to_scale(tmp_path):
    losses = [("a_b", 4.0), ("c", 1.0), ("a_b", 2.0)]
    lines = [
        json.dumps({"step": step, "task": task, "loss": loss}) for step, (task, loss) in enumerate(losses)
    ]
    write_files(tmp_path, {"metrics.jsonl": "\n".join(lines)})
    write_curves(tmp_path / "metrics.jsonl", {"a_b": 3.0}, tmp_path / "losses.svg")
    root = ET.parse(tmp_path / "losses.svg").getroot()
    first, second = (each.get("points") for each in root.findall(".//{*}polyline"))
    # 240 pixels for 3 steps, 120 for losses from 2 to 4.
    assert (first, second) == ("80.0,0.0 240.0,120.0", "160.0,0.0")
    assert [line.get("y1") for line in root.findall(".//{*}line")] == ["120", "60.0", "120"]


def test_a_dry_run_says_what_would_be_done(tmp_path, hub_folder):
    text = plan(
        Run(name="smoke", config=get_preset("smoke"), run_dir=tmp_path / "run", output=tmp_path / "model")
    )
    assert re.search(r"^parallel +en-es +1 +\d+ +\d+  translation_ranking_en-es$", text, re.MULTILINE)
    assert "At most 150 steps." in text
    write_files(tmp_path, {"texts.txt": "Hola\n" * 5000})
    flags = ("--dry_run", f"--model={hub_folder}", "--input=texts.txt", "--output=vectors")
    done = run_python(tmp_path, str(ROOT / "export" / "encode.py"), *flags)
    assert done.output.startswith("about 5,000 rows, "), done.errors
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt"}
