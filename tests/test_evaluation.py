"""Scores of a model in training on what was held out."""

import numpy as np
import pytest
from testing import TINY, ListCorpus, make_batch, make_examples, tiny_model

from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.overrides import apply_overrides
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.trainer import evaluation
from xling_tf.trainer.evaluation import evaluate

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

ALONE = [f"tasks.{name}.weight=0" for name in ("response_prediction", "quick_thought", "inference")]
HELD_OUT = make_examples(
    ["a b", "hello", "c d e", "f g"], ["hola", "mundo a", "j", "i j"], corpora=[("small", 4)]
)


def no_encoder():
    """Encodes nothing, for nothing is retrieved without corpora."""
    return SentenceEncoder(lambda sentences: np.zeros((len(sentences), 1)))


def scores(*overrides):
    model = tiny_model(apply_overrides(TINY, [*ALONE, "training.dev_batches=1", *overrides]))
    return model, evaluate(model, no_encoder(), {"translation_ranking_en-es": HELD_OUT}, [], None)


def test_a_task_is_scored_by_its_mean_loss_and_accuracy():
    # Fewer held-out examples than a batch holds: the one batch has them all.
    model, found = scores("tasks.translation_ranking.examples_per_batch=4")
    assert list(found) == ["task/translation_ranking_en-es"]
    (task,) = model.tasks
    losses, hits = task.losses(model.encoder, make_batch(model, HELD_OUT))
    assert found["task/translation_ranking_en-es"] == pytest.approx(
        {"loss": np.mean(losses), "accuracy": np.mean(hits), "num_examples": 4}, rel=1e-5
    )


def test_a_corpus_that_is_never_trained_on_may_be_all_that_is_held_out():
    # Another corpus was trained on, and is too small for a tenth of it to be anything.
    _, found = scores("data.corpus_weights.small=0")
    assert found["task/translation_ranking_en-es"]["num_examples"] > 0


def test_retrieval_is_over_the_held_out_pairs_of_a_store(monkeypatch):
    # Of 1000 sources about a tenth is held out, of which every fifth or so is drawn from.
    pairs = [TranslationPair(f"sentence {n}", f"frase {n}") for n in range(1000)]
    corpus = ListCorpus(name="x", kind="parallel", languages="en-es", records=pairs)
    store = transient_store([corpus])
    num_held_out = len(store.corpora[0].held_out)
    encoder = SentenceEncoder(lambda texts: np.ones((len(texts), 2)))

    def num_queries():
        found = evaluate(tiny_model(), encoder, {}, store.corpora, None)
        assert list(found) == ["retrieval/en-es/all"]
        return found["retrieval/en-es/all"]["num_queries"]

    assert num_queries() == num_held_out
    monkeypatch.setattr(evaluation, "_DRAWN_FROM", 20)
    step = -(-num_held_out // 20)
    assert num_queries() == len(range(0, num_held_out, step))


def test_retrieval_between_targets_is_scored_where_there_are_such_pairs():
    pairs = [TranslationPair(f"frase {n}", f"phrase {n}") for n in range(100)]
    corpus = ListCorpus(name="x", kind="parallel", languages="es-fr", records=pairs)
    corpora = transient_store([corpus]).corpora
    model = tiny_model(apply_overrides(TINY, ["data.targets=es,fr", "data.all_pairs=true"]))
    encoder = SentenceEncoder(lambda texts: np.ones((len(texts), 2)))
    assert list(evaluate(model, encoder, {}, corpora, None)) == ["retrieval/es-fr/all"]


def test_retrieval_is_scored_without_near_twins_of_training_too(monkeypatch):
    # Every pair of the first corpus differs from the others in one word; those of the second in four.
    alike = [TranslationPair(f"the number is {n}", f"el número es {n}") for n in range(100)]
    unlike = [TranslationPair(f"{n} {n}a {n}b {n}c", f"{n} {n}d {n}e {n}f") for n in range(200)]
    corpora = [
        ListCorpus(name=name, kind="parallel", languages="en-es", records=records)
        for name, records in (("alike", alike), ("unlike", unlike))
    ]
    monkeypatch.setattr(evaluation, "_CANDIDATES", 12)
    stored = transient_store(corpora).corpora
    encoder = SentenceEncoder(lambda texts: np.ones((len(texts), 2)))
    found = evaluate(tiny_model(), encoder, {}, stored, None)
    pairs = {name: scores["num_queries"] for name, scores in found.items()}
    assert pairs["retrieval/en-es/no_near_twins"] == len(stored[1].held_out)
    assert pairs["retrieval/en-es/all"] == len(stored[0].held_out) + len(stored[1].held_out)
