"""Scores on held-out pairs, before and after a training, and when they end it."""

import threading
from contextlib import nullcontext

import numpy as np
import pytest
from testing import TWO_TASKS, make_trainer

from xling_tf.settings import apply_overrides
from xling_tf.trainer import loop
from xling_tf.trainer.held_out import HeldOutPairs, HeldOutScores, Validation
from xling_tf.weights import arrays

CONSTANT = ("optimizer.warmup=0", "optimizer.decay=constant")
# Three questions are held out; "a" and "A " are the same question, with two right answers.
PAIRS = HeldOutPairs([("a", "1"), ("b", "2"), ("c", "2")], [("A ", "3"), ("d", "4"), ("e", "4")])


def encode_as(nearest):
    """An encoder for which each question is nearest to the answers of a list, in this order."""

    def encode(texts):
        answers = {answer: row for row, answer in enumerate("1234")}
        vectors = np.zeros((len(texts), 4))
        for row, text in enumerate(texts):
            if text in answers:
                vectors[row, answers[text]] = 1
            else:
                for rank, answer in enumerate(nearest[text]):
                    vectors[row, answers[answer]] = 1 / (1 + rank)
        return vectors

    return encode


START = encode_as({"a": "4123", "b": "1243", "c": "2134"})
END = encode_as({"a": "3412", "b": "2143", "c": "2134"})


def test_any_right_text_is_found_among_those_of_all_pairs():
    # Of "a", "1" is second; of "b", "2" is second; of "c", it is first.
    before, after = PAIRS.measure(START), PAIRS.measure(END)
    assert before.tolist() == [1 / 2, 1 / 2, 1]
    assert after.tolist() == [1, 1, 1]
    assert PAIRS.score(before) == pytest.approx(2 / 3)
    # Wilson 1927 for 1 of 3 with z² = 3.8415: centre (1/3 + z²/6) / (1 + z²/3) = 0.426916, width
    # z sqrt(1/3 2/3 / 3 + z²/36) / (1 + z²/3) = 0.365424.
    metrics = PAIRS.metrics(before)
    ends = metrics["precision_at_1_low"], metrics["precision_at_1_high"]
    assert ends == pytest.approx((0.426916 - 0.365424, 0.426916 + 0.365424), abs=2e-5)
    assert (metrics["num_pairs"], metrics["num_candidates"]) == (3, 4)
    # All candidates have the same vector: ties are errors.
    assert PAIRS.measure(lambda texts: np.ones((len(texts), 2))).tolist() == [1 / 3, 1 / 4, 1 / 4]


def test_a_comparison_says_whether_chance_explains_the_difference():
    assert PAIRS.comparison(PAIRS.measure(START), PAIRS.measure(END)) == (
        "P@1 of 3 held-out pairs among 4 answers: 33.3 (6 to 79) before, 100 (44 to 100) after: "
        "no clear difference; 3 pairs are few"
    )
    many = HeldOutPairs([(f"q{n}", f"a{n}") for n in range(300)], [])
    wrong, right = np.full(300, 0.5), np.ones(300)
    # The sign test of k gains and no loss: 2 / 2**k, 0.0625 for 5 and 0.03125 for 6.
    for count, verdict in ((5, "no clear difference"), (6, "a gain of 2.0 points")):
        after = np.where(np.arange(300) < count, right, wrong)
        assert many.comparison(wrong, after).endswith(f"after: {verdict}")
        assert many.comparison(after, wrong).endswith(verdict.replace("gain", "loss"))


def test_a_start_that_is_bad_or_good_is_said():
    shares = {0.1: "aligned", 0.5: "", 0.99: "little to learn"}
    for share, word in shares.items():
        outcome = np.where(np.arange(100) < 100 * share, 1.0, 0.5)
        warning = PAIRS.warning(outcome)
        assert word in warning
        assert bool(word) == bool(warning)


def test_too_few_pairs_cannot_be_scored():
    assert not HeldOutPairs([], [("a", "1")]).can_score
    assert not HeldOutPairs([("a", "1")], [("a", "2")]).can_score
    assert not HeldOutScores([("a", "b")] * 9, [1] * 9).can_score


def test_scored_pairs_are_correlated():
    pairs = HeldOutScores([(f"{n}", f"{n}") for n in range(300)], [n % 100 for n in range(300)])
    good, bad = np.arange(300) % 100 / 100.0, -(np.arange(300) % 100) / 100.0
    assert (pairs.score(good), pairs.score(bad)) == pytest.approx((1, -1))
    assert "a gain of 200.0 points" in pairs.comparison(bad, good)
    assert "no clear difference" in pairs.comparison(good, good)
    assert "means different" in pairs.warning(bad)
    assert not pairs.warning(good)


