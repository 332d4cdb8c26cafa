"""Teachers: models whose vectors and words students learn; each vector is computed once."""

import dataclasses
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray
from scipy import sparse

from xling_tf.client.neighbours import chunks
from xling_tf.config import BM25, SELF
from xling_tf.encoders.static import StaticEncoder
from xling_tf.errors import UserError, library
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Embedder, encode_checked, encode_units
from xling_tf.files import folder_of_this_process
from xling_tf.model import Model
from xling_tf.program import progress
from xling_tf.tasks.base import Task
from xling_tf.tokenizers import treebank
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.trainer.input_pipeline import Examples, TaskExamples

# Number of texts that the teacher gets at once, from which it makes batches of similar length.
_CHUNK = 2**14
# The a of Arora et al. 2017, sec. 3. Their 10^-3 preserved less of the teacher's similarities.
_SIF = 1e-4
_NGRAM_SCALE = 0.1
# Length of pairs of characters at the start. They outnumber the characters that they repeat, and
# many join neighbours that form no word (docs/research/experiments.md, "Why did pairs of
# characters cost similarity").
_PAIR_SCALE = 0.5
# Share of a word's contexts in its vector, the rest being the teacher's vector of the word alone; a
# word in n sentences gets n / (n + _RARE) of this share.
_CONTEXT, _RARE = 0.5, 2


class Teacher(NamedTuple):
    """A model whose vectors a student learns, or whose vectors find wrong answers."""

    system: Embedder  # whose checksum identifies the model; its name, if it has none
    dim: int  # width of the vectors
    # True if the model has a checksum: without one, it may have changed since another run.
    is_fixed: bool


