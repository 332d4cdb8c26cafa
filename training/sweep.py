r"""Trains recipes beside each other, one on each core, and tells what each reaches in so many minutes.

    python training/sweep.py --data DIR --minutes 1,3,10 \
        --recipe "one: pair=en-es encoder.num_layers=1" --recipe "three: pair=en-es encoder.num_layers=3"

A recipe is a preset and settings. The result of every run is a line of runs/sweep/results.jsonl; the same
command continues a sweep that was stopped, and runs nothing twice.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import pandas as pd
from absl import app, flags, logging
from tabulate import tabulate

from xling_tf.config import apply_overrides
from xling_tf.errors import UserError, one_line_errors, parse_flags, set_up_logging
from xling_tf.files import locked, provenance, read_json, replacing_folder
from xling_tf.presets import get_preset

_DATA = flags.DEFINE_string("data", None, "Folder of corpora, and of evaluation data in eval/, if any.")
_RECIPE = flags.DEFINE_multi_string("recipe", [], "'name: pair=en-es a.setting=value'. Repeatable.")
_MINUTES = flags.DEFINE_list("minutes", ["3"], "Budgets that each recipe is trained for.")
_SEEDS = flags.DEFINE_list("seeds", ["1"], "Seeds that each is trained with; the table has medians.")
_OUTPUT = flags.DEFINE_string("output", "runs/sweep", "Folder of the runs and of results.jsonl.")
_CORES = flags.DEFINE_list("cores", None, "Cores that train, a run on each at a time; all by default.")
_SUITE = flags.DEFINE_list(
    "suite",
    ["nli/xnli.*.dev", "senteval/CR", "senteval/SUBJ"],
    "What of DIR/eval is evaluated, as evaluation/main.py --suite; training itself adds STS.",
)

_SHARING = Lock()
_PROGRAMS = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Trial:
    """One training of a recipe."""

    recipe: str  # its name
    pair: str  # the preset
    settings: tuple[str, ...]  # of the preset that it changes
    minutes: float
    seed: int

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return re.sub(r"\W+", "-", f"{self.recipe}-{self.minutes:g}-{self.seed}")


def main(argv: list[str]) -> None:
    """Runs the trials that have no result yet, and prints all."""
    del argv
    set_up_logging()
    with one_line_errors("the same command continues"):
        trials = [
            Trial(*recipe, float(minutes), int(seed))
            # The shortest first: they say soonest what is not worth the others.
            for minutes, seed, recipe in product(
                sorted(_MINUTES.value, key=float), _SEEDS.value, map(parse_recipe, _RECIPE.value)
            )
        ]
        if not trials:
            raise UserError("at least one --recipe is expected, as 'three layers: pair=en-es'")
        output, data = Path(_OUTPUT.value), Path(_DATA.value) if _DATA.value is not None else None
        output.mkdir(parents=True, exist_ok=True)
        with locked(output):
            results = _run(trials, data, output)
    print(table(results))


def parse_recipe(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Reads "name: pair=... setting=value": name, preset and settings.

    Raises:
        UserError: There is no such preset or setting.

    Example:
        >>> parse_recipe("one layer: pair=en-es encoder.num_layers=1")
        ('one layer', 'en-es', ('encoder.num_layers=1',))
    """
    name, colon, rest = text.partition(":")
    pair, *settings = rest.split() or [""]
    if not colon or not pair.startswith("pair="):
        raise UserError(f"--recipe expects 'name: pair=en-es a.setting=value', got {text!r}")
    preset = pair.removeprefix("pair=")
    apply_overrides(get_preset(preset), settings)
    return name.strip(), preset, tuple(settings)


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Puts the headlines of evaluations in rows, and recipes and budgets in columns: medians of seeds."""
    rows = pd.DataFrame([{"trained": f"{r['recipe']}\n{r['minutes']:g} min", **r["scores"]} for r in results])
    medians = rows.groupby("trained", sort=False).median().T
    # Of other languages than a recipe's there is nothing to say.
    return tabulate(medians.astype(object).where(medians.notna(), None), headers="keys", floatfmt=".3f")


def _run(trials: list[Trial], data: Path | None, output: Path) -> list[Mapping[str, Any]]:
    kept = output / "results.jsonl"
    done = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    have = {(d["recipe"], tuple(d["settings"]), d["minutes"], d["seed"]) for d in done}
    left = [t for t in trials if (t.recipe, t.settings, t.minutes, t.seed) not in have]
    cores: SimpleQueue[int] = SimpleQueue()
    allowed = sorted(os.sched_getaffinity(0)) if _CORES.value is None else list(map(int, _CORES.value))
    for core in allowed:
        cores.put(core)

    def run(trial: Trial) -> dict[str, Any]:
        core = cores.get()
        try:
            return _train_and_evaluate(trial, data, output, core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(len(allowed)) as pool:
        for future in as_completed([pool.submit(run, trial) for trial in left]):
            result = future.result()
            done.append(result)
            with kept.open("a") as file:
                file.write(json.dumps(result) + "\n")
            logging.info("%s, %g minutes: %s", result["recipe"], result["minutes"], result["scores"])
    return done


def _train_and_evaluate(trial: Trial, data: Path | None, output: Path, core: int) -> dict[str, Any]:
    """Trains and evaluates on one core; the corpora that another run has read are copied."""
    folder = output / trial.folder
    run, model, scores = folder / "run", folder / "model", folder / "evaluation.json"
    shared = output / f"corpora-{'-'.join(get_preset(trial.pair).data.targets)}"
    if shared.exists() and not run.exists():
        shutil.copytree(shared, run / "corpora", copy_function=os.link)
    settings = [f"--set={setting}" for setting in (*trial.settings, f"training.seed={trial.seed}")]
    _call(
        folder / "training.log",
        core,
        *("training/main.py", f"--pair={trial.pair}", f"--minutes={trial.minutes}", *settings),
        *(f"--cache={output / 'cache'}", f"--run_dir={run}", f"--output={model}"),
        *([f"--data={data}"] if data else []),
    )
    with _SHARING:  # runs end at the same time, perhaps
        if not shared.exists():
            with replacing_folder(shared) as temporary:
                shutil.copytree(run / "corpora", temporary, copy_function=os.link, dirs_exist_ok=True)
    results = read_json(run / "results.json")
    picked = {name: next(iter(values.values())) for name, values in results["scores"].items()}
    picked |= {n: v["accuracy"] for n, v in results["scores"].items() if n.startswith("task/")}
    if data and (data / "eval").is_dir():
        _call(
            folder / "evaluation.log",
            core,
            *("evaluation/main.py", f"--model={model}", f"--data={data / 'eval'}"),
            *(f"--suite={','.join(_SUITE.value)}", f"--output={scores}", f"--cache={folder / 'vectors'}"),
        )
        for suite, datasets in read_json(scores)["scores"].items():
            picked |= {f"{suite}/{name}": next(iter(values.values())) for name, values in datasets.items()}
    return {
        **asdict(trial),
        "steps": results["steps"],
        "scores": {name: round(value, 4) for name, value in picked.items()},
        **{key: value for key, value in provenance().items() if key != "command"},
    }


def _call(log: Path, core: int, *arguments: str) -> None:
    """Runs a program of this project on one core."""
    log.parent.mkdir(parents=True, exist_ok=True)
    program, *flags_ = arguments
    with log.open("a") as file:
        done = subprocess.run(
            [sys.executable, str(_PROGRAMS / program), *flags_],
            stdout=file,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )
    if done.returncode:
        raise UserError(f"{program} ended with status {done.returncode}; {log} has why")


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
