r"""Trains recipes in parallel, one per GPU (or CPU core), and prints the scores by minutes of training.

    python training/sweep.py --data DIR --minutes 1,3,10 \
        --recipe "one: pair=en-es encoder.num_layers=1" --recipe "three: pair=en-es encoder.num_layers=3"

A recipe is a preset and settings. Each run adds a line to runs/sweep/results.jsonl; the same command
continues a sweep that was stopped, and repeats no run.
"""

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from statistics import median
from typing import Any, NamedTuple

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging
from tabulate import tabulate

from xling_tf.errors import UserError
from xling_tf.files import locked, read_json, replacing
from xling_tf.presets import get_preset
from xling_tf.program import provenance, run
from xling_tf.settings import apply_overrides

_DATA = flags.DEFINE_string("data", None, "Folder of corpora, perhaps with evaluation data in eval/.")
_RECIPE = flags.DEFINE_multi_string("recipe", [], "'name: pair=en-es a.setting=value'. Repeatable.")
_MINUTES = flags.DEFINE_list("minutes", ["3"], "Budgets of training, for each recipe.")
_SEEDS = flags.DEFINE_list("seeds", ["1"], "Seeds of training, for each recipe; the table has medians.")
_OUTPUT = flags.DEFINE_string("output", "runs/sweep", "Folder for the runs and results.jsonl.")

_DATASETS = ("nli/xnli.*.dev", "senteval/CR", "senteval/SUBJ")  # of DIR/eval, if there; training adds STS
_PROGRAMS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Trial:
    """One training of a recipe."""

    recipe: str  # the name
    pair: str  # the preset
    settings: tuple[str, ...]  # changes to the preset
    minutes: float
    seed: int

    @property
    def folder(self) -> str:
        """The name of the folder of the run."""
        return re.sub(r"\W+", "-", f"{self.recipe}-{self.minutes:g}-{self.seed}")


class Device(NamedTuple):
    """The hardware that one training runs on."""

    cores: tuple[int, ...]
    gpu: str = ""  # its number


def main() -> None:
    """Runs the trials that have no results yet, and prints all results."""
    # The shortest first: they show early which recipes are not worth a longer run.
    budgets, recipes = sorted(map(float, _MINUTES.value)), list(map(parse_recipe, _RECIPE.value))
    trials = [Trial(*recipe, m, int(seed)) for m, seed, recipe in product(budgets, _SEEDS.value, recipes)]
    if not trials:
        raise UserError("expected at least one --recipe, as 'three layers: pair=en-es'")
    if len({trial.folder for trial in trials}) < len(trials):
        raise UserError(
            "--recipe, --minutes and --seeds must give each training another name, but two are equal; rename "
            "a recipe, or remove a repeated budget or seed"
        )
    output, data = Path(_OUTPUT.value), Path(_DATA.value) if _DATA.value is not None else None
    output.mkdir(parents=True, exist_ok=True)
    with locked(output, "output"):
        results, failures = _run(trials, data, output)
    if results:
        print(table(results))
    if failures:
        raise UserError(f"{len(failures)} of {len(trials)} trainings failed: {failures[0]}")


