"""A corpus of a data folder: one file, or the shards of one."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.corpora.hard_negatives import with_negatives
from xling_tf.corpora.readers import Reading
from xling_tf.corpora.records import Corpus, Row, TranslationPair
from xling_tf.errors import UserError

Reader = Callable[..., Reading[Any]]


@dataclass(frozen=True, kw_only=True)
class FileCorpus(Corpus):
    """Records of files; a warning is logged for each file with lines left out.

    Attributes:
        shards: What the reader takes for each of the shards, which together are the corpus: a file, or
            the two of a Moses pair.
        read: The reader of their format.
        is_reversed: Whether source and target change places.
        mined: The file with the hard negatives of the pairs, if they are wanted.
    """

    shards: tuple[tuple[Path, ...], ...]
    read: Reader
    is_reversed: bool = False
    mined: Path | None = None

    def version(self) -> str:
        """Tells the files as they are now from others, by their names, sizes and times.

        Raises:
            UserError: One of them is not there any more.
        """
        paths = [path for shard in self.shards for path in shard]
        digest = hashlib.blake2b(digest_size=8)
        for path in [*paths, *([self.mined] if self.mined else [])]:
            try:
                status = path.stat()
            except OSError as error:
                raise UserError(
                    f"{path} must stay where it is while it is used, but is not there now "
                    f"({error.strerror}); bring it back, or start again without it"
                ) from error
            digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
        return digest.hexdigest()

    def __iter__(self) -> Iterator[Row]:
        """Yields the rows of shard after shard.

        Raises:
            UserError: No line is usable, a file cannot be read to its end, or the mined file is of
                other pairs.
        """
        if self.mined is None:
            return self._rows()
        pairs = (record for record, _ in self._rows() if isinstance(record, TranslationPair))
        return ((pair, None) for pair in with_negatives(pairs, self.mined))

    def _rows(self) -> Iterator[Row]:
        readings = [self.read(*paths) for paths in self.shards]
        for reading in readings:
            for record, group in reading:
                if self.is_reversed:
                    yield TranslationPair(record.target, record.source), group
                else:
                    yield record, group
            if reading.malformed:
                logging.warning("%s", reading.summary())
        if not any(reading.num_records for reading in readings):
            raise readings[0].nothing_usable()
