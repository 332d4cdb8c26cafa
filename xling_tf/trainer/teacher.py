"""A teacher's vectors of the source sentences: computed once, then in float16 shards on the disk."""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from xling_tf.trainer.examples import TaskExamples
from xling_tf.trainer.input_pipeline import Examples

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

    Returns:
        The examples of all tasks.

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

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of examples and of a vector's numbers."""
        return len(self._rows), self._shards[0].shape[1]

    def __getitem__(self, indices: NDArray[np.int64], /) -> NDArray[np.float16]:
        """The vectors of some examples: `[indices, dim]`."""
        numbers, places = np.divmod(self._rows[indices], SHARD_SIZE)
        vectors = np.empty((len(indices), self.shape[1]), np.float16)
        for number in np.unique(numbers):
            here = numbers == number
            vectors[here] = self._shards[number][places[here]]
        return vectors


class _Texts:
    """The distinct first texts of examples, the longest first; numbers alone are in memory.

    Attributes:
        row_of: `[examples]` which of the distinct texts each has.
        digest: Tells these texts from others.
    """

    def __init__(self, parts: Sequence[Examples]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])
        keys = np.fromiter(_hashes_and_lengths(parts), np.dtype((np.int64, 2)), self._ends[-1])
        # Texts with the same 64 bits are taken for equal.
        hashes, first, inverse = np.unique(keys[:, 0], return_index=True, return_inverse=True)
        order = np.argsort(-keys[first, 1], kind="stable")
        self._examples = first[order]
        self.row_of = np.argsort(order)[inverse]
        self.digest = hashlib.blake2b(hashes[order].tobytes(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self._examples)

    def read(self, begin: int) -> list[str]:
        """The texts of the shard that begins there."""
        return [self._read(int(index)) for index in self._examples[begin : begin + SHARD_SIZE]]

    def _read(self, index: int) -> str:
        number = int(np.searchsorted(self._ends, index, side="right"))
        part = self._parts[number]
        return _first_text(part, index - int(self._ends[number]) + len(part))


def _hashes_and_lengths(parts: Sequence[Examples]) -> Iterator[tuple[int, int]]:
    for part in parts:
        for index in range(len(part)):
            text = _first_text(part, index)
            # As Python's own hash, but the same in every process.
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            yield int.from_bytes(digest, "little", signed=True), len(text)


def _first_text(examples: Examples, index: int) -> str:
    return examples.texts_of(examples.records[index])[0]


def _shards(folder: Path, teacher: Teacher, texts: _Texts) -> list[NDArray[np.float16]]:
    """Maps the shards of a folder, of which those missing are written first."""
    content = {"teacher": teacher.checksum, "texts": texts.digest}
    _begin(folder, {**content, "dim": teacher.dim, "shard_size": SHARD_SIZE})
    starts = range(0, len(texts), SHARD_SIZE)
    paths = [folder / f"shard-{number:05d}.npy" for number in range(len(starts))]
    missing = {
        path: begin
        for path, begin in zip(paths, starts, strict=True)
        if not _is_whole(path, (min(SHARD_SIZE, len(texts) - begin), teacher.dim))
    }
    if missing:
        _write(missing, teacher, texts)
    return [np.load(path, mmap_mode="r") for path in paths]


def _begin(folder: Path, content: Mapping[str, str | int]) -> None:
    """Empties the folder where it is of another teacher or of other texts."""
    path = folder / _CONTENT
    if folder.exists() and any(folder.iterdir()):
        with suppress(OSError, ValueError):
            if read_json(path) == content:
                return
        logging.info("%s is of another teacher or of other texts: it begins anew", folder)
        shutil.rmtree(folder)
    folder.mkdir(exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _is_whole(path: Path, shape: tuple[int, int]) -> bool:
    """Whether a shard holds vectors as `_checked` lets them pass; others are told and encoded again."""
    if not path.exists():
        return False
    try:
        vectors = np.lib.format.open_memmap(
            path, mode="r"
        )  # which opens no archives, as `load` does
        # What is lost on a disk reads as zeros, and what is no number of ours as one that is not finite
        # before long: of all float16 a thirty-second.
        bits = vectors.view(np.uint16) & 0x7FFF
        is_ours = vectors.shape == shape and vectors.dtype == np.float16
        if is_ours and (bits < 0x7C00).all() and bits.any(axis=1).all():
            return True
    except (EOFError, OSError, ValueError):
        pass
    logging.warning("%s is damaged: its texts are encoded again", path)
    return False


def _write(missing: Mapping[Path, int], teacher: Teacher, texts: _Texts) -> None:
    total = len(texts)
    megabytes = total * teacher.dim * np.dtype(np.float16).itemsize / 1e6
    logging.info(
        "%s encodes %d source sentences: %.0f MB in %s",
        *(teacher.name, total, megabytes, next(iter(missing)).parent),
    )
    left = sum(min(SHARD_SIZE, total - begin) for begin in missing.values())
    # None: hidden where it would fill a file instead of moving on a screen.
    with tqdm(total=total, initial=total - left, unit="text", leave=False, disable=None) as bar:
        for path, begin in missing.items():
            vectors = _encode(teacher, texts.read(begin), bar)
            with replacing(path) as temporary, temporary.open("wb") as file:
                np.save(file, vectors)


def _encode(teacher: Teacher, texts: list[str], bar: tqdm) -> NDArray[np.float16]:
    vectors = np.empty((len(texts), teacher.dim), np.float16)
    lengths = [len(text) for text in texts]
    batches = length_sorted_batches(lengths, max_rows=_MAX_ROWS, max_length=_MAX_CHARACTERS)
    for rows in batches:
        vectors[rows] = _checked(teacher, [texts[row] for row in rows])
        bar.update(len(rows))
    return vectors


def _checked(teacher: Teacher, texts: list[str]) -> NDArray[np.float16]:
    """Encodes texts, whose vectors must be worth learning."""
    encoded = encode_checked(teacher.sentences, texts)
    wide = np.full(len(texts), encoded.shape[1] == teacher.dim)
    require(wide, texts, f"vectors of {teacher.dim} numbers", f"{encoded.shape[1]} numbers")
    with np.errstate(over="ignore"):
        vectors = encoded.astype(np.float16)
    finite = np.asarray(np.isfinite(vectors).all(axis=1))
    require(finite, texts, "a vector that float16 holds", "numbers beyond 65504")
    require(np.any(vectors, axis=1), texts, "a vector with a direction", "zero only")
    return vectors
