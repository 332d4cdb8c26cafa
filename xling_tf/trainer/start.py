"""What a training starts from: a model, word vectors, a teacher's words, or random numbers."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging
from numpy.typing import NDArray
from scipy import sparse

from xling_tf.client.neighbours import chunks
from xling_tf.config import ExperimentConfig
from xling_tf.corpora.store import CorpusStore
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import encode_checked
from xling_tf.files import folder_of_this_process
from xling_tf.model import WEIGHTS, Model
from xling_tf.program import progress
from xling_tf.savedmodel.saved_models import find_model
from xling_tf.tasks.base import Task
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.trainer.context import Run, RunContext
from xling_tf.trainer.distribution import Workers
from xling_tf.trainer.input_pipeline import Examples
from xling_tf.trainer.resolution import START, VECTORS
from xling_tf.trainer.teacher import CHUNK, Teacher
from xling_tf.trainer.validation import check_scores
from xling_tf.weights import Weights, assign_weights, read_weights

# The a of Arora et al. 2017, sec. 3. Their 10^-3 preserved less of the teacher's similarities.
_SIF = 1e-4
_NGRAM_SCALE = 0.1
# Share of a word's contexts in its vector, the rest being the teacher's vector of the word alone; a
# word in n sentences gets n / (n + _RARE) of this share.
_CONTEXT, _RARE = 0.5, 2


def check_init(run: Run) -> None:
    """Copies the model that a new run starts from; a `UserError` says why it cannot be used."""
    start = run.config.initial.model
    if not start or run.folder.resolved() is not None:
        return
    model = Model.from_pretrained(start)
    run.config.similarity.require_below(model.encoder.hidden_dim)
    for name, stage in run.config.active_stages.items():
        # A trained CNN is no average of words without its convolutions.
        if stage.part == "average" and model.encoder.static_part is None:
            raise UserError(
                f"stages.{name}.part=average needs a starting model that is a transformer with "
                f"encoder.bow_residual, not {start}; set stages.{name}.share=0"
            )
    model.save_pretrained(run.run_dir / START)


def initial_weights(ctx: RunContext, model: Model, new_heads: Iterable[str]) -> None:
    """Assigns the weights of the model or of the word vectors that training starts from, if any."""
    if ctx.config.initial.model:
        weights_from_model(ctx.workers, ctx.asked.run_dir, model, new_heads)
    elif ctx.config.initial.vectors:
        if ctx.workers.is_chief:
            model.encoder.assign_word_vectors(**np.load(ctx.asked.run_dir / VECTORS))
        ctx.workers.share([table.value for table in model.encoder.table_variables])


def weights_from_model(
    workers: Workers, run_dir: Path, model: Model, new_heads: Iterable[str]
) -> None:
    """Assigns the weights that training starts from, read by the chief; new heads stay random."""
    variables = {
        name: variable.value for name, variable in _without(new_heads, model.weights).items()
    }
    workers.from_chief(
        lambda: assign_weights(variables, _start_weights(run_dir, new_heads), str(run_dir / START))
    )
    workers.share([*variables.values()])
    for task in new_heads:
        logging.info(
            "%s: the starting model has no fitting heads; new ones are initialised at random", task
        )


def average_with_start(run_dir: Path, model: Model, share: float, new_heads: Iterable[str]) -> None:
    """Averages a trained model's weights with its start's (Wortsman et al. 2022, eq. 1)."""
    variables = model.weights
    for name, start in _start_weights(run_dir, new_heads).items():
        variables[name].assign(share * start + (1 - share) * np.asarray(variables[name].value))


def _start_weights(run_dir: Path, new_heads: Iterable[str]) -> Weights:
    """Reads the weights that training started from, but for tasks with new heads."""
    return _without(new_heads, read_weights(run_dir / START / WEIGHTS))


def _without(heads: Iterable[str], weights: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out the weights of the heads of some tasks."""
    prefixes = tuple(f"heads/{task}/" for task in heads)
    return {name: value for name, value in weights.items() if not name.startswith(prefixes)}


