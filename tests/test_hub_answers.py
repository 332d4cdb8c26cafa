"""The encoders of questions and of answers in their contexts, exported."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import CARD_FILES, SENTENCES, TINY, find_task, tiny_model

from xling_tf.errors import UserError
from xling_tf.evaluators.systems import open_saved_model
from xling_tf.hub import module as hub
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.overrides import apply_overrides

QUESTIONS = ["a b", "c d e", "hello world"]
ANSWERS = ["hola", "b b b", "hello mundo"]
CONTEXTS = ["hola a c d", "d b b b e a c d e f g h i j a b c", "hello mundo unknown"]
DIM = TINY.encoder.hidden_dim


def make_model(*overrides: str) -> Model:
    # Contexts may be longer than sentences, whose limit is 12 here.
    on = ("tasks.question_answering.weight=1", "text.max_context_tokens=16")
    keras.utils.set_random_seed(1)
    return tiny_model(apply_overrides(TINY, [*on, *overrides]))


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model()


@pytest.fixture(scope="module")
def folder(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "qa"
    hub.export(model.hub_module(), path, CARD_FILES)
    return path


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Any:
    return tf.saved_model.load(str(folder))


def live(model: Model, answers: list[str], contexts: list[str]) -> tuple[tf.Tensor, tf.Tensor]:
    """Vectors of questions and answers as the task in training compares them."""
    task = find_task(model, "question_answering_en")
    texts = tf.constant([*QUESTIONS, *answers])
    features = model.preprocessor(texts, tf.constant(contexts))
    question, answer, context = task.encode(model.encoder, features)
    return unit_length(task.question_tower(question)), unit_length(task._respond(answer, [context]))


@pytest.mark.parametrize("normalize", [False, True])
def test_the_export_computes_what_the_task_in_training_computes(normalize: bool) -> None:
    model = make_model(f"tasks.similarity.normalize={str(normalize).lower()}")
    # Encodings far from unit length, so that it matters whether they are normalised.
    for variable in model.encoder.variables:
        variable.assign(3 * variable)
    questions, answers = live(model, ANSWERS, CONTEXTS)
    module = model.hub_module()
    np.testing.assert_allclose(module.question_encoder(QUESTIONS), questions, atol=1e-5)
    np.testing.assert_allclose(module.response_encoder(ANSWERS, CONTEXTS), answers, atol=1e-5)


def test_loaded_equals_live_by_call_and_by_signature(model: Model, loaded: Any) -> None:
    questions, answers = live(model, ANSWERS, CONTEXTS)
    np.testing.assert_allclose(loaded.question_encoder(QUESTIONS), questions, atol=1e-5)
    for vectors in (
        loaded.response_encoder(ANSWERS, CONTEXTS),
        loaded.response_encoder(np.array(ANSWERS, object), context=tf.constant(CONTEXTS)),
        loaded.signatures["response_encoder"](
            context=tf.constant(CONTEXTS), input=tf.constant(ANSWERS)
        )["outputs"],
    ):
        np.testing.assert_allclose(vectors, answers, atol=1e-5)
    of_questions = loaded.signatures["question_encoder"](input=tf.constant(QUESTIONS))["outputs"]
    np.testing.assert_allclose(of_questions, questions, atol=1e-5)
    # The context makes a difference, beyond the limit of sentences too.
    assert np.abs(loaded.response_encoder(ANSWERS) - answers).max() > 1e-3
    cut = [" ".join(context.split()[:12]) for context in CONTEXTS]
    assert np.abs(loaded.response_encoder(ANSWERS, cut)[1] - answers[1]).max() > 1e-4


def test_signatures_are_those_of_the_published_module(loaded: Any) -> None:
    def inputs(name: str) -> set[str]:
        return set(loaded.signatures[name].structured_input_signature[1])

    assert inputs("question_encoder") == {"input"}
    assert inputs("response_encoder") == {"input", "context"}
    assert inputs("default") == inputs("serving_default") == {"inputs"}
    sentences = loaded.signatures["default"](inputs=tf.constant(SENTENCES))["outputs"]
    np.testing.assert_allclose(loaded(SENTENCES), sentences, atol=1e-6)
    assert np.abs(loaded(QUESTIONS) - loaded.question_encoder(QUESTIONS)).max() > 1e-3


def test_an_answer_without_context_is_its_own(loaded: Any) -> None:
    alone = loaded.response_encoder(ANSWERS, ANSWERS)
    np.testing.assert_array_equal(loaded.response_encoder(ANSWERS), alone)
    np.testing.assert_array_equal(loaded.response_encoder(ANSWERS, ["", " \t", ""]), alone)
    mixed = loaded.response_encoder(ANSWERS, [CONTEXTS[0], "", CONTEXTS[2]])
    in_contexts = loaded.response_encoder(ANSWERS, CONTEXTS)
    expected = [in_contexts[0], alone[1], in_contexts[2]]
    np.testing.assert_allclose(mixed, expected, atol=1e-6)


def test_one_context_is_that_of_all_answers_and_any_other_number_an_error(loaded: Any) -> None:
    expected = loaded.response_encoder(ANSWERS, [CONTEXTS[0]] * 3)
    np.testing.assert_allclose(loaded.response_encoder(ANSWERS, CONTEXTS[0]), expected, atol=1e-6)
    assert loaded.response_encoder([]).shape == loaded.response_encoder([], []).shape == (0, DIM)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many contexts as answers"):
        loaded.response_encoder(ANSWERS, CONTEXTS[:2])


def test_any_context_gives_a_finite_unit_vector(loaded: Any) -> None:
    odd = ["\ufeff\0", "x" * 10_000, b"\xff\xfe \xc3", "猫" * 5000]
    vectors = loaded.response_encoder(
        [b"hola"] * 4, [o.encode() if isinstance(o, str) else o for o in odd]
    )
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_calls_trace_nothing_anew(loaded: Any) -> None:
    call = loaded.response_encoder.__call__
    before = call.experimental_get_tracing_count()
    for count in range(1, 20):
        loaded.response_encoder(["hola"] * count, ["hola mundo"] * count)
        loaded.response_encoder(["hola"] * count)
    assert max(1, before) == call.experimental_get_tracing_count()


def ranking_loss(model: Any) -> tf.Tensor:
    scores = model.question_encoder(QUESTIONS) @ tf.transpose(
        model.response_encoder(ANSWERS, CONTEXTS)
    )
    labels = tf.range(len(QUESTIONS))
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, 5 * scores))


def test_a_user_fine_tunes_both_sides_and_saves_them_with_all_signatures(
    folder: Path, tmp_path: Path
) -> None:
    model = tf.saved_model.load(str(folder))
    sides = (model.question_encoder, model.response_encoder)
    variables = list({id(v): v for side in sides for v in side.trainable_variables}.values())
    # The encoder's, and two towers and the context's layers of two kernels and biases each.
    assert len(variables) == len(model.trainable_variables) + 3 * 4
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            loss = ranking_loss(model)
        losses.append(float(loss))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            assert gradient is not None, variable.name
            variable.assign_sub(0.3 * tf.convert_to_tensor(gradient))
    assert losses == sorted(losses, reverse=True)

    path = tmp_path / "tuned"
    hub.reexport(model, folder, path)
    again = tf.saved_model.load(str(path))
    assert (
        set(again.signatures)
        == set(model.signatures)
        == {*("serving_default", "default", "question_encoder", "response_encoder", "inference")}
    )
    assert float(ranking_loss(again)) == pytest.approx(float(ranking_loss(model)), abs=1e-6)
    np.testing.assert_array_equal(again(SENTENCES), model(SENTENCES))
    vectors = again.signatures["response_encoder"](
        input=tf.constant(ANSWERS), context=tf.constant(CONTEXTS)
    )["outputs"]
    np.testing.assert_allclose(vectors, model.response_encoder(ANSWERS, CONTEXTS), atol=1e-6)
    assert len(again.response_encoder.trainable_variables) == len(sides[1].trainable_variables)
    assert (path / "config.json").read_text() == CARD_FILES["config.json"]
    assert sorted(p.name for p in (path / "training").iterdir()) == sorted(
        p.name for p in (folder / "training").iterdir()
    )
    card = (path / "README.md").read_text()
    assert card.startswith(CARD_FILES["README.md"])
    assert "saved again" in card
    hub.reexport(again, path, path)  # in its own place
    assert (path / "README.md").read_text() == card


def test_it_is_not_saved_over_something_else(loaded: Any, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="something else"):
        hub.reexport(loaded, folder, tmp_path)
    with pytest.raises(UserError, match=r"has no saved_model\.pb; give its folder"):
        hub.reexport(loaded, tmp_path, tmp_path / "new")


def test_tf_keras_can_fine_tune_both_sides(folder: Path) -> None:
    import tensorflow_hub
    import tf_keras

    model = tensorflow_hub.load(str(folder))
    asked, answered = (tf_keras.Input([], dtype=tf.string) for _ in range(2))
    layers = [
        tensorflow_hub.KerasLayer(part, trainable=True)
        for part in (model.question_encoder, model.response_encoder)
    ]
    vectors = [layer(texts) for layer, texts in zip(layers, (asked, answered), strict=True)]
    ranker = tf_keras.Model([asked, answered], tf_keras.layers.Dot(axes=1)(vectors))
    ranker.compile(tf_keras.optimizers.SGD(0.1), "mse")
    texts = [tf.constant(QUESTIONS), tf.constant(ANSWERS)]
    before = [variable.numpy() for variable in model.response_encoder.trainable_variables]
    losses = ranker.fit(texts, tf.constant([1.0, 0.0, 1.0]), epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    after = model.response_encoder.trainable_variables
    assert np.sum([np.any(old != new) for old, new in zip(before, after, strict=True)]) > 10


def test_contexts_reach_the_evaluators(folder: Path, loaded: Any) -> None:
    system = open_saved_model(folder)
    expected = loaded.response_encoder(ANSWERS, CONTEXTS)
    np.testing.assert_allclose(system.encode_responses(ANSWERS, CONTEXTS), expected, atol=1e-6)


def test_trained_without_contexts_answers_are_all_that_is_taken() -> None:
    model = make_model("tasks.question_answering.with_context=false")
    task = find_task(model, "question_answering_en")
    module = model.hub_module()
    (answers,) = (model.encoder(model.preprocessor(tf.constant(ANSWERS))),)
    expected = unit_length(task.answer_tower(answers))
    np.testing.assert_allclose(module.response_encoder(ANSWERS), expected, atol=1e-5)
    signature = module.make_signatures()["response_encoder"]
    assert set(signature.structured_input_signature[1]) == {"input"}


def test_question_answering_goes_before_response_prediction(model: Model) -> None:
    def without(kind: str) -> hub.HubModule:
        return model._replace(
            tasks=[task for task in model.tasks if task.kind != kind]
        ).hub_module()

    both, answering = model.hub_module(), without("conversations")
    np.testing.assert_array_equal(
        both.response_encoder(ANSWERS, CONTEXTS), answering.response_encoder(ANSWERS, CONTEXTS)
    )
    predicting = without("questions")
    np.testing.assert_array_equal(predicting.question_encoder(QUESTIONS), predicting(QUESTIONS))
