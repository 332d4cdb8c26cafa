"""Scores of a trained model on held-out examples."""

import itertools

import numpy as np
import pytest
from testing import (
    EXAMPLES,
    TWO_TASKS,
    corpus,
    make_batch,
    make_examples,
    tiny_config,
    tiny_model,
)

from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.encoders import base
from xling_tf.settings import apply_overrides
from xling_tf.trainer import validation as module
from xling_tf.trainer.validation import curve_of, evaluate, held_out_scores

pytestmark = pytest.mark.usefixtures("without_graphs")

RANKING = "translation_ranking_en-es"
CONFIG = apply_overrides(TWO_TASKS, ["tasks.inference.weight=0"])


def test_the_same_examples_are_scored_each_time(monkeypatch):
    monkeypatch.setitem(base._MICRO_BATCHES, "CPU", 4)  # tokens that are encoded at once
    monkeypatch.setattr(module, "_BATCHES", 1)
    # Ten examples in batches of ten: the one batch has them all, also those of a corpus never
    # trained on.
    settings = ["tasks.translation_ranking.examples_per_batch=10", "data.corpus_weights.corpus=0"]
    model = tiny_model(apply_overrides(CONFIG, settings))
    first = held_out_scores(model, model.tasks, EXAMPLES)
    assert first == held_out_scores(model, model.tasks, EXAMPLES)
    losses, hits = model.tasks[0].losses(model.encoder, make_batch(model, EXAMPLES[RANKING]))
    assert first[RANKING] == pytest.approx(
        {"loss": np.mean(losses), "accuracy": np.mean(hits), "num_examples": 10}, rel=1e-5
    )


def test_batches_of_any_lengths_have_one_size(monkeypatch):
    # Half of the pairs have one word, the others nine: batches of similar lengths would be of 9
    # pairs or 1.
    texts = [("a " * (9 if number % 2 else 1)).strip() + f" w{number}" for number in range(60)]
    held_out = {RANKING: make_examples(texts, texts)}
    monkeypatch.setattr(module, "_BATCHES", 4)
    model = tiny_model(apply_overrides(CONFIG, ["tasks.translation_ranking.examples_per_batch=5"]))
    assert held_out_scores(model, model.tasks, held_out)[RANKING]["num_examples"] == 20


def test_tasks_leave_half_of_the_time_and_the_first_is_always_scored(monkeypatch):
    # Scoring a task takes two seconds of the clock, which is looked at once before each other one.
    clock, config = itertools.count(0, 2), tiny_config("data.targets=es,fr,de")
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    model = tiny_model(config)
    names = [task.name for task in model.tasks if task.record_type == "parallel"]
    held_out = dict.fromkeys(names, EXAMPLES[RANKING])
    assert len(names) == 3

    def scored(seconds):
        nonlocal clock
        clock = itertools.count(0, 2)
        rest = {"held_out": held_out, "corpora": [], "data": None, "seconds": seconds}
        suites = evaluate(model, model.tasks, ("en", "es"), None, **rest)
        return [name.removeprefix("task/") for name in suites]

    # After the first, the clock says 2 and 4.
    assert scored(0) == scored(4) == names[:1]
    assert scored(8) == names[:2]
    assert scored(60) == names


def score_retrieval(store, seconds=60):
    model = tiny_model(CONFIG)

    def encode(texts):
        return np.ones((len(texts), 2))

    rest = {"held_out": {}, "corpora": store.corpora, "data": None, "seconds": seconds}
    suites = evaluate(model, model.tasks, ("en", "es"), encode, **rest)
    return {name: scores["num_queries"] for name, scores in suites.items()}


def test_retrieval_is_over_the_held_out_pairs_of_a_store(monkeypatch):
    # Of 1000 sources about a tenth is held out.
    pairs = [TranslationPair(f"sentence {n}", f"frase {n}") for n in range(1000)]
    store = transient_store([corpus("parallel", pairs)])
    num_held_out = len(store.corpora[0].held_out)
    assert score_retrieval(store) == {"retrieval/en-es/all": num_held_out}
    monkeypatch.setattr(module, "_QUERIES", 20)
    assert score_retrieval(store) == {"retrieval/en-es/all": 20}
    # Without any time, the first is scored nevertheless: a table of scores is never empty.
    assert score_retrieval(store, seconds=0) == {"retrieval/en-es/all": 20}


def test_a_bounded_number_of_translations_is_scored_on_the_way(monkeypatch):
    monkeypatch.setattr(module, "_ON_THE_WAY", 20)
    parts = []
    for languages in ("en-es", "en-fr"):
        pairs = [TranslationPair(f"{languages} source {n}", f"{languages} {n}") for n in range(400)]
        parts.append(corpus("parallel", pairs, languages=languages))
    curve = curve_of(transient_store(parts).corpora)
    assert curve.pairs.title == "P@1 of 20 held-out pairs among 20 answers"
    texts = [TranslationPair(f"question {n}", "one answer") for n in range(200)]
    for others in ([corpus("parallel", texts)], []):
        assert curve_of(transient_store(others).corpora if others else []) is None


def test_retrieval_of_one_shared_answer_is_left_out_and_of_few_is_scored():
    for num_answers, expected in ((1, []), (2, ["retrieval/en-es/all"])):
        pairs = [TranslationPair(f"question {n}", f"answer {n % num_answers}") for n in range(200)]
        assert [*score_retrieval(transient_store([corpus("parallel", pairs)]))] == expected


def test_corpora_and_languages_are_scored_on_the_same_sources(monkeypatch):
    monkeypatch.setattr(module, "_CANDIDATES", 15)
    monkeypatch.setattr(module, "_QUERIES", 15)
    sizes = {"a.en-es": 400, "b.en-es": 800, "a.en-fr": 400}
    parts = []
    for title, size in sizes.items():
        name, languages = title.split(".")
        pairs = [TranslationPair(f"sentence {n}", f"{languages} {n}") for n in range(size)]
        parts.append(corpus("parallel", pairs, name=name, languages=languages))
    store = transient_store(parts)
    texts = []

    def encode(batch):
        texts.append(sorted(text for text in batch if text.startswith("sentence")))
        return np.ones((len(batch), 2))

    model = tiny_model(CONFIG)
    rest = {"held_out": {}, "corpora": store.corpora, "data": None, "seconds": 60}
    evaluate(model, [], ("en", "es", "fr"), encode, **rest)
    spanish, french, larger, smaller, of_french = texts[::2]
    assert smaller == french == of_french  # the corpora named "a" have the same sources
    assert set(spanish) <= set(larger)  # the sources of the smaller corpus are in both
    assert len(spanish) == len(larger) == len(smaller) == 15  # each source once
