"""What can be imported without TensorFlow; import-linter says what may import what."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "modules",
    [
        "xling_tf, xling_tf.config, xling_tf.presets, xling_tf.errors, xling_tf.files",
        "xling_tf.corpora.folder, xling_tf.search.semantic, xling_tf.search.mining",
        "xling_tf.evaluators.running, xling_tf.evaluators.systems",
    ],
)
def test_what_needs_no_tensorflow_loads_without_it(modules):
    code = f"import {modules}, sys; assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
