"""Known translations choose the margin of mined pairs: by hand, on random vectors, and in files."""

import numpy as np
import pytest
from test_mining import read, write_sides, write_vectors

from xling_tf.bulk.mining import mine_translations
from xling_tf.client.known_translations import Pairs, WithoutKnown, _adjusted, choose_margin
from xling_tf.client.neighbours import Neighbours
from xling_tf.client.search import bitext_mining
from xling_tf.errors import UserError


def hidden_translations(num_right: int, num_others: int, noise: float = 0.9, seed: int = 0):
    """Unit vectors of two sides; the first `num_right` rows are translations of each other."""
    rng = np.random.default_rng(seed)
    first, second = rng.normal(size=(2, num_right + num_others, 32))
    second[:num_right] = first[:num_right] + noise * second[:num_right]
    return [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)]


def test_sentences_have_their_neighbours_without_the_known_translation():
    scores = np.array([[0.9, 0.8, 0.5], [0.7, 0.6, 0.1], [0.4, 0.3, 0.2]], np.float32)
    indices = np.array([[4, 5, 6], [5, 4, 7], [8, 9, 4]])
    parts = [Neighbours(scores[:2], indices[:2]), Neighbours(scores[2:], indices[2:])]
    known = np.array([[0, 5], [2, 4], [1, 9], [2, 9]])
    first, second = WithoutKnown(parts, known)
    # The farthest of the rest stands for the neighbour that would come next. Sentence 1's known
    # translation is none of its neighbours; sentence 2 has two.
    assert first.indices.tolist() == [[4, 6, 6], [5, 4, 7]]
    assert first.scores.tolist() == np.float32([[0.9, 0.5, 0.5], [0.7, 0.6, 0.1]]).tolist()
    assert second.indices.tolist() == [[8, 8, 8]]
    (alone,) = WithoutKnown([Neighbours(scores[:1, :1], indices[:1, :1])], np.array([[0, 4]]))
    assert (alone.scores.tolist(), alone.indices.tolist()) == ([[-np.inf]], [[-1]])


def test_the_share_of_right_pairs_is_the_most_likely_one():
    # Certain pairs count as they are: one in four is right, whatever the regression's half.
    assert _adjusted(np.array([1.0, 0, 0, 0])).mean() == pytest.approx(0.25)
    # Of equally likely ones, .5 says nothing; .6 for all says that all are right.
    assert _adjusted(np.array([0.6, 0.6])).mean() == pytest.approx(1, abs=1e-2)


def test_margins_that_tell_right_from_wrong_are_chosen():
    # 30 known translations, of which 24 are found, at a margin of 2; without their translations,
    # these sentences reach 1. Of 100 other pairs 40 have 2, and 60 have 1: those of 2 are right.
    known = np.stack([np.arange(30), np.arange(30)], axis=1)
    others = np.arange(100, 200)
    margins = np.repeat([2.0, 1.0], [64, 60])
    rows = np.concatenate([np.arange(24), others])
    pairs = Pairs(margins, rows, rows)
    wrong = Pairs(np.ones(30), np.arange(30), np.arange(1, 31))
    choice = choose_margin(pairs, wrong, known, 0.9)
    assert (choice.margin, choice.recall) == (2.0, 0.8)
    assert choice.precision > 0.9
    # All 100 have a precision of .4, a little less by a regression that is never certain.
    assert choose_margin(pairs, wrong, known, 0.35).margin == 1.0
    assert choose_margin(pairs, wrong, known, 0.45).margin == 2.0


@pytest.mark.parametrize("precision", [0.7, 0.9])
def test_wrong_pairs_with_high_margins_are_expected(precision):
    """The share that neighbours reach of a pair's cosine is .8 for right ones, .95 for wrong ones,
    with a deviation of .08: a line in the margin itself gives .67 and .85 in place of .7 and .9.
    """
    shares = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found, left_out, right, wrong = (
            1 / rng.normal(mean, 0.08, count)
            for mean, count in ((0.8, 300), (0.95, 300), (0.8, 500), (0.95, 4000))
        )
        margins = np.concatenate([found, right, wrong])
        rows = np.argsort(-margins)
        known = np.stack([np.arange(300)] * 2, axis=1)
        without = Pairs(left_out, known[:, 0], np.arange(10_000, 10_300))
        choice = choose_margin(Pairs(margins[rows], rows, rows), without, known, precision)
        kept = [np.sum(each >= choice.margin) for each in (right, wrong)]
        shares.append(kept[0] / sum(kept))
    assert precision - 0.02 < np.mean(shares) < precision + 0.04


