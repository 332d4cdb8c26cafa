"""Hard negatives for the corpora of a data folder, one mined file a corpus."""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.hard_negatives import mined_path, write_mined
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import normalised
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.evaluators.encoding import Encode, encode_checked
from xling_tf.files import replacing, require_writable_folder
from xling_tf.search.mining import MiningConfig, mine_hard_negatives

QUERIES = ("target", "source")

_ENCODED = 16_384  # texts encoded before their vectors go to the disk


def model_fingerprint(folder: Path) -> str:
    """Tells a SavedModel from others, wherever it lies: a digest of its graph and weights."""
    digest = hashlib.blake2b(digest_size=16)
    for path in [folder / "saved_model.pb", *sorted((folder / "variables").glob("*"))]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "blake2b").digest())
    return digest.hexdigest()


class MinedPairs(NamedTuple):
    """Pairs with their negatives, and how they came to them.

    Attributes:
        pairs: Those with at least one negative, in the order of the pairs they come from.
        counts: Pairs by their number of negatives, and candidates dropped by rule.
    """

    pairs: Iterator[TranslationPair]
    counts: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class CorpusMiner:
    """Mines corpora with one model.

    Attributes:
        encode: The model.
        model: What tells it from others, for the record beside a mined file.
        config: Which similar targets are taken.
        query: Similar to what: to the right translation ("5 translations that are similar to the
            correct translation", Chidambaram et al. 2018, sec. 2.2), or to the source, as in Guo et
            al. 2018.
        show_progress: Whether to show bars.
    """

    encode: Encode
    model: str
    config: MiningConfig
    query: str = "target"
    show_progress: bool = False

    def __post_init__(self) -> None:
        """Refuses an unknown query.

        Raises:
            UserError: It is unknown.
        """
        if self.query not in QUERIES:
            raise UserError(f"query expects {' or '.join(QUERIES)}, got {self.query!r}")

    def mine_folder(
        self,
        data: Path,
        *,
        source: str,
        targets: Sequence[str],
        names: Sequence[str] = (),
        output: Path | None = None,
    ) -> dict[str, dict[str, int]]:
        """Writes a mined file for each parallel corpus of a data folder.

        A file that was mined by the same model with the same knobs from the same pairs is kept.
        Only training pairs are mined, among training targets: no held-out sentence is seen.

        Args:
            data: The data folder.
            source: The source language.
            targets: The target languages.
            names: Of the corpora to mine; none: all.
            output: The folder whose `hard_negatives` gets the files; None: `data`.

        Returns:
            The counts of each corpus, by its name and languages.

        Raises:
            UserError: There is no such corpus, or a file cannot be written.
        """
        corpora = [
            corpus
            for corpus in load_folder(data, source=source, targets=targets)
            if corpus.kind == "parallel"
        ]
        if unknown := sorted(set(names) - {corpus.name for corpus in corpora}):
            raise UserError(
                f"the name of a corpus is expected, got {unknown[0]!r}; {data} has "
                f"{', '.join(sorted({corpus.name for corpus in corpora}))}"
            )
        folder = (output or data) / "hard_negatives"
        require_writable_folder(folder, "give another with --output")
        counts = {}
        for corpus in transient_store(corpora, folder).corpora:
            pairs = [pair for pair in corpus.train if isinstance(pair, TranslationPair)]
            if pairs and (not names or corpus.name in names):
                path = mined_path(output or data, corpus.name, corpus.languages)
                try:
                    counts[f"{corpus.name}.{corpus.languages}"] = self._mine_file(pairs, path)
                except OSError as error:
                    raise UserError(
                        f"{path} must be written, but cannot be: {error.strerror}; make room, or "
                        "give another folder with --output; the same command goes on from here"
                    ) from error
        return counts

    def mine_pairs(self, pairs: Sequence[TranslationPair], folder: Path) -> MinedPairs:
        """Finds wrong translations among the targets of some pairs.

        Texts that differ only in case, in spaces or in forms of their characters are one text.
        Right answers are also the targets of pairs with the same source.

        Args:
            pairs: Of one corpus.
            folder: Where the vectors are on the disk meanwhile.

        Returns:
            The pairs with negatives.

        Raises:
            UserError: FAISS is not installed, or a vector is not finite.
        """
        targets, positives = _distinct([pair.target for pair in pairs])
        sources, groups = _distinct([pair.source for pair in pairs])
        candidates = embed(targets, self.encode, folder, show_progress=self.show_progress)
        queries, query_rows = candidates, positives
        if self.query == "source":
            queries = embed(sources, self.encode, folder, show_progress=self.show_progress)
            query_rows = groups
        indices, dropped = mine_hard_negatives(
            queries,
            candidates,
            positives,
            groups,
            self.config,
            query_rows=query_rows,
            show_progress=self.show_progress,
        )
        found = np.bincount(np.sum(indices >= 0, axis=1), minlength=self.config.num_negatives + 1)
        counts = {
            "pairs": len(pairs),
            "distinct targets": len(targets),
            **{f"pairs with {number}": int(count) for number, count in enumerate(found)},
            **{f"dropped by {rule}": count for rule, count in dropped.items()},
        }
        mined = (
            pair._replace(negatives=tuple(targets[index] for index in row if index >= 0))
            for pair, row in zip(pairs, indices, strict=True)
        )
        return MinedPairs((pair for pair in mined if pair.negatives), counts)

    def _mine_file(self, pairs: Sequence[TranslationPair], path: Path) -> dict[str, int]:
        record_path = path.with_name(path.name.removesuffix(".tsv.gz") + ".json")
        made_by = {"model": self.model, "query": self.query, **asdict(self.config)}
        recipe = {**made_by, "pairs": _fingerprint(pairs)}
        kept = _read_record(record_path) if path.is_file() else {}
        if kept.get("recipe") == recipe:
            logging.info("%s is kept: model, knobs and pairs are the same", path)
            return kept["counts"]
        logging.info("mining %s: %d training pairs", path, len(pairs))
        record_path.unlink(missing_ok=True)
        mined = self.mine_pairs(pairs, path.parent)
        write_mined(path, mined.pairs)
        record = json.dumps({"recipe": recipe, "counts": mined.counts}, indent=2)
        with replacing(record_path) as temporary:
            temporary.write_text(record + "\n", encoding="utf-8")
        return mined.counts


