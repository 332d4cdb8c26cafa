"""A teacher's vectors of the texts it teaches with: each is computed once, and kept on the disk."""

import dataclasses
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError, progress
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import System, encode_checked, encode_units
from xling_tf.evaluators.systems import open_system
from xling_tf.files import folder_of_this_process
from xling_tf.model import Model
from xling_tf.tasks.base import Task
from xling_tf.tasks.distillation import Distillation
from xling_tf.tasks.question_answering import QuestionAnswering
from xling_tf.trainer.input_pipeline import Examples, TaskExamples

# Texts that the teacher is given at once, of which batches of similar length are made.
_CHUNK = 2**14
# The a of Arora et al. 2017, sec. 3; 10^-3 there, which kept less of the teacher's similarities.
_SIF = 1e-4
_NGRAM_SCALE = 0.1
_Rows = Sequence[tuple[str, ...]]  # the texts of examples, one for each of the task's columns


def _sources(system: System, rows: _Rows) -> NDArray[Any]:
    return encode_units(system, [row[0] for row in rows])


def _questions_and_answers(system: System, rows: _Rows) -> NDArray[Any]:
    answers = [row[1] for row in rows]
    questions = encode_units(system.encode_questions, [row[0] for row in rows])
    responses = encode_units(lambda texts: system.encode_responses(texts, texts), answers)
    return np.concatenate([questions, responses], axis=1)


class Teacher(NamedTuple):
    """A system whose vectors a student learns."""

    system: System
    checksum: str  # tells its vectors from those of others
    dim: int  # of what `encode` gives
    encode: Callable[[System, _Rows], NDArray[Any]] = _sources  # of examples' texts: `[examples, dim]`


def open_teachers(config: ExperimentConfig) -> dict[type[Task], Teacher]:
    """Opens the teacher of each kind of task that the config gives one.

    Raises:
        UserError: One cannot be used, as `open_teacher` says.
    """
    teachers: dict[type[Task], Teacher] = {}
    if config.tasks.distillation.weight:
        with progress(f"opening the teacher {config.tasks.distillation.teacher}"):
            teachers[Distillation] = open_teacher(config)
    own = config.tasks.question_answering
    if own.weight and own.teacher:
        with progress(f"opening the teacher {own.teacher}"):
            system = open_system(own.teacher)
            dim = encode_checked(system.encode_questions, ["Hello?"], name=system.name).shape[1]
        teachers[QuestionAnswering] = Teacher(
            system, system.checksum or own.teacher, 2 * dim, _questions_and_answers
        )
    return teachers


def open_teacher(config: ExperimentConfig) -> Teacher:
    """Opens the teacher of the distillation tasks.

    Several are one whose vectors stand beside each other: what it finds is the mean of their cosines.

    Raises:
        UserError: It cannot be used, does not know the language of the sources, or its vectors are not as
            wide as the student's.
    """
    name, hidden_dim = config.tasks.distillation.teacher, config.encoder.hidden_dim
    systems = [open_system(part) for part in name.split(",")]
    for system in systems:
        _require_language(system, config.data.source)
    system = _beside_each_other(systems) if len(systems) > 1 else systems[0]
    dim = encode_checked(system, ["Hello"]).shape[1]
    if dim != hidden_dim and not config.tasks.distillation.score_scale:
        towers = ",".join(map(str, [*config.tasks.tower_dims[:-1], dim]))
        raise UserError(
            f"a teacher's vectors must have as many numbers as the student's, {hidden_dim}, but those of "
            f"{name} have {dim}: --set encoder.hidden_dim={dim} --set tasks.tower_dims={towers} fits the "
            "student to it, and tasks.distillation.score_scale=20 learns from any"
        )
    # Of what has no checksum, the name alone tells it from others.
    return Teacher(system, system.checksum or name, dim)


def _require_language(system: System, source: str) -> None:
    try:  # a model of this package; what other systems know is their user's affair
        known = system.description["config"]["data"]
        languages = [known["source"], *known["targets"]]
    except (LookupError, TypeError):
        return
    if source not in languages:
        raise UserError(
            f"a teacher must know data.source, {source!r}, as it is given such sentences, but "
            f"{system.name} knows {', '.join(languages)}: give another with --teacher"
        )


def _beside_each_other(systems: Sequence[System]) -> System:
    def encode(texts: list[str]) -> NDArray[np.float64]:
        return np.concatenate([encode_units(system, texts) for system in systems], axis=1)

    checksums = [system.checksum for system in systems]
    return System(
        name=" and ".join(system.name for system in systems),
        sentences=encode,
        checksum=None if None in checksums else " ".join(map(str, checksums)),
    )


