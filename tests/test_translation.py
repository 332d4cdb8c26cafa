"""Yu et al. 2018: LSTMs, the decoder's inputs, loss both ways and regularizers, by hand."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import ONE_TASK, read_lines
from testing import (
    DIM,
    LSTM,
    SMALL,
    WORDS,
    encoded,
    find_task,
    make_batch,
    make_examples,
    make_trainer,
    rows_of,
    tiny_config,
    tiny_model,
)

from xling_tf.baselines.yu2018.lstm import AttentionPooling, Lstm
from xling_tf.baselines.yu2018.translation import _candidates, draw_others
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.settings import apply_overrides

YU = tiny_config(
    *LSTM, "tasks.translation.weight=1", "tasks.translation_ranking.weight=0", *ONE_TASK
)
EXAMPLES = make_examples(["a b c", "hello", "d e"], ["b", "hola mundo", "f g h i"])

# What the tasks see of their corpora before they are trained.
SEEN = [text for pair in rows_of(EXAMPLES) for text in pair]


def yu(*settings, examples=EXAMPLES):
    model = tiny_model(apply_overrides(YU, settings))
    task = find_task(model, "translation_en-es")
    task.prepare(model.tokenizer, [SEEN[:3], SEEN[3:]])
    return model, task, make_batch(model, examples)


@pytest.mark.parametrize("reverse", [False, True])
def test_an_lstm_is_keras_own_and_stops_at_the_end(reverse):
    inputs = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    layer = Lstm(4, reverse)
    other = keras.layers.LSTM(4, return_sequences=True, go_backwards=reverse)
    layer(inputs, np.array([5, 5], np.int32))
    other(inputs)
    kernel, bias = layer.input_gates.get_weights()
    assert bias.tolist() == [0] * 4 + [1] * 4 + [0] * 8
    other.set_weights([kernel, layer.cell.recurrent.numpy(), bias])
    expected = other(inputs).numpy()[:, :: -1 if reverse else 1]
    assert layer(inputs, np.array([5, 5], np.int32)).numpy() == pytest.approx(expected, abs=1e-6)
    short = layer(inputs, np.array([5, 2], np.int32)).numpy()
    assert short[0] == pytest.approx(expected[0], abs=1e-6)
    alone = layer(inputs[1:, :2], np.array([2], np.int32)).numpy()
    assert short[1, :2] == pytest.approx(alone[0], abs=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_on_a_gpu_cudnn_is_given_what_keras_own_gives_it(reverse, monkeypatch):
    calls, random = [], np.random.default_rng(0)

    def cudnn(**inputs):
        names = "input", "input_h", "input_c", "params", "sequence_lengths"
        calls.append([inputs[name].numpy() for name in names])
        return inputs["input"][..., :4], inputs["input_h"], inputs["input_c"], None, None

    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["GPU:0"])
    monkeypatch.setattr(tf.raw_ops, "CudnnRNNV3", cudnn)
    inputs, vectors = (random.normal(size=size).astype(np.float32) for size in ((2, 5, 3), (2, 4)))
    layer, gates = Lstm(4, reverse), keras.layers.Dense(16, use_bias=False)
    gates.build(vectors.shape)
    states = layer(inputs, np.array([5, 2], np.int32), vectors, initial_gates=gates, training=True)
    other = keras.layers.LSTM(4, return_sequences=True, go_backwards=reverse)
    other.build((2, 5, 7))
    # The vectors are a part of each input.
    kernel = np.vstack([layer.input_gates.kernel, gates.kernel])
    other.set_weights([kernel, layer.cell.recurrent.numpy(), layer.input_gates.bias.numpy()])
    both = np.concatenate([inputs, np.repeat(vectors[:, None], 5, axis=1)], axis=2)
    start = [vectors, np.zeros((2, 4), np.float32)]
    expected = other(both, initial_state=start, mask=tf.sequence_mask([5, 2]))
    assert states.numpy().tolist() == expected[:, :: -1 if reverse else 1].numpy().tolist()
    np.testing.assert_equal(*calls)


def test_attention_pooling_by_hand():
    inputs = np.array([[[1, -5], [3, -7], [9, 9]]], np.float32)
    mask = np.array([[True, True, False]])
    layer = AttentionPooling(1)
    layer(inputs, mask)
    # Scores tanh(0.5) and tanh(1.5), times 2.
    layer.hidden.set_weights([np.array([[0.5], [0.0]])])
    layer.scores.set_weights([np.array([[2.0]])])
    first, second = np.exp(2 * np.tanh(0.5)), np.exp(2 * np.tanh(1.5))
    expected = (first * inputs[0, 0] + second * inputs[0, 1]) / (first + second)
    assert layer(inputs, mask).numpy()[0] == pytest.approx(expected, abs=1e-5)


def test_the_decoder_sees_the_language_the_vector_and_the_words_before():
    decoder = yu()[1].heads["decoder"]
    random = np.random.default_rng(0)
    vectors, words = (random.normal(size=size).astype(np.float32) for size in ((1, DIM), (4, 6)))

    def scores(tokens, language="en", vector=vectors):
        tokens, lengths = np.array([tokens], np.int32), np.array([3], np.int32)
        return decoder(vector, words, tokens, lengths, language=language).numpy()[0]

    before = scores([0, 1, 2])
    assert before.shape == (4, 5)
    # The scores at a position depend on no word from there on.
    changed = np.abs(scores([0, 3, 2]) - before).max(axis=1)
    assert (changed > 1e-6).tolist() == [False, False, True, True]
    assert (np.abs(scores([0, 1, 2], language="es") - before).max(axis=1) > 1e-6).all()
    assert (np.abs(scores([0, 1, 2], vector=-vectors) - before).max(axis=1) > 1e-6).all()
    # The vector is not the first state alone, but an input too.
    decoder.lstm.cell.recurrent.assign(np.zeros((DIM, 4 * DIM)))
    different = np.abs(scores([0, 1, 2], vector=-vectors) - scores([0, 1, 2])).max(axis=1)
    assert (different > 1e-6).all()


def test_the_loss_of_both_directions_by_hand():
    model, task, batch = yu("tasks.translation.regularizer=none")
    # Without outputs all scores are 0, and the chances of words to be candidates alone are left.
    task.heads["decoder"].output_projection.set_weights([np.zeros((DIM, 6)), np.zeros(6)])
    losses = task.losses(model.encoder, batch)[0].numpy()
    # Of the 13 tokens "b" is two and every other word one, so that a batch of 13 tokens lacks it
    # with the chance e^-2, and any other with e^-1. The softmax is of -log chance; the end is
    # always a candidate.
    chances = {
        word: 1 - np.exp(-2 if word == "b" else -1) for text in SEEN for word in text.split()
    }
    assert len(chances) == 12
    total = sum(1 / chance for chance in chances.values()) + 1
    for row, pair in enumerate(rows_of(EXAMPLES)):
        means = [
            np.mean([*(np.log(chances[w] * total) for w in t.split()), np.log(total)]) for t in pair
        ]
        assert losses[row] == pytest.approx(sum(means), rel=1e-5)


def test_a_words_chance_is_that_of_the_batchs_languages(tmp_path):
    # "j" is a word of each French sentence and of no Spanish one; "a" is in all English sentences.
    config = apply_overrides(YU, ["data.targets=es,fr", "tasks.translation.examples_per_batch=4"])
    english = ["a b", "a c", "a d", "a e"]
    examples = {
        "translation_en-es": make_examples(english, ["f", "g", "hola", "mundo"]),
        "translation_en-fr": make_examples(english, ["j", "j", "j", "j"]),
    }
    model = make_trainer(tmp_path, config, examples).model
    # Of the 12 tokens of a pair of languages "a" is 4, and "j" 4 in French; in Spanish it counts
    # half.
    for target, numbers in (("es", [4, 0.5]), ("fr", [4, 4])):
        task = find_task(model, f"translation_en-{target}")
        log_probabilities = task._log_probabilities([WORDS.index("a"), WORDS.index("j")], 12)
        expected = [np.log(1 - np.exp(-number)) for number in numbers]
        assert log_probabilities.numpy().tolist() == pytest.approx([*expected, 0], abs=1e-5)


def test_words_of_one_hash_bucket_are_one_candidate():
    # Both unknown words have the one row of unknown words: they are one word to the decoder.
    examples = make_examples(["a", "b"], ["unseen", "unknown"])
    model, _, batch = yu("tokenizer.num_oov_buckets=1", examples=examples)
    words = model.encoder.embed_words(batch.features.words)
    ids, rows, places = _candidates(batch.features.words, words)
    assert ids.shape == rows.shape[:1] == [3]
    assert places.numpy().tolist() == [0, 1, 2, 2]


def test_the_regularizers_by_hand():
    model, task, batch = yu("tasks.translation.alpha=2")
    source, target = np.split(
        encoded(model, [text.decode() for text in EXAMPLES.texts(np.arange(3))]), 2
    )
    squares = np.sum((source - target) ** 2, axis=1)
    places, has_other = draw_others(batch.fingerprints)
    assert has_other.numpy().all()
    distances = np.linalg.norm(source - target[places], axis=1)
    decay = sum(np.sum(v.numpy() ** 2) for v in model.encoder.dense_variables)

    def regularizer(name, fingerprints):
        task.config = dataclasses.replace(task.config, regularizer=name)
        return task._regularizer(model.encoder, source, target, fingerprints).numpy()

    contrastive = squares + np.maximum(0, 1 - distances) ** 2
    assert regularizer("contrastive", batch.fingerprints) == pytest.approx(contrastive, rel=1e-4)
    # Equal pairs are not pushed apart.
    assert regularizer("contrastive", batch.fingerprints * 0) == pytest.approx(squares, rel=1e-4)
    assert regularizer("weight_decay", batch.fingerprints) == pytest.approx([decay] * 3, rel=1e-4)
    assert regularizer("similarity", batch.fingerprints) == pytest.approx(squares, rel=1e-4)
    losses, _ = task.losses(model.encoder, batch)
    likelihoods = task._terms(model.encoder, batch)[0]
    assert losses.numpy() == pytest.approx(likelihoods.numpy() + 2 * squares, rel=1e-4)


@pytest.mark.slow
def test_it_learns_to_translate_and_is_exported(tmp_path):
    settings = [
        "tasks.translation.alpha=0.1",
        "tasks.translation.examples_per_batch=3",
        "training.steps=60",
        "optimizer.name=adam",
        "optimizer.learning_rate=0.03",
        "optimizer.embedding_learning_rate=0.03",
    ]
    trainer = make_trainer(tmp_path, apply_overrides(YU, settings), {"translation_en-es": EXAMPLES})
    trainer.train()
    first, *_, last = read_lines(tmp_path / "metrics.jsonl")
    assert last["loss"] < first["loss"] / 2
    assert last["accuracy"] > 0.9
    # The export translates to the language that is asked for.
    trainer.model.export(tmp_path / "model", {}, trainer.model.module())
    loaded, encoder = SentenceEncoder(tmp_path / "model"), trainer.model.encoder
    smaller = trainer.model.module("float16")
    for source, target in rows_of(EXAMPLES):
        assert loaded.call("translate", input=source, language="es") == target
        assert loaded.call("translate", input=[target], language="en") == [source]
        assert smaller.translate([source], "es").numpy().tolist() == [target.encode()]
    with pytest.raises(UserError, match="expected one of en, es for every text"):
        loaded.call("translate", input=["a"], language="fr")
    translate = tf.saved_model.load(str(tmp_path / "model")).translate
    (source, target), (more, other), _ = rows_of(EXAMPLES)
    both = translate([source, other], ["es", "en"]).numpy().tolist()
    assert both == [target.encode(), more.encode()]
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many languages as texts"):
        translate([source, more, "a"], ["es", "es"])
    # The papers' protocols see the mean of the hidden states.
    features = trainer.model.tokenizer(["a b c"])
    words = encoder.embed_words(features.words).numpy()[features.tokens.numpy()]
    both = [read(words, features.lengths) for read in (encoder.forward, encoder.backward)]
    states = encoder.top(np.concatenate(both, axis=2), features.lengths).numpy()
    raw = open_embedder(str(tmp_path / "model")).encode_raw(["a b c"])
    assert raw == pytest.approx(states.mean(axis=1), abs=1e-5)


def test_an_encoder_without_a_row_for_each_word_cannot_translate():
    with pytest.raises(UserError, match="predicts words by their rows of the encoder's table"):
        yu("encoder.kind=static", *SMALL[:2], "tokenizer.ngram_sizes=3")
