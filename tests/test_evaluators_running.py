"""Runs: which data sets they evaluate, what they write, how they continue; and the program."""

import json
import pkgutil
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from encode_functions import constant
from evaluation_data import write_evaluation_data
from programs import run_program
from raw_files import write_files

from xling_tf.corpora.split import text_hashes
from xling_tf.corpora.trained_on import TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Suite, select
from xling_tf.evaluators.encoding import Embedder, Encode, NotApplicableError
from xling_tf.evaluators.running import SUITES, evaluate, evaluate_embedder, headlines
from xling_tf.files import locked


class CountLines:
    """Scores the number of lines of its file; fails on the lines "head" and "broken"."""

    name = "lines"

    def __init__(self, path: Path, world: SimpleNamespace) -> None:
        self.lines = path.read_text(encoding="utf-8").splitlines()
        if not self.lines:
            raise UserError("a text is expected, but the file is empty; fill it")
        self.pairs = [*pairwise(self.lines)]
        self.stem, self.calls, self.protocol = path.stem, world.calls, world.protocol

    def __call__(self, encode: Encode) -> dict[str, float]:
        self.calls.append(self.stem)
        if "head" in self.lines:
            raise NotApplicableError("it has no head")
        if "broken" in self.lines:
            raise UserError("the server is gone")
        return {"accuracy": 1 / len(self.lines), "num_lines": float(len(encode(self.lines)))}


@pytest.fixture
def world(tmp_path):
    """A folder with data, two suites that look for it, what they call, and `run`."""
    folder = write_files(tmp_path / "data", {"a/one.txt": "x\n", "a/two.txt": "x\ny\n"})
    world = SimpleNamespace(folder=folder, output=tmp_path / "results/model.json", calls=[])
    world.trained_on, world.protocol = None, {"seed": 7}

    def find(suite: str, folder: Path, seed: int):
        for path in sorted((folder / suite).glob("*.txt")):
            yield Dataset(name=path.stem, files=(path,), load=partial(CountLines, path, world))

    def run(*wanted: str, checksum: str | None = "1234567890", seed: int = 0) -> dict[str, Any]:
        world.calls.clear()
        system = Embedder(
            name="model", sentences=constant, checksum=checksum, trained_on=world.trained_on
        )
        datasets, missing = select(world.suites, folder, wanted, seed)
        options = {"missing": missing, "folder": folder, "seed": seed}
        return evaluate_embedder(system, datasets, world.output, **options)

    world.suites = {
        name: Suite(
            name=name, title="", source="", layout=f"{name}/*.txt", find=partial(find, name)
        )
        for name in ("a", "b")
    }
    world.run = run
    world.written = lambda: json.loads(world.output.read_text(encoding="utf-8"))
    return world


def test_all_available_data_sets_are_evaluated(world):
    results = world.run()
    one, two = {"accuracy": 1.0, "num_lines": 1.0}, {"accuracy": 0.5, "num_lines": 2.0}
    assert results["scores"] == {"a": {"one": one, "two": two}}
    assert results["complete"]
    assert results["skipped"] == {"b": "expected: b/*.txt"}
    account = results["datasets"]["a"]["two"]
    assert account["protocol"] == {"seed": 7}
    assert [*account["files"]] == ["a/two.txt"]
    assert results["system"]["checksum"] == "1234567890"
    assert {"command", "versions", "machine", "seed", "seconds"} <= results.keys()
    assert world.written() == results
    # The first score of each data set that has one.
    assert headlines(results, ["a/two", "a/three"]) == {"a/two": {"accuracy": 0.5}}


def test_shares_of_training_data_are_reported(world):
    write_files(world.folder, {"a/two.txt": "seen\nnew\nSEEN too\n"})
    seen, other = text_hashes(["Seen", "seen  too"]), text_hashes(["x", "y"])
    world.trained_on = TrainedOn.from_hashes([[seen, other]])
    results = world.run()
    shares = {name: account["trained_on"] for name, account in results["datasets"]["a"].items()}
    # "two" has a new text, and none of its pairs (each line with the next) was a training record.
    assert shares == {"one": {"texts": 1.0}, "two": {"pairs": 0.0, "texts": 0.6667}}
    assert headlines(results, ["a/one", "a/two"]) == {
        "a/one": {"accuracy": 1.0, "texts_trained_on": 1.0},
        "a/two": {"accuracy": 1 / 3, "texts_trained_on": 0.6667},
    }
    # Nothing is known of other embedders.
    world.trained_on = None
    assert all("trained_on" not in account for account in world.run()["datasets"]["a"].values())


def test_only_the_named_data_sets_are_evaluated_again_and_missing_ones_are_an_error(
    world, tmp_path
):
    first = world.run()
    for wanted, expected in ("a", ["one", "two"]), ("a/t*", ["two"]):
        assert world.run(wanted)["scores"] == first["scores"]
        assert world.calls == expected
    for wanted, message in (("a/three", "expected: a/"), ("c", "one of a, b, got 'c'")):
        with pytest.raises(UserError, match=message):
            world.run("a", wanted)
    with pytest.raises(UserError, match="none of the expected files"):
        select(world.suites, tmp_path, [], 0)