def begin_run(ctx: RunContext, model: Model, tasks: Sequence[Task]) -> None:
    """Saves what a restart needs; until then, the folder accepts corrected settings."""
    folder, config = ctx.folder, ctx.config
    is_begun = (folder.path / TRAINED_ON).exists() and folder.resolved() is not None
    if is_begun or not ctx.workers.is_chief:
        return
    learned = trained_on(config, tasks, ctx.store)
    if config.initial.model:
        check_scores(lambda texts: model(texts).numpy(), ctx.store.corpora)
        # The model has also seen the texts of its starting model.
        learned = learned.joined(TrainedOn.read(find_model(config.initial.model)) or learned)
    folder.write(TRAINED_ON, learned.to_bytes())
    folder.begin(config, ctx.store.contents(), ctx.resolved)


def trained_on(config: ExperimentConfig, tasks: Sequence[Task], store: CorpusStore) -> TrainedOn:
    """Returns the hashes of the texts that the tasks and the word vectors learn from."""
    parts = [
        task.learned(corpus.train)
        for task in tasks
        for corpus in store.corpora
        if (corpus.kind, corpus.languages) == (task.kind, task.languages)
        and config.data.corpus_weights.get(corpus.name, 1) > 0
    ]
    if config.initial.vectors and not config.initial.model:
        parts += [corpus.train for corpus in store.corpora if corpus.kind == "parallel"]
    return TrainedOn.from_hashes(part.text_hashes for part in parts)


def words_from_teacher(
    model: Model, teacher: Teacher, folder: Path | None, pairs: Sequence[Examples]
) -> None:
    """Initialises the word vectors with the teacher's vectors of the words and of the sentences
    with them.

    The average of words is then a sentence encoder before any training. A word's vector is the mean
    of the teacher's vector of the word alone, and of its vectors of the training sentences with the
    word. (Wada et al. 2025, "Static Word Embeddings for Sentence Semantic Representation", average
    the vectors at the word's own positions, which not every teacher gives.) A translation has the
    vector of its source, so the teacher need not know its language.

    The vectors are centred and reduced to their `embedding_dim` principal components; the
    projection restores them if they are as wide as the sentence vectors. Frequent words get less
    weight (Arora et al. 2017, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", sec.
    3). N-grams and hash buckets start near zero.

    Args:
        model: A model whose tokenizer knows words.
        teacher: The teacher of distillation.
        folder: Cache of the teacher's vectors; None for a temporary one.
        pairs: Translations with the teacher's vectors of the sources, of unit length.
    """
    static, vocabulary = model.encoder.static_part, model.tokenizer.known_words
    encode = cached(teacher.system, folder or folder_of_this_process(), show_progress=True)
    words = chunks(np.array(vocabulary, object), CHUNK)
    with progress(f"{teacher.system.name} encodes {len(vocabulary)} words"):
        vectors = np.concatenate([encode_checked(encode, part.tolist()) for part in words])
    # Zipf's law: the vocabulary is sorted by frequency.
    shares = 1 / np.arange(1, len(vocabulary) + 1)
    shares /= shares.sum()
    weights = np.sqrt(shares) / np.sqrt(shares).sum()
    centred = (vectors - weights @ vectors) / np.linalg.norm(vectors, axis=1).mean()
    contexts, counts = _contexts(model.tokenizer, pairs, vectors.shape[1])
    if counts.any():
        share = (_CONTEXT * counts / (counts + _RARE)).astype(np.float32)[:, None]
        # A single sentence has length 0.
        length = max(np.linalg.norm(contexts[counts > 0], axis=1).mean(), 1e-6)
        contexts *= share * np.float32(np.linalg.norm(centred, axis=1).mean() / length)
        centred *= 1 - share
        centred += contexts
    dim = static.embedding_dim
    _, directions = np.linalg.eigh((centred * weights[:, None]).T @ centred)  # in ascending order
    components = np.zeros((vectors.shape[1], dim))
    components[:, : min(dim, vectors.shape[1])] = directions[:, ::-1][:, :dim]
    rows = centred @ components * (_SIF / (_SIF + shares))[:, None]
    is_same_space = vectors.shape[1] == static.hidden_dim
    projection = components.T if is_same_space else np.eye(dim, static.hidden_dim)
    static.assign_teacher_words(rows, projection, ngram_scale=_NGRAM_SCALE)


def _contexts(
    tokenizer: Tokenizer, pairs: Iterable[Examples], dim: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Returns for each word the mean centred vector of the sentences with it, and their number."""
    num_words = len(tokenizer.known_words)
    sums, counts = np.zeros((num_words, dim), np.float32), np.zeros(num_words, np.int64)
    total, num_pairs = np.zeros(dim), 0
    for part in pairs:
        for indices in chunks(np.arange(len(part)), CHUNK):
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
