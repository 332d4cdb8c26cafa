"""Where the corpora come from: the user's folder, the built-in sample, or Debian packages."""

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
    """Reads the corpora of a language pair.

    Args:
        data: A data folder; None for the default corpora, which are fetched into `data/raw` and
            prepared in `data/prepared` of the working folder the first time.
        config: The languages, and which corpora are the default.

    Raises:
        UserError: The folder, or the machine's package client, does not give them.
    """
    folder = data or _default_folder(config)
    logging.info("reading corpora from %s", folder)
    return load_folder(folder, source=config.source, target=config.target)


def _default_folder(config: DataConfig) -> Path:
    if config.sample:
        return SAMPLE_FOLDER
    for folder in (_RAW, _PREPARED):
        require_writable_folder(folder, "start in another folder, or give corpora with --data DIR")
    folder = prepare_default_corpora(
        config.source, config.target, raw_dir=_RAW, prepared_dir=_PREPARED
    )
    fetch_snli(folder)
    return folder
