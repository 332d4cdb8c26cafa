"""The examples, run as their docstrings say."""

import asyncio
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec

import pytest
from programs import PEERS, ROOT, run_python
from raw_files import write_files
from serving_servers import server_in_thread

EXAMPLES = ROOT / "examples"
# A part of what is printed with the model in the box, and a package that the example needs.
WITH_THE_BOX = {
    "search": ("Où est la gare ?", "numpy"),
    "mine_translations": ("Where is the station?  ¿Dónde está la estación?", "numpy"),
    "classify": ("weather  Mañana va a llover.", "sklearn"),
    "same_messages": ("  我忘记了密码。", "numpy"),
    "memory_server": ("¿Dónde está la llave? ['2: Der Schlüssel liegt", "mcp"),
    "langchain_search": ("When is the next train? - Der nächste Zug", "langchain_core"),
    "llama_index_search": ("When is the next train? - Der nächste Zug", "llama_index"),
    "topics": ("    我们的邻居保罗", "bertopic"),
}
DATABASES = {
    "sqlite": "sqlite3",
    "duckdb": "duckdb",
    "qdrant": "qdrant_client",
    "chroma": "chromadb",
    "lancedb": "lancedb",
}
# Lines that are printed with a model of the test, at least.
WITH_TENSORFLOW = {"fine_tune": 2, "openai_client": 3, "keras_layer": 2}


def python_with(package):
    """The Python that has a package: this one or that of the peers; skips the test without it."""
    if find_spec(package):
        return sys.executable
    find = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    if not PEERS.exists() or subprocess.run([PEERS, "-c", find], check=False).returncode:
        pytest.skip(f"needs {package}, of make .peers/.installed")
    return PEERS


def run_example(folder, name, package, *arguments):
    """Runs an example as a user does; returns what it prints."""
    python, environment = python_with(package), {**os.environ, "PYTHONPATH": str(ROOT)}
    path = EXAMPLES / f"{name}.py"
    run = run_python(folder, path, *arguments, python=python, environment=environment)
    assert run.status == 0, run.errors
    return run.output


def test_all_examples_are_run_and_short():
    files = [*EXAMPLES.glob("*.py")]
    assert {path.stem for path in files} == {*WITH_THE_BOX, "vector_database", *WITH_TENSORFLOW}
    assert max(path.read_text(encoding="utf-8").count("\n") for path in files) < 120


@pytest.mark.parametrize("name", WITH_THE_BOX)
def test_it_runs_with_the_model_in_the_box(name, tmp_path):
    line, package = WITH_THE_BOX[name]
    assert line in run_example(tmp_path, name, package)


@pytest.mark.parametrize("name", DATABASES)
def test_each_database_keeps_sentences_and_finds_them_again(name, tmp_path):
    write_files(tmp_path, {"own.txt": "It rains.\nDie Katze schläft.\nI like tea.\n"})
    first, second = (
        run_example(tmp_path, "vector_database", DATABASES[name], name, *arguments).splitlines()
        for arguments in (["Where is the cat?", "own.txt"], ["Es regnet."])
    )
    assert (first[0][6:], second[0][6:]) == ("Die Katze schläft.", "It rains.")
    assert len(first) == len(second) == 3


def test_the_messages_are_the_lines_of_a_file(tmp_path):
    write_files(tmp_path, {"own.txt": "It rains.\nI like tea.\nLlueve.\nThe bus is late.\n"})
    output = run_example(tmp_path, "same_messages", "numpy", "own.txt")
    assert [line[6:] for line in output.split("\n") if line] == ["It rains.", "Llueve."]


def test_an_assistant_keeps_notes_between_conversations(tmp_path):
    """An MCP client starts the server twice: notes in two languages, questions in a third."""
    pytest.importorskip("mcp")
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=[str(EXAMPLES / "memory_server.py"), "notes.sqlite"],
        env={"PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )

    async def called(*calls):
        async with Client(server) as client:
            tools = await client.list_tools()
            assert {tool.name for tool in tools.tools} == {"remember", "recall", "forget"}
            results = [await client.call_tool(name, arguments) for name, arguments in calls]
            return [result.structured_content["result"] for result in results]

    key, allergy = "Der Schlüssel liegt unter der Fußmatte.", "Anna is allergic to nuts."
    questions = [
        ("recall", {"question": question})
        for question in ("¿Dónde está la llave?", "¿A qué es alérgica Anna?", "¿Quién ganó?", "")
    ]
    assert asyncio.run(called(questions[0])) == [[]]
    remember = [("remember", {"note": note}) for note in (allergy, key, key)]
    assert asyncio.run(called(*remember)) == ["remembered"] * 3
    assert asyncio.run(called(*questions)) == [[f"2: {key}"], [f"1: {allergy}"], [], []]
    forget = ("forget", {"number": 2})
    assert asyncio.run(called(forget, forget, questions[0])) == [
        "forgotten",
        "there is no note 2",
        [],
    ]


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras saves weights so
@pytest.mark.parametrize("name", WITH_TENSORFLOW)
def test_it_runs_with_a_model_of_your_own(
    name, hub_folder, headless, tmp_path, monkeypatch, capsys
):
    answers = "".join(f"question {n},answer {n}\n" for n in range(40))
    write_files(tmp_path, {"faq.csv": f"question,answer\n{answers}"})
    monkeypatch.chdir(tmp_path)
    with server_in_thread({"m": hub_folder}) as server:
        arguments = {
            "fine_tune": [headless, "faq.csv", "tuned", 2],
            "openai_client": [f"{server.url}/v1", "m"],
            "keras_layer": [hub_folder, "reviews.keras"],
        }[name]
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
    assert len(capsys.readouterr().out.splitlines()) >= WITH_TENSORFLOW[name]
