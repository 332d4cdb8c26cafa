"""What a check ends with: measured figures, a broken contract, or the reason why it does not apply."""

from collections.abc import Mapping
from typing import Any, NamedTuple

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# Figures and notes by name, as {"largest_difference": 2e-7, "tolerance": 1e-5}.
Measured = Mapping[str, float | int | str]


class ContractBroken(Exception):  # noqa: N818 (an outcome, not a mistake)
    """A check failed.

    Args:
        expected: What the contract asks for.
        came: What the model did.
    """

    def __init__(self, expected: str, came: str) -> None:
        super().__init__(f"expected {expected}, but {came}")


class NotApplicable(Exception):  # noqa: N818 (an outcome, not a mistake)
    """A check makes no sense for a model, or a package that it needs is not installed."""


class Outcome(NamedTuple):
    """How a check ended.

    Args:
        check: Its name.
        status: `PASSED`, `FAILED` or `SKIPPED`.
        text: What was expected and what came, or why it was skipped; empty for `PASSED`.
        measured: What a check that passed has measured.
        seconds: How long it took, the loading of the model left out where that came before.
    """

    check: str
    status: str
    text: str
    measured: Measured
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The outcome for a result file."""
        return {**self._asdict(), "seconds": round(self.seconds, 1)}


def require(holds: bool, expected: str, came: str) -> None:
    """Ends a check where the contract does not hold.

    Raises:
        ContractBroken: It does not.

    Example:
        >>> require(2 > 1, "order", "there is none")
        >>> require(1 > 2, "1 to be more than 2", "it is less")
        Traceback (most recent call last):
        xling_tf.conformance.outcome.ContractBroken: expected 1 to be more than 2, but it is less
    """
    if not holds:
        raise ContractBroken(expected, came)
