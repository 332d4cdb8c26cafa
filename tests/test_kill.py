"""Kills at random places: the same command again ends as if nothing had happened, byte for byte.

`XLING_TF_KILLS` is the number of kills of each program, 3 by default; `XLING_TF_SEED` chooses their
places.
"""

import gzip
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from programs import ONE_TASK, ROOT, read_lines
from raw_files import comment_line, read_files
from serving_models import hashed, save, save_hashed
from test_mining import SMALL, random_sides, write_sides
from testing import SENTENCES, tiny_config, tiny_model

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("XLING_TF_KILLS", "3"))
SEED = os.environ.get("XLING_TF_SEED", "1")
# A process that imports a program's libraries once, and is forked for each run: a kill then hits
# the work, not the imports. Every line of its input begins a run, whose status it prints.
FORKS = """
import os, signal, sys, time
begin, main = sys.argv[1:]
exec(begin)
print("ready", flush=True)
for line in sys.stdin:
    output, kill_after = line.split()
    if process := os.fork():
        if kill_after != "never":
            time.sleep(float(kill_after))
            # It may have ended: it keeps its number until it is waited for.
            os.kill(process, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
        continue
    status = 1
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        exec(main, {"output": output})
        status = 0
    finally:
        os._exit(status)
"""


class Forks:
    """Runs of a program that can be killed."""

    def __init__(self, folder: Path, imports: str, main: str) -> None:
        paths = [str(ROOT / name) for name in ("", "export", "data")]
        begin = f"import sys; sys.path[:0] = {paths}\n{imports}"
        command = [sys.executable, "-c", FORKS, begin, main]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.folder, self.errors = folder, folder / "errors.txt"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(command, cwd=folder, stderr=errors, text=True, **pipes)
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n", self.errors.read_text()

    def run(self, output: str, kill_after: float | None = None) -> tuple[int, float]:
        """Runs the program, perhaps until it is killed; returns its status and seconds."""
        assert self.process.stdin
        assert self.process.stdout
        begin = time.monotonic()
        kill = "never" if kill_after is None else kill_after
        print(output, kill, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline()), time.monotonic() - begin

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def forks(tmp_path):
    opened: list[Forks] = []

    def begin(imports: str, main: str) -> Forks:
        opened.append(Forks(tmp_path, imports, main))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def content(folder: Path, name: str) -> dict[str, bytes]:
    """The files of an output and of what is kept beside it.

    Locks stay, and so may temporary files of killed runs, which are removed after some hours.
    """
    found = {
        path[len(name) :]: data
        for path, data in read_files(folder).items()
        if path.startswith(name)
    }
    return {
        path: data
        for path, data in found.items()
        if not path.endswith(("lock", ".tmp")) and ".tmp/" not in path
    }


def rounds(run: Forks, program: str) -> Iterator[tuple[str, str]]:
    """Kills runs at random times, and lets the same command run to its end after each one or two
    kills.

    Yields the name of each output and a description for failures, until `KILLS` runs were killed. A
    run that ends before its kill does not count, and the next ones are killed sooner: the first
    run, which gives the time, may be slower than all others.
    """
    rng = random.Random(f"{SEED} {program}")
    status, seconds = run.run("whole")
    assert status == 0, run.errors.read_text()
    killed = 0
    for number in range(10 * KILLS):
        times = [rng.uniform(0, seconds) for _ in range(rng.choice([1, 1, 2]))]
        name = f"killed{number}."
        for after in times:
            status, took = run.run(name, after)
            assert status in (0, -signal.SIGKILL), run.errors.read_text()
            killed += status != 0
            if status == 0:
                seconds = min(seconds, took)
        status, _ = run.run(name)
        assert status == 0, (times, run.errors.read_text())
        yield name, f"{seconds:.3f} seconds, killed after {times}"
        if killed >= KILLS:
            return
    raise AssertionError(f"only {killed} of {10 * KILLS} runs were killed before they ended")


