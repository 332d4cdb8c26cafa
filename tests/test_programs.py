"""Programs: messages of mistakes, defaults, output; test_training.py has a whole training."""

import inspect
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest
from programs import PROGRAM, ROOT, run_program, run_python, the_error
from raw_files import write_files

from training.curves import write_curves
from training.plan import plan
from xling_tf.bulk.mining import mine_translations
from xling_tf.bulk.vector_files import encode_files
from xling_tf.exporters import compact
from xling_tf.presets import get_preset
from xling_tf.search.hard_negatives import mine_hard_negatives
from xling_tf.serving.app import ServerConfig
from xling_tf.serving.batching import BatchingParameters
from xling_tf.trainer.experiment import Run


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
    line = the_error(run_python(tmp_path, str(PROGRAM), flag))
    assert all(words in line for words in said), line
    assert not list(tmp_path.iterdir())


def test_a_preset_is_shown_as_settings_in_lines(tmp_path):
    shown = run_program(
        tmp_path, "training/main.py", "--show=multilingual-e5-best"
    ).output.splitlines()
    assert {"data.targets=es,fr,de,zh", "tasks.question_answering.with_towers=false"} < set(shown)
    # The starting model's.
    assert not any(line.startswith(("tokenizer.", "encoder.")) for line in shown)


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
        "import sys, main; main.flags.FLAGS(sys.argv); c = main._config().training; "
        "print(c.minutes, c.steps)"
    )
    done = run_python(ROOT / "training", "-c", code, "--preset=multilingual-best", *given)
    assert [float(number) for number in done.output.split()] == [minutes, steps]


def defaults(function):
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }


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
    code = f"""import contextlib, json, runpy, sys, absl.flags
sys.argv = [{str(ROOT / program)!r}, "--help"]
with contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps({{name: absl.flags.FLAGS[name].default for name in absl.flags.FLAGS}}))"""
    run = run_python(tmp_path, "-c", code)
    flags = json.loads(run.output.splitlines()[-1])
    names = {
        "top": "num_negatives",
        "max_body_bytes": "body_bytes",
        "max_connections": "connections",
    }
    names |= {"file_system_poll_wait_seconds": "poll_seconds"}
    compared = 0
    for flag, actual in flags.items():
        name = names.get(flag, flag)
        if (wanted := expected.get(name, ())) not in ((), "", inspect.Parameter.empty):
            assert (name, actual) == (name, wanted)
            compared += 1
    assert compared


@pytest.mark.parametrize(
    ("scored", "shown"),
    [
        (["task/a", "retrieval/en-es/all", "retrieval/en-es/one"], ["retrieval/en-es/all"]),
        (["task/a", "task/b"], ["task/a", "task/b"]),
        (["task/a", "sts/empty"], ["task/a"]),
    ],
)
def test_the_last_table_shows_tasks_where_nothing_else_was_scored(scored, shown):
    code = "import json, sys, main; print(main._table(json.loads(sys.argv[1])))"
    accuracy = {"accuracy": 0.5, "num_examples": 9}
    scores = {name: {} if name == "sts/empty" else accuracy for name in scored}
    _, _, *rows = run_python(ROOT / "training", "-c", code, json.dumps(scores)).output.splitlines()
    assert [row.split() for row in rows] == [[name, "accuracy", "0.5000"] for name in shown]


def test_losses_are_drawn_to_scale(tmp_path):
    losses = [("a_b", 4.0), ("c", 1.0), ("a_b", 2.0)]
    lines = [
        json.dumps({"step": n, "task": task, "loss": loss}) for n, (task, loss) in enumerate(losses)
    ]
    write_files(tmp_path, {"metrics.jsonl": "\n".join(lines)})
    write_curves(tmp_path / "metrics.jsonl", {"a_b": 3.0}, tmp_path / "losses.svg")
    root = ET.parse(tmp_path / "losses.svg").getroot()
    first, second = (each.get("points") for each in root.findall(".//{*}polyline"))
    # 240 pixels for 3 steps, 120 for losses from 2 to 4.
    assert (first, second) == ("80.0,0.0 240.0,120.0", "160.0,0.0")
    assert [line.get("y1") for line in root.findall(".//{*}line")] == ["120", "60.0", "120"]


def test_a_plan_says_what_would_be_trained(tmp_path):
    run = Run(
        name="smoke",
        config=get_preset("smoke"),
        run_dir=tmp_path / "run",
        output=tmp_path / "model",
    )
    text = plan(run)
    assert re.search(
        r"^parallel +en-es +1 +\d+ +\d+  translation_ranking_en-es$", text, re.MULTILINE
    )
    assert "At most 150 steps." in text