def with_vectors(
    tasks: Iterable[Task],
    examples: Mapping[str, TaskExamples],
    teacher: Teacher,
    folder: Path | None,
) -> dict[str, TaskExamples]:
    """Gives the examples of tasks of a kind the teacher's vectors of sources, or of questions and answers.

    Each distinct text is encoded once: a process that was killed and is started again goes on with those
    that are missing. The teacher itself is not needed afterwards.

    Raises:
        UserError: A text's vector is zero or not finite.
    """
    names = [task.name for task in tasks if task.name in examples]
    parts = [part for name in names for part in examples[name]]
    if not parts:
        return dict(examples)
    folder = folder or folder_of_this_process()
    system = dataclasses.replace(teacher.system, checksum=teacher.checksum)
    keeping = cached(system, folder, show_progress=False)
    total = sum(map(len, parts))
    title = f"{system.name} encodes the texts of {total} examples into {folder}"
    # None: hidden where it would fill a file instead of moving on a screen.
    with (
        progress(title) as report,
        tqdm(total=total, unit="example", leave=False, disable=sys.stderr is None or None) as bar,
    ):
        done = 0  # a hidden bar does not count
        for part in parts:
            for begin in range(0, len(part), _CHUNK):
                rows = _texts(part, np.arange(begin, min(begin + _CHUNK, len(part))))
                teacher.encode(keeping, rows)
                done += len(rows)
                bar.update(len(rows))
                report(f"{done} of them")
    # It holds no function of the teacher's, whose memory is for the training now.
    missing: Any = {role: _missing for role in ("questions", "responses") if getattr(system, role)}
    reader = System(name=system.name, sentences=_missing, checksum=system.checksum, **missing)
    kept = cached(reader, folder, show_progress=False)
    lock = threading.Lock()  # several tasks read batches at the same time, of one file

    def taught(part: Examples) -> Examples:
        vectors = TeacherVectors(partial(teacher.encode, kept), teacher.dim, part, lock)
        return dataclasses.replace(part, vectors=vectors)

    return {**examples, **{name: TaskExamples(*map(taught, examples[name])) for name in names}}


def start_words(model: Model, teacher: Teacher, folder: Path | None) -> None:
    """Gives each word of the vocabulary its teacher's vector, as far as the tables can hold it.

    The vectors lose their mean and all but their `embedding_dim` principal components, which the
    projection turns back; frequent words are weighted down (Arora et al. 2017, "A Simple but
    Tough-to-Beat Baseline for Sentence Embeddings", sec. 3). N-grams and hash buckets start near zero. The
    average of words is then a sentence encoder before any training.
    """
    static, vocabulary = model.encoder.static_part, model.preprocessor.vocabulary
    assert not isinstance(vocabulary, bytes)  # of words, not of pieces
    system = dataclasses.replace(teacher.system, checksum=teacher.checksum)
    encode = cached(system, folder or folder_of_this_process(), show_progress=True)
    begins = range(0, len(vocabulary), _CHUNK)
    with progress(f"{system.name} encodes {len(vocabulary)} words"):
        vectors = np.concatenate(
            [encode_checked(encode, list(vocabulary[begin : begin + _CHUNK])) for begin in begins]
        )
    shares = 1 / np.arange(1, len(vocabulary) + 1)  # Zipf's law: the vocabulary is sorted by frequency
    shares /= shares.sum()
    weights = np.sqrt(shares) / np.sqrt(shares).sum()
    centred = (vectors - weights @ vectors) / np.linalg.norm(vectors, axis=1).mean()
    dim = static.config.embedding_dim
    # The last are the principal ones.
    _, directions = np.linalg.eigh((centred * weights[:, None]).T @ centred)
    components = np.zeros((vectors.shape[1], dim))
    components[:, : min(dim, vectors.shape[1])] = directions[:, ::-1][:, :dim]
    rows = centred @ components * (_SIF / (_SIF + shares))[:, None]
    table, projection = static.embedding.words.table, static.input_projection
    buckets = np.zeros((table.shape[0] - len(rows), dim))
    if static.num_ngrams:
        rows *= 2  # the other half is the n-grams'
        combine = static.embedding.combine_ngrams.kernel
        combine.assign(combine * _NGRAM_SCALE)
    table.assign(np.concatenate([rows, buckets]))
    same_space = vectors.shape[1] == static.hidden_dim
    projection.kernel.assign(components.T if same_space else np.eye(dim, static.hidden_dim))


class TeacherVectors:
    """The vectors of some examples, on the disk."""

    def __init__(
        self, encode: Callable[[_Rows], NDArray[Any]], dim: int, examples: Examples, lock: threading.Lock
    ) -> None:
        self.shape = (len(examples), dim)
        self._encode, self._examples, self._lock = encode, examples, lock

    def __getitem__(self, indices: NDArray[np.int64], /) -> NDArray[np.float32]:
        """The vectors of some examples, each text's of unit length: `[indices, dim]`."""
        with self._lock:
            vectors = self._encode(_texts(self._examples, indices))
        return vectors.astype(np.float32).reshape(-1, self.shape[1])


def _texts(examples: Examples, indices: NDArray[np.int64]) -> _Rows:
    return [examples.texts_of(examples.records[index]) for index in indices.tolist()]


def _missing(texts: list[str], *contexts: list[str]) -> NDArray[np.float32]:
    raise UserError(
        f"the vectors of {len(texts)} texts are missing from the teacher's file, as of {texts[0]!r}: start "
        "the same command again, which computes them"
    )
