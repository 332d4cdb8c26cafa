r"""Mines hard negatives: the wrong translations that are most similar.

    xling-tf hard-negatives --model exported/translation-ranking-en-es --data DIR \
        --relative_margin 0.05
    xling-tf train --data DIR --set tasks.translation_ranking.hard_negatives=5

If it is interrupted, the same command continues with the files that are missing.
"""

import hashlib
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging

from xling_tf.client.batches import Encode
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.readers import MINED_FOLDER, mined_path
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.files import read_json_dict, require_writable_folder, write_json
from xling_tf.program import define_languages, progress, quiet_start, run
from xling_tf.savedmodel.saved_models import checksum, find_model
from xling_tf.search.hard_negatives import NUM_NEGATIVES, mine_and_count
from xling_tf.sentence_encoder import SentenceEncoder


def main() -> None:
    """Mines what the flags describe, and prints the counts."""
    values = flags.FLAGS
    model = find_model(values.model)

    @cache
    def encoder() -> SentenceEncoder:
        with quiet_start():
            return SentenceEncoder(model)

    counts = mine_folder(
        Path(values.data),
        lambda texts: encoder().encode(texts),
        model=checksum(model),
        num_negatives=values.top,
        relative_margin=values.relative_margin,
        source=values.source,
        targets=values.target,
    )
    for corpus, counters in counts.items():
        print(f"{corpus}: {', '.join(f'{outcome} {count}' for outcome, count in counters.items())}")


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

    A file that was mined by the same model with the same options from the same pairs is kept.
    Queries and candidates are training pairs alone: no sentence that any corpus of the folder holds
    out is used. `model` is a fingerprint of the model, for the record beside a mined file;
    `options` are those of `mine_hard_negatives`.

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


if __name__ == "__main__":
    flags.DEFINE_string("model", None, "Exported model that measures similarity.", required=True)
    flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
    define_languages()
    flags.DEFINE_integer(
        "top", NUM_NEGATIVES, "Maximum number of negatives per pair.", lower_bound=1
    )
    flags.DEFINE_float(
        "relative_margin",
        None,
        "Drops candidates whose score is within this share of the right one's.",
    )
    run(main, "the same command keeps the corpora that are done", extra="tensorflow")
