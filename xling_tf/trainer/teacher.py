"""Teachers: models whose vectors or wrong answers students learn; each is computed once."""

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import logging

from xling_tf.client.neighbours import chunks
from xling_tf.errors import UserError
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Embedder, encode_checked, encode_units
from xling_tf.files import folder_of_this_process
from xling_tf.program import progress
from xling_tf.search.hard_negatives import mine_hard_negatives
from xling_tf.tasks.base import Task
from xling_tf.trainer.input_pipeline import Examples, TaskExamples

# Number of texts that the teacher gets at once, from which it makes batches of similar length.
CHUNK = 2**14


class Teacher(NamedTuple):
    """A model whose vectors, or the wrong answers that they find, a student learns."""

    system: Embedder  # whose checksum identifies the model; its name, if it has none
    dim: int  # width of the vectors
    # True if the model has a checksum: without one, it may have changed since another run.
    is_fixed: bool


def open_teachers(tasks: Sequence[Task], source: str) -> dict[str, Teacher]:
    """Returns tasks' teachers and miners by name; they must know the source language."""
    teachers = {}
    for name in dict.fromkeys(
        name for task in tasks for name in (task.teacher, task.miner) if name
    ):
        logging.info("opening the teacher %s", name)
        system = open_embedder(name)
        # Only models of this package say which languages they know.
        languages = system.description.get("config", {}).get("info", {}).get("languages") or [
            source
        ]
        if source not in languages:
            raise UserError(
                f"a teacher must know data.source, {source!r}, but {system.name} knows "
                f"{', '.join(languages)}: choose another teacher"
            )
        dim, is_fixed = encode_checked(system, ["Hello"]).shape[1], bool(system.checksum)
        system = dataclasses.replace(system, checksum=system.checksum or name)
        teachers[name] = Teacher(system, dim, is_fixed)
    return teachers


def with_vectors(
    tasks: Iterable[Task],
    examples: Mapping[str, TaskExamples],
    teacher: Teacher,
    folder: Path | None,
) -> dict[str, TaskExamples]:
    """Returns all examples, with the teacher's vectors of the first column of the given tasks.

    Each distinct text is encoded once: the folder caches the vectors, also for restarts. None
    stands for a temporary folder. The teacher is not needed afterwards.
    """
    names = [task.name for task in tasks if task.name in examples]
    parts = [part for name in names for part in examples[name]]
    folder = folder or folder_of_this_process()
    folder.mkdir(parents=True, exist_ok=True)
    encode = cached(teacher.system, folder, show_progress=False)
    done, total = 0, sum(map(len, parts))
    title = f"{teacher.system.name} encodes the texts of {total} examples into {folder}"

    def add_vectors(part: Examples) -> Examples:
        nonlocal done
        # The file disappears with this process. Unit vectors need no more precision; a zero vector
        # cannot be learned.
        with tempfile.TemporaryFile(dir=folder) as file:
            for rows in chunks(np.arange(len(part)), CHUNK):
                texts = [text.decode() for text in part.columns(rows)[0]]
                file.write(
                    encode_units(encode, texts, allow_zero=False).astype(np.float16).tobytes()
                )
                done += len(rows)
                report(f"{done / total:.0%} of them")
            file.flush()
            shape = (len(part), teacher.dim)
            vectors = (
                np.memmap(file, np.float16, "r", shape=shape) if len(part) else np.zeros(shape)
            )
        return dataclasses.replace(part, vectors=vectors)

    with progress(title) as report:
        return {
            **examples,
            **{name: TaskExamples(*map(add_vectors, examples[name])) for name in names},
        }


def with_negatives(part: Examples, miner: Teacher, folder: Path | None, seed: int) -> Examples:
    """Returns examples whose last column has a wrong text for each query, found by the miner's
    vectors.

    It is drawn from the ten nearest texts with less than .95 of the right one's cosine (de Souza
    Moreira et al. 2024, "NV-Retriever", sec. 3.2, "TopK-PercPos"). The folder is that of
    `with_vectors`.
    """
    encode = cached(miner.system, folder, show_progress=False)
    columns = (
        [text.decode() for text in column] for column in part.columns(np.arange(len(part)))[:2]
    )
    pairs = list(zip(*columns, strict=True))
    with progress(f"{miner.system.name} finds wrong answers for {len(part)} examples"):
        found = mine_hard_negatives(
            encode, pairs, num_negatives=10, relative_margin=0.05, by_query=True
        )
    random = np.random.default_rng(seed)
    # The right text stands for one that is missing.
    chosen = (
        random.choice(wrong or pair[1:]).encode() for pair, wrong in zip(pairs, found, strict=True)
    )
    mined = np.fromiter(chosen, object, len(part))
    return dataclasses.replace(
        part, columns=lambda indices: [*part.columns(indices)[:-1], mined[indices]]
    )