@pytest.mark.parametrize("num_others", [500, 2000])
@pytest.mark.parametrize("precision", [0.8, 0.9])
def test_pairs_have_the_wanted_precision(num_others, precision):
    """Within 3 points, on the mean of three texts: one text's 500 translations vary by 2 points."""
    shares = []
    for seed in range(3):
        sides = hidden_translations(800, num_others, seed=seed)
        known = [(row, row) for row in range(300)]
        pairs = bitext_mining(*sides, known=known, precision=precision)
        others = [pair for pair in pairs if min(pair.first, pair.second) >= 300]
        shares.append(np.mean([pair.first == pair.second < 800 for pair in others]))
    assert np.mean(shares) == pytest.approx(precision, abs=0.03)


def test_files_are_mined_by_a_table_of_known_translations(tmp_path, caplog):
    sides = hidden_translations(300, 400, noise=0.6)
    folders = write_sides(tmp_path, sides, rows=100)
    table = tmp_path / "pairs.tsv"
    # Case and spaces may differ; a pair that is not among the texts is left out.
    rows = [f"S{row} \tt{row}" for row in range(100)] + ["another\tone"]
    table.write_text("\n".join(rows), encoding="utf-8")
    with caplog.at_level("INFO", logger="absl"):
        counts = mine_translations(*folders, tmp_path / "out.tsv", known=table, precision=0.8)
    assert "100 of 101 known translations are among the texts" in caplog.messages
    expected = bitext_mining(*sides, known=[(row, row) for row in range(100)], precision=0.8)
    pairs = read(tmp_path / "out.tsv")
    assert [pair[1:] for pair in pairs] == [(f"s{p.first}", f"t{p.second}") for p in expected]
    assert counts["pairs"] == len(expected)
    assert counts["margin"] == pytest.approx(expected[-1].score, abs=1e-5)
    assert counts["precision"] >= 0.8
    found = sum(pair.first == pair.second < 100 for pair in expected)
    assert counts["recall"] == found / 100
    # The neighbours are kept: the chosen margin as a threshold gives the same pairs.
    again = mine_translations(*folders, tmp_path / "out.tsv", threshold=counts["margin"])
    assert again["pairs"] == counts["pairs"]


def test_known_translations_that_say_nothing_are_refused(tmp_path):
    folders = write_sides(tmp_path, hidden_translations(60, 60))
    output = tmp_path / "out.tsv"
    known = [(f"s{row}", f"t{row}") for row in range(60)]
    for pairs, options, message in (
        (known[:19], {}, "expected 20 `known` translations or more .* got 19"),
        ([pair[::-1] for pair in known], {}, "no `known` translation .*; swap its columns"),
        ([("a", "b")], {}, "no `known` translation .*; encode them together with the texts"),
        (known, {"threshold": 1.1}, "leave one out"),
        (known, {"precision": 1.0}, "`precision` must be above 0 and below 1, got 1.0"),
        (known[::-1], {"precision": 0.999999}, "no margin has a `precision` of 0.999999"),
        (
            [(f"s{row}", f"t{row + 60}") for row in range(30)],
            {},
            "0 of 30 `known` translations are found at any margin",
        ),
    ):
        with pytest.raises(UserError, match=message):
            mine_translations(*folders, output, known=pairs, **options)
    assert not output.exists()


def test_swapped_folders_and_a_margin_that_nobody_chose_are_told(tmp_path, caplog):
    english = [f"The old house stands near the river, where {n} boats lie." for n in range(8)]
    spanish = [f"La casa vieja está cerca del río, donde hay {n} barcos." for n in range(8)]
    vectors = hidden_translations(8, 0)
    folders = [
        write_vectors(tmp_path / name, texts, side)
        for name, texts, side in zip(("a.es", "a.en"), (english, spanish), vectors, strict=True)
    ]
    with caplog.at_level("INFO", logger="absl"):
        mine_translations(*folders, tmp_path / "out.tsv")
    swapped, advice = caplog.messages
    assert "a.es and" in swapped
    assert "a.en seem to be swapped: the first is in en, the second in es" in swapped
    assert "`known`" in advice
