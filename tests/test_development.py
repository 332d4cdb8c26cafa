"""Scores on held-out examples: during training, for the best weights, and at the end."""

import logging as std_logging
import math

import numpy as np
import pytest
from programs import read_lines
from testing import EXAMPLES, TWO_TASKS, corpus, make_batch, make_examples, make_trainer, tiny_model

from xling_tf.config import apply_overrides
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.store import transient_store
from xling_tf.encoders import folded
from xling_tf.errors import UserError
from xling_tf.sentence_encoder import SentenceEncoder
from xling_tf.trainer import development as module
from xling_tf.trainer.checkpoints import CheckpointError, Checkpoints
from xling_tf.trainer.development import Development, HeldOutScores, evaluate, held_out_translations

RANKING = "translation_ranking_en-es"
CONFIG = apply_overrides(
    TWO_TASKS,
    ["training.dev_steps=2", "training.dev_batches=2", "training.steps=9", "tasks.inference.weight=0"],
)
# What is scripted to be found after each number of steps. Better than before after steps 2, 4 and 8; a
# loss that is equal, or no number, is no better. The last step is scored, too.
LOSSES = {2: 5.0, 4: 4.0, 6: 4.0, 8: 3.0, 9: math.nan}


class Scripted(Development):
    """Finds the scripted losses, remembers the weights it saw, and is disturbed after some step."""

    def __init__(self, model, folder, *, disturb=None, at=0):
        super().__init__(model, EXAMPLES, folder / "checkpoints" / "best")
        self.model, self.folder, self.disturb, self.at = model, folder, disturb, at
        self.seen = {}

    def score(self, step):
        of_inference = {"loss": -LOSSES[step], "accuracy": 0.5, "num_examples": 4.0}
        of_ranking = {"loss": LOSSES[step], "accuracy": 0.5, "num_examples": 4.0}
        self._score = lambda: {RANKING: of_ranking, "inference": of_inference}
        self.seen[step] = self.model.encoder.get_weights()
        scores = super().score(step)
        if step == self.at:
            self.disturb()
        return scores


def scripted_trainer(folder, **disturbed):
    trainer = make_trainer(folder, CONFIG, development=lambda model: Scripted(model, folder, **disturbed))
    return trainer, trainer._development


def assert_same(weights, expected):
    for value, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-6)