def require_same_end(
    run: Forks, program: str, content: Callable[[Path, str], Mapping[str, object]] = content
) -> None:
    """Runs to the end, then with kills, and compares."""
    for name, description in rounds(run, program):
        assert content(run.folder, name) == content(run.folder, "whole"), description


def test_a_killed_encoding_ends_as_if_nothing_had_happened(forks, tmp_path):
    model = save_hashed(tmp_path / "model")
    for number in range(3):
        lines = "".join(f"text {row % 700} of {number}\n" for row in range(4000))
        (tmp_path / f"in{number}.txt").write_text(lines)
    imports = "from pathlib import Path; from xling_tf.bulk.vector_files import encode_files"
    options = f"{str(model)!r}, [{str(tmp_path / 'in*.txt')!r}], Path(output), rows_per_shard=150"
    main = f"{imports}\nencode_files({options}, precision='int8')"
    require_same_end(forks(imports, main), "encode")


def test_a_killed_alignment_of_folders_ends_as_if_nothing_had_happened(forks, tmp_path):
    rng = random.Random(1)
    for number in range(20):
        texts = [f"Satz {rng.randrange(10**6)} von {number}." for _ in range(30)]
        for language, side in (("de", texts), ("fr", [*texts[:20], *texts[22:]])):
            (tmp_path / language).mkdir(exist_ok=True)
            (tmp_path / language / f"text{number}.txt").write_text("\n".join(side))
    imports = """import hashlib; import numpy as np; from pathlib import Path
import xling_tf.bulk.aligned_files
def model(texts):
    digests = [hashlib.blake2b(text.encode(), digest_size=32).digest() for text in texts]
    return np.array([[*digest] for digest in digests], np.float32) - 127"""
    main = f"""{imports}
xling_tf.bulk.aligned_files.align_files(lambda: model, Path("de"), Path("fr"),
    Path(output, "pairs", "*.tsv"), review=Path(output, "pages", "*.html"))"""

    def pairs(folder: Path, name: str) -> dict[str, list[bytes]]:
        """The pages' names, and the pairs without numbers, whose last digit may differ."""
        found = content(folder, name)
        pages = {path: [] for path in found if path.endswith(".html")}
        tables = {path: data.splitlines() for path, data in found.items() if path.endswith(".tsv")}
        return pages | {
            path: [row.rsplit(b"\t", 2)[0] for row in rows] for path, rows in tables.items()
        }

    run = forks(imports, main)
    require_same_end(run, "align", pairs)
    assert len(pairs(run.folder, "whole")) == 40


def test_a_killed_mining_ends_as_if_nothing_had_happened(forks, tmp_path):
    sides = write_sides(tmp_path, random_sides(1500), rows=100)
    imports = (
        "import numpy, faiss; from pathlib import Path; from xling_tf.bulk.mining import "
        "mine_translations"
    )
    source, target = map(str, sides)
    arguments = f"Path({source!r}), Path({target!r}), Path(output), memory={SMALL}, threshold=1.0"
    require_same_end(forks(imports, f"{imports}\nmine_translations({arguments})"), "mine")


def test_a_killed_preparation_ends_as_if_nothing_had_happened(forks, tmp_path):
    lines = [
        comment_line(id=f"c{n}", parent_id=f"t1_c{n - 1}", body=f"Number {n} here.")
        for n in range(3000)
    ]
    (tmp_path / "RC_2016-01").write_bytes(b"\n".join(lines))
    imports = (
        "import prepare_raw; from pipelines import reddit; from pipelines.common import prepare"
    )
    main = f"""{imports}
prepare('conversations/reddit.en.tsv.gz', reddit.Conversations([{str(tmp_path / "RC_2016-01")!r}]),
        output=output, options=prepare_raw.beam_options([]), num_shards=4)"""

    def corpus(folder: Path, name: str) -> dict[str, bytes]:
        """The shards' names, and all lines: Beam gives each to any of the shards."""
        found = content(folder, name)
        lines = sorted(
            line for data in found.values() for line in gzip.decompress(data).splitlines()
        )
        return dict.fromkeys(found, b"") | {"lines": b"\n".join(lines)}

    require_same_end(forks(imports, main), "prepare", corpus)


