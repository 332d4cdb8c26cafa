"""What can be imported without TensorFlow; import-linter says what may import what."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULES = ("presets", "corpora.folder", "search.semantic", "search.mining", "evaluators.running")


def test_what_needs_no_tensorflow_loads_without_it():
    modules = ", ".join(f"xling_tf.{name}" for name in MODULES)
    code = f"import {modules}, sys; assert not {{'tensorflow', 'keras'}} & set(sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
