"""The examples, run as their docstrings say."""

import runpy
import sys

import pytest
from programs import ROOT
from raw_files import write_files
from serving_servers import server_in_thread

LINES = {
    "search": 2,
    "vector_database": 5,
    "fine_tune": 1,
    "mine_translations": 1,
    "classify": 3,
    "openai_client": 3,
    "keras_layer": 2,
}

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module")
def arguments(hub_folder, headless):
    with server_in_thread({"m": hub_folder}) as server:
        yield {
            **{name: [hub_folder] for name in LINES},
            "vector_database": [hub_folder, "sentences.txt", "made.duckdb", "sentence 7"],
            "fine_tune": [headless, "faq.csv", "tuned", 2],
            "openai_client": [f"{server.url}/v1", "m"],
            "keras_layer": [hub_folder, "reviews.keras"],
        }


def test_all_examples_are_run():
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == LINES.keys()


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras saves weights so
@pytest.mark.parametrize("name", LINES)
def test_it_runs(name, arguments, tmp_path, monkeypatch, capsys):
    answers = "".join(f"question {n},answer {n}\n" for n in range(40))
    sentences = "".join(f"sentence {n}\n" for n in range(99))
    write_files(tmp_path, {"faq.csv": f"question,answer\n{answers}", "sentences.txt": sentences})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments[name])])
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
    assert len(capsys.readouterr().out.splitlines()) >= LINES[name]