def embed(
    texts: Sequence[str], encode: Encode, folder: Path, *, show_progress: bool = False
) -> NDArray[np.float16]:
    """Encodes any number of texts into unit vectors that lie on the disk.

    Their file has no name, so nothing is left of it when the array is gone or the program killed.

    Args:
        texts: At least one.
        encode: The model.
        folder: Where the file is.
        show_progress: Whether to show a bar.

    Returns:
        `[texts, dim]` float16, memory-mapped.

    Raises:
        UserError: A vector is not finite.
    """
    with (
        tempfile.TemporaryFile(dir=folder) as file,
        tqdm(total=len(texts), disable=not show_progress, unit="text", desc="encoding") as bar,
    ):
        for start in range(0, len(texts), _ENCODED):
            vectors = encode_checked(encode, list(texts[start : start + _ENCODED]))
            norms = np.linalg.norm(vectors, axis=1, keepdims=True)
            file.write((vectors / np.maximum(norms, 1e-12)).astype(np.float16).tobytes())
            bar.update(len(vectors))
        file.flush()
        return np.memmap(file, np.float16, mode="r", shape=(len(texts), vectors.shape[1]))


def _distinct(texts: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Lists each text once, in its first form, and says which one each text is."""
    places: dict[str, int] = {}
    first: list[str] = []
    rows = np.empty(len(texts), np.int64)
    for number, text in enumerate(texts):
        rows[number] = places.setdefault(normalised(text), len(first))
        if rows[number] == len(first):
            first.append(text)
    return first, rows


def _fingerprint(pairs: Sequence[TranslationPair]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for source, target, _ in pairs:
        digest.update(f"{source}\t{target}\n".encode())
    return digest.hexdigest()


def _read_record(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
