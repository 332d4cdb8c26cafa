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

import numpy as np
import openai
import pytest
from programs import ONE_TASK, ROOT, SHORT
from serving_servers import server_process
from testing import TEXTS, make_model

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
    ignored = shutil.ignore_patterns(".*", "__pycache__", "runs", "exported", "raw", "prepared")
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
    programs = {
        f"xling_tf/programs/{name}"
        for folder in ("data", "evaluation", "export", "training")
        for name in files_below(folder)
        if not name.startswith(("data/prepared", "data/raw", "evaluation/results"))
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
        "tqdm>=4.66",
    }
    assert 'tensorflow==2.21.*; extra == "tensorflow"' in requirements
    # A training ends with scores that search: without FAISS, it would fail after the last step.
    assert 'faiss-cpu>=1.9; extra == "tensorflow"' in requirements
    assert set(_MODULES) <= set(metadata.get_all("Provides-Extra"))


EVERY_COMMAND = """
import os, sys
from xling_tf import cli, program
for name in ("", *cli.COMMANDS):
    for flags in ([name, "--help"], [name]):
        if not (child := os.fork()):
            sys.argv = ["xling-tf", *filter(None, flags)]
            os.dup2(2, 1)
            cli.main()
            os._exit(0)
        print(" ".join(flags), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_without_any_extra_each_command_has_help_and_names_what_it_lacks(tmp_path):
    for name in ("absl", "numpy", "tabulate", "tqdm"):
        folder = Path(import_module(name).__file__).parent
        for path in (folder, *folder.parent.glob(f"{name}.libs")):
            (tmp_path / path.name).symlink_to(path)
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-S", "-c", EVERY_COMMAND]
    run = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    statuses = dict(line.rsplit(" ", 1) for line in run.stdout.splitlines())
    helped = {name: status for name, status in statuses.items() if name.endswith("--help") or not name}
    assert set(helped.values()) == {"0"}, helped
    assert set(statuses.values()) == {"0", "2"}, statuses
    assert run.stderr.count("pip install 'xling_tf[evaluation]'") >= 2


@pytest.mark.slow
def test_a_new_user_installs_the_wheel_trains_serves_and_asks(wheel, tmp_path):
    site = tmp_path / "site"
    # What the package depends on is there already; the checkout is not on the path.
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel.filename)], check=True)
    command, env = str(site / "bin" / "xling-tf"), {**os.environ, "PYTHONPATH": str(site)}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True)

    for name in ("prepare", "benchmark-speed", "check"):  # each of another folder of the wheel
        told = run(name, "--help")
        assert "flags:" in told.stdout, (name, told.stdout, told.stderr)
    assert "multilingual-qa" in run("train", "--list").stdout
    wrong = run("trian")
    assert (wrong.returncode, "did you mean train?" in wrong.stderr) == (2, True)

    trained = run("train", *SHORT, "--steps=2", *map("--set={}".format, ONE_TASK))
    assert trained.returncode == 0, trained.stderr
    flags = f"--model=smoke={tmp_path}/exported/smoke"
    with server_process(flags, program=(command, "serve"), env=env) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
        answer = client.embeddings.create(model="smoke", input=["Hola, mundo.", "Hello, world."])
    vectors = np.array([each.embedding for each in answer.data])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(2), abs=1e-5)


@pytest.mark.slow
def test_the_extra_runtime_encodes_without_tensorflow(wheel, tmp_path):
    model = make_model("words and n-grams")
    model.export(tmp_path / "model", {})
    export(tmp_path / "model", "onnx", tmp_path / "onnx")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    python = tmp_path / "env" / "bin" / "python"
    # Isolated (-I) from the checkout, which pip would take for an installed package.
    install = [python, "-I", "-m", "pip", "install", "-q", f"{wheel.filename}[runtime]"]
    subprocess.run(install, cwd=tmp_path, check=True)
    code = """
import json, sys
import xling_tf
vectors = xling_tf.load(sys.argv[1]).encode(json.loads(sys.argv[2]))
try:
    xling_tf.Model
except xling_tf.UserError as error:
    print(json.dumps([vectors.tolist(), str(error), "tensorflow" in sys.modules]))
"""
    command = [python, "-c", code, tmp_path / "onnx", json.dumps(TEXTS)]
    # Outside of the checkout, whose package would be imported in place of the installed one.
    run = subprocess.run(command, cwd=tmp_path, env={"PATH": os.environ["PATH"]}, capture_output=True)
    assert run.returncode == 0, run.stderr
    vectors, message, has_tensorflow = json.loads(run.stdout)
    np.testing.assert_allclose(vectors, model(TEXTS), atol=1e-5)
    assert "pip install 'xling_tf[tensorflow]'" in message
    assert not has_tensorflow
