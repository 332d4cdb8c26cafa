"""The Stanford Natural Language Inference corpus: fetching it and reading its own format.

Bowman et al. 2015, "A large annotated corpus for learning natural language inference"; its licence
is CC BY-SA 4.0.
"""

import http.client
import json
import shutil
import tempfile
import unicodedata
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import IO

from absl import logging

from xling_tf.corpora.readers import (
    MalformedLineError,
    ReadResult,
    label_index,
    read_records,
)
from xling_tf.corpora.records import NLI_LABELS, InferencePair
from xling_tf.files import replacing

SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
SNLI_FOLDERS = (".", "nli", "snli_1.0")
_TIMEOUT_SECONDS = 5
_FILE_NAMES = tuple(f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train"))


def read_snli(path: Path) -> ReadResult[InferencePair]:
    """Reads the JSON lines in which SNLI is published.

    Lines whose annotators did not agree have the gold label "-" and are left out, as Bowman et
    al. 2015 advise (sec. 2.2).

    Args:
        path: Text or, by its name, gzip.

    Raises:
        UserError: No line is usable, or the file cannot be read to its end.
    """
    expected = f"JSON lines with gold_label ({', '.join(NLI_LABELS)}), sentence1 and sentence2"
    return read_records(path, expected, _parse)


def fetch_snli(folder: Path) -> Path | None:
    """Makes sure that SNLI's three files are in a data folder, if the network gives them.

    Args:
        folder: A data folder; files that are missing are put into its `nli`.

    Returns:
        The folder that holds the three files, or None when they cannot be had; a log line then
        says why and nothing is left behind.
    """
    for place in SNLI_FOLDERS:
        if all(_present(folder / place / name) for name in _FILE_NAMES):
            return folder / place
    # An unnamed file: even a killed program leaves nothing of it.
    with tempfile.TemporaryFile(dir=folder) as archive:
        try:
            _download(archive)
            _extract(archive, folder / "nli")
        except (OSError, http.client.HTTPException) as error:
            logging.info("SNLI cannot be fetched from %s: %s", SNLI_URL, error)
            return None
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            logging.warning("%s is not the SNLI archive or came corrupt: %s", SNLI_URL, error)
            return None
    return folder / "nli"


def _present(path: Path) -> bool:
    return path.is_file() or path.with_name(path.name + ".gz").is_file()


def _download(archive: IO[bytes]) -> None:
    with urllib.request.urlopen(SNLI_URL, timeout=_TIMEOUT_SECONDS) as response:
        shutil.copyfileobj(response, archive)


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


def _parse(line: str) -> InferencePair:
    try:
        row = json.loads(line)
        # A JSON escape can spell what is not NFC in a file that is.
        label, premise, hypothesis = (
            unicodedata.normalize("NFC", row[key]).strip()
            for key in ("gold_label", "sentence1", "sentence2")
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MalformedLineError("not JSON with gold_label, sentence1, sentence2") from None
    if label == "-":
        raise MalformedLineError("no gold label")
    if not (premise and hypothesis):
        raise MalformedLineError("empty sentence")
    return InferencePair(premise, hypothesis, label_index(label))
