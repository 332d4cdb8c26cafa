"""The average of words: by hand, as a transformer's start, from a teacher; the transformer."""

import numpy as np
import pytest
import tensorflow as tf
from encode_functions import random_vectors
from programs import read_lines
from testing import (
    DIM,
    encode,
    make_examples,
    make_trainer,
    require_gradients,
    tiny_config,
    tiny_model,
)

from xling_tf.client.neighbours import cosine_similarity
from xling_tf.evaluators.encoding import Embedder
from xling_tf.layers.pooling import unit_length
from xling_tf.savedmodel.encoder import ExportedEncoder
from xling_tf.settings import apply_overrides
from xling_tf.trainer.teacher import Teacher, words_from_teacher

pytestmark = pytest.mark.usefixtures("without_graphs")

STATIC = tiny_config("encoder.kind=static", "encoder.hidden_dim=8")
TEXTS = ["a hello a", "b", "", "hola mundo unseen"]
TWO_STAGES = tiny_config(
    "encoder.bow_residual=true",
    "stages.average.share=0.5",
    "stages.average.examples_per_batch=3",
    "training.steps=8",
    "optimizer.decay=linear",
)
EXAMPLES = {
    "translation_ranking_en-es": make_examples(
        ["a b", "c", "d e", "f", "g h"], ["a", "b c", "d", "e", "f g"]
    ),
    "inference": make_examples(["a b", "c d"], ["b", "d"], labels=[0, 1]),
}


def test_it_is_the_mean_of_the_words_also_where_they_are_tabulated():
    model = tiny_model(STATIC)
    encoder, features = model.encoder, model.tokenizer(tf.constant(["a hello"]))
    words = encoder.project(encoder.embed_words(features.words)).numpy()
    found = encode(model, TEXTS)
    assert found[0] == pytest.approx((2 * words[0] + words[1]) / 3, abs=1e-6)
    assert np.isfinite(found).all()
    serving = ExportedEncoder(model.tokenizer, encoder)
    assert serving(tf.constant(TEXTS)).numpy() == pytest.approx(found, abs=1e-6)


def test_a_transformer_starts_as_the_average_and_learns_what_to_add():
    model = tiny_model(TWO_STAGES)
    features = model.tokenizer(tf.constant(TEXTS))
    before = unit_length(model.encoder.static(features)).numpy()
    assert encode(model, TEXTS) == pytest.approx(before, abs=1e-6)
    kernel = model.encoder.context_projection.kernel
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model.encoder(features) ** 2)
    kernel.assign_sub(tape.gradient(loss, kernel.value))
    assert np.abs(encode(model, TEXTS) - before).max() > 1e-3


@pytest.mark.parametrize(("least", "steps"), [(6, 6), (9, 8)])
def test_the_first_stage_trains_the_average_and_heads_alone(least, steps, tmp_path):
    settings = [f"stages.average.min_steps={least}", "stages.whole.earlier_rate=0"]
    config = apply_overrides(TWO_STAGES, settings)
    trainer = make_trainer(tmp_path, config, EXAMPLES)
    encoder = trainer._stages[-1].encoder
    static = {id(v) for v in encoder.static.trainable_variables}
    average = [v for v in encoder.trainable_variables if id(v) in static]
    later = [v for v in encoder.trainable_variables if id(v) not in static]
    start = {id(v): v.numpy() for v in encoder.trainable_variables}
    seen = []
    step = trainer._train_step

    def watched(stage):
        before = [v.numpy() for v in average]
        result = step(stage)
        moved = any((v.numpy() != start[id(v)]).any() for v in later)
        learnt = any((v.numpy() != old).any() for v, old in zip(average, before, strict=True))
        seen.append((result.task.name, moved, learnt))
        return result

    trainer._train_step = watched
    assert trainer.train()
    assert [moved for _, moved, _ in seen] == [False] * steps + [True] * (8 - steps)
    assert [learnt for *_, learnt in seen] == [True] * steps + [False] * (8 - steps)
    assert {task for task, *_ in seen[:4]} == set(EXAMPLES)
    # The rates fall in each stage from its begin to its end; what is left of the budget ends it
    # too.
    rates = [line["learning_rate"] for line in read_lines(tmp_path / "metrics.jsonl")]
    shares = [n / steps for n in range(steps)] + [0, 1 / 2][: 8 - steps]
    assert rates == pytest.approx([rates[0] * (1 - share) for share in shares])


