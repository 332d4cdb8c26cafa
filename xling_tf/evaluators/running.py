"""The suites, and a run that evaluates an embedder on data sets and saves each result at once."""

import dataclasses
import hashlib
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.config import Registry
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.errors import UserError, as_user_error
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.classifiers import NETWORK
from xling_tf.evaluators.data import Dataset, select
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Embedder, Encode, NotApplicableError, as_embedder
from xling_tf.files import locked, read_json, require_writable_file, write_json
from xling_tf.program import progress, provenance

_ROWS = {
    "sts": "sts:SUITE",
    "senteval": "transfer:SUITE",
    "retrieval": "retrieval:RETRIEVAL",
    "bitext": "retrieval:BITEXT",
    "similarity_search": "retrieval:SIMILARITY_SEARCH",
    "mixed_pool": "retrieval:MIXED_POOL",
    "nli": "inference:SUITE",
    "classification": "classification:SUITE",
    "semantic_retrieval": "semantic_retrieval:SUITE",
    "reqa": "reqa:SUITE",
    "nothing_to_find": "nothing_to_find:SUITE",
    "documents": "documents:SUITE",
    "eigen_similarity": "eigen_similarity:SUITE",
}
_ARGUMENT = "xling_tf.baselines.rueckle2018.argument:SUITE"
SUITES = Registry(
    "suite",
    "suite",
    {name: f"xling_tf.evaluators.{row}" for name, row in _ROWS.items()} | {"argument": _ARGUMENT},
)

Results = dict[str, Any]
_BY_SUITE = ("scores", "datasets")
_UNUSABLE = "cannot be used: "
# Smaller shares may be in the training data by chance: short texts recur, and hashes collide.
SEEN = 0.02


def evaluate(
    model: str | PathLike[str] | Encode,
    data: str | PathLike[str],
    *,
    suite: Sequence[str] = (),
    output: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = "runs/embeddings",
    hidden: int = NETWORK["hidden"],
    seed: int = 0,
) -> Results:
    """Evaluates a model by the papers' protocols. The same call continues one that was stopped.

    Args:
        model: An exported model, in any form that `xling_tf.load` opens; a server, such as
            "rest:http://127.0.0.1:8501/v1/models/en-es", "python:module:function", or a function
            from texts to `[texts, dim]` vectors.
        data: Folder of evaluation data or corpora; "sample" is the built-in one.
        suite: Names of suites ("sts") and data sets ("sts/stsb.en.dev", "bitext/*"); default: all
            of the folder.
        output: Results file; default `results_file` of the model's name.
        cache: Folder that keeps the vectors; None keeps them in memory.
        hidden: Hidden units of the network of the suite "senteval".
        seed: Random seed.

    Returns:
        The content of the results file for these data sets, see `evaluate_embedder`.

    Raises:
        UserError: The model or the data cannot be used, or a data set is faulty.

    Examples:
        >>> evaluate("exported/en-es", "sample")["scores"]["bitext"]  # doctest: +SKIP
    """
    folder = SAMPLE_FOLDER if data == "sample" else Path(data)
    senteval: Any = SUITES["senteval"]
    suites = {
        **SUITES,
        "senteval": dataclasses.replace(senteval, find=partial(senteval.find, hidden=hidden)),
    }
    names = [suite] if isinstance(suite, str) else suite
    datasets, missing = select(suites, folder, names, seed)
    with progress(f"loading {model}"):
        embedder = as_embedder(model) if callable(model) else open_embedder(fspath(model))
    path = results_file(embedder.name) if output is None else Path(output)
    embedder = cached(embedder, None if cache is None else Path(cache), show_progress=True)
    results = evaluate_embedder(embedder, datasets, path, missing=missing, folder=folder, seed=seed)
    asked = {name.partition("/")[0] for name in datasets}
    for part in _BY_SUITE:
        results[part] = {
            name: {stem: row for stem, row in rows.items() if f"{name}/{stem}" in datasets}
            for name, rows in results[part].items()
            if name in asked
        }
    return results


def results_file(name: str) -> Path:
    """Returns the default file of a model's results."""
    return Path(f"runs/evaluation/{name}.json")


def evaluate_embedder(
    embedder: Embedder,
    datasets: Mapping[str, Dataset],
    output: Path,
    *,
    missing: Mapping[str, str],
    folder: Path,
    seed: int,
) -> Results:
    """Evaluates an embedder, and writes the results file after every data set.

    A run that was killed continues: results in its file are not computed again, unless the files or
    the protocol of the data set differ. Results of other data sets stay in the file; a file of
    another model is renamed. Raises a `UserError` at the end if a data set is faulty, and at once
    if another process writes the file. Data sets, the missing suites (with their layouts) and the
    seed are those of `data.select`; file names in the results are relative to the data folder.

    Returns:
        The content of the file: "system", "seed", "complete", "seconds" (wall time), "scores" by
        suite and data set, "datasets" (protocol, files with their checksums, seconds and, if known,
        "trained_on": see `_seen`), "skipped" (with reasons), and `provenance`.
    """
    require_writable_file(output, "give another `output`")
    with locked(output.parent, "output", output.name):
        results, continues = _begin(embedder, output, seed)
        for name, layout in missing.items():
            logging.info("%s skipped: it needs %s", name, layout)
            results["skipped"][name] = f"expected: {layout}"
        for number, (name, dataset) in enumerate(datasets.items(), start=1):
            with progress(f"{number} of {len(datasets)}: {name}"):
                _evaluate(results, name, dataset, embedder, folder, continues=continues)
                write_json(output, results)
        faults = [f"{n}: {w}" for n, w in results["skipped"].items() if w.startswith(_UNUSABLE)]
        results["complete"] = not faults
        write_json(output, results)
    if faults:
        counts = f"{len(faults)} of {len(datasets)}"
        raise UserError(
            f"{counts} data sets are faulty, first {faults[0]}; {output} has all other results"
        )
    return results


