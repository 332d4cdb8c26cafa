"""The published files: a source distribution, and the wheel that is built from it alone."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from importlib import import_module
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from programs import ROOT
from testing import TEXTS, tiny_config, tiny_model

import xling_tf
from xling_tf.exporters.base import export
from xling_tf.program import _MODULES

VERSION = xling_tf.__version__


def build(kind: str, source: Path, output: Path) -> Path:
    """Builds a distribution with the setuptools at hand; needs no network."""
    output.mkdir()
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(output)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=source, check=True)
    (path,) = output.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from what the source distribution holds."""
    folder = tmp_path_factory.mktemp("packages")
    # A copy, because building leaves folders behind.
    ignored = shutil.ignore_patterns(
        ".*", "__pycache__", "runs", "exported", "raw", "prepared", "eval"
    )
    shutil.copytree(ROOT, folder / "checkout", ignore=ignored)
    with tarfile.open(build("sdist", folder / "checkout", folder / "sdist")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return zipfile.ZipFile(build("wheel", source, folder / "wheel"))


def files_below(folder: str) -> set[str]:
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_package_the_programs_its_metadata_and_nothing_else(wheel):
    information = f"xling_tf-{VERSION}.dist-info"
    names = {name for name in wheel.namelist() if not name.startswith(f"{information}/")}
    made = ("data/prepared", "data/raw", "data/eval/", "data/collection/")
    programs = {
        f"xling_tf/programs/{name}"
        for folder in ("data", "evaluation", "export", "training")
        for name in files_below(folder)
        if not name.startswith((*made, "evaluation/results", "evaluation/benchmarks"))
    }
    assert names == files_below("xling_tf") | programs
    metadata = message_from_string(wheel.read(f"{information}/METADATA").decode("utf-8"))
    assert (metadata["Version"], metadata["License-Expression"]) == (VERSION, "Apache-2.0")
    assert b"Apache License" in wheel.read(f"{information}/licenses/LICENSE")
    requirements = metadata.get_all("Requires-Dist")
    assert {line for line in requirements if "extra ==" not in line} == {
        "absl-py>=2.1",
        "numpy>=2",
        "tabulate>=0.9",
    }
    assert 'tensorflow==2.21.*; extra == "tensorflow"' in requirements
    # A training ends with scores that search: without FAISS, it would fail after the last step.
    assert 'faiss-cpu>=1.9; extra == "tensorflow"' in requirements
    for extra in ("bulk", "align"):
        assert not any("tensorflow" in line for line in requirements if f'"{extra}"' in line)
    assert set(_MODULES) <= set(metadata.get_all("Provides-Extra"))


EVERY_COMMAND = """
import os, sys
from xling_tf import cli, program
for name in ("", *cli.COMMANDS, *cli.WORDS):
    fetches = name in ("prepare papers", "prepare collection")
    for flags in ([name, "--help"], [name, "--list"] if fetches else [name]):
        if not (child := os.fork()):
            sys.argv = ["xling-tf", *" ".join(flags).split()]
            os.dup2(2, 1)
            cli.main()
            os._exit(0)
        print(" ".join(flags), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_without_any_extra_each_command_has_help_and_names_what_it_lacks(tmp_path):
    for name in ("absl", "numpy", "tabulate"):
        folder = Path(import_module(name).__file__).parent
        for path in (folder, *folder.parent.glob(f"{name}.libs")):
            (tmp_path / path.name).symlink_to(path)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", EVERY_COMMAND]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    statuses = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines())
    helped = {
        name: status for name, status in statuses.items() if name.endswith("--help") or not name
    }
    assert set(helped.values()) == {"0"}, helped
    assert set(statuses.values()) == {"0", "2"}, statuses
    assert run.stderr.count("pip install 'xling_tf[evaluation]'") >= 2


@pytest.mark.slow
def test_a_new_user_installs_the_wheel_and_follows_the_tour(wheel, tmp_path, monkeypatch):
    """The notebook of the docs, run top to bottom as its reader runs it."""
    site = tmp_path / "site"
    # What the package depends on is there already; the checkout is not on the path.
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*install, str(wheel.filename)], check=True)
    monkeypatch.setenv("PATH", f"{site / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(site))
    # Programs in folders of the wheel that the tour does not reach.
    for name in ("prepare", "report"):
        done = subprocess.run(
            ["xling-tf", name, "--help"], cwd=tmp_path, capture_output=True, text=True
        )
        assert "options:" in done.stdout, (name, done.stdout, done.stderr)
    wrong = subprocess.run(["xling-tf", "trian"], cwd=tmp_path, capture_output=True, text=True)
    assert (wrong.returncode, "did you mean train?" in wrong.stderr) == (2, True)

    book = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [
        "".join(output.get("text", "") or output.data["text/plain"] for output in cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    ]
    assert "exported/mine" in outputs[1]
    assert "El perro come en la cocina." in outputs[3]
    assert outputs[-1] == "([64, 64], 0)"
    assert "INFO:tensorflow" not in "".join(outputs)


WITHOUT_TENSORFLOW = """
import json, sys
import tiny_model, xling_tf

texts, *folders = json.loads(sys.argv[1])
clients = [xling_tf.load(folder, device="cpu") for folder in folders]
vectors = [client.encode(texts) for client in (*clients, tiny_model)]
(hits,) = xling_tf.semantic_search(vectors[0][0], vectors[0], top_k=1)
errors = []
for call in (lambda: xling_tf.Model, lambda: clients[0].encode("Hola", convert_to_tensor=True)):
    try:
        call()
    except xling_tf.UserError as error:
        errors.append(str(error))
loaded = "tensorflow" in sys.modules
print(json.dumps([[rows.tolist() for rows in vectors], hits[0]["corpus_id"], errors, loaded]))
"""


@pytest.mark.slow
def test_exports_are_installed_and_used_without_tensorflow(wheel, tmp_path):
    settings = ("encoder.kind=static", "encoder.embedding_dim=12", "encoder.hidden_dim=16")
    model = tiny_model(tiny_config(*settings, "tokenizer.num_oov_buckets=1"))
    model.heads.clear()
    model.export(tmp_path / "model", {})
    for form, options in {"onnx": {}, "litert": {}, "wheel": {"name": "tiny-model"}}.items():
        export(tmp_path / "model", form, tmp_path / form, **options)
    (exported,) = (tmp_path / "wheel").glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    # Isolated (-I) from the checkout, which pip would take for an installed package.
    packages = [f"{wheel.filename}[runtime,litert,mining]", str(exported)]
    install = [python, "-I", "-m", "pip", "install", "-q", *packages]
    subprocess.run(install, cwd=tmp_path, check=True)
    inputs = json.dumps([TEXTS, str(tmp_path / "onnx"), str(tmp_path / "litert")])
    # Outside of the checkout, whose package would be imported in place of the installed one.
    run = subprocess.run(
        [python, "-c", WITHOUT_TENSORFLOW, inputs],
        cwd=tmp_path,
        env={"PATH": ""},
        capture_output=True,
    )
    assert run.returncode == 0, run.stderr
    (*vectors, averages), nearest, errors, has_tensorflow = json.loads(run.stdout)
    expected = model(TEXTS).numpy()
    np.testing.assert_allclose(vectors, [expected] * 2, atol=1e-5)
    # Rotated, and rounded to 8 bits.
    np.testing.assert_allclose(
        np.matmul(averages, np.transpose(averages)), expected @ expected.T, atol=0.02
    )
    assert (nearest, has_tensorflow) == (0, False)
    assert all("pip install 'xling_tf[tensorflow]'" in error for error in errors)
    assert len(errors) == 2