def test_a_restart_in_either_stage_changes_nothing(tmp_path):
    config = apply_overrides(TWO_STAGES, ["stages.average.min_steps=5"])
    examples = {"inference": EXAMPLES["inference"]}
    whole = make_trainer(tmp_path / "whole", config, examples)
    whole.train()
    for stop in (2, 6):
        part = make_trainer(tmp_path / "part", config, examples)

        def interrupted(stage, part=part, step=part._train_step, stop=stop):
            if part.step == stop:
                raise KeyboardInterrupt
            return step(stage)

        part._train_step = interrupted
        with pytest.raises(KeyboardInterrupt):
            part.train()
        part._save()
    again = make_trainer(tmp_path / "part", config, examples)
    again.train()
    for one, other in zip(whole._checkpoints.variables, again._checkpoints.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def words_of_teacher(model, folder, examples):
    """The vectors of a model's words as they start, and those that their teacher gives them."""
    words = model.tokenizer.vocabulary
    teach = random_vectors(dim=DIM)
    teacher = Teacher(Embedder(name="teacher", sentences=teach, checksum="one"), DIM, is_fixed=True)
    words_from_teacher(model, teacher, folder, examples)
    table = model.encoder.embedding.words.table.numpy()
    assert not table[len(words) :].any()
    return table[: len(words)] @ model.encoder.input_projection.kernel.numpy(), teach(list(words))


@pytest.mark.parametrize("dim", [DIM, DIM + 2])
def test_words_start_as_their_teacher_has_them(dim, tmp_path):
    # As many components as the vectors have: nothing is lost but the mean, and the length of
    # frequent words and of pairs of characters.
    words = ["<empty>", "hello", "中", "hola", "中文"]
    model = tiny_model(apply_overrides(STATIC, [f"encoder.embedding_dim={dim}"]), words)
    found, vectors = words_of_teacher(model, tmp_path, [])
    shares = 1 / np.arange(1, len(found) + 1)
    expected = vectors - np.average(vectors, axis=0, weights=np.sqrt(shares))
    assert np.diag(cosine_similarity(found, expected)).min() > 1 - 1e-4
    # Arora et al. 2017, sec. 3: a / (a + p), here of p = 1 / rank / H.
    factors = 1e-4 / (1e-4 + shares / shares.sum()) * [1, 1, 1, 1, 1 / 2]
    relative = np.linalg.norm(found, axis=1) / np.linalg.norm(expected, axis=1) / factors
    assert relative == pytest.approx(np.full(len(found), relative[0]), rel=1e-3)


def test_words_start_near_the_sentences_with_them(tmp_path):
    # Sentences of vectors e0 and e1, whose mean is (e0 + e1) / 2. "a" is in both (once each, though
    # twice in the second), so its context is zero; "b" has e0, "c" e1, each twice, with the
    # translations: the centred contexts are (e0 - e1) / 2 and (e1 - e0) / 2. No other word is in a
    # sentence.
    model = tiny_model(STATIC)
    vectors = np.eye(2, DIM, dtype=np.float32)
    pairs = make_examples(["a b", "a a c"], ["b", "c unseen"], vectors=vectors)
    found, alone = words_of_teacher(model, tmp_path, [pairs])
    expected = alone - np.average(alone, axis=0, weights=np.arange(1, len(found) + 1) ** -0.5)
    length = np.linalg.norm(expected, axis=1).mean()
    # Contexts have the words' mean length: those of a, b and c have 0, 1/sqrt(2) and 1/sqrt(2), on
    # average sqrt(2) / 3. Two sentences of _RARE + 2 are a half, and half of that is the share of
    # contexts, 1/4.
    context = length / (np.sqrt(2) / 3) * (vectors[0] - vectors[1]) / 2
    for word, vector in {"a": 0 * context, "b": context, "c": -context}.items():
        place = model.tokenizer.vocabulary.index(word)
        expected[place] = 3 / 4 * expected[place] + 1 / 4 * vector
    assert np.diag(cosine_similarity(found, expected)).min() > 1 - 1e-4


@pytest.mark.parametrize("norm_first", [False, True])
def test_without_layers_it_is_the_mean_of_the_words(norm_first):
    # With no block: mean over tokens of projected word * sqrt(hidden_dim) + position; where blocks
    # normalise what they take and not what they give, normalised at the end.
    model = tiny_model(tiny_config("encoder.num_layers=0", f"encoder.norm_first={norm_first}"))
    features = model.tokenizer(tf.constant(["a hello a"]))
    encoder = model.encoder
    words = encoder.static.project(encoder.embed_words(features.words)).numpy()
    tokens = words[[0, 1, 0]] * np.sqrt(8) + encoder.positions[:3]
    if norm_first:
        tokens -= tokens.mean(axis=1, keepdims=True)
        tokens /= np.sqrt(np.square(tokens).mean(axis=1, keepdims=True) + 1e-6)
    assert encode(model, ["a hello a"])[0] == pytest.approx(tokens.mean(axis=0), abs=1e-5)


@pytest.mark.parametrize(("norm_first", "last_norm"), [(False, 0), (True, 16)])
def test_tables_and_dense_variables_are_all_there_is_and_a_gradient_reaches_each(
    norm_first, last_norm
):
    model = tiny_model(tiny_config(f"encoder.norm_first={norm_first}"))
    encoder = model.encoder
    tables, dense = encoder.table_variables, encoder.dense_variables
    num_ngrams = model.tokenizer.num_ngrams
    assert [table.shape for table in tables] == [(18, 6), (num_ngrams, 6)]  # 14 words and 4 buckets
    together = {id(variable) for variable in (*tables, *dense)}
    assert len(together) == len(tables) + len(dense)
    assert together == {id(variable) for variable in encoder.trainable_variables}
    # By hand: tables 18*6 = 108 and 6 for each n-gram; n-gram layer 6*6 + 6 = 42; projection
    # 6*8 + 8 = 56; block: 8*24 + 24 = 216, 8*8 + 8 = 72, norms 2*16 = 32, 8*12 + 12 = 108,
    # 12*8 + 8 = 104.
    block = 216 + 72 + 32 + 108 + 104
    assert encoder.count_params() == 108 + 6 * num_ngrams + 42 + 56 + block + last_norm
    require_gradients(encoder, model.tokenizer(tf.constant(TEXTS)))
