"""A teacher's vectors of the source sentences: computed once, then in float16 shards on the disk."""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.evaluators.batching import length_sorted_batches
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import Encode, encode_checked, require
from xling_tf.evaluators.systems import open_system
from xling_tf.files import read_json, replacing
from xling_tf.tasks.base import Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.trainer.input_pipeline import Examples, TaskExamples

# Texts of a shard: what is encoded again after a kill. 34 MB of vectors of 512 numbers.
SHARD_SIZE = 2**15
_CONTENT = "content.json"
# What the teacher is given at once.
_MAX_ROWS = 1024
_MAX_CHARACTERS = 2**17


class Teacher(NamedTuple):
    """A system whose vectors a student learns.

    Attributes:
        name: As the user calls it.
        sentences: n texts to an array `[n, dim]`.
        checksum: Tells its vectors from those of others.
        dim: Numbers of a vector.
    """

    name: str
    sentences: Encode
    checksum: str
    dim: int


def open_teacher(config: ExperimentConfig, cache: Path | None) -> Teacher | None:
    """Opens the teacher of the distillation tasks; None where the config has none of them.

    Args:
        config: Names it.
        cache: Folder that keeps its vectors by text, for other runs too; what has no checksum is not
            kept there. None: each run computes them.

    Raises:
        UserError: It cannot be used, or its vectors are not as wide as the student's.
    """
    name, hidden_dim = config.tasks.distillation.teacher, config.encoder.hidden_dim
    if not config.tasks.distillation.weight:
        return None
    system = open_system(name)
    dim = encode_checked(system, ["Hello"]).shape[1]
    if dim != hidden_dim:
        towers = ",".join(map(str, [*config.tasks.tower_dims[:-1], dim]))
        raise UserError(
            f"a teacher's vectors must have as many numbers as the student's, {hidden_dim}, but those of "
            f"{name} have {dim}: --set encoder.hidden_dim={dim} --set tasks.tower_dims={towers} fits the "
            "student to it"
        )
    if cache and system.checksum:
        system = cached(system, cache, show_progress=False)
    # Of what has no checksum, the name alone tells it from others.
    return Teacher(name, system, system.checksum or name, dim)


