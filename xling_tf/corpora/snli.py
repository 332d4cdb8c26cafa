"""The corpora SNLI and MultiNLI: the format they share.

Bowman et al. 2015, "A large annotated corpus for learning natural language inference" (licence CC
BY-SA 4.0); Williams et al. 2018, "A broad-coverage challenge corpus for sentence understanding
through inference", whose files hold several licences.
"""

import json
import re
from pathlib import Path

from xling_tf.corpora.line_files import Unreadable, normal_form
from xling_tf.corpora.readers import MalformedLineError, Reading, label_index, read_records
from xling_tf.corpora.records import NLI_LABELS, InferencePair
from xling_tf.files import PACKED

SNLI_FOLDERS = (".", "nli", "snli_1.0", "multinli_1.0")
SNLI_FILE = re.compile(
    r"(?P<name>(?:snli|multinli)_1\.0)_(?P<split>train|dev(?:_(?:mis)?matched)?|test)"
    r"(?i:\.jsonl)" + PACKED
)


def read_snli(path: Path) -> Reading[InferencePair]:
    """Reads the JSON lines in which SNLI and MultiNLI are published.

    Lines whose annotators did not agree have the gold label "-" and are left out, as Bowman et
    al. 2015 advise (sec. 2.2).
    """
    expected = f"JSON lines with gold_label ({', '.join(NLI_LABELS)}), sentence1 and sentence2"
    return read_records(path, expected, parse_snli)


def parse_snli(line: str) -> InferencePair:
    """Makes a record of a line of SNLI or MultiNLI, or raises a `MalformedLineError`."""
    label, premise, hypothesis = snli_columns(line)
    if label == "-":
        raise MalformedLineError("no gold label")
    if not (premise and hypothesis):
        raise MalformedLineError("empty sentence")
    return InferencePair(premise, hypothesis, label_index(label))


def snli_columns(line: str) -> list[str]:
    """Label, premise and hypothesis as a line has them, or a `MalformedLineError`."""
    try:
        row = json.loads(line)
        # A JSON escape can spell what is not NFC, and half a surrogate pair, in a file that is UTF-8.
        columns = [normal_form(row[key]).strip() for key in ("gold_label", "sentence1", "sentence2")]
        "".join(columns).encode()
    except UnicodeEncodeError:
        raise MalformedLineError(Unreadable.NOT_UTF8) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedLineError("not JSON with gold_label, sentence1, sentence2") from None
    return columns
