"""Programs: messages of mistakes, defaults, output; test_training.py has a whole training."""

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import asdict

import pytest
from programs import PROGRAM, ROOT, run_program, run_python, the_error
from raw_files import write_files

from training.plan import plan
from xling_tf.bulk.mining import mine_translations
from xling_tf.bulk.vector_files import encode_files
from xling_tf.cli import COMMANDS, WORDS
from xling_tf.exporters import savedmodel
from xling_tf.presets import get_preset
from xling_tf.search.hard_negatives import mine_hard_negatives
from xling_tf.serving.app import ServerConfig
from xling_tf.serving.batching import BatchingParameters
from xling_tf.trainer.context import Run
from xling_tf.trainer.curves import write_curves

HERE = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND = "import sys; from xling_tf.cli import main; sys.argv[0] = 'xling-tf'; main()"


def command(folder, *words):
    """Runs `xling-tf` with these words."""
    return run_python(folder, "-c", COMMAND, *words, environment=HERE)


@pytest.mark.parametrize("path", [*COMMANDS.values(), *WORDS.values()])
def test_the_examples_of_a_program_can_be_pasted(path):
    docstring = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8")))
    first, blank, *rest = docstring.splitlines()
    # A row of `xling-tf --help`.
    assert (first[-1], blank) == (".", "")
    assert len(first) <= 70
    for before, line in zip(("", *rest), rest, strict=False):
        if line.startswith(" "):
            starts = line.startswith(("    xling-tf ", "    pip ", "    curl "))
            assert starts != before.endswith("\\"), line


HELP = """
import os, sys
from xling_tf import cli
for name in (*cli.COMMANDS, *cli.WORDS):
    if not os.fork():
        sys.argv = ["xling-tf", *name.split(), "--help"]
        cli.main()
    os.wait()
"""


def test_the_help_of_a_command_fits_on_a_screen(tmp_path):
    shown = run_python(tmp_path, "-c", HELP, environment=HERE | {"COLUMNS": "100"}).output
    _, *texts = re.split("^usage: xling-tf ", shown, flags=re.MULTILINE)
    assert len(texts) == len(COMMANDS) + len(WORDS)
    lines = {text.partition("\n")[0]: text.splitlines() for text in texts}
    assert {name: n for name, text in lines.items() if (n := len(text)) > 40} == {}
    assert [line for text in lines.values() for line in text if len(line) > 100] == []


def test_a_command_is_called_by_its_name_in_its_help(tmp_path):
    shown = command(tmp_path, "train", "--help").output
    assert shown.startswith("usage: xling-tf train [options]\n")
    assert run_program(tmp_path, "training/main.py", "--help").output == shown


def test_the_first_word_of_a_command_names_its_program(tmp_path):
    for words, file in WORDS.items():
        shown = command(tmp_path, *words.split(), "--help").output
        assert shown.startswith(f"usage: xling-tf {words} [options] ")
        assert run_program(tmp_path, file, "--help").output == shown
    said = the_error(command(tmp_path, "prepare", "--target", "es", "evaluation"))
    assert "papers, collection, evaluation, raw right after prepare" in said
    # A published file with one table, by default in data/eval.
    (tmp_path / "news.en").write_text("One\n")
    (tmp_path / "news.es").write_text("Uno\n")
    done = command(tmp_path, "prepare", "evaluation", "parallel_lines", ".")
    assert done.output == "data/eval/similarity_search/news.tsv.gz: 1 rows\n"
    formats = command(tmp_path, "prepare", "evaluation").output
    assert "\nparallel_lines: Sentences in several languages" in formats
    for given in ("parallel_lines", "parallel_line ."):
        line = the_error(command(tmp_path, "prepare", "evaluation", *given.split()))
        assert "a format and a file" in line or "must be one of moses, parallel_lines" in line


def test_the_papers_data_is_listed_with_addresses_licences_and_what_is_by_hand(tmp_path):
    listed = command(tmp_path, "prepare", "papers", "--list").output
    assert "\nquora: Quora's question pairs (non-commercial (Quora's terms); 58.2 MB)\n" in listed
    assert "\n    from http://qim.fs.quoracdn.net/: quora_duplicate_questions.tsv\n" in listed
    assert "\n    by hand: ask for RCV1 and RCV2 " in listed
    assert "dictionaries/" not in listed
    assert "dictionaries/" in command(tmp_path, "prepare", "collection", "muse", "--list").output
    assert "did you mean stsb?" in the_error(command(tmp_path, "prepare", "papers", "stbs"))
    # By hand: nothing is fetched.
    done = command(tmp_path, "prepare", "papers", "mldoc", "--output", "out")
    assert re.search(r"^mldoc +lacks 12 of 12 tables: ask for RCV1", done.output, re.MULTILINE)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--preset=en-xx", ["'en-xx'", "--list"]),
        ("--preset=statik", ["did you mean static?"]),
        ("--pair=en-es-fr", ["--pair", "en-es", "'en-es-fr'", "--target"]),
        ("--pair=en-en", ["data.targets", "en"]),
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


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("export/import_model.py", ["nothing"]),
        ("export/main.py", ["--model=nothing", "--to=wheel", "--output=a/b"]),
        ("export/encode.py", ["--model=nothing", f"--input={PROGRAM}", "--output=a/b"]),
    ],
)
def test_a_missing_model_leaves_no_folder(program, flags, tmp_path):
    assert "'nothing' does not exist" in the_error(
        run_python(tmp_path, str(ROOT / program), *flags)
    )
    assert not list(tmp_path.iterdir())