def headlines(results: Results, names: Iterable[str]) -> dict[str, dict[str, float]]:
    """Picks the first score of each named data set.

    The shares of the data set's pairs and texts that the model was trained on are added if they
    reach `SEEN`.
    """
    picked = {}
    for name in names:
        suite, _, stem = name.partition("/")
        for metric, value in list(results["scores"].get(suite, {}).get(stem, {}).items())[:1]:
            seen = results["datasets"].get(suite, {}).get(stem, {}).get("trained_on", {})
            shares = {f"{what}_trained_on": share for what, share in seen.items() if share >= SEEN}
            picked[name] = {metric: value, **shares}
    return picked


def _begin(embedder: Embedder, output: Path, seed: int) -> tuple[Results, bool]:
    """The results to add to, and True if they are from a run that was killed."""
    system = {
        "name": embedder.name,
        "checksum": embedder.checksum,
        "description": embedder.description,
    }
    results: Results = {"system": system, **provenance()}
    results |= {
        "seed": seed,
        "complete": False,
        "seconds": 0.0,
        "scores": {},
        "datasets": {},
        "skipped": {},
    }
    if not output.exists():
        return results, False
    before = _read(output)
    checksum = before["system"]["checksum"]
    if checksum and (checksum, before["seed"]) == (embedder.checksum, seed):
        return results | {p: before[p] for p in ("seconds", *_BY_SUITE)}, not before["complete"]
    # Without a checksum, nothing tells if an earlier file is of the same model.
    names = (output.with_name(f"{output.stem}.{number}.json") for number in itertools.count(1))
    renamed = next(name for name in names if not name.exists())
    os.replace(output, renamed)
    logging.info("%s had results of another model or seed, now in %s", output, renamed)
    return results, False


def _read(output: Path) -> Results:
    """Reads and checks the results of an earlier run."""
    message = f"{output} is not a file of evaluation results ({{error}})"
    with as_user_error(message, OSError, ValueError, LookupError, TypeError, AttributeError):
        before: Results = read_json(output)
        before["system"] = {"checksum": before["system"]["checksum"]}
        before |= {"seed": int(before["seed"]), "seconds": float(before["seconds"])}
        before["complete"] = bool(before["complete"])
        for part in _BY_SUITE:
            before[part] = {suite: dict(datasets) for suite, datasets in before[part].items()}
    return before


def _evaluate(
    results: Results,
    name: str,
    dataset: Dataset,
    embedder: Embedder,
    folder: Path,
    *,
    continues: bool,
) -> None:
    """Adds the result of one data set, unless a run that was killed has computed it."""
    suite, _, stem = name.partition("/")
    start = time.monotonic()
    texts = set[str]()
    try:
        evaluator = dataset.load()
    except NotApplicableError as error:
        results["skipped"][name] = str(error)
        return
    except UserError as error:  # a faulty data set; the others are evaluated before the run fails
        results["skipped"][name] = f"{_UNUSABLE}{error}"
        logging.error("%s: %s", name, error)
        return
    digests = {
        path: hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
        for path in dataset.files
    }
    files = {str(p.relative_to(folder)): {"checksum": digest} for p, digest in digests.items()}
    account: dict[str, Any] = {"protocol": dict(evaluator.protocol), "files": files}
    before = results["datasets"].get(suite, {}).get(stem, {})
    # In JSON, a tuple is a list.
    if continues and {key: before.get(key) for key in account} == json.loads(json.dumps(account)):
        logging.info("%s has been evaluated", name)
        return

    def collecting(role: str, encode: Callable[..., Any]) -> Callable[..., Any]:
        def collect(*columns: list[str]) -> Any:
            texts.update(*columns[: 1 if role == "responses" else None])  # not their contexts
            return encode(*columns)

        return collect

    try:
        scores = dict(evaluator(embedder.wrapped(collecting)))
    except NotApplicableError as error:
        results["skipped"][name] = str(error)
        logging.info("%s skipped: %s", name, error)
        return
    first = [f"{key} {value:.4f}" for key, value in scores.items() if "num_" not in key][:3]
    logging.info("%s: %s", name, ", ".join(first))
    seconds = round(time.monotonic() - start, 2)
    results["scores"].setdefault(suite, {})[stem] = scores
    account |= {"seconds": seconds, **_seen(embedder, texts, getattr(evaluator, "pairs", ()))}
    results["datasets"].setdefault(suite, {})[stem] = account
    results["seconds"] = round(results["seconds"] + seconds, 2)


def _seen(embedder: Embedder, texts: set[str], pairs: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """The shares of a data set's pairs (if any) and texts that the embedder was trained on."""
    if embedder.trained_on is None or not texts:
        return {}
    shares = {"pairs": embedder.trained_on.share_of_pairs(pairs)} if pairs else {}
    shares["texts"] = embedder.trained_on.share_of_texts(texts)
    return {"trained_on": {what: round(share, 4) for what, share in shares.items()}}