@pytest.mark.parametrize(
    ("checksum", "files", "protocol", "expected"),
    [
        ("a_package==0.3.0", {}, {"seed": [7]}, ["two"]),
        ("1234567890", {"a/one.txt": "x\ny\n"}, {"seed": [7]}, ["one", "two"]),
        ("1234567890", {}, {"seed": [8]}, ["one", "two"]),
        (None, {}, {"seed": [7]}, ["one", "two"]),
    ],
)
def test_a_failed_run_continues_with_the_same_files_and_protocol(
    world, checksum, files, protocol, expected
):
    world.protocol = {"seed": [7]}
    write_files(world.folder, {"a/two.txt": "broken\n"})
    with pytest.raises(UserError, match="the server is gone"):
        world.run(checksum=checksum)
    assert list(world.written()["scores"]["a"]) == ["one"]
    assert not world.written()["complete"]
    world.protocol = protocol
    write_files(world.folder, {"a/two.txt": "mended\n", **files})
    results = world.run(checksum=checksum)
    assert world.calls == expected
    assert results["complete"]
    assert list(results["scores"]["a"]) == ["one", "two"]
    write_files(world.folder, {"a/one.txt": "head\n"})
    assert world.run(seed=2)["skipped"]["a/one"] == "it has no head"


def test_faulty_data_are_reported_after_the_others_are_evaluated(world):
    write_files(world.folder, {"a/one.txt": ""})
    with pytest.raises(
        UserError, match=r"1 of 2 data sets are faulty, first a/one: .*a text is expected"
    ):
        world.run()
    assert list(world.written()["scores"]["a"]) == ["two"]
    assert not world.written()["complete"]
    write_files(world.folder, {"a/one.txt": "x\n"})
    assert "a/one" not in world.run()["skipped"]
    assert world.calls == ["one"]


def test_a_results_file_belongs_to_one_process_and_another_file_is_not_overwritten(world):
    world.run()
    with locked(world.output.parent, "output", world.output.name):
        with pytest.raises(
            UserError, match=r"model.json is used by another process; .* give another `output`"
        ):
            world.run()
        world.output = world.output.with_name("other.json")
        assert world.run()["complete"]
    write_files(world.output.parent, {"other.json": "{}"})
    with pytest.raises(UserError, match="is not a file of evaluation results"):
        world.run()
    assert world.written() == {}


@pytest.mark.parametrize("name", ["similarity_search/x.tsv", "nli/xnli.en.dev.tsv"])
def test_a_table_with_an_unreadable_first_line_is_a_fault_of_its_own_suites_alone(name, tmp_path):
    write_evaluation_data(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"\xff\ten\n1\t2\n")
    datasets, _ = select(SUITES, tmp_path, [], 0)
    faults = {}
    for key, dataset in datasets.items():
        try:
            dataset.load()
        except UserError as error:
            faults[key] = str(error)
    assert 1 <= len(faults) < 4
    assert all("line 1: not UTF-8" in fault for fault in faults.values())
    assert "bitext/toy.en-es" in datasets


@pytest.mark.parametrize("change", [{"checksum": "other"}, {"seed": 1}])
def test_results_of_another_model_or_seed_are_put_aside(world, change):
    world.run()
    assert list(world.run("a/one", **change)["scores"]["a"]) == ["one"]
    world.run(checksum=None)
    aside = {path.name: path.read_text() for path in world.output.parent.glob("model.?.json")}
    assert aside.keys() == {"model.1.json", "model.2.json"}
    assert list(json.loads(aside["model.1.json"])["scores"]["a"]) == ["one", "two"]


# A module in the current folder: numbers of vowels.
VOWELS = """
import numpy as np

def encode(texts):
    return np.array([[text.count(vowel) for vowel in "aeiou"] for text in texts], np.float32)
"""


def test_an_evaluation_prints_a_table_and_writes_results(tmp_path):
    write_evaluation_data(tmp_path / "data")
    (tmp_path / "vowels.py").write_text(VOWELS, encoding="utf-8")
    flags = ("--model=python:vowels:encode", "--data=data", "--suite=sts,bitext,reqa")
    run = run_program(tmp_path, "evaluation/main.py", *flags)
    lines = run.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    assert re.search(r"^sts/stsb.en.dev +pearson_angular +-?[01]\.\d{4}$", run.output, re.MULTILINE)
    assert lines[-1].split()[:2] == ["xling-tf", "report"]
    path = tmp_path / "runs/evaluation/vowels.encode.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    assert results["complete"]
    assert set(results["scores"]) == {"sts", "bitext", "reqa"}
    assert re.match(r"python \S*evaluation/main.py --model=python", results["command"])


def test_in_python_it_gives_the_same_and_only_the_data_sets_that_were_asked_for(
    tmp_path, monkeypatch
):
    write_evaluation_data(tmp_path / "data")
    (tmp_path / "vowels.py").write_text(VOWELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    options: dict[str, Any] = {"suite": ["sts", "bitext"], "output": "results.json", "cache": None}
    whole = evaluate("python:vowels:encode", "data", **options)
    by_function = evaluate(pkgutil.resolve_name("vowels:encode"), Path("data"), suite=["bitext"])
    assert by_function["scores"] == {"bitext": whole["scores"]["bitext"]}
    again = evaluate("python:vowels:encode", "data", **{**options, "suite": "sts"})
    assert [*again["scores"]] == [*again["datasets"]] == ["sts"]
    assert again["scores"]["sts"] == whole["scores"]["sts"]
