"""Labelled sentences in several languages: tables, and the Amazon reviews of Webis-CLS-10."""

import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from xling_tf.errors import UserError
from xling_tf.evaluators.classification.cross_lingual import CrossLingualClassification
from xling_tf.evaluators.classification.transfer import Example
from xling_tf.evaluators.data import Dataset, Missing, Suite, read_table

_TABLE = re.compile(r"(?P<name>.+)\.(?P<language>[a-z]{2,3})\.(?P<split>train|test)\.tsv(\.gz)?")
_COLUMNS = ("label", "text")
# Prettenhofer and Stein 2010: lang/category/split.review; the papers take the categories together.
_REVIEWS = "cls-acl10-unprocessed"
_REVIEW_LANGUAGES = {"en": "en", "de": "de", "fr": "fr", "jp": "ja"}
_MAX_TOKENS = 64  # Chidambaram et al. 2019, sec. 4.2
_NEUTRAL_STARS = 3.0
Files = Mapping[str, Mapping[str, tuple[Path, ...]]]  # split, language, files


def find(folder: Path, seed: int) -> Iterator[Dataset | Missing]:
    """Finds labelled sentences.

    Args:
        folder: Holds `sentiment/<name>.<language>.<train or test>.tsv` or
            `sentiment/cls-acl10-unprocessed/`, Webis-CLS-10 as published.
        seed: Of networks and of parts of training sets.

    Yields:
        Each name that has a test set in some language, and the Amazon reviews.
    """
    tables = _tables(folder / "sentiment")
    for name in sorted(tables):
        yield _dataset(name, tables[name], seed)
    reviews = _reviews(folder / "sentiment" / _REVIEWS)
    if reviews["train"] and reviews["test"]:
        yield _dataset("cls", reviews, seed)
    elif "cls" not in tables:
        yield Missing(
            name="cls",
            expected="sentiment/cls.<language>.<train or test>.tsv (label TAB text under a line with "
            f"these names) or, as published, sentiment/{_REVIEWS}/<en, de, fr or jp>/"
            "<category>/<train or test>.review",
        )


def _tables(folder: Path) -> dict[str, Files]:
    found: dict[str, dict[str, dict[str, tuple[Path, ...]]]] = {}
    for path in sorted(folder.glob("*.tsv*")):
        if match := _TABLE.fullmatch(path.name):
            splits = found.setdefault(match["name"], {"train": {}, "test": {}})
            splits[match["split"]].setdefault(match["language"], (path,))
    return {name: files for name, files in found.items() if files["train"] and files["test"]}


def _reviews(folder: Path) -> Files:
    found: dict[str, dict[str, tuple[Path, ...]]] = {}
    for split in ("train", "test"):
        paths = {
            language: tuple(sorted((folder / name).glob(f"*/{split}.review")))
            for name, language in _REVIEW_LANGUAGES.items()
        }
        found[split] = {
            language: of_language for language, of_language in paths.items() if of_language
        }
    return found


def _dataset(name: str, files: Files, seed: int) -> Dataset:
    paths = tuple(path for split in files.values() for some in split.values() for path in some)
    return Dataset(name=name, files=paths, load=partial(_load, name, files, seed))


def _load(name: str, files: Files, seed: int) -> CrossLingualClassification:
    sets = {
        split: {
            language: [example for path in paths for example in _read(path)]
            for language, paths in languages.items()
        }
        for split, languages in files.items()
    }
    return CrossLingualClassification(sets["train"], sets["test"], name=name, seed=seed)


def _read(path: Path) -> list[Example]:
    if path.suffix == ".review":
        return read_reviews(path)
    return [Example((text,), label) for label, text in read_table(path, _COLUMNS)]


def read_reviews(path: Path) -> list[Example]:
    """Reads Amazon reviews: more than three stars are positive, fewer negative, three left out.

    A review is its summary and its text, of which the first 64 words are kept (Chidambaram et al. 2019,
    sec. 4.2; Japanese, which has no spaces, stays whole).

    Args:
        path: XML with an `item` for each review that has a `rating`, a `text` and perhaps a
            `summary`.

    Returns:
        The reviews with stars.

    Raises:
        UserError: It is not such a file.
    """
    examples = []
    number = 0
    try:
        for stars, text in _rated_texts(path):
            number += 1
            if not math.isfinite(stars):
                raise ValueError(f"a rating is {stars}")
            if stars != _NEUTRAL_STARS:
                label = "positive" if stars > _NEUTRAL_STARS else "negative"
                examples.append(Example((" ".join(text.split()[:_MAX_TOKENS]),), label))
    # Of an encoding that it does not know, the parser raises a LookupError.
    except (ElementTree.ParseError, LookupError, OSError, ValueError) as error:
        raise UserError(
            f"{path} must be XML whose items have a rating, a summary and a text, but after {number} of "
            f"them: {error}; fetch Webis-CLS-10 (unprocessed) again"
        ) from None
    return examples


def _rated_texts(path: Path) -> Iterator[tuple[float, str]]:
    """The stars, summary and text of each review, of which one is in memory at a time.

    The parser opens no other file that a document names, and refuses entities that grow.
    """
    for _, element in ElementTree.iterparse(path):
        if element.tag == "item":
            text = f"{element.findtext('summary') or ''} {element.findtext('text') or ''}"
            yield float(element.findtext("rating", "")), text
            element.clear()


SUITE = Suite(
    name="classification",
    title="Zero-shot and few-shot classification",
    source="Chidambaram et al. 2019, sec. 4.2, Tables 5 and 6",
    find=find,
)
