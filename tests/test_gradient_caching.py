"""A batch encoded in chunks has the losses and gradients of the batch encoded at once."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import TASKS, TINY, WORDS, find_task, make_batch, make_examples, tiny_model

from xling_tf.encoders import gradient_caching
from xling_tf.overrides import apply_overrides
from xling_tf.text.preprocessor import TokenFeatures
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.training_input import TrainingInput
from xling_tf.trainer.workers import Workers

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

COLUMNS = (
    ["a b", "hello", "c d e", "f g", "world", "hello", "a a b c d e f g h i", "i"],
    ["hola", "mundo a", "j", "i j", "hola mundo unknown", "b b b", "j", "d e"],
    ["d", "e e", "f f f", "a j", "c i", "d d", "h", "g h i"],
)


def results(model, name, num_columns, *, in_graph):
    """Losses, hits, and the gradient of the loss for every variable, as arrays."""
    task = find_task(model, name)
    batch = make_batch(
        model, make_examples(*COLUMNS[:num_columns], labels=[0, 1, 2, 0, 1, 2, 2, 1])
    )
    variables = [*model.encoder.trainable_variables, *task.variables()]

    def step(batch):
        with tf.GradientTape() as tape:
            losses, hits = task.losses(model.encoder, batch)
            # Not the mean, which would forgive gradients of one example given to another.
            loss = tf.reduce_sum(losses * tf.range(1.0, 9.0))
        gradients = tape.gradient(loss, [variable.value for variable in variables])
        return losses, hits, [tf.convert_to_tensor(gradient) for gradient in gradients]

    losses, hits, gradients = (tf.function(step) if in_graph else step)(batch)
    paths = [variable.path for variable in variables]
    return losses.numpy(), hits.numpy(), dict(zip(paths, map(np.array, gradients), strict=True))


def make_model(examples_per_batch, *overrides):
    kinds = ("translation_ranking", "response_prediction", "quick_thought", "inference")
    sizes = [f"tasks.{kind}.examples_per_batch={examples_per_batch}" for kind in kinds]
    candidates = [f"tasks.{kind}.candidates=8" for kind in kinds]
    keras.utils.set_random_seed(1)
    return tiny_model(apply_overrides(TINY, [*sizes, *candidates, *overrides]))


def assert_close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    assert found[1].tolist() == expected[1].tolist()
    assert found[2].keys() == expected[2].keys()
    for path, gradient in expected[2].items():
        scale = np.abs(gradient).max()
        # Keys shift the scores of a query alike: the gradient of their bias is rounding errors.
        assert np.abs(found[2][path] - gradient).max() <= 5 * tolerance * scale + 1e-6, path


@pytest.mark.parametrize("name", TASKS)
def test_losses_and_every_gradient_are_those_of_the_batch_at_once(name, monkeypatch):
    # Tracing takes seconds: two tasks are traced, as in training, and two are computed eagerly.
    in_graph = name in ("translation_ranking_en-es", "quick_thought_es")
    calls = []
    encode_in_chunks = gradient_caching.encode_in_chunks
    monkeypatch.setattr(
        "xling_tf.tasks.base.encode_in_chunks",
        lambda *args: calls.append(args[-1]) or encode_in_chunks(*args),
    )
    # Three chunks of 8 examples: of 3 on average, and of unequal numbers of sentences.
    whole, parts = (
        results(make_model(size), name, TASKS[name], in_graph=in_graph) for size in (8, 3)
    )
    assert calls == [3]
    assert_close(parts, whole)


def test_a_sentence_or_two_a_chunk_and_the_other_order_of_norms():
    setting = "encoder.norm_first=true"
    whole, parts = (
        results(make_model(size, setting), "inference", 2, in_graph=False) for size in (8, 1)
    )
    assert_close(parts, whole)


def test_in_mixed_precision_it_differs_by_rounding():
    keras.config.set_dtype_policy("mixed_bfloat16")
    whole, parts = (
        results(make_model(size), "translation_ranking_en-es", 2, in_graph=True) for size in (8, 3)
    )
    # bfloat16 has 8 bits; the plain gradient of shared words is added up in it.
    assert_close(parts, whole, tolerance=0.01)


def test_chunks_take_equal_numbers_of_tokens_and_are_cut_to_their_longest():
    # Lengths 1 1 1 2 2 3 8 of the sorted sentences, 18 tokens: a third is 6, two thirds 12. The first
    # four have 5 tokens, the first six 10.
    lengths = tf.constant([3, 1, 8, 2, 1, 2, 1])
    tokens = tf.reshape(tf.range(7 * 8), [7, 8])
    features = TokenFeatures(lengths, lengths, lengths, tokens, lengths)
    chunks = gradient_caching._Chunks.cut(features, 3)
    assert [chunks.rows(chunk).numpy().tolist() for chunk in range(int(chunks.count))] == [
        [1, 4, 6, 3],
        [5, 0],
        [2],
    ]
    of_chunk, of_lengths = chunks.sentences(1)
    assert of_chunk.numpy().tolist() == tokens.numpy()[[5, 0], :3].tolist()
    assert of_lengths.numpy().tolist() == [2, 3]


@pytest.mark.parametrize("lengths", [[1], [64], [1, 64], [1, 1, 1]])
def test_there_are_no_empty_chunks(lengths):
    count = len(lengths)
    tokens = tf.zeros([count, max(lengths)], tf.int32)
    features = TokenFeatures(*[tf.zeros([1], tf.int32)] * 3, tokens, tf.constant(lengths))
    bounds = gradient_caching._Chunks.cut(features, 16).bounds.numpy()
    assert (bounds[0], bounds[-1]) == (0, count)
    assert (np.diff(bounds) > 0).all()


@pytest.mark.parametrize(("candidates", "size"), [(0, 4), (4, 4), (16, 16)])
def test_a_training_batch_holds_the_candidates(candidates, size):
    model = tiny_model(
        apply_overrides(
            TINY,
            [
                "tasks.translation_ranking.examples_per_batch=4",
                f"tasks.translation_ranking.candidates={candidates}",
            ],
        )
    )
    task = find_task(model, "translation_ranking_en-es")
    texts = ["a"] * 64
    inputs = TrainingInput(
        task,
        make_examples(texts, texts),
        model.preprocessor,
        model.config,
        Workers(make_strategy()),
    )
    assert len(next(inputs.batches(0)).labels) == size


def peak_megabytes(examples, examples_per_batch):
    """How much a training step of so many candidates adds to this process' peak memory."""
    config = apply_overrides(
        TINY,
        [
            *("encoder.hidden_dim=128", "encoder.intermediate_dim=512", "encoder.num_layers=3"),
            *("encoder.embedding_dim=64", "encoder.num_heads=4", "tasks.tower_dims=128"),
            f"tasks.translation_ranking.examples_per_batch={examples_per_batch}",
            f"tasks.translation_ranking.candidates={examples}",
        ],
    )
    model = tiny_model(config)
    task = find_task(model, "translation_ranking_en-es")
    variables = [variable.value for variable in model.encoder.trainable_variables]
    random = np.random.default_rng(0)

    def batch(count):
        texts = [" ".join(random.choice(WORDS, 12)) for _ in range(2 * count)]
        return make_batch(model, make_examples(texts[:count], texts[count:]))

    large = batch(examples)

    @tf.function(input_signature=[tf.nest.map_structure(relaxed, large)])
    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(task.losses(model.encoder, batch)[0])
        return [tf.reduce_sum(gradient) for gradient in tape.gradient(loss, variables)]

    step(batch(16))
    before = peak_kilobytes()
    step(large)
    return (peak_kilobytes() - before) / 1024


def peak_kilobytes():
    """The most memory that this program has had; getrusage's counts that of the process that started it."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])


def relaxed(tensor):
    """The type of a tensor of any size."""
    return tf.TensorSpec([None] * len(tensor.shape), tensor.dtype)


def measured(examples, examples_per_batch):
    """`peak_megabytes` in a process of its own, whose peak nothing else has raised."""
    tests = Path(__file__).parent
    call = f"print(test_gradient_caching.peak_megabytes({examples}, {examples_per_batch}))"
    result = subprocess.run(
        [sys.executable, "-c", f"import test_gradient_caching; {call}"],
        cwd=tests,
        env={**os.environ, "PYTHONPATH": str(tests.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(result.stdout.splitlines()[-1])


@pytest.mark.slow
def test_4096_candidates_take_far_less_memory_than_a_plain_batch_of_half_as_many():
    plain_256, plain_2048, cached_4096 = (
        measured(*sizes) for sizes in [(256, 256), (2048, 2048), (4096, 256)]
    )
    # Besides the activations of 256, there are the scores of 4096 x 4096: 64 MB, a few times over.
    assert cached_4096 < plain_256 + 8 * 64
    assert cached_4096 < plain_2048 / 2
