import random

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.mining import (
    SUITE,
    BitextMining,
    best_threshold,
)
from xling_tf.evaluators.bitext.mining_files import Comparable, from_bitext
from xling_tf.search.margins import mine_by_margin

ROWS = [(f"en {number}", f"es {number}") for number in range(200)]


def meaning(text):
    return text.split()[1]


def evaluator(rows=ROWS, seed=0):
    return BitextMining(*from_bitext(rows, seed), name="numbers", protocol={"seed": seed})


def test_a_perfect_encoder_finds_all_and_nothing_else():
    scores = evaluator()(by_meaning(meaning))
    assert (scores["f1"], scores["precision"], scores["recall"]) == (1.0, 1.0, 1.0)


def test_a_random_and_a_constant_encoder_find_next_to_nothing():
    # A sentence's best of 75 is right by chance once in 75; a few of 50 gold pairs at most.
    assert evaluator()(random_vectors())["f1"] < 0.15
    assert evaluator()(constant)["f1"] < 0.05


def test_the_order_of_rows_makes_no_difference():
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    encode = random_vectors(dim=4)
    assert evaluator()(encode) == evaluator(shuffled)(encode) == evaluator()(encode)
    assert evaluator(seed=1)(encode) != evaluator()(encode)


def test_the_protocol_says_how_the_data_was_made():
    # Of 200 pairs each half has 100: 50 whole, and 25 more sentences of each language.
    assert evaluator().protocol == {
        "margin": "ratio",
        "num_neighbours": 4,
        "threshold_from": "the other part",
        "num_sources": 75,
        "num_targets": 75,
        "num_gold": 50,
        "seed": 0,
    }


def units(*degrees):
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_margins_derived_by_hand():
    # Cosines of sources at 0 and 60 degrees with targets at 0 and 90: [[1, 0], [0.5, 0.866]]. With
    # two candidates both are neighbours: means of sources 0.5 and 0.683, of targets 0.75 and 0.433.
    # First pair: 1 / ((0.5 + 0.75) / 2) = 1.6; second: 0.866 / ((0.683 + 0.433) / 2) = 1.552.
    mined = mine_by_margin(units(0, 60), units(0, 90))
    assert mined.rows.tolist() == [[0, 0], [1, 1]]
    second = np.sqrt(3) / 2 / ((0.25 + np.sqrt(3) / 4 + np.sqrt(3) / 4) / 2)
    assert mined.margins == pytest.approx([1.6, second], abs=1e-6)


def test_no_sentence_is_taken_twice():
    # Both sources are nearest to the first target; only the nearer one has it.
    mined = mine_by_margin(units(0, 10), units(1, 80))
    assert mined.rows.tolist()[0] == [0, 0]
    assert sorted(source for source, _ in mined.rows) == [0, 1]
    assert sorted(target for _, target in mined.rows) == [0, 1]


def naive(sources, targets, k=4):
    """Margins by every cosine there is, and the greedy choice, sentence by sentence."""
    cosines = sources @ targets.T
    means = [np.sort(c, axis=1)[:, -k:].mean(axis=1) for c in (cosines, cosines.T)]
    margins = cosines / ((means[0][:, None] + means[1][None, :]) / 2)
    candidates = set()
    for source, row in enumerate(cosines):
        near = np.argsort(row)[-k:]
        candidates.add((source, int(near[np.argmax(margins[source, near])])))
    for target, column in enumerate(cosines.T):
        near = np.argsort(column)[-k:]
        candidates.add((int(near[np.argmax(margins[near, target])]), target))
    pairs = []
    for source, target in sorted(candidates, key=lambda pair: -margins[pair]):
        if source not in {s for s, _ in pairs} and target not in {t for _, t in pairs}:
            pairs.append((source, target))
    return pairs, [margins[pair] for pair in pairs]


def test_equals_every_cosine_computed():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(60, 8))
    sides = [np.concatenate([shared, rng.normal(size=(20, 8))]) + 3 for _ in range(2)]
    noisy = [side + rng.normal(size=side.shape) / 2 for side in sides]
    vectors = [(side / np.linalg.norm(side, axis=1, keepdims=True)) for side in noisy]
    mined = mine_by_margin(*(side.astype(np.float32) for side in vectors))
    pairs, margins = naive(*vectors)
    assert [tuple(row) for row in mined.rows.tolist()] == pairs
    assert mined.margins == pytest.approx(margins, abs=1e-5)


