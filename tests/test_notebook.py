"""The notebook of the docs, run top to bottom as its reader runs it."""

import os
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from programs import ROOT

_COMMAND = f"""#!{sys.executable}
from xling_tf.cli import main
main()
"""


@pytest.mark.slow
def test_the_tour_runs(tmp_path, monkeypatch):
    command = tmp_path / "bin" / "xling-tf"  # which an installed package has
    command.parent.mkdir()
    command.write_text(_COMMAND)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(ROOT / "docs" / "tour.ipynb", as_version=4)
    NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = [
        "".join(output.get("text", "") or output.data["text/plain"] for output in cell.outputs)
        for cell in book.cells
        if cell.cell_type == "code"
    ]
    assert "exported/mine" in told[1]
    assert "El perro come en la cocina." in told[3]
    assert told[-1] == "([64, 64], 0)"