def with_vectors(
    tasks: Iterable[Task],
    examples: Mapping[str, TaskExamples],
    teacher: Teacher,
    folder: Path | None,
) -> dict[str, TaskExamples]:
    """Gives the examples of the distillation tasks the teacher's vectors of their sources.

    Each distinct text is encoded once, in shards: a process that was killed and is started again
    goes on with the first one that is missing. In memory are some bytes a text, and the vectors of a
    shard; later, those of a batch.

    Args:
        tasks: All of them.
        examples: Of each task, by its name.
        teacher: Encodes what is not in the folder.
        folder: Keeps the shards of one teacher and one set of texts; others are replaced. None: they
            are gone when the process has ended.

    Raises:
        UserError: A text's vector is zero or not finite.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:  # mapped files outlive their names
            return with_vectors(tasks, examples, teacher, Path(temporary))
    names = [task.name for task in tasks if isinstance(task, Distillation)]
    parts = [part for name in names for part in examples[name]]
    if not parts:
        return dict(examples)
    texts = _Texts(parts)
    shards = _shards(folder, teacher, texts)
    ends = accumulate((len(part) for part in parts), initial=0)
    taught = iter(
        dataclasses.replace(part, vectors=TeacherVectors(shards, texts.row_of[begin:end]))
        for part, (begin, end) in zip(parts, pairwise(ends), strict=True)
    )
    return {**examples, **{name: TaskExamples(next(taught), next(taught)) for name in names}}


class TeacherVectors:
    """The vectors of some examples, on the disk.

    Args:
        shards: `[SHARD_SIZE, dim]` float16 each, the last one shorter.
        rows: `[examples]` int64: where the vector of each stands in them.
    """

    def __init__(self, shards: Sequence[NDArray[np.float16]], rows: NDArray[np.int64]) -> None:
        self._shards = shards
        self._rows = rows
        self.shape = (len(rows), shards[0].shape[1])

    def __getitem__(self, indices: NDArray[np.int64], /) -> NDArray[np.float16]:
        """The vectors of some examples: `[indices, dim]`."""
        numbers, places = np.divmod(self._rows[indices], SHARD_SIZE)
        vectors = np.empty((len(indices), self.shape[1]), np.float16)
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._shards[number][places[here]]
        return vectors


class _Texts:
    """The distinct sources of examples, the longest first; numbers alone are in memory.

    Attributes:
        row_of: `[examples]` which of the distinct texts each has.
        digest: Tells these texts from others.
    """

    def __init__(self, parts: Sequence[Examples]) -> None:
        self._parts = parts
        self._starts = np.cumsum([0, *(len(part) for part in parts)])
        total = int(self._starts[-1])
        keys = np.fromiter(map(_key, map(self._read, range(total))), np.dtype((np.int64, 2)), total)
        # Texts with the same 64 bits are taken for equal.
        hashes, first, inverse = np.unique(keys[:, 0], return_index=True, return_inverse=True)
        order = np.argsort(-keys[first, 1], kind="stable")
        self._examples = first[order]
        self.row_of = np.argsort(order)[inverse]
        self.digest = hashlib.blake2b(hashes[order].tobytes(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self._examples)

    def shard(self, begin: int) -> list[str]:
        """The texts of the shard that begins there."""
        return [self._read(int(index)) for index in self._examples[begin : begin + SHARD_SIZE]]

    def _read(self, index: int) -> str:
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        part = self._parts[number]
        return part.texts_of(part.records[index - int(self._starts[number])])[0]


def _key(text: str) -> tuple[int, int]:
    # As Python's own hash, but the same in every process.
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True), len(text)


def _shards(folder: Path, teacher: Teacher, texts: _Texts) -> list[NDArray[np.float16]]:
    """Maps the shards of a folder, of which those missing are written first."""
    _begin(folder, teacher, texts)
    paths = {
        folder / f"shard-{b // SHARD_SIZE:05d}.npy": b for b in range(0, len(texts), SHARD_SIZE)
    }
    sizes = {path: min(SHARD_SIZE, len(texts) - begin) for path, begin in paths.items()}
    missing = [path for path in paths if not _is_whole(path, (sizes[path], teacher.dim))]
    if missing:
        megabytes = len(texts) * teacher.dim * np.dtype(np.float16).itemsize / 1e6
        logging.info(
            "%s encodes %d source sentences: %.0f MB in %s",
            *(teacher.name, len(texts), megabytes, folder),
        )
    there = len(texts) - sum(sizes[path] for path in missing)
    # None: hidden where it would fill a file instead of moving on a screen.
    with tqdm(total=len(texts), initial=there, unit="text", leave=False, disable=None) as bar:
        for path in missing:
            vectors = _encode(teacher, texts.shard(paths[path]), bar)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, vectors)
    return [np.load(path, mmap_mode="r") for path in paths]


def _begin(folder: Path, teacher: Teacher, texts: _Texts) -> None:
    """Empties the folder where it is of another teacher or of other texts."""
    of = {"teacher": teacher.checksum, "texts": texts.digest}
    content = {**of, "dim": teacher.dim, "shard_size": SHARD_SIZE}
    if folder.exists() and any(folder.iterdir()):
        with suppress(OSError, ValueError):
            if read_json(folder / _CONTENT) == content:
                return
        logging.info("%s is of another teacher or of other texts: it begins anew", folder)
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    with replacing(folder / _CONTENT) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _is_whole(path: Path, shape: tuple[int, int]) -> bool:
    """True if a shard holds vectors as `_encode` makes them; damaged ones are encoded again."""
    if not path.exists():
        return False
    # Not `np.load`, which opens archives as well.
    with suppress(EOFError, OSError, ValueError):
        vectors = np.lib.format.open_memmap(path, mode="r")
        # What is lost on a disk reads as zeros, and other bytes as a number that is not finite before
        # long: of all float16 a thirty-second.
        bits = vectors.view(np.uint16) & 0x7FFF
        is_ours = vectors.shape == shape and vectors.dtype == np.float16
        if is_ours and (bits < 0x7C00).all() and bits.any(axis=1).all():
            return True
    logging.warning("%s is damaged: its texts are encoded again", path)
    return False


def _encode(teacher: Teacher, texts: Sequence[str], bar: tqdm) -> NDArray[np.float16]:
    """Encodes texts, whose vectors must be worth learning."""
    vectors = np.empty((len(texts), teacher.dim), np.float16)
    lengths = [len(text) for text in texts]
    for rows in length_sorted_batches(lengths, max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS):
        batch = [texts[row] for row in rows]
        encoded = encode_checked(teacher.sentences, batch)
        wide = np.full(len(batch), encoded.shape[1] == teacher.dim)
        require(wide, batch, f"vectors of {teacher.dim} numbers", f"{encoded.shape[1]} numbers")
        with np.errstate(over="ignore"):
            vectors[rows] = encoded
        finite = np.asarray(np.isfinite(vectors[rows]).all(axis=1))
        require(finite, batch, "a vector that float16 holds", "numbers beyond 65504")
        require(np.any(vectors[rows], axis=1), batch, "a vector with a direction", "zero only")
        bar.update(len(rows))
    return vectors