def dev_steps(folder):
    return [line["step"] for line in read_lines(folder / "dev.jsonl")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What was found in a training that nothing disturbed, with the last weights in its model."""
    trainer, development = scripted_trainer(tmp_path_factory.mktemp("undisturbed"))
    assert trainer.train()
    return development


def test_a_finished_training_leaves_its_best_weights(undisturbed):
    folder = undisturbed.folder
    assert dev_steps(folder) == [2, 4, 6, 8, 9]
    trainer, development = scripted_trainer(folder)
    assert trainer.train()
    assert not development.seen
    assert_same(development.model.encoder.get_weights(), undisturbed.seen[9])
    assert trainer.use_best_weights() == 8
    best = development.model.encoder.get_weights()
    assert_same(best, undisturbed.seen[8])
    assert any(np.abs(a - b).max() > 2e-5 for a, b in zip(best, undisturbed.seen[9], strict=True))


def interrupted():
    """As a kill does, it leaves what was written."""
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_restart_in_the_middle_changes_nothing(undisturbed, tmp_path):
    disturbed, _ = scripted_trainer(tmp_path, disturb=interrupted, at=6)
    with pytest.raises(KeyboardInterrupt):
        disturbed.train()
    trainer, development = scripted_trainer(tmp_path)
    assert trainer.train()
    assert dev_steps(tmp_path) == [2, 4, 6, 8, 9]
    assert trainer.use_best_weights() == 8
    assert_same(development.model.encoder.get_weights(), undisturbed.seen[8])


def test_best_weights_that_find_no_room_are_a_warning(tmp_path, monkeypatch, caplog):
    def save(checkpoints, step, state):
        raise CheckpointError("no room")

    development = Scripted(tiny_model(CONFIG), tmp_path)
    development.score(4)
    monkeypatch.setattr(Checkpoints, "save", save)
    with caplog.at_level(std_logging.WARNING, logger="absl"):
        development.score(8)
    assert caplog.messages == ["no room; training goes on, and the best weights stay as before"]
    assert development.restore_best() == 4


def test_translations_alone_decide_where_there_are_some(tmp_path):
    model = tiny_model(apply_overrides(CONFIG, ["tasks.inference.weight=1"]))
    development = Scripted(model, tmp_path / "both")
    for step in (2, 4):
        development.score(step)
    # The losses of inference, -5 and then -4, are left out.
    assert development.restore_best() == 4
    # Without held-out translations the others decide.
    held_out = {**EXAMPLES, RANKING: make_examples([], [])}
    development = Development(model, held_out, tmp_path / "inference")
    assert list(development.score(1)) == ["inference"]
    assert development.restore_best() == 1
    with pytest.raises(UserError, match=r"training\.dev_steps expects held-out examples"):
        Development(model, {}, tmp_path)


def test_the_same_examples_are_scored_each_time(monkeypatch):
    monkeypatch.setattr(folded, "_MICRO_BATCH", 4)  # tokens that are encoded at once
    # Ten examples in batches of ten: the one batch has them all, also those of a corpus never trained on.
    settings = ["tasks.translation_ranking.examples_per_batch=10", "training.dev_batches=1"]
    model = tiny_model(apply_overrides(CONFIG, [*settings, "data.corpus_weights.corpus=0"]))
    score = HeldOutScores(model, EXAMPLES)
    first = score()
    assert first == score()
    losses, hits = model.tasks[0].losses(model.encoder, make_batch(model, EXAMPLES[RANKING]))
    assert first[RANKING] == pytest.approx(
        {"loss": np.mean(losses), "accuracy": np.mean(hits), "num_examples": 10}, rel=1e-5
    )


def test_every_seed_is_scored_on_the_same_batches_of_one_size():
    # Half of the pairs have one word, the others nine: batches of similar lengths would be of 9 pairs or 1.
    texts = [("a " * (9 if number % 2 else 1)).strip() + f" w{number}" for number in range(60)]
    held_out = {RANKING: make_examples(texts, texts)}
    settings = ["tasks.translation_ranking.examples_per_batch=5", "training.dev_batches=4"]
    model = tiny_model(apply_overrides(CONFIG, settings))
    other = model._replace(config=apply_overrides(model.config, ["training.seed=2"]))
    first, second = (HeldOutScores(each, held_out)() for each in (model, other))
    assert first == second
    assert first[RANKING]["num_examples"] == 20


def score_retrieval(store):
    encoder = SentenceEncoder(lambda texts: np.ones((len(texts), 2)))
    found = evaluate(tiny_model(CONFIG), encoder, {}, store.corpora, None)
    return {name: scores["num_queries"] for name, scores in found.items()}


def test_retrieval_is_over_the_held_out_pairs_of_a_store(monkeypatch):
    # Of 1000 sources about a tenth is held out, of which every fifth or so is drawn from.
    pairs = [TranslationPair(f"sentence {n}", f"frase {n}") for n in range(1000)]
    store = transient_store([corpus("parallel", pairs)])
    num_held_out = len(store.corpora[0].held_out)
    assert score_retrieval(store) == {"retrieval/en-es/all": num_held_out}
    monkeypatch.setattr(module, "_DRAWN_FROM", 20)
    step = -(-num_held_out // 20)
    assert score_retrieval(store) == {"retrieval/en-es/all": len(range(0, num_held_out, step))}


def test_retrieval_is_scored_without_near_twins_of_training_too(monkeypatch):
    # Every pair of the first corpus differs from the others in one word; those of the second in four.
    alike = [TranslationPair(f"the number is {n}", f"el número es {n}") for n in range(100)]
    unlike = [TranslationPair(f"{n} {n}a {n}b {n}c", f"{n} {n}d {n}e {n}f") for n in range(200)]
    monkeypatch.setattr(module, "_CANDIDATES", 12)
    parts = [corpus("parallel", alike, name="alike"), corpus("parallel", unlike, name="unlike")]
    store = transient_store(parts)
    alike, unlike = (len(corpus.held_out) for corpus in store.corpora)
    pairs = score_retrieval(store)
    assert pairs["retrieval/en-es/no_near_twins"] == unlike
    assert pairs["retrieval/en-es/all"] == alike + unlike


def test_translations_of_all_corpora_are_drawn():
    pairs = {name: [TranslationPair(f"{name}{n}", f"{name.upper()}{n}") for n in range(300)] for name in "ab"}
    store = transient_store([corpus("parallel", records, name=name) for name, records in pairs.items()])
    drawn = held_out_translations(store.corpora, 20)
    sources, targets = drawn[::2], drawn[1::2]
    assert targets == [("es", text.upper()) for _, text in sources]
    assert {language for language, _ in sources} == {"en"}
    assert 10 < len(sources) <= 20
    assert {text[0] for _, text in sources} == {"a", "b"}
