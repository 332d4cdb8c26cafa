"""The evaluation program."""

import json
import re

from evaluation_data import write_evaluation_data
from programs import ROOT, run_python

EVALUATE = str(ROOT / "evaluation" / "main.py")
# A module in the current folder: bags of letters.
LETTERS = """
import numpy as np

def encode(texts):
    counts = np.zeros((len(texts), 128), np.float32)
    for row, text in enumerate(texts):
        for letter in text:
            counts[row, ord(letter) % 128] += 1
    return counts
"""


def test_an_evaluation_prints_a_table_and_writes_results(tmp_path):
    folder = tmp_path
    write_evaluation_data(folder / "data")
    (folder / "letters.py").write_text(LETTERS, encoding="utf-8")
    command = (EVALUATE, "--model=python:letters:encode", "--data=data", "--suite=sts,bitext,reqa")
    run = run_python(folder, *command)
    assert run.status == 0, run.errors
    lines = run.output.splitlines()
    assert lines[0].split() == ["suite", "metric", "value"]
    assert re.search(r"^sts/stsb.en.dev +pearson_angular +-?[01]\.\d{4}$", run.output, re.MULTILINE)
    assert lines[-1].split()[:2] == ["python", "evaluation/report.py"]
    path = folder / "runs/evaluation/letters.encode.json"
    results = json.loads(path.read_text(encoding="utf-8"))
    assert results["complete"]
    assert set(results["scores"]) == {"sts", "bitext", "reqa"}
    assert re.match(r"python \S*evaluation/main.py --model=python", results["command"])
