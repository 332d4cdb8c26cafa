"""Mines the hard negatives of a folder of corpora: the wrong translations that are most similar."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.client.batches import Encode
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.readers import MINED_FOLDER, mined_path
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.files import read_json_dict, require_writable_folder, write_json
from xling_tf.program import progress
from xling_tf.search.hard_negatives import mine_and_count


def mine_folder(
    data: Path,
    encode: Encode,
    *,
    model: str,
    source: str,
    targets: Sequence[str],
    **options: Any,
) -> dict[str, dict[str, int]]:
    """Writes a mined file for each parallel corpus of a data folder.

    A file that was mined with the same model and options from the same pairs is kept. Queries and
    candidates come from training pairs alone: sentences that any corpus of the folder holds out are
    not used. `model` is a fingerprint of the model, for the record beside a mined file; `options`
    are those of `mine_hard_negatives`.

    Returns:
        The counts of each corpus, by its name and languages.
    """
    # Corpora of all types, as a sentence that one type holds out leaves the training of the others.
    corpora = load_folder(data, source=source, targets=targets)
    folder = data / MINED_FOLDER
    require_writable_folder(folder, "copy the corpora to another folder")
    folder.mkdir(exist_ok=True)
    counts: dict[str, dict[str, int]] = {}
    for corpus in transient_store(corpora, folder).corpora:
        if corpus.record_type != "parallel" or not len(corpus.train):
            continue
        pairs: list[TranslationPair] = [*corpus.train]
        path = mined_path(data, corpus.name, corpus.languages)
        name = f"{corpus.name}.{corpus.languages}"
        record_path = path.with_name(path.name.removesuffix(".tsv.gz") + ".json")
        recipe = {"model": model, **options, "pairs": _fingerprint(pairs)}
        earlier = read_json_dict(record_path) if path.is_file() else {}
        if earlier.get("recipe") == recipe:
            logging.info("%s is kept: model, options and pairs are the same", path)
            counts[name] = earlier["counts"]
            continue
        texts = {
            "source": [pair.source for pair in pairs],
            "target": [pair.target for pair in pairs],
        }
        record_path.unlink(missing_ok=True)
        with progress(f"mining {path}: {len(pairs)} training pairs"):
            negatives, counts[name] = mine_and_count(texts, encode, **options)
        mined = zip(pairs, negatives, strict=True)
        write_lines(path, ("\t".join((*pair[:2], *wrong)) for pair, wrong in mined if wrong))
        write_json(record_path, {"recipe": recipe, "counts": counts[name]})
    return counts


def _fingerprint(pairs: Sequence[TranslationPair]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source, target, _ in pairs:
        digest.update(f"{source}\t{target}\n".encode())
    return digest.hexdigest()
