"""The suites, and a run that evaluates a system on data set after data set, each result kept at once."""

import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.corpora.line_files import read_lines
from xling_tf.errors import UserError, progress
from xling_tf.evaluators import (
    bitext_mining,
    cross_lingual,
    documents,
    eigen_similarity,
    inference,
    reqa,
    retrieval,
    semantic_retrieval,
    sts,
    transfer,
)
from xling_tf.evaluators.data import Selected, Selection, Suite
from xling_tf.evaluators.encoding import NotApplicableError, System
from xling_tf.files import provenance, read_json, replacing

# A table of the papers each.
SUITES: Mapping[str, Suite] = {
    suite.name: suite
    for suite in (
        sts.SUITE,
        transfer.SUITE,
        *retrieval.SUITES,
        bitext_mining.SUITE,
        inference.SUITE,
        cross_lingual.CLASSIFICATION,
        semantic_retrieval.SUITE,
        reqa.SUITE,
        documents.SUITE,
        cross_lingual.ARGUMENT,
        eigen_similarity.SUITE,
    )
}

Results = dict[str, Any]
_BY_SUITE = ("scores", "illustrations", "datasets")
_UNUSABLE = "cannot be used: "
# A smaller share of a data set may be in training by chance: short texts recur, and hashes collide.
SEEN = 0.02


def evaluate_system(
    system: System, selection: Selection, output: Path, *, folder: Path, seed: int
) -> Results:
    """Evaluates a system, writing the results file anew after every data set.

    A run that was killed is continued: what its file has is not computed again. Results of other data
    sets stay in the file; results of another model are put aside.

    The file has "system", "seed", "complete", "seconds" (of wall time in all), "scores" and
    "illustrations" by suite and data set, "datasets" (protocol, files with their checksums and lines,
    seconds, and "trained_on", see `_seen`, if that is known), "skipped" (why), and what `provenance` tells.
    """
    results, is_continued = _begin(system, output, seed)
    for name, files in selection.missing.items():
        logging.info("%s skipped: it is expected as %s", name, files)
        results["skipped"][name] = f"expected: {files}"
    for place, item in enumerate(selection.selected, start=1):
        before = results["datasets"].get(item.suite.name, {}).get(item.dataset.name)
        # Files that changed are evaluated again.
        if is_continued and before and before["files"] == _files(item, folder):
            logging.info("%s has its result already", item.name)
            continue
        with progress(f"{place} of {len(selection.selected)}: {item.name}"):
            _evaluate(results, item, system, folder)
            _write(results, output)
    faults = [f"{n}: {why}" for n, why in results["skipped"].items() if why.startswith(_UNUSABLE)]
    if faults:
        raise UserError(
            f"{len(faults)} of {len(selection.selected)} data sets are faulty, first {faults[0]} (the "
            f"results of all others are in {output})"
        )
    results["complete"] = True
    _write(results, output)
    return results