class Scores:
    """Stands for held-out pairs: the scores of a list, one after the other."""

    def __init__(self, *scores):
        self._scores = iter(scores)

    def measure(self, encode):
        encode(["a text"])
        return np.array([next(self._scores)])

    def score(self, outcome):
        return float(outcome[0])

    def described(self, outcome):
        return str(outcome[0])


def validation(*scores):
    return Validation(Scores(*scores), np.array([0.5]))


def test_a_score_is_due_at_each_tenth_and_three_worse_ones_are_the_end():
    scored = validation(0.6, 0.8, 0.7, 0.8, 0.7, 0.7, 0.6, 0.9)
    scored.begin({}, 0.0, "10 steps")
    assert [step for step in range(11) if scored.is_due(step / 10)] == [*range(1, 11)]
    ends = []
    for step in range(1, 8):
        scored.add(step, len)
        ends.append(scored.is_over)
    # The fourth equals the best one, and of equals, the last is taken.
    assert ends == [False] * 6 + [True]
    assert scored.best_step == 4
    # The same budget stays at its end; a larger one has another three scores to gain.
    again, more = validation(), validation(0.7, 0.7, 0.7)
    again.begin(scored.state(), 0.7, "10 steps")
    more.begin(scored.state(), 0.35, "20 steps")
    assert (again.is_over, more.is_over, again.best_step) == (True, False, 4)
    assert [more.add(step, len) or more.is_over for step in (8, 9, 10)] == [False, False, True]


def test_the_weights_of_the_best_step_are_taken_also_after_a_restart(
    tmp_path, monkeypatch, without_graphs
):
    """With constant rates, they are those of a training that has only so many steps."""
    scores = [0.6, 0.9, 0.8, 0.8, 0.9, 0.7, 0.8, 0.95, 0.8, 0.7]
    config = apply_overrides(TWO_TASKS, ["training.steps=10", *CONSTANT])
    whole = make_trainer(tmp_path / "whole", config, validation=validation(*scores))
    assert whole.train()
    eight = make_trainer(tmp_path / "eight", apply_overrides(config, ["training.steps=8"]))
    assert eight.train()
    stop = threading.Event()

    class Stopping(Scores):
        def measure(self, encode):
            outcome = super().measure(encode)
            if outcome[0] == 0.7:  # the sixth one; a step follows
                stop.set()
            return outcome

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_stop_requests", lambda: nullcontext(stop))
        stopped = Validation(Stopping(*scores), np.array([0.5]))
        assert not make_trainer(tmp_path / "halves", config, validation=stopped).train()
    halves = make_trainer(tmp_path / "halves", config, validation=validation(*scores[7:]))
    assert halves.train()
    expected = arrays(eight.model.weights)
    for trainer in (whole, halves):
        for name, value in arrays(trainer.model.weights).items():
            np.testing.assert_array_equal(value, expected[name])
    assert [path.name for path in (tmp_path / "halves").glob("best-*")] == [
        "best-000000008.safetensors"
    ]


def test_worse_scores_end_a_training(tmp_path, without_graphs):
    config = apply_overrides(TWO_TASKS, ["training.steps=10", *CONSTANT])
    trainer = make_trainer(
        tmp_path / "run", config, validation=validation(0.6, 0.9, 0.8, 0.8, 0.7, 0.7)
    )
    assert trainer.train()
    # The three after the second are worse; the end takes effect after one more step.
    assert trainer.step == 6
    again = make_trainer(tmp_path / "run", config, validation=validation())
    assert again.train()
    assert again.step == 6


def test_without_a_start_only_a_curve_is_drawn_and_the_training_stays_the_same(
    tmp_path, without_graphs
):
    config = apply_overrides(TWO_TASKS, ["training.steps=10", *CONSTANT])
    plain = make_trainer(tmp_path / "plain", config)
    scores = [1 - step / 10 for step in range(1, 11)]  # each is worse than the one before
    curve = Validation(Scores(*scores))
    drawn = make_trainer(tmp_path / "drawn", config, validation=curve)
    assert plain.train()
    assert drawn.train()
    assert drawn.step == 10
    assert curve.curve == [*zip(range(1, 11), scores, strict=True)]
    assert not list((tmp_path / "drawn").glob("best-*"))
    expected = arrays(plain.model.weights)
    for name, value in arrays(drawn.model.weights).items():
        np.testing.assert_array_equal(value, expected[name])