def open_teachers(tasks: Sequence[Task], source: str) -> dict[str, Teacher]:
    """Returns the models that are tasks' teachers or miners, by name.

    Raises:
        UserError: A model does not know the source language, or is missing.
    """
    teachers = {}
    names = dict.fromkeys(name for task in tasks for name in (task.teacher, *task.miners) if name)
    if BM25 in names:
        library("bm25s", "bm25s", "data")  # an error now if it is not installed
    for name in [name for name in names if name not in (BM25, SELF)]:
        logging.info("opening the teacher %s", name)
        system = open_embedder(name)
        # Only models of this package say which languages they know.
        languages = system.description.get("config", {}).get("info", {}).get("languages") or [
            source
        ]
        if source not in languages:
            raise UserError(
                f"a teacher must know data.source, {source!r}, but {system.name} knows "
                f"{', '.join(languages)}; choose another teacher"
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
    """Returns all examples, those of the given tasks with the teacher's vectors of their sources.

    Each distinct text is encoded once. The teacher is not needed afterwards.

    Args:
        tasks: The tasks that learn from the teacher.
        examples: The examples of all tasks, by name.
        teacher: The teacher.
        folder: Cache of the vectors, also for restarts; None for a temporary one.
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
            for rows in chunks(np.arange(len(part)), _CHUNK):
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


def words_from_teacher(
    model: Model, teacher: Teacher, folder: Path | None, pairs: Sequence[Examples]
) -> None:
    """Initialises the word vectors by a teacher's vectors of the words and of their sentences.

    The average of words is then a sentence encoder before any training. A word's vector is the mean
    of two: the teacher's vector of the word alone, and the mean of its vectors of the training
    sentences that contain the word. (Wada et al. 2025, "Static Word Embeddings for Sentence
    Semantic Representation", average the vectors at the word's own positions, which not every
    teacher gives.) A translation has the vector of its source, so the teacher need not know its
    language.

    The vectors are centred and reduced to their `embedding_dim` principal components; the
    projection restores them if they are as wide as the sentence vectors. Frequent words get less
    weight (Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", sec.
    3), and so do pairs of Chinese or Japanese characters. N-grams and hash buckets start near zero.

    Args:
        model: A model whose tokenizer knows words.
        teacher: The teacher of distillation.
        folder: Cache of the teacher's vectors; None for a temporary one.
        pairs: Translations with the teacher's vectors of the sources, of unit length.
    """
    static, vocabulary = model.encoder.static_part, model.tokenizer.known_words
    encode = cached(teacher.system, folder or folder_of_this_process(), show_progress=True)
    words = chunks(np.array(vocabulary, object), _CHUNK)
    with progress(f"{teacher.system.name} encodes {len(vocabulary)} words"):
        vectors = np.concatenate([encode_checked(encode, part.tolist()) for part in words])
    scales = np.where(treebank.are_pairs(vocabulary), _PAIR_SCALE, 1)
    assign_words(static, vectors, scales, *_contexts(model.tokenizer, pairs, vectors.shape[1]))


def assign_words(
    static: StaticEncoder,
    vectors: NDArray[np.floating],
    scales: NDArray[np.floating] | None = None,
    contexts: NDArray[np.float32] | None = None,
    counts: NDArray[np.int64] | None = None,
    *,
    sif: float = _SIF,
) -> None:
    """Initialises an average of words by a teacher's vectors; see `words_from_teacher`.

    Args:
        static: The average.
        vectors: `[words, width]` of the vocabulary, which is sorted by frequency.
        scales: `[words]` factors of the vectors; None for 1.
        contexts: `[words, width]` centred vectors of sentences with the words; None for none.
        counts: `[words]` numbers of these sentences.
        sif: The a of Arora et al. 2017, sec. 3; a larger one gives frequent words more weight.
    """
    # Zipf's law.
    shares = 1 / np.arange(1, len(vectors) + 1)
    shares /= shares.sum()
    weights = np.sqrt(shares) / np.sqrt(shares).sum()
    centred = (vectors - weights @ vectors) / np.linalg.norm(vectors, axis=1).mean()
    if contexts is not None and counts is not None:
        _mix_in(centred, contexts, counts)
    components = _principal_components(centred, weights, static.embedding_dim)
    lengths = sif / (sif + shares) * (1 if scales is None else scales)
    rows = centred @ components * lengths[:, None]
    is_same_space = vectors.shape[1] == static.hidden_dim
    projection = components.T if is_same_space else np.eye(static.embedding_dim, static.hidden_dim)
    static.assign_teacher_words(rows, projection, ngram_scale=_NGRAM_SCALE)


def _mix_in(
    words: NDArray[np.floating], contexts: NDArray[np.float32], counts: NDArray[np.int64]
) -> None:
    """Moves vectors of words towards those of their contexts, in place; `counts` are of these."""
    if not counts.any():
        return
    share = (_CONTEXT * counts / (counts + _RARE)).astype(np.float32)[:, None]
    # A single sentence has length 0.
    length = max(np.linalg.norm(contexts[counts > 0], axis=1).mean(), 1e-6)
    contexts *= share * np.float32(np.linalg.norm(words, axis=1).mean() / length)
    words *= 1 - share
    words += contexts


def _principal_components(
    rows: NDArray[np.floating], weights: NDArray[np.float64], dim: int
) -> NDArray[np.float64]:
    """Returns the `[width, dim]` principal components of weighted rows; those it lacks are 0."""
    _, directions = np.linalg.eigh((rows * weights[:, None]).T @ rows)  # in ascending order
    components = np.zeros((rows.shape[1], dim))
    components[:, : min(dim, rows.shape[1])] = directions[:, ::-1][:, :dim]
    return components


def _contexts(
    tokenizer: Tokenizer, pairs: Iterable[Examples], dim: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns for each word the mean centred vector of the sentences with it, and their number."""
    num_words = len(tokenizer.known_words)
    sums, counts = np.zeros((num_words, dim), np.float32), np.zeros(num_words, np.int64)
    total, num_pairs = np.zeros(dim), 0
    for part in pairs:
        for indices in chunks(np.arange(len(part)), _CHUNK):
            vectors, count = part.vectors[indices].astype(np.float32), len(indices)
            total, num_pairs = total + vectors.sum(axis=0), num_pairs + count
            for texts in part.columns(indices):
                tokens = tokenizer.tokenize(tf.constant(list(texts)))
                ids = tokenizer.word_ids(tokens.values).numpy()
                cells = np.unique((ids * np.int64(count) + tokens.value_rowids())[ids < num_words])
                words, inverse = np.unique(cells // count, return_inverse=True)
                ones, shape = np.ones(len(cells), np.float32), (len(words), count)
                sums[words] += sparse.csr_array((ones, (inverse, cells % count)), shape) @ vectors
                counts[words] += np.bincount(inverse)
    seen = counts > 0
    sums[seen] = sums[seen] / counts[seen, None] - total / max(num_pairs, 1)
    return sums, counts
