"""The load table: ways to ask the same model, measured in turn, round after round."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xling_tf.load_testing.wrk import Measured


@dataclass(frozen=True)
class Way:
    """One row of the table.

    Attributes:
        how: "in process", "server", "server without batching".
        clients: That ask at the same time.
        sentences: Of a request.
        measure: Asks for so many seconds.
    """

    how: str
    clients: int
    sentences: int
    measure: Callable[[float], Measured]


def measure(
    ways: Sequence[Way], rounds: int, seconds: float, report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Measures all ways in turn, several times over.

    Args:
        ways: The first one with as many sentences a request is what the others are compared with.
        rounds: Times that all are measured. Speeds of one round compare well on a busy machine too.
        seconds: That each takes in a round.
        report: Is told what has been measured.

    Returns:
        A row for each way: medians over the rounds, the largest latency, the sum of errors, and
        `to_first`: the median of the ratios of its speed to the first way's of the same round.
    """
    measured: list[list[Measured]] = []
    for number in range(rounds):
        measured.append([])
        for way in ways:
            measured[-1].append(way.measure(seconds))
            report(f"round {number + 1}: {way.how}, {way.clients} clients, {way.sentences} each")
    first = {way.sentences: index for index, way in reversed(list(enumerate(ways)))}
    return [
        _row(way, [(each[index], each[first[way.sentences]]) for each in measured])
        for index, way in enumerate(ways)
    ]


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table in Markdown."""
    lines = [
        "| sentences a request | | clients | requests/s | sentences/s | to in process | p50 ms | p99 ms "
        "| max ms | errors |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['sentences_per_request']} | {row['how']} | {row['clients']} "
        f"| {row['requests_per_second']:.0f} | {row['sentences_per_second']:.0f} "
        f"| {row['to_first']:.2f} | {row['p50_ms']:.1f} | {row['p99_ms']:.1f} | {row['max_ms']:.0f} "
        f"| {row['errors']} |"
        for row in rows
    ]
    return "\n".join(lines)


def _row(way: Way, rounds: Sequence[tuple[Measured, Measured]]) -> dict[str, Any]:
    own = [measured for measured, _ in rounds]
    rate = statistics.median(measured.rate for measured in own)
    return {
        "how": way.how,
        "clients": way.clients,
        "sentences_per_request": way.sentences,
        "requests_per_second": rate,
        "sentences_per_second": rate * way.sentences,
        "to_first": statistics.median(mine.rate / first.rate for mine, first in rounds),
        "p50_ms": statistics.median(measured.p50_ms for measured in own),
        "p99_ms": statistics.median(measured.p99_ms for measured in own),
        "max_ms": max(measured.max_ms for measured in own),
        "errors": sum(measured.failures for measured in own),
        "rounds": [asdict(measured) for measured in own],
    }
