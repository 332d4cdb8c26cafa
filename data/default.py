"""Prepares the default corpora: translated text that Debian packages carry, and SNLI where it can be fetched.

    python data/default.py --target es          # data/prepared/en-es, in the layout of any --data folder

`training/main.py` without --data runs it. A killed preparation continues with the same command.
"""

import http.client
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import IO

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags, logging
from debian import prepare_default_corpora

from xling_tf.corpora.snli import SNLI_FOLDERS
from xling_tf.errors import one_line_errors, parse_flags, progress, set_up_logging
from xling_tf.files import replacing, require_writable_folder

SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
_TIMEOUT_SECONDS = 5
_FILE_NAMES = tuple(f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train"))


def main(argv: list[str]) -> None:
    """Prepares the pairs that the flags name, and prints their folders."""
    del argv
    set_up_logging()
    values = flags.FLAGS
    raw, prepared = Path(values.raw), Path(values.output)
    with one_line_errors("the same command continues"):
        for folder in (raw, prepared):
            require_writable_folder(folder, "start in another folder, or give corpora with --data")
        for target in values.target:
            folder = prepare_default_corpora(values.source, target, raw_dir=raw, prepared_dir=prepared)
            with progress(f"looking for SNLI in {folder}, or fetching it"):
                fetch_snli(folder)
            print(folder)


def fetch_snli(folder: Path) -> Path | None:
    """Makes sure that SNLI's three files are in a data folder, if the network gives them.

    Returns:
        The folder that holds the three files, or None when they cannot be had; a log line then
        says why and nothing is left behind.
    """
    for place in SNLI_FOLDERS:
        if all(any((folder / place).glob(f"{name}*")) for name in _FILE_NAMES):
            return folder / place
    # An unnamed file: even a killed program leaves nothing of it.
    with tempfile.TemporaryFile(dir=folder) as archive:
        try:
            with urllib.request.urlopen(SNLI_URL, timeout=_TIMEOUT_SECONDS) as response:
                shutil.copyfileobj(response, archive)
            _extract(archive, folder / "nli")
        except (OSError, http.client.HTTPException) as error:
            logging.info("SNLI cannot be fetched from %s: %s", SNLI_URL, error)
            return None
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            logging.warning("%s is not the SNLI archive or came corrupt: %s", SNLI_URL, error)
            return None
    return folder / "nli"


def _extract(archive: IO[bytes], target: Path) -> None:
    # All is checked before the first file is written. The training set comes last, so that a kill
    # between the files never leaves it alone.
    with zipfile.ZipFile(archive) as unzipped:
        members = [unzipped.getinfo(f"snli_1.0/{name}") for name in _FILE_NAMES]
        if damaged := unzipped.testzip():
            raise zipfile.BadZipFile(f"{damaged} is damaged")
        target.mkdir(exist_ok=True)
        for name, member in zip(_FILE_NAMES, members, strict=True):
            with (
                unzipped.open(member) as file,
                replacing(target / name) as temporary,
                temporary.open("wb") as out,
            ):
                shutil.copyfileobj(file, out)


if __name__ == "__main__":
    flags.DEFINE_string("source", "en", "Source language.")
    flags.DEFINE_list("target", ["es"], "Target language, or several: es,fr.")
    flags.DEFINE_string("raw", "data/raw", "Gets the packages' text, one folder each.")
    flags.DEFINE_string("output", "data/prepared", "Gets a folder for each pair.")
    app.run(main, flags_parser=parse_flags)