def headlines(results: Results, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Picks the first score of each of these data sets, which sums it up.

    With it come the shares of the set's pairs and texts that the model was trained on, from `SEEN` upwards.
    """
    picked = {}
    for name in names:
        suite, _, dataset = name.partition("/")
        for metric, value in list(results["scores"].get(suite, {}).get(dataset, {}).items())[:1]:
            seen = results["datasets"].get(suite, {}).get(dataset, {}).get("trained_on", {})
            shares = {f"{what}_trained_on": share for what, share in seen.items() if share >= SEEN}
            picked[name] = {metric: value, **shares}
    return picked


def _begin(system: System, output: Path, seed: int) -> tuple[Results, bool]:
    """The results to add to, and whether they are those of a run that was killed."""
    results: Results = {
        "system": {
            "name": system.name,
            "checksum": system.checksum,
            "description": dict(system.description),
        },
        **provenance(),
        "seed": seed,
        "complete": False,
        "seconds": 0.0,
        **{part: {} for part in (*_BY_SUITE, "skipped")},
    }
    before = _read(output)
    if before is None:
        return results, False
    checksum = before["system"]["checksum"]
    if checksum != system.checksum or checksum is None or before["seed"] != seed:
        aside = output.with_name(f"{output.stem}.{(checksum or 'unknown')[:8]}.{before['seed']}.json")
        os.replace(output, aside)
        logging.info("%s had results of another model or seed, now in %s", output, aside)
        return results, False
    return results | {part: before[part] for part in ("seconds", *_BY_SUITE)}, not before["complete"]


def _read(output: Path) -> Results | None:
    """Reads the results of an earlier run, which may hold anything."""
    if not output.exists():
        return None
    try:
        before: Results = read_json(output)
        checksum = before["system"]["checksum"]
        if not (checksum is None or re.fullmatch(r"[\w.=]+", checksum)):  # part of a file's name
            raise ValueError("the checksum of its system is something else")
        before["seed"], before["complete"] = int(before["seed"]), bool(before["complete"])
        before["seconds"] = float(before["seconds"])
        for part in _BY_SUITE:
            before[part] = {suite: dict(datasets) for suite, datasets in before[part].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UserError(
            f"--output must be a new file or one of evaluation results, but {output} is not "
            f"({error!r}); give another or remove it"
        ) from error
    return before


def _evaluate(results: Results, item: Selected, system: System, folder: Path) -> None:
    """Adds the outcome of one data set to the results."""
    suite, name = item.suite.name, item.dataset.name
    start = time.monotonic()
    texts = set[str]()
    try:
        evaluator = item.dataset.load()
    except UserError as error:
        # A fault of this data set alone: the others are evaluated before it is reported.
        logging.error("%s: %s", item.name, error)
        results["skipped"][item.name] = f"{_UNUSABLE}{error}"
        return
    try:
        outcome = dict(evaluator(_collecting(system, texts)))
    except NotApplicableError as error:
        logging.info("%s skipped: %s", item.name, error)
        results["skipped"][item.name] = str(error)
        return
    if not item.suite.illustrates:
        shown = [f"{key} {value:.4f}" for key, value in outcome.items() if "num_" not in key]
        logging.info("%s: %s", item.name, ", ".join(shown[:3]))
    seconds = time.monotonic() - start
    part = "illustrations" if item.suite.illustrates else "scores"
    results[part].setdefault(suite, {})[name] = outcome
    results["datasets"].setdefault(suite, {})[name] = {
        "protocol": dict(evaluator.protocol),
        "files": _files(item, folder),
        "seconds": round(seconds, 2),
        **_seen(system, texts, getattr(evaluator, "pairs", ())),
    }
    results["seconds"] = round(results["seconds"] + seconds, 2)


def _collecting(system: System, texts: set[str]) -> System:
    """Makes a system add what it encodes, except contexts, to `texts`."""

    def collecting(encode: Callable[..., Any], *columns: list[str]) -> Any:
        texts.update(*columns[: 1 if encode is system.responses else None])
        return encode(*columns)

    roles: dict[str, Any] = {
        role: partial(collecting, encode)
        for role in ("sentences", "questions", "responses", "inference")
        if (encode := getattr(system, role))
    }
    return dataclasses.replace(system, **roles)


def _seen(system: System, texts: set[str], pairs: Sequence[tuple[str, ...]]) -> dict[str, dict[str, float]]:
    """The shares of a data set's pairs, if it has any, and of its texts that a system was trained on."""
    if system.trained_on is None or not texts:
        return {}
    shares = {"pairs": system.trained_on.share_of_pairs(pairs)} if pairs else {}
    shares["texts"] = system.trained_on.share_of_texts(texts)
    return {"trained_on": {what: round(share, 4) for what, share in shares.items()}}


def _files(item: Selected, folder: Path) -> dict[str, dict[str, Any]]:
    """The checksum and the number of lines of each file, by its name in the folder."""
    files = {}
    for path in item.dataset.files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16))
        lines = sum(1 for _ in read_lines(path))
        files[str(path.relative_to(folder))] = {"checksum": digest.hexdigest(), "lines": lines}
    return files


def _write(results: Results, output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    with replacing(output) as temporary:
        text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
