"""Prepares the default corpora: text of Debian packages, and SNLI.

    xling-tf prepare --target es

writes data/prepared/en-es, in the layout of any --data folder; SNLI is left out if it cannot be
downloaded. `xling-tf train` without --data runs this. A killed preparation continues with the same
command.
"""

import http.client
import shutil
import sys
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging

from xling_tf.corpora.folder import discover
from xling_tf.files import replacing_folder, require_writable_folder
from xling_tf.program import define_languages, progress, run

SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
_TIMEOUT_SECONDS = 5


def main() -> None:
    """Prepares the pairs of the flags, and prints their folders."""
    from debian import prepare_default_corpora

    values = flags.FLAGS
    raw, prepared = Path(values.raw), Path(values.output)
    for folder in (raw, prepared):
        require_writable_folder(folder, "start in another folder, or give corpora with --data")
    for target in values.target:
        folder = prepare_default_corpora(values.source, target, raw_dir=raw, prepared_dir=prepared)
        with progress(f"looking for SNLI in {folder}, or downloading it"):
            fetch_snli(folder)
        print(folder)


def fetch_snli(folder: Path) -> None:
    """Downloads SNLI into a data folder that lacks it; if that fails, a log line says why."""
    splits = {"dev", "test", "train"}
    if {file.split for file in discover(folder) if file.name == "snli_1.0"} >= splits:
        return
    # An unnamed file: even a killed program leaves nothing of it.
    with tempfile.TemporaryFile(dir=folder) as archive:
        try:
            with urllib.request.urlopen(SNLI_URL, timeout=_TIMEOUT_SECONDS) as response:
                shutil.copyfileobj(response, archive)
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
        except (OSError, http.client.HTTPException) as error:
            logging.info("SNLI cannot be downloaded from %s: %s", SNLI_URL, error)
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            logging.warning("%s is not the SNLI archive or arrived corrupt: %s", SNLI_URL, error)


if __name__ == "__main__":
    define_languages()
    flags.DEFINE_string(
        "raw", "data/raw", "Folder for the text of the packages, with a folder for each."
    )
    flags.DEFINE_string(
        "output", "data/prepared", "Folder for the corpora, with a folder for each pair."
    )
    run(main, "the same command continues", extra="data")
