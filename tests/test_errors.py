"""Lines of the parts of a program, as a container's log has them."""

import subprocess
import sys
import time

import pytest
from programs import ROOT

from xling_tf import errors

# A program beside the package, as those of a checkout are, in a part that takes a while.
PROGRAM = """
import sys
from absl import app, logging
from xling_tf import errors

def main(argv):
    errors.set_up_logging()
    errors._SECONDS_BETWEEN_LINES = 0.05
    with errors.progress("reading") as report:
        report("half of it")
        print("ready", flush=True)
        sys.stdin.read()
    exec(compile("logging.info('of a program')", argv[1] + "/data/default.py", "exec"))
    exec(compile("logging.info('of a package')", argv[1] + "/.venv/other.py", "exec"))

app.run(main)
"""


def test_a_part_has_lines_at_its_begin_and_end_and_while_it_lasts():
    command = [sys.executable, "-c", PROGRAM, str(ROOT)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, cwd=ROOT, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        # The lines come while it lasts, not when it ends.
        begin, first, second = (process.stderr.readline() for _ in range(3))
        assert begin.endswith("INFO reading\n")
        assert all("INFO reading: half of it, after" in line for line in (first, second))
        _, rest = process.communicate(input="")
    assert process.returncode == 0
    ends = [line.partition("INFO ")[2] for line in rest.splitlines() if "half of it" not in line]
    assert ends == ["reading: done in 0 seconds", "of a program"]


def test_a_part_that_fails_is_not_done_and_ends_its_lines(caplog, monkeypatch):
    monkeypatch.setattr(errors, "_SECONDS_BETWEEN_LINES", 0.01)
    caplog.set_level("INFO", logger="absl")
    with pytest.raises(ValueError, match="damaged"), errors.progress("reading"):
        raise ValueError("damaged")
    num_lines = len(caplog.messages)
    time.sleep(0.05)
    assert len(caplog.messages) == num_lines
    assert not any("done" in line for line in caplog.messages)


def test_without_standard_error_nothing_fails(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    with errors.progress("reading"):
        pass
