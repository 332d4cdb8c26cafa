"""What benchmarks share: texts, other libraries in their own processes, and files of figures."""

import itertools
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from absl import flags

from xling_tf.config import TASKS
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import read_every_line
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.files import require_writable_file, write_json
from xling_tf.program import provenance, run

MIB = 2**20
ROUNDS = 3  # in which the compared take turns
MAX_TEXTS = 10_000
_OTHER_TASKS = [task for task in TASKS if task != "translation_ranking"]
# Settings of translation ranking alone; a preset's first stage trains another encoder.
RANKING_ALONE = ("stages.average.share=0", *(f"tasks.{task}.weight=0" for task in _OTHER_TASKS))


def write_figures(output: str, measure: Callable[[], Mapping[str, Any]]) -> None:
    """Prints what a benchmark measures, and writes it to a file, which is checked before."""
    require_writable_file(Path(output), "give another --output")
    figures = with_speed({**provenance(), **measure()})
    write_json(Path(output), figures)
    print(json.dumps(figures, indent=2))


def run_benchmark(measure: Callable[[], Mapping[str, Any]], extra: str) -> None:
    """Runs a program that measures; `--output` names the file of its figures."""

    def main() -> None:
        write_figures(flags.FLAGS.output, measure)

    run(main, "the same command starts again", extra=extra)


def with_speed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the speed of matrix products to the machine's data, so that two files compare."""
    from xling_tf.trainer.resolution import matmul_gflops

    speed = {dtype: round(matmul_gflops(dtype)) for dtype in ("float32", "bfloat16")}
    return {**figures, "machine": {**figures["machine"], "gflops": speed}}


def read_pairs(data: str, languages: tuple[str, str], max_pairs: int) -> list[tuple[str, str]]:
    """Reads the first translations of each corpus in a data folder."""
    source, target = languages
    return [
        (record.source, record.target)
        for corpus in load_folder(Path(data), source=source, targets=[target])
        if corpus.record_type == "parallel"
        for record, _ in itertools.islice(corpus, max_pairs)
        if isinstance(record, TranslationPair)
    ]


def read_texts(path: str) -> list[str]:
    """Reads the first lines of a file of sentences."""
    texts = [
        *itertools.islice((line for _, line in read_every_line(Path(path)) if line), MAX_TEXTS)
    ]
    if not texts:
        raise UserError(f"--texts must have a sentence a line, but {path} has none")
    return texts


def resident_bytes() -> int:
    """The memory of this process."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def seconds_of(function: Callable[[], object]) -> float:
    """Returns how long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def flops_per_token(encoder: Mapping[str, Any]) -> int:
    """The operations of a token's forward pass through the layers' weights; 0 if unknown."""
    if encoder["kind"] in ("transformer", "bert", "modernbert"):
        width = encoder["hidden_dim" if encoder["kind"] == "transformer" else "embedding_dim"]
        # Matrices of the feed-forward layer; a ModernBERT has one more, a gate.
        matrices = 3 if encoder["kind"] == "modernbert" else 2
        return (
            2 * encoder["num_layers"] * width * (4 * width + matrices * encoder["intermediate_dim"])
        )
    # Of a CNN, the convolutions alone: the rest is computed once per distinct piece.
    if encoder["kind"] == "cnn":
        widths = sum(width for width in encoder["filter_widths"] if width > 1)
        return 2 * encoder["num_layers"] * encoder["num_filters"] ** 2 * widths
    return 0


@contextmanager
def peers(
    python: str, inputs: Mapping[str, Any]
) -> Iterator[tuple[list[str], Callable[[str], float]]]:
    """Runs evaluation/benchmarks/peers.py in the environment that `make peers` makes.

    Yields:
        The names of its workloads, and a function that runs one of them and returns sentences per
        second.
    """
    if not Path(python).exists():
        raise UserError(
            f"--python must have the other libraries, but {python} is not there; make peers"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(inputs, file)
        file.flush()
        command = [python, str(Path(__file__).with_name("peers.py")), file.name]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:

            def answer() -> Any:
                assert process.stdout is not None
                if not (line := process.stdout.readline()):
                    raise UserError(
                        "evaluation/benchmarks/peers.py ended with the error above; see make peers"
                    )
                return json.loads(line)

            def rate(name: str) -> float:
                print(name, file=process.stdin, flush=True)
                measured = answer()
                return float(measured["sentences"] / measured["seconds"])

            yield answer(), rate
