"""What a pipeline is made of: a `Preparation`; and the `Account` of what became of the records.

`jobs.prepare` runs every preparation in two stages of independent units of work:

1. `extract` turns an input file into (key, value) records, which are written to one of
   `num_shards` partitions by the hash of their key.
2. `combine` turns the records of a partition, from all inputs, into the lines of one shard. Records
   with equal keys meet here: joins and the removal of duplicates belong into this stage.

Beam spreads units over the workers of its runner. Records lie on disk between the stages, and not in
the runner's shuffle, for two reasons: Beam's DirectRunner keeps what it shuffles in memory, where
here a worker holds one partition at most; and a unit whose account is on disk is done, so the same
command goes on where it was stopped. Whatever the runner and however often it was stopped, the same
inputs and settings give the same bytes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Keyed(NamedTuple):
    """A record on its way to the partition of its key; the value is anything JSON can hold."""

    key: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Account:
    """What became of the records of a unit of work, or of all units.

    Attributes:
        counts: How many records had each outcome, as "comments" or "comments dropped: too long".
        damaged: For each damaged file what is wrong with it, and where.
    """

    counts: Counter[str] = field(default_factory=Counter)
    damaged: dict[str, str] = field(default_factory=dict)

    def add(self, other: Mapping[str, Any]) -> None:
        """Adds another account, as JSON holds it, to this one."""
        self.counts.update(other["counts"])
        self.damaged.update(other["damaged"])

    def as_json(self) -> dict[str, Any]:
        """What JSON holds of it, the counts by name."""
        return {"counts": dict(sorted(self.counts.items())), "damaged": self.damaged}


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How raw files become one corpus.

    The functions are sent to workers: functions of a module, or `functools.partial`s of such.

    Attributes:
        corpus: The corpus in the output folder, by kind, name and languages:
            "conversations/reddit.en".
        suffix: The rest of its files' names, as ".tsv.gz".
        settings: All that decides the result besides the inputs; JSON values.
        extract: (path, account) to the records of one input file. It counts in the account what
            it reads and drops, and names a damaged file there instead of raising.
        combine: (records of one partition, account) to its lines of text, without the line feed
            at their end. The records come in the order of the inputs and of `extract`.
    """

    corpus: str
    suffix: str
    settings: Mapping[str, Any]
    extract: Callable[[str, Account], Iterator[Keyed]]
    combine: Callable[[Iterable[Keyed], Account], Iterator[str]]
