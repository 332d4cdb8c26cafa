"""Prompts are put before texts by every signature, the client, and training."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from testing import TEXTS, TrainedModel, corpus, make_model

import xling_tf
from xling_tf.corpora.records import QuestionAnswer
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.tasks.question_answering import QuestionAnswering
from xling_tf.trainer.input_pipeline import batch_graphs, make_dataset, task_examples

PROMPTS = {"query": "the cat: ", "passage": "el perro: ", "topic": "my house: "}
SENTENCES = ["the dog sleeps", "a cat", ""]


def prompted(default: str | None) -> TrainedModel:
    """A model without heads that has prompts."""
    model = make_model("words and n-grams")
    model.heads = {}
    model.info = dataclasses.replace(model.info, prompts=PROMPTS, default_prompt_name=default)
    return model


def test_every_signature_and_the_client_put_the_prompt_before_texts(tmp_path):
    model = prompted("topic")
    expected = {}
    for name, prompt in {None: "", **PROMPTS}.items():
        features = model.tokenizer(tf.constant([prompt + text for text in SENTENCES]))
        expected[name] = model.encoder(features).numpy()
    unit = {name: rows / np.linalg.norm(rows, axis=1)[:, None] for name, rows in expected.items()}
    np.testing.assert_allclose(model(SENTENCES), unit["topic"], atol=1e-6)

    model.export(tmp_path / "exported", {})
    loaded = tf.saved_model.load(str(tmp_path / "exported"))
    assert "inference" not in loaded.signatures  # of a task that was not trained
    np.testing.assert_allclose(loaded(SENTENCES), unit["topic"], atol=1e-6)
    np.testing.assert_allclose(loaded.raw(SENTENCES), expected["topic"], atol=1e-5)
    np.testing.assert_allclose(loaded.question_encoder(SENTENCES), unit["query"], atol=1e-6)
    np.testing.assert_allclose(loaded.response_encoder(SENTENCES), unit["passage"], atol=1e-6)

    encoder = xling_tf.load(tmp_path / "exported")
    assert encoder.prompts == {"document": "", **PROMPTS}
    for rows in (*expected.values(), *unit.values()):
        rows[SENTENCES.index("")] = 0  # the client's vector of a blank text
    raw = encoder.encode(SENTENCES, prompt=PROMPTS["topic"], normalize_embeddings=False)
    np.testing.assert_allclose(raw, expected["topic"], atol=1e-5)
    for vectors, name in (
        (encoder.encode(SENTENCES), "topic"),
        (encoder.encode(SENTENCES, prompt_name="topic"), "topic"),
        (encoder.encode(SENTENCES, prompt=""), None),
        (encoder.encode_query(SENTENCES), "query"),
        (encoder.encode_query(sentences=SENTENCES), "query"),
        (encoder.encode_document(SENTENCES), "passage"),
    ):
        np.testing.assert_allclose(vectors, unit[name], atol=1e-6)
    with pytest.raises(UserError, match="query, document, passage, topic"):
        encoder.encode(SENTENCES, prompt_name="clustering")
    with pytest.raises(UserError, match="own prompts"):
        encoder.encode_query(SENTENCES, prompt="x: ")


def test_training_puts_the_prompts_of_queries_and_documents_before_texts():
    model = prompted("query")
    records = [QuestionAnswer(f"{text}?", text, "the house") for text in TEXTS]
    store = transient_store([corpus("questions", records)])
    settings = model.experiment.task("question_answering")
    heads = {"question_tower": None, "answer_tower": None, "context_encoder": None}
    task = QuestionAnswering("questions", "en", settings, model.info.similarity, heads)
    train = task_examples([task], store.corpora, model.info.role_prompts)["questions"].train
    batch = next(iter(make_dataset(train, lambda _: np.arange(2), batch_graphs(model.tokenizer))))
    questions, answers, contexts = np.split(train.texts(np.arange(2)), 3)
    rows = [b"the cat: " + text for text in questions] + [b"el perro: " + text for text in answers]
    rows += [*contexts]
    tokens = model.tokenizer.word_ids(model.tokenizer.tokenize(tf.constant(rows)).values)
    lengths = batch.features.lengths.numpy()
    places = [
        row[:length] for row, length in zip(batch.features.tokens.numpy(), lengths, strict=True)
    ]
    np.testing.assert_array_equal(batch.features.words.ids.numpy()[np.concatenate(places)], tokens)
    # Texts are compared without their prompts: a question may also be somebody's answer.
    bare = model.tokenizer.fingerprints(tf.constant([*questions, *answers, *contexts]))
    np.testing.assert_array_equal(batch.fingerprints.numpy().ravel(), bare)
