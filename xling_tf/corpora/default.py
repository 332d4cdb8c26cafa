"""Where the corpora come from: the user's folder, the built-in sample, or Debian packages."""

from collections.abc import Sequence
from pathlib import Path

from absl import logging

from xling_tf.config import DataConfig
from xling_tf.corpora.corpus import Corpus
from xling_tf.corpora.debian import prepare_default_corpora
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.snli import fetch_snli
from xling_tf.files import require_writable_folder

_RAW = Path("data/raw")
_PREPARED = Path("data/prepared")


def load_corpora(
    data: Path | None, config: DataConfig, *, with_mined: bool = False
) -> list[Corpus]:
    """Finds the corpora of an experiment's languages.

    Args:
        data: A data folder; None for the default corpora, which are fetched into `data/raw` and
            prepared in `data/prepared` of the working folder the first time.
        config: The languages, and which corpora are the default.
        with_mined: Whether translations come with their mined hard negatives.

    Raises:
        UserError: The folder, or the machine's package client, does not give them.
    """
    if data or config.sample:
        return _load(data or SAMPLE_FOLDER, config.source, config.targets, with_mined)
    for folder in (_RAW, _PREPARED):
        require_writable_folder(folder, "start in another folder, or give corpora with --data DIR")
    corpora: dict[str, Corpus] = {}
    for target in config.targets:
        folder = prepare_default_corpora(
            config.source, target, raw_dir=_RAW, prepared_dir=_PREPARED
        )
        fetch_snli(folder)
        for corpus in _load(folder, config.source, [target], with_mined):
            # Every pair's folder has texts in the source language, largely the same ones.
            corpora.setdefault(corpus.title, corpus)
    return list(corpora.values())


def _load(folder: Path, source: str, targets: Sequence[str], with_mined: bool) -> list[Corpus]:
    logging.info("corpora of %s", folder)
    return load_folder(folder, source=source, targets=targets, with_mined=with_mined)