def program(path: str, *arguments: str) -> str:
    """Code that runs a program of the checkout; `output` in the arguments is the run's output."""
    command = [str(ROOT / path), *arguments]
    return f"""import runpy, sys
sys.argv = [word.replace("OUTPUT", output) for word in {command}]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as end:
    if end.code:
        raise"""


# An average of words on the sample, with a checkpoint after every few steps.
TRAINING = (
    *("tokenizer.ngram_sizes=", "encoder.kind=static", "training.checkpoint_minutes=0.0005"),
    *("tasks.translation_ranking.examples_per_batch=16", *ONE_TASK),
)


def test_a_killed_training_ends_as_if_nothing_had_happened(forks):
    settings = [f"--set={setting}" for setting in TRAINING]
    flags = ["--preset=smoke", "--steps=40", "--run_dir=OUTPUT/run", "--output=OUTPUT/model"]
    run = forks(
        "import xling_tf.trainer.experiment", program("training/main.py", *flags, *settings)
    )

    def result(name: str) -> tuple[set[str], list[dict], str]:
        """The files, without those of checkpoints and logs; the steps; and the card."""
        files = {
            path for path in content(run.folder, name) if not re.search("/step-|/events", path)
        }
        steps = read_lines(run.folder / name / "run" / "metrics.jsonl")
        card = (run.folder / name / "model" / "README.md").read_text("utf-8")
        return files, steps, re.sub(r"in \d.* minutes", "", card)

    for name, description in rounds(run, "train"):
        (files, steps, card), (again, steps_again, card_again) = map(result, ("whole", name))
        assert (again, card_again) == (files, card), description
        for step, expected in zip(steps_again, steps, strict=True):
            assert step | {"seconds": 0} == pytest.approx(expected | {"seconds": 0}), description
        vectors, expected = (
            tf.saved_model.load(str(run.folder / each / "model"))(SENTENCES).numpy()
            for each in (name, "whole")
        )
        np.testing.assert_allclose(vectors, expected, atol=1e-5, err_msg=description)


@pytest.mark.parametrize("form", ["savedmodel", "keras", "onnx", "model2vec", "wheel"])
def test_a_killed_export_ends_as_if_nothing_had_happened(form, forks, tmp_path, monkeypatch):
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    settings = ("encoder.kind=static", "tokenizer.num_oov_buckets=1", "tokenizer.ngram_sizes=")
    tiny_model(tiny_config(*settings), ["<empty>", "hola", "the", "que"]).export(tmp_path / "tiny")
    flags = [f"--model={tmp_path / 'tiny'}", f"--to={form}", "--output=OUTPUT/model"]
    imports = "import tf2onnx, tokenizers; from xling_tf.exporters import base, wheel"
    run = forks(imports, program("export/main.py", *flags))

    def content_without_ids(folder: Path, name: str) -> dict[str, bytes]:
        """TensorFlow numbers functions as they come, and gives each SavedModel an id."""
        changing = ("/saved_model.pb", "/fingerprint.pb")
        return {
            path: b"" if path.endswith(changing) else data
            for path, data in content(folder, name).items()
        }

    require_same_end(run, f"export {form}", content_without_ids)


def test_a_killed_publication_shows_whole_versions_only(forks, tmp_path):
    model = tmp_path / "model"
    spec = {"inputs": tf.TensorSpec([None], tf.string)}
    save(
        tf.Module(), {"serving_default": (lambda inputs: {"outputs": hashed(inputs)}, spec)}, model
    )
    imports = "import tensorflow; from pathlib import Path; from serving_folder import publish"
    run = forks(imports, f"{imports}\npublish(Path({str(model)!r}), Path(output), 'm')")
    for name, description in rounds(run, "publish"):
        whole = content(tmp_path, "whole/m/1")
        assert "/saved_model.pb" in whole
        base = tmp_path / name / "m"
        versions = [path.name for path in base.iterdir() if not path.name.startswith(".")]
        assert sorted(versions) == [str(version + 1) for version in range(len(versions))]
        for version in versions:
            assert content(base, version) == whole, description