def test_a_training_says_first_what_begins():
    code = "import main; main.flags.FLAGS(['']); print(main._summary(*main._experiment()))"
    said = run_python(ROOT / "training", "-c", code).output
    assert all(words in said for words in ("multi-task", "en-es", "0.7 GB", "most 30 minutes"))


def test_the_settings_of_the_whole_command_are_shown_in_lines(tmp_path):
    shown = run_program(
        tmp_path, "training/main.py", "--preset=e5-best", "--minutes=3", "--show"
    ).output.splitlines()
    assert {
        "training.minutes=3.0",
        "data.targets=es,fr,de,zh",
        "tasks.question_answering.with_towers=false",
    } < set(shown)
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
        "import sys, main; main.flags.FLAGS(sys.argv); c = main._experiment()[1].training; "
        "print(c.minutes, c.steps)"
    )
    done = run_python(ROOT / "training", "-c", code, "--preset=best", *given)
    assert [float(number) for number in done.output.split()] == [minutes, steps]


NAMES = """
import main, sys
for words in sys.stdin.read().splitlines():
    main.flags.FLAGS.unparse_flags()
    main.flags.FLAGS(["main.py", *words.split()])
    name, config = main._experiment()
    data, training = config.data, config.training
    print(name, data.source, ",".join(data.targets), data.sampling_temperature, training.seed)
"""


def test_flags_name_languages_and_the_run_is_named_by_them(tmp_path):
    expected = {
        "": "en-es en es 0.0 1",
        "--pair en-es": "en-es en es 0.0 1",
        "--pair fr-pt_BR --preset static": "fr-pt_BR-static fr pt_BR 0.0 1",
        "--source en --target es,fr,de,zh": "many en es,fr,de,zh 5.0 1",
        "--preset best --target es,fr": "multilingual-best-en-es-fr en es,fr 5.0 1",
        "--preset static --target all": "multilingual-static-en-all en all 5.0 1",
        "--preset no-snli --target fr": "no-snli-en-fr en fr 0.0 1",
        # Of all languages to begin with: it keeps its temperature.
        "--preset seq2seq --target es,fr": "seq2seq-en-es-fr en es,fr 0.0 1",
        "--preset e5-best": "multilingual-e5-best en es,fr,de,zh 5.0 1",
        "--preset e5-best --pair en-de": "en-de-e5-best en de 5.0 1",
        "--pair en-es --seed 1": "en-es en es 0.0 1",
        "--preset paper --pair en-de --seed 2": "paper-en-de-seed-2 en de 0.0 2",
        # Names of the last version, also as --pair.
        "--preset en-fr-static": "en-fr-static en fr 0.0 1",
        "--pair multilingual-static": "multilingual-static en es,fr,de,zh 5.0 1",
        "--preset infersent-td --set data.targets=de": "infersent-td-en-de en de 0.0 1",
        "--pair no-wiki": "no-wiki en es 0.0 1",
    }
    command = [sys.executable, "-c", NAMES]
    done = subprocess.run(
        command, cwd=ROOT / "training", input="\n".join(expected), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert dict(zip(expected, done.stdout.splitlines(), strict=True)) == expected
    # One line for each old name.
    assert done.stderr.count("--preset static --pair en-fr") == 1
    assert done.stderr.count("--preset static --target es,fr,de,zh") == 1


def defaults(function):
    return {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("export/main.py", defaults(savedmodel.export)),
        ("export/encode.py", defaults(encode_files)),
        ("export/serve.py", asdict(BatchingParameters()) | asdict(ServerConfig())),
        ("data/mine.py", defaults(mine_translations) | defaults(mine_hard_negatives)),
    ],
)
def test_a_program_has_the_defaults_of_the_library(program, expected, tmp_path):
    code = f"""import contextlib, json, runpy, sys, absl.flags
sys.argv = [{str(ROOT / program)!r}, "--help"]
with contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps({{name: absl.flags.FLAGS[name].default for name in absl.flags.FLAGS}}))"""
    run = run_python(tmp_path, "-c", code)
    assert run.output.startswith("usage: xling-tf ")
    flags = json.loads(run.output.splitlines()[-1])
    names = {
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
