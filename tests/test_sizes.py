"""The rooms of the project stay within their bounds, which only go down."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("baselines", "evaluators", "serving", "bulk", "integrations")


def lines(*folders: str) -> int:
    """The lines of Python in folders, without those of the rooms of the library."""
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def size(pattern: str, without: str = "") -> int:
    return sum(path.stat().st_size for path in ROOT.glob(pattern) if path.name != without)


def core() -> int:
    return lines("xling_tf") - lines(*(f"xling_tf/{room}" for room in ROOMS))


@pytest.mark.parametrize(
    ("room", "actual", "bound"),
    [
        ("core", core(), 15_900),  # 15,000, and 900 for wheels, a first hour with a model, ModernBERT
        ("baselines", lines("xling_tf/baselines"), 1_500),
        ("evaluators", lines("xling_tf/evaluators"), 2_500),
        ("serving", lines("xling_tf/serving"), 927),
        ("files of any size", lines("xling_tf/bulk", "xling_tf/integrations"), 1_400),
        ("programs", lines("training", "evaluation", "export", "data"), 6_200),
        ("tests and examples", lines("tests", "examples"), 16_250),
        ("README, bytes", size("README.md"), 6_500),
        ("changelog, bytes", size("CHANGELOG.md"), 4_096),
        ("docs, bytes", size("docs/*.md", without="papers.md"), 130_000),
    ],
)
def test_is_within_its_bound(room, actual, bound):
    assert actual <= bound, f"{room}: take something away"
