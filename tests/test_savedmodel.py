"""An exported model: its files; every way to call it gives the vectors of the trained model."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hostile_bytes import FEW
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_models import hashed, save
from testing import (
    CARD_FILES,
    SENTENCES,
    TINY,
    TrainedModel,
    dense,
    encode,
    encoded,
    find_task,
    tiny_config,
    tiny_model,
)

import xling_tf
from xling_tf.encoders import base
from xling_tf.errors import UserError
from xling_tf.layers.pooling import unit_length

DIM = TINY.encoder.hidden_dim
PREMISES, HYPOTHESES = SENTENCES, SENTENCES[::-1]
QUESTIONS = ["a b", "c d e", "hello world"]
ANSWERS = ["hola", "b b b", "hello mundo"]
CONTEXTS = ["hola a c d", "d b b b e a c d e f g h i j a b c", "hello mundo unknown"]
# Where one character ends and another begins is what goes wrong.
PIECES = [
    b"\xed\xa0\x80",
    b"\xff",
    b"\xc0\x80",
    b"\xf4\x90\x80\x80",
    b"\xe6\x88",
    b"\0",
    b"hola",
    b" ",
    b"\n\t\r",
    b"n't",
    b"1,000.5",
    b"<",
    "e\u0301\u0316\u202eאב 猫 👩\u200d👧 \ufeff Ａ".encode(),
]


def live_probabilities(model: TrainedModel) -> np.ndarray:
    encodings = encoded(model, [*PREMISES, *HYPOTHESES])
    return tf.nn.softmax(model.heads["inference"]["classifier"](*np.split(encodings, 2))).numpy()


def live_answers(model: TrainedModel) -> tuple[tf.Tensor, tf.Tensor]:
    """Vectors of questions and answers as the task in training compares them."""
    task = find_task(model, "question_answering_en")
    texts = tf.constant([*QUESTIONS, *ANSWERS])
    features = model.tokenizer(texts, tf.constant(CONTEXTS))
    question, answer, context = task.encode(model.encoder, features)
    heads = task.heads
    joined = tf.concat([answer, heads["context_encoder"](context)], axis=1)
    return unit_length(heads["question_tower"](question)), unit_length(
        heads["answer_tower"](joined)
    )


@pytest.fixture(scope="module")
def answering(tmp_path_factory):
    """A model that answers questions, whose contexts may be longer than the 12 words of sentences.

    Its heads see encodings of unit length, those of `hub_model` what the encoder gives.
    """
    keras.utils.set_random_seed(1)
    model = tiny_model(tiny_config("tasks.question_answering.weight=1", normalize=True))
    for variable in model.encoder.variables:
        variable.assign(3 * variable)  # Far from unit length, so that normalising matters.
    folder = tmp_path_factory.mktemp("exported") / "qa"
    model.export(folder, CARD_FILES)
    return model, folder


@pytest.fixture(scope="module")
def loaded_answering(answering):
    return tf.saved_model.load(str(answering[1]))


def test_the_export_computes_what_the_encoder_in_training_computes(
    hub_loaded, hub_model, hub_vectors
):
    np.testing.assert_allclose(hub_vectors, unit_length(encode(hub_model, SENTENCES)), atol=1e-5)
    # Vectors that were all alike would prove little.
    assert len(np.unique(hub_vectors.round(3), axis=0)) == len(SENTENCES)
    # Long lists of mixed length keep their order.
    random = np.random.default_rng(0)
    words = [*hub_model.tokenizer.vocabulary, "zebra", "okapi"]
    sentences = [" ".join(random.choice(words, random.integers(1, 12))) for _ in range(700)]
    expected = unit_length(encode(hub_model, sentences))
    np.testing.assert_allclose(hub_loaded(sentences), expected, atol=1e-5)


def test_nothing_gives_no_rows(hub_loaded, loaded_answering):
    for inputs in ([], (), tf.zeros([0, 3], tf.string)):
        assert hub_loaded(inputs).shape == hub_loaded.response_encoder(inputs).shape == (0, DIM)
        assert hub_loaded.inference(inputs, inputs).shape == (0, 3)
        assert loaded_answering.response_encoder(inputs).shape == (0, DIM)


@pytest.mark.parametrize(("index", "rows"), [(0, [2, 1, 1]), (1, [4])])
def test_an_export_encodes_as_much_at_once_as_its_device_takes(index, rows, monkeypatch):
    monkeypatch.setattr(base, "_MICRO_BATCHES", {"CPU": 2, "GPU": 8})
    monkeypatch.setattr(tf.raw_ops, "DeviceIndex", lambda device_names: index)
    encoded = []

    def encode(tokens: tf.RaggedTensor) -> tf.Tensor:
        encoded.append(tokens.nrows())
        return tf.cast(tokens.row_lengths(), tf.float32)[:, None]

    tokens = tf.ragged.constant([[1, 1], [1], [1], [1, 1]])
    assert base.in_micro_batches(encode, tokens, 1).numpy().tolist() == [[2], [1], [1], [2]]
    assert encoded == rows


@settings(FEW, max_examples=6)
@given(
    texts=st.lists(
        st.one_of(
            st.binary(max_size=60), st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_bytes_give_a_unit_vector_alone_and_in_a_batch(hub_loaded, texts):
    batch = hub_loaded(tf.constant(texts)).numpy()
    np.testing.assert_allclose(np.linalg.norm(batch, axis=1), 1, atol=1e-5)
    for text, vector in zip(texts, batch, strict=True):
        np.testing.assert_allclose(hub_loaded(tf.constant([text]))[0], vector, atol=2e-6)


def test_a_model_trained_in_bfloat16_is_exported_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    model = tiny_model()
    module = model.module()
    assert keras.config.dtype_policy().name == "mixed_bfloat16"
    for part in (module, module.response_encoder, module.inference):
        assert {variable.dtype for variable in part.variables} == {tf.float32}
    # bfloat16 has 8 bits of mantissa; the float32 copy must be as near as that, not equal.
    expected = unit_length(encode(model, SENTENCES))
    np.testing.assert_allclose(module(SENTENCES), expected, atol=0.05)
    probabilities = module.inference(PREMISES, HYPOTHESES)
    np.testing.assert_allclose(probabilities, live_probabilities(model), atol=0.05)


def test_questions_are_sentences_and_responses_pass_through_the_tower(
    hub_loaded, hub_model, hub_vectors
):
    np.testing.assert_allclose(hub_loaded.question_encoder(SENTENCES), hub_vectors, atol=1e-6)
    tower = hub_model.heads["response_prediction"]["response_tower"]
    expected = dense(encode(hub_model, SENTENCES), tower)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(hub_loaded.response_encoder(SENTENCES), expected, atol=1e-5)


def test_loaded_inference_equals_live(hub_loaded, hub_model):
    expected = live_probabilities(hub_model)
    for form in (tuple, np.array, lambda texts: np.array(texts).reshape(2, 3)):
        found = hub_loaded.inference(form(PREMISES), form(HYPOTHESES))
        np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many hypotheses as premises"):
        hub_loaded.inference(PREMISES[:3], HYPOTHESES[:1])


def test_loaded_answers_equal_live_by_call_and_by_signature(answering, loaded_answering):
    questions, answers = live_answers(answering[0])
    loaded = loaded_answering
    np.testing.assert_allclose(loaded.question_encoder(QUESTIONS), questions, atol=1e-5)
    texts = {"input": tf.constant(ANSWERS), "context": tf.constant(CONTEXTS)}
    served = loaded.signatures["response_encoder"](**texts)["outputs"]
    for vectors in (loaded.response_encoder(ANSWERS, CONTEXTS), served):
        np.testing.assert_allclose(vectors, answers, atol=1e-5)
    probabilities = loaded.inference(PREMISES, HYPOTHESES)
    np.testing.assert_allclose(probabilities, live_probabilities(answering[0]), atol=1e-5)
    assert np.ptp(probabilities, axis=0).max() > 1e-3
    # The context makes a difference, beyond the limit of sentences too.
    assert np.abs(loaded.response_encoder(ANSWERS) - answers).max() > 1e-3
    cut = [" ".join(context.split()[:12]) for context in CONTEXTS]
    assert np.abs(loaded.response_encoder(ANSWERS, cut)[1] - answers[1]).max() > 1e-4


def test_an_answer_without_context_is_its_own(loaded_answering):
    respond = loaded_answering.response_encoder
    alone = respond(ANSWERS, ANSWERS)
    np.testing.assert_array_equal(respond(ANSWERS), alone)
    mixed = respond(ANSWERS, [CONTEXTS[0], " \t", CONTEXTS[2]])
    in_contexts = respond(ANSWERS, CONTEXTS)
    np.testing.assert_allclose(mixed, [in_contexts[0], alone[1], in_contexts[2]], atol=1e-6)
    np.testing.assert_allclose(
        respond(ANSWERS, CONTEXTS[0]), respond(ANSWERS, [CONTEXTS[0]] * 3), atol=1e-6
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many contexts as answers"):
        respond(ANSWERS, CONTEXTS[:2])
    odd = respond([b"hola"] * 3, ["\ufeff\0".encode(), b"\xff\xfe \xc3", b"x" * 9999])
    np.testing.assert_allclose(np.linalg.norm(odd, axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_a_user_fine_tunes_both_sides(answering):
    model = tf.saved_model.load(str(answering[1]))
    sides = (model.question_encoder, model.response_encoder)
    variables = list({id(v): v for side in sides for v in side.trainable_variables}.values())
    # The encoder's, and two towers and the context's layers of two kernels and biases each.
    assert len(variables) == len(model.trainable_variables) + 3 * 4
    losses = []
    for _ in range(5):
        with tf.GradientTape() as tape:
            answers = model.response_encoder(ANSWERS, CONTEXTS)
            scores = 5 * model.question_encoder(QUESTIONS) @ tf.transpose(answers)
            labels = tf.range(len(QUESTIONS))
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        losses.append(float(loss))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.02 * tf.convert_to_tensor(gradient))
    assert losses == sorted(losses, reverse=True)


TEXTS = ["a good day", "bad", ""]


def sentiment(text):
    good = tf.cast(tf.strings.regex_full_match(text, ".*good.*"), tf.float32)
    return {"outputs": tf.stack([good, 1 - good], axis=1)}


def described(text, unit):
    lengths = tf.strings.length(text)
    return {"label": tf.strings.join([tf.strings.as_string(lengths), unit], " "), "length": lengths}


def test_calls_with_lists_and_arrays_of_any_size_trace_nothing(hub_loaded):
    hub_loaded(["a"])
    traces = hub_loaded.__call__.experimental_get_tracing_count()
    for size in range(1, 20):
        hub_loaded([f"a {number}" for number in range(size)])
        hub_loaded(np.full([size, 2], "a", object))
    assert hub_loaded.__call__.experimental_get_tracing_count() == traces


def test_the_client_calls_any_signature(tmp_path):
    strings = tf.TensorSpec([None], tf.string)
    signatures = {
        "serving_default": (lambda inputs: {"outputs": hashed(inputs)}, {"inputs": strings}),
        "sentiment": (sentiment, {"text": strings}),
        "described": (described, {"text": strings, "unit": strings}),
    }
    model = tf.Module()
    model.__call__ = tf.function(hashed, input_signature=[strings])
    save(model, signatures, tmp_path)
    encoder = xling_tf.load(tmp_path)
    assert encoder.call("sentiment", text=TEXTS, batch_size=2).tolist() == [[1, 0], [0, 1], [0, 1]]
    assert encoder.call("sentiment", text="good").tolist() == [1, 0]
    assert encoder.call("sentiment", text=[]).shape == (0, 2)
    answer = encoder.call("described", text=TEXTS, unit="bytes")
    assert answer["label"] == ["10 bytes", "3 bytes", "0 bytes"]
    assert answer["length"].tolist() == [10, 3, 0]
    for name, inputs, message in (
        ("sentiment", {"texts": TEXTS}, "takes text: string, but got texts"),
        ("sentiment", {}, "but got nothing"),
        ("described", {"text": TEXTS, "unit": ["a", "b"]}, "got 2 for 3"),
        ("inference", {"premise": "a"}, "no signature inference.* it has described, sentiment"),
    ):
        with pytest.raises(UserError, match=message):
            encoder.call(name, **inputs)
    with pytest.raises(UserError, match="no signature raw"):
        encoder.encode(TEXTS, normalize_embeddings=False)
