"""What the benchmarks share: texts, memory, time, and files of figures."""

import itertools
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import read_every_line
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.files import require_writable_file, write_json
from xling_tf.program import provenance

MIB = 2**20
ROUNDS = 3  # in which the compared take turns
MAX_TEXTS = 10_000


def write_figures(output: str, measure: Callable[[], Mapping[str, Any]]) -> None:
    """Prints what a benchmark measures, and writes it to a file, which is checked before."""
    require_writable_file(Path(output), "give another --output")
    figures = {**provenance(), **measure()}
    write_json(Path(output), figures)
    print(json.dumps(figures, indent=2))


def read_pairs(data: str, languages: tuple[str, str], max_pairs: int) -> list[tuple[str, str]]:
    """Reads the first translations of each corpus in a data folder."""
    source, target = languages
    return [
        (record.source, record.target)
        for corpus in load_folder(Path(data), source=source, targets=[target])
        if corpus.kind == "parallel"
        for record, _ in itertools.islice(corpus, max_pairs)
        if isinstance(record, TranslationPair)
    ]


def read_texts(path: str) -> list[str]:
    """Reads the first lines of a file of sentences."""
    texts = [*itertools.islice((line for _, line in read_every_line(Path(path)) if line), MAX_TEXTS)]
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