def parse_recipe(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Splits "name: pair=... setting=value" into name, preset and settings; checks the settings."""
    match = re.fullmatch(r"([^:]+):\s*pair=(\S+)(.*)", text)
    if not match:
        raise UserError(f"--recipe expects 'name: pair=en-es a.setting=value', got {text!r}")
    settings = match[3].split()
    apply_overrides(get_preset(match[2]), settings)
    return match[1].strip(), match[2], tuple(settings)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Formats the medians over seeds: a row for each score, a column for each recipe and budget."""
    columns, scores = dict[str, None](), defaultdict[str, Any](lambda: defaultdict(list))
    for result in results:
        columns[column := f"{result['recipe']}\n{result['minutes']:g} min"] = None
        for name, score in result["scores"].items():
            scores[name][column].append(score)
    # Recipes in other languages lack some scores.
    rows = [[name, *(median(by[c]) if c in by else None for c in columns)] for name, by in scores.items()]
    return tabulate(rows, headers=["", *columns], floatfmt=".3f")


def _run(trials: list[Trial], data: Path | None, output: Path) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Returns all results, and the messages of the trainings that failed."""
    results_path = output / "results.jsonl"
    results, failures = read_results(results_path), list[str]()
    done = {(r["recipe"], tuple(r["settings"]), r["minutes"], r["seed"]) for r in results}
    remaining = [t for t in trials if (t.recipe, t.settings, t.minutes, t.seed) not in done]
    devices: SimpleQueue[Device] = SimpleQueue()
    for device in _devices():
        devices.put(device)

    def run(trial: Trial) -> dict[str, Any]:
        device = devices.get()
        try:
            return _train_and_evaluate(trial, data, output, device)
        finally:
            devices.put(device)

    pool = ThreadPoolExecutor(devices.qsize())
    try:
        for future in as_completed([pool.submit(run, trial) for trial in remaining]):
            try:
                result = future.result()
            except UserError as error:  # the other trainings go on
                logging.error("%s", error)
                failures.append(str(error))
                continue
            results.append(result)
            with results_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
            logging.info("%s, %g minutes: %s", result["recipe"], result["minutes"], result["scores"])
    finally:
        pool.shutdown(cancel_futures=True)  # after Ctrl-C, no further training starts
    return results, failures


def read_results(path: Path) -> list[Mapping[str, Any]]:
    """Reads the results of earlier calls; removes the last line if a full disk has cut it."""
    lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
    if lines and not lines[-1].endswith("\n"):
        lines.pop()
        with replacing(path) as temporary:
            temporary.write_text("".join(lines), encoding="utf-8")
    return [json.loads(line) for line in lines]


def _devices() -> list[Device]:
    """The GPUs of this machine, each with a share of the cores; without any, the cores."""
    cores, gpus = sorted(os.sched_getaffinity(0)), list[str]()
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        gpus = [gpu for gpu in visible.split(",") if gpu]
    elif shutil.which("nvidia-smi"):
        listing = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True).stdout
        # Its other lines are MIG devices, or say why there are no GPUs.
        lines = [line for line in listing.splitlines() if line.startswith("GPU ")]
        gpus = [str(number) for number, _ in enumerate(lines)]
    if not gpus:
        return [Device((core,)) for core in cores]
    return [Device(tuple(cores[n :: len(gpus)] or cores), gpu) for n, gpu in enumerate(gpus)]


def _train_and_evaluate(trial: Trial, data: Path | None, output: Path, device: Device) -> dict[str, Any]:
    """Trains and evaluates a recipe on one device; returns the line of the results."""
    folder = output / trial.folder
    run, model, scores = folder / "run", folder / "model", folder / "evaluation.json"
    settings = [f"--set={setting}" for setting in (*trial.settings, f"training.seed={trial.seed}")]
    _call(
        folder / "training.log",
        device,
        *("training/main.py", f"--pair={trial.pair}", f"--minutes={trial.minutes}", *settings),
        *(f"--cache={output / 'cache'}", f"--run_dir={run}", f"--output={model}"),
        *([f"--data={data}"] if data else []),
    )
    results = read_json(run / "results.json")
    scores_by_name = {name: next(iter(values.values())) for name, values in results["scores"].items()}
    scores_by_name |= {n: v["accuracy"] for n, v in results["scores"].items() if n.startswith("task/")}
    if data and (datasets := _datasets(data / "eval")):
        _call(
            folder / "evaluation.log",
            device,
            *("evaluation/main.py", f"--model={model}", f"--data={data / 'eval'}"),
            *(f"--suite={','.join(datasets)}", f"--output={scores}", f"--cache={folder / 'vectors'}"),
        )
        for suite, datasets in read_json(scores)["scores"].items():
            for name, values in datasets.items():
                scores_by_name[f"{suite}/{name}"] = next(iter(values.values()))
    return {
        **asdict(trial),
        "steps": results["steps"],
        "scores": {name: round(value, 4) for name, value in scores_by_name.items()},
        **{key: value for key, value in provenance().items() if key != "command"},
    }


def _datasets(folder: Path) -> list[str]:
    """Returns the patterns of `_DATASETS` that match files of a folder."""
    from xling_tf.evaluators.running import SUITES

    suites = {pattern.partition("/")[0] for pattern in _DATASETS}
    names = [f"{suite}/{dataset.name}" for suite in suites for dataset in SUITES[suite].find(folder, 0)]
    return [pattern for pattern in _DATASETS if fnmatch.filter(names, pattern)]


def _call(log: Path, device: Device, *arguments: str) -> None:
    """Runs a program of this project on one device."""
    log.parent.mkdir(parents=True, exist_ok=True)
    program, *flags_ = arguments
    with log.open("a") as file:
        process = subprocess.run(
            [sys.executable, str(_PROGRAMS / program), *flags_],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": device.gpu} if device.gpu else None,
            preexec_fn=lambda: os.sched_setaffinity(0, device.cores),
        )
    if process.returncode:
        raise UserError(f"{program} failed with status {process.returncode}; see {log}")


if __name__ == "__main__":
    run(main, "the same command continues", extra="tensorflow")
