"""The units of work of a preparation, and where their results lie."""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from absl import logging

from xling_tf.pipelines import storage
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.storage import Input

# Raised whenever what is extracted or combined changes, so that corpora made before are made anew.
PIPELINES_VERSION = 2
_RECORDS_PER_LINE = 5_000_000  # of the log; minutes of work
_FAST = 1  # gzip level of what is read once and deleted


@dataclass(frozen=True, kw_only=True)
class Job:
    """A preparation of certain files: what is done of it, and the doing of its units.

    Attributes:
        preparation: What to do.
        inputs: The raw files.
        output: The data folder.
        num_shards: How many partitions, and shards, there are.
    """

    preparation: Preparation
    inputs: tuple[Input, ...]
    output: str
    num_shards: int

    @property
    def corpus_path(self) -> str:
        """The corpus' path up to the shards' numbers."""
        return storage.join(self.output, self.preparation.corpus)

    def waiting_inputs(self) -> list[int]:
        """The numbers of the inputs that are not extracted yet."""
        done = map(storage.exists, self._extraction_accounts())
        return [index for index, is_done in enumerate(done) if not is_done]

    def waiting_shards(self) -> list[int]:
        """The numbers of the shards that are not combined yet."""
        done = map(storage.exists, self._combination_accounts())
        return [shard for shard, is_done in enumerate(done) if not is_done]

    def extract(self, index: int) -> Account:
        """Writes the records of an input to the partitions of their keys."""
        account = Account()
        path = self.inputs[index].path
        with ExitStack() as stack:
            names = (self._extracted(index, f"{part:05}.gz") for part in range(self.num_shards))
            files = [stack.enter_context(storage.writing(name, _FAST)) for name in names]
            for number, record in enumerate(self.preparation.extract(path, account), 1):
                if number % _RECORDS_PER_LINE == 0:
                    logging.info("%s: %d million records so far", path, number // 1_000_000)
                part = zlib.crc32(record.key.encode("utf-8", "replace")) % self.num_shards
                files[part].write(json.dumps(record) + "\n")
        return _finish(path, account, self._extraction_accounts()[index])

    def combine(self, shard: int) -> Account:
        """Writes a shard from its partition's records."""
        account = Account()
        with storage.writing(self._combined(self._shard_name(shard))) as file:
            for line in self.preparation.combine(self._records(shard), account):
                file.write(line + "\n")
                account.counts["lines written"] += 1
        name = f"shard {shard + 1} of {self.num_shards}"
        return _finish(name, account, self._combination_accounts()[shard])

    def account(self) -> Account:
        """The account of all units."""
        total = Account()
        for path in (*self._extraction_accounts(), *self._combination_accounts()):
            total.add(storage.read_json(path))
        return total

    def published(self) -> Account | None:
        """The account of this very job where its corpus is there already."""
        entry = (storage.read_json(self._report_path) or {}).get(self.preparation.corpus, {})
        shards = (f"{self.corpus_path}{self._shard_name(n)}" for n in range(self.num_shards))
        if entry.get("digest") != self._digest or not all(map(storage.exists, shards)):
            return None
        account = Account()
        account.add(entry)
        return account

    def publish(self, account: Account) -> None:
        """Puts the shards in the place of earlier ones, writes the report and tidies up."""
        names = [self._shard_name(shard) for shard in range(self.num_shards)]
        ours = {f"{self.corpus_path}{name}" for name in names}
        report = storage.read_json(self._report_path) or {}
        # From here to the end, no report vouches for a mixture of earlier and new shards.
        if report.pop(self.preparation.corpus, None):
            storage.write_json(self._report_path, report)
        earlier = storage.matching(f"{self.corpus_path}-*-of-*{self.preparation.suffix}")
        storage.delete([path for path in earlier if path not in ours])
        for name in names:
            # A publication that was killed has moved some already.
            if storage.exists(self._combined(name)):
                storage.move(self._combined(name), f"{self.corpus_path}{name}")
        report[self.preparation.corpus] = {
            "digest": self._digest,
            "settings": dict(self.preparation.settings),
            "inputs": [{"path": file.path, "bytes": file.size} for file in self.inputs],
            **account.as_json(),
        }
        storage.write_json(self._report_path, report)
        storage.delete([self._work_folder])

    @property
    def _report_path(self) -> str:
        return storage.join(self.output, "preparation.json")

    @property
    def _work_folder(self) -> str:
        return storage.join(self.output, f".{self.preparation.corpus.replace('/', '.')}.work")

    @property
    def _recipe(self) -> str:
        preparation = self.preparation
        parts = (PIPELINES_VERSION, preparation.suffix, preparation.settings, self.num_shards)
        return _digest(parts)

    @property
    def _digest(self) -> str:
        return _digest((self._recipe, self.inputs))

    def _extracted(self, index: int, name: str) -> str:
        return storage.join(self._work_folder, self._recipe, _digest(self.inputs[index]), name)

    def _combined(self, name: str) -> str:
        return storage.join(self._work_folder, self._digest, name)

    def _shard_name(self, shard: int) -> str:
        return f"-{shard:05}-of-{self.num_shards:05}{self.preparation.suffix}"

    def _extraction_accounts(self) -> list[str]:
        return [self._extracted(index, "account.json") for index in range(len(self.inputs))]

    def _combination_accounts(self) -> list[str]:
        return [self._combined(f"{shard:05}.json") for shard in range(self.num_shards)]

    def _records(self, shard: int) -> Iterator[Keyed]:
        for index in range(len(self.inputs)):
            path = self._extracted(index, f"{shard:05}.gz")
            try:
                with storage.reading(path) as file:
                    for line in file:
                        yield Keyed._make(json.loads(line))
            except (EOFError, TypeError, ValueError, gzip.BadGzipFile, zlib.error) as error:
                # Without its account, the input that it is of is extracted again.
                raise storage.damaged(
                    self._extraction_accounts()[index], f"{path}: {error}"
                ) from error


def _finish(name: str, account: Account, path: str) -> Account:
    # Whoever finds this file need not do the unit again, so it comes last.
    storage.write_json(path, account.as_json())
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(account.counts.items()))
    logging.info("%s: %s", name, counts or "nothing")
    for damaged, fault in account.damaged.items():
        logging.warning("%s is damaged: %s", damaged, fault)
    return account


def _digest(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=dict)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
