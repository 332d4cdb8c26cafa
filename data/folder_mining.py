"""Hard negatives for the corpora of a data folder, one mined file a corpus."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from absl import logging
from numpy.typing import NDArray

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.readers import MINED_FOLDER, mined_path, write_mined
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.files import read_json, require_writable_folder
from xling_tf.search.mining import MiningConfig, mine_hard_negatives


def mine_folder(
    data: Path,
    encode: Callable[[list[str]], NDArray[Any]],
    config: MiningConfig,
    *,
    model: str,
    source: str,
    targets: Sequence[str],
    names: Sequence[str] = (),
    output: Path | None = None,
    show_progress: bool = False,
) -> dict[str, dict[str, int]]:
    """Writes a mined file for each parallel corpus of a data folder, or for those of some names.

    A file that was mined by the same model with the same knobs from the same pairs is kept.
    Only training pairs are mined, among training targets: no sentence is seen that is held out in any kind of
    corpus in the folder.

    Args:
        data: The data folder.
        encode: The model.
        config: Which similar targets are taken.
        model: What tells the model from others, for the record beside a mined file.
        source: ISO code.
        targets: ISO codes.
        names: Of the corpora; none: all.
        output: The folder whose `hard_negatives` gets the files; None: `data`.
        show_progress: Whether to show bars.

    Returns:
        The counts of each corpus, by its name and languages.

    Raises:
        UserError: There is no such corpus, or a file cannot be written.
    """
    # All kinds, since a sentence that one kind holds out leaves the training part of the others.
    corpora = load_folder(data, source=source, targets=targets)
    known_names = {corpus.name for corpus in corpora if corpus.kind == "parallel"}
    if unknown := sorted(set(names) - known_names):
        known = ", ".join(sorted(known_names))
        raise UserError(f"the name of a corpus is expected, got {unknown[0]!r}; {data} has {known}")
    folder = (output or data) / MINED_FOLDER
    require_writable_folder(folder, "give another with --output")
    counts: dict[str, dict[str, int]] = {}
    for corpus in transient_store(corpora, folder).corpora:
        if corpus.kind != "parallel" or (names and corpus.name not in names):
            continue
        pairs = [pair for pair in corpus.train if isinstance(pair, TranslationPair)]
        if not pairs:
            continue
        path = mined_path(output or data, corpus.name, corpus.languages)
        record_path = path.with_name(path.name.removesuffix(".tsv.gz") + ".json")
        recipe = {"model": model, **asdict(config), "pairs": _fingerprint(pairs)}
        kept = _read_record(record_path) if path.is_file() else {}
        if kept.get("recipe") == recipe:
            logging.info("%s is kept: model, knobs and pairs are the same", path)
            counts[f"{corpus.name}.{corpus.languages}"] = kept["counts"]
            continue
        logging.info("mining %s: %d training pairs", path, len(pairs))
        counters: Counter[str] = Counter()
        texts = {"source": [pair.source for pair in pairs], "target": [pair.target for pair in pairs]}
        try:
            record_path.unlink(missing_ok=True)
            negatives = mine_hard_negatives(
                encode, texts, config, counts=counters, show_progress_bar=show_progress
            )
            mined = zip(pairs, negatives, strict=True)
            write_mined(path, (pair._replace(negatives=found) for pair, found in mined if found))
            write_lines(record_path, [json.dumps({"recipe": recipe, "counts": counters}, indent=2)])
        except OSError as error:
            raise UserError(
                f"{path} must be written, but cannot be: {error.strerror}; make room, or "
                "give another folder with --output; the same command goes on from here"
            ) from error
        counts[f"{corpus.name}.{corpus.languages}"] = dict(counters)
    return counts


def model_fingerprint(folder: Path) -> str:
    """Tells a SavedModel from others, wherever it lies: a digest of its graph and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for path in [folder / "saved_model.pb", *sorted((folder / "variables").glob("*"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


def _fingerprint(pairs: Sequence[TranslationPair]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source, target, _ in pairs:
        digest.update(f"{source}\t{target}\n".encode())
    return digest.hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
