"""The corpora SNLI and MultiNLI: reading the format they share, and fetching SNLI.

Bowman et al. 2015, "A large annotated corpus for learning natural language inference" (licence CC
BY-SA 4.0); Williams et al. 2018, "A broad-coverage challenge corpus for sentence understanding
through inference", whose files hold several licences.
"""

import http.client
import json
import re
import shutil
import tempfile
import urllib.request
import zipfile
import zlib
from pathlib import Path
from typing import IO

from absl import logging

from xling_tf.corpora.line_files import Unreadable, normal_form
from xling_tf.corpora.readers import (
    MalformedLineError,
    Reading,
    label_index,
    read_records,
)
from xling_tf.corpora.records import NLI_LABELS, InferencePair
from xling_tf.files import replacing

SNLI_URL = "https://nlp.stanford.edu/projects/snli/snli_1.0.zip"
SNLI_FOLDERS = (".", "nli", "snli_1.0", "multinli_1.0")
SNLI_FILE = re.compile(
    r"(?P<name>(?:snli|multinli)_1\.0)_(?P<split>train|dev(?:_(?:mis)?matched)?|test)"
    r"\.jsonl(\.gz)?"
)
_TIMEOUT_SECONDS = 5
_FILE_NAMES = tuple(f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train"))


def read_snli(path: Path) -> Reading[InferencePair]:
    """Reads the JSON lines in which SNLI and MultiNLI are published.

    Lines whose annotators did not agree have the gold label "-" and are left out, as Bowman et
    al. 2015 advise (sec. 2.2).

    Args:
        path: Text or, by its name, gzip.
    """
    expected = f"JSON lines with gold_label ({', '.join(NLI_LABELS)}), sentence1 and sentence2"
    return read_records(path, expected, parse_snli)


def parse_snli(line: str) -> InferencePair:
    """Makes a record of a line of SNLI or MultiNLI.

    Raises:
        MalformedLineError: It is none, or has no gold label.
    """
    try:
        row = json.loads(line)
        # A JSON escape can spell what is not NFC, and half a surrogate pair, in a file that is UTF-8.
        label, premise, hypothesis = (
            normal_form(row[key]).encode().decode().strip()
            for key in ("gold_label", "sentence1", "sentence2")
        )
    except UnicodeEncodeError:
        raise MalformedLineError(str(Unreadable.NOT_UTF8)) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedLineError("not JSON with gold_label, sentence1, sentence2") from None
    if label == "-":
        raise MalformedLineError("no gold label")
    if not (premise and hypothesis):
        raise MalformedLineError("empty sentence")
    return InferencePair(premise, hypothesis, label_index(label))


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