def test_the_best_threshold_derived_by_hand():
    # F1 with 1, 2, 3, 4 taken of 3 gold: 2/4, 2/5, 4/6, 6/7.
    is_right = np.array([True, False, True, True])
    margins = np.array([4.0, 3.0, 2.0, 1.0])
    assert best_threshold(margins, is_right, 3) == 1.0
    # Of 2 gold with the last one wrong: 2/3, 2/4, 4/5, 4/6.
    assert best_threshold(margins, np.array([True, False, True, False]), 2) == 1.5
    # Equal margins are taken together: 2/5 for the first three, or 2/6 for all.
    tied = np.array([2.0, 2.0, 2.0, 1.0])
    assert best_threshold(tied, np.array([True, False, False, False]), 2) == 1.5


def test_a_bitext_is_divided_without_a_second_translation():
    rows = [*ROWS, ("en 0", "es 0 again"), ("en 1 again", "es 1"), ROWS[5]]
    tuning, scored = from_bitext(rows, 0)
    assert not set(tuning.sources) & set(scored.sources)
    for part in (tuning, scored):
        assert len(part.gold) == len(part.sources) * 2 // 3
        with_translation = {meaning(source) for source, _ in part.gold}
        sides = [{meaning(text) for text in texts} for texts in (part.sources, part.targets)]
        assert sides[0] & sides[1] == with_translation


def test_a_large_bitext_is_sampled():
    pairs = [(f"en {number}", f"es {number}") for number in range(30_000)]
    assert [len(part.gold) for part in from_bitext(pairs, 0)] == [5000, 5000]


def test_too_few_pairs():
    with pytest.raises(UserError, match="8 pairs at least that share no sentence, but has 1;"):
        from_bitext([("a", "x"), ("a", "y")] * 10, 0)


def test_vectors_that_are_not_finite_name_their_text():
    first = from_bitext(ROWS, 0)[1].sources[0]

    def encode(texts):
        return np.where([[text == first] for text in texts], np.nan, by_meaning(meaning)(texts))

    with pytest.raises(UserError, match=f"infinity or NaN in it, first {first!r}"):
        evaluator()(encode)


def bucc(folder, part, gold=True):
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"de-en.{part}"
    for language, numbers in (("de", range(40)), ("en", range(30, 70))):
        lines = [f"{language}-{n:06}\t{language} {n}\n" for n in numbers]
        stem.with_name(f"{stem.name}.{language}").write_text("".join(lines))
    if gold:
        lines = [f"de-{n:06}\ten-{n:06}\n" for n in range(30, 40)]
        stem.with_name(f"{stem.name}.gold").write_text("".join(lines))


def test_bucc_as_published(tmp_path):
    folder = tmp_path / "bucc" / "de-en"
    bucc(folder, "sample")
    bucc(folder, "training")
    bucc(folder, "test", gold=False)
    (dataset,) = SUITE.find(tmp_path, 0)
    assert dataset.name == "bucc.de-en"
    assert [path.name for path in dataset.files] == [
        f"de-en.training.{x}" for x in ("de", "en", "gold")
    ]
    published = dataset.load()
    assert published(by_meaning(meaning))["f1"] == 1.0
    assert published.protocol["threshold_from"] == "the scored part itself"
    bucc(folder, "test")
    (dataset,) = SUITE.find(tmp_path, 0)
    both = dataset.load()
    assert both(by_meaning(meaning))["f1"] == 1.0
    assert both.protocol["threshold_from"] == "the other part"
    assert (both.protocol["num_sources"], both.protocol["num_gold"]) == (40, 10)


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("de", "de-000001 without a tab", r"training\.de must have two fields .* line 1"),
        ("gold", "de-000001\ten-999999", "'en-999999' is not there"),
        ("gold", "", "two fields in every line"),
    ],
)
def test_bucc_files_that_are_something_else(tmp_path, file, line, message):
    folder = tmp_path / "bucc2018" / "de-en"
    bucc(folder, "training")
    (folder / f"de-en.training.{file}").write_text(f"{line}\n")
    (dataset,) = SUITE.find(tmp_path, 0)
    with pytest.raises(UserError, match=message):
        dataset.load()


def test_the_suite_mines_bitexts_and_says_that_bucc_is_missing(tmp_path):
    (tmp_path / "bitext").mkdir()
    lines = ["en\tes", *("\t".join(row) for row in ROWS)]
    (tmp_path / "bitext" / "numbers.en-es.tsv").write_text("\n".join(lines))
    missing, dataset = SUITE.find(tmp_path, 5)
    assert missing.name == "bucc"
    loaded = dataset.load()
    assert loaded.protocol["seed"] == 5
    assert loaded(by_meaning(meaning))["f1"] == 1.0


def test_one_part_is_tuned_and_scored():
    part = Comparable(["en 1", "en 2"], ["es 1", "es 3"], frozenset({("en 1", "es 1")}))
    scores = BitextMining(part, part, name="x", protocol={})(by_meaning(meaning))
    assert scores["f1"] == 1.0
