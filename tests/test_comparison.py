import json
import subprocess
import sys
from pathlib import Path

from xling_tf.evaluators.comparison import comparison, summary

PROGRAM = Path(__file__).resolve().parents[1] / "evaluation" / "compare.py"
RESULTS = {
    "steps": 1200,
    "minutes": 12.26,
    "scores": {
        "task/inference": {"accuracy": 0.44},
        # The mean of 2% and 5% is 3.5%.
        "task/response_prediction_en": {"accuracy": 0.02},
        "task/response_prediction_es": {"accuracy": 0.05},
        "retrieval/en-es/all": {
            "en-es/precision_at_1": 0.981,
            "en-es/precision_at_3": 0.99,
            "es-en/precision_at_1": 0.9,
            "num_queries": 5000,
        },
        "retrieval/en-es/tatoeba": {"en-es/precision_at_1": 0.5},
        "stsb.es.dev": {"pearson_angular": 0.5876, "num_pairs": 1500},
    },
}


def compare(*paths):
    command = [sys.executable, str(PROGRAM), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_columns_in_percent():
    assert summary(RESULTS) == {
        "P@1 en-es": "98.1",
        "P@1 es-en": "90.0",
        "STS es": "58.8",
        "NLI": "44.0",
        "response": "3.5",
        "steps": "1200",
        "minutes": "12.3",
    }


def test_a_column_that_one_training_lacks_is_empty_there():
    rows = {"a": {"NLI": "1", "steps": "9"}, "b": {"P@1 en-fr": "2", "steps": "8"}}
    lines = comparison(rows).splitlines()
    assert [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if ":" not in line
    ] == [
        ["", "P@1 en-fr", "NLI", "steps"],
        ["a", "", "1", "9"],
        ["b", "2", "", "8"],
    ]


def test_the_program_names_a_run_by_its_folder_or_a_file_by_its_name(tmp_path):
    (tmp_path / "no-snli").mkdir()
    paths = (tmp_path / "no-snli" / "results.json", tmp_path / "kept.json")
    for path in paths:
        path.write_text(json.dumps(RESULTS))
    done = compare(*paths)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[2:]] == ["no-snli", "kept"]


def test_what_is_no_result_is_told(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    for paths, said in (((), "got none"), ([tmp_path / "x.json"], "x.json must be a training's")):
        done = compare(*paths)
        assert done.returncode == 2
        assert said in done.stderr
