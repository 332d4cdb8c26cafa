"""The figures of README and docs/results.md are those of the files that they name."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "evaluation" / "results"
PAGES = {"README": ROOT / "README.md", "results": ROOT / "docs" / "results.md"}

STATIC = ("trainings.json", "en-es-static-30-november")
EN_ES = ("trainings.json", "en-es-15-minutes")
PUBLISHED = ("multilingual/models.json", "use-multilingual", "scores")
TATOEBA = ("multilingual/models.json", "use-multilingual-tatoeba-5000")
CNN = ("multilingual/models.json", "multilingual-best-30-november", "evaluation")
E5 = ("multilingual/models.json", "multilingual-e5-best-1400-steps", "evaluation")
SPEED = ("speed.json", "five-models", "sentences_per_second")
COLUMNS = {
    "en-es-static": (*STATIC, "evaluation"),
    "en-es": (*EN_ES, "evaluation"),
    "published weights": PUBLISHED,
    "multilingual-best": CNN,
    "multilingual-e5-best": E5,
}


def tables(page: str) -> Iterator[list[list[str]]]:
    """Yields the tables of a page as rows of cells, without the marks of bold text and code."""
    rows: list[list[str]] = []
    for line in [*PAGES[page].read_text("utf-8").splitlines(), ""]:
        if line.startswith("|"):
            cells = line.strip().removeprefix("|").removesuffix("|").split("|")
            rows.append([re.sub(r"[*`]", "", cell).strip() for cell in cells])
        elif rows:
            yield rows
            rows = []


def numbers_of(page: str, row: str, column: str) -> list[float]:
    """Reads the numbers of the one cell of a page with this row and column."""
    found = []
    for header, _, *rows in tables(page):
        if column in header:
            place = header.index(column)
            found += [cells[place] for cells in rows if cells[0] == row and cells[place]]
    (cell,) = found
    return [float(number.replace(",", "")) for number in re.findall(r"[\d,]*\.?\d+", cell)]


def values_of(*path: str) -> Any:
    """Reads a number of a results file; the last key may be a metric that the file leaves out."""
    file, *keys = path
    value = json.loads((RESULTS / file).read_text("utf-8"))
    for key in keys:
        value = value[key] if isinstance(value, dict) else value
    return value


def tatoeba(column: str, language: str) -> list[float]:
    start = TATOEBA if column == "published weights" else COLUMNS[column]
    place = (*start, "retrieval", f"tatoeba_held_out.en-{language}")
    ways = (f"en-{language}/precision_at_1", f"{language}-en/precision_at_1")
    return [100 * values_of(*place, way) for way in ways]


def sts(column: str, *languages: str) -> list[float]:
    # Training scored those of en-es, evaluation the others.
    start = (*EN_ES, "scores") if column == "en-es" else (*COLUMNS[column], "sts")
    return [values_of(*start, f"stsb.{language}.dev", "pearson_angular") for language in languages]


def squad(column: str) -> list[float]:
    place = (*COLUMNS[column], "reqa", "squad11_dev.en", "qa_encoders/sentence/precision_at_1")
    return [100 * values_of(*place)]


def cases() -> Iterator[Any]:
    for column in COLUMNS:
        both = (
            ("README", "Tatoeba, en-es / es-en (P@1 of 1,000)"),
            ("results", "Tatoeba (5,000), es"),
        )
        for page, row in both:
            yield page, row, column, tatoeba(column, "es"), 1
        both = (
            ("README", "STS Benchmark dev, en / es (Pearson)"),
            ("results", "STS, en / es (†)"),
        )
        for page, row in both:
            yield page, row, column, sts(column, "en", "es"), 3
        if column != "en-es-static":
            yield "README", "SQuAD answers among 6,795 (P@1)", column, squad(column), 1
            yield "results", "SQuAD", column, squad(column), 1
    for column in ("published weights", "multilingual-best", "multilingual-e5-best"):
        ways = [tatoeba(column, language) for language in ("fr", "de", "zh")]
        means = [sum(pair) / 2 for pair in ways]
        yield "results", "Tatoeba (5,000), fr / de / zh", column, means, 1
        yield "results", "STS, fr / de / zh (†)", column, sts(column, "fr", "de", "zh"), 3
    row = "sentences encoded per second, 2 fast cores"
    # The presets that train further have the layers of the models that they start from.
    for column, model, digits in (
        ("en-es-static", "en-es-static", -3),
        ("en-es", "en-es", -1),
        ("published weights", "use-multilingual", -2),
        ("multilingual-best", "use-multilingual", -2),
        ("multilingual-e5-best", "multilingual-e5-small", 0),
    ):
        yield "README", row, column, [values_of(*SPEED, model)], digits


@pytest.mark.parametrize(
    ("page", "row", "column", "values", "digits"),
    [pytest.param(*c, id="/".join(c[:3])) for c in cases()],
)
def test_shows_what_its_file_says(page, row, column, values, digits):
    shown = numbers_of(page, row, column)[: len(values)]
    # Half a unit of the last digit, and a little for files whose values were rounded, too.
    assert shown == pytest.approx(values, abs=0.55 * 10**-digits)


def test_commands_of_programs_that_are_gone_say_so():
    named = r'"command": "((?:[^"\\]|\\.)*)"'
    for path in RESULTS.rglob("*.json"):
        for command in re.findall(named, path.read_text("utf-8")):
            programs = re.findall(r"(?:training|evaluation|export|data)/\w+\.py", command)
            is_gone = not all((ROOT / program).exists() for program in programs)
            assert command.startswith("by an earlier version: ") == is_gone, (path.name, command)
