import numpy as np
import pytest
from encode_functions import by_meaning, constant

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext_mining import (
    SUITE,
    BitextMining,
    best_threshold,
    from_bitext,
)
from xling_tf.search.semantic import mine_by_margin

ROWS = [(f"en {number}", f"es {number}") for number in range(200)]


def meaning(text):
    return text.split()[1]


def evaluator(rows=ROWS, seed=0):
    return BitextMining(*from_bitext(rows, seed), name="numbers", protocol={"seed": seed})


def test_perfect_random_and_constant_encoders():
    scores = evaluator()(by_meaning(meaning))
    assert (scores["f1"], scores["precision"], scores["recall"]) == (1.0, 1.0, 1.0)
    assert evaluator()(constant)["f1"] < 0.05


def test_scores_derived_by_hand():
    # Two directions a right angle apart: "a" and "x" share the one, "b" and "y" the other. Of the two
    # mined pairs (a, x) is gold, and so is (b, z), which is not found: P = R = 1/2.
    rows = [("a", "x"), ("b", "z"), ("", "y")]
    vectors = {"a": [1, 0], "b": [0, 1], "x": [1, 0], "y": [0, 1], "z": [-1, -1]}
    evaluator = BitextMining(rows, name="x")
    scores = evaluator(lambda texts: np.array([vectors[text] for text in texts]))
    assert (scores["precision"], scores["recall"], scores["f1"]) == (0.5, 0.5, 0.5)
    assert evaluator.protocol["threshold_from"] == "the scored part itself"


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
    # Both sources are nearest to the first target; only the nearer one has it.
    assert mine_by_margin(units(0, 10), units(1, 80)).rows.tolist() == [[0, 0], [1, 1]]


def test_margins_are_those_of_every_cosine_computed():
    rng = np.random.default_rng(0)
    shared = rng.normal(size=(60, 8))
    sides = [np.concatenate([shared, rng.normal(size=(20, 8))]) + 3 for _ in range(2)]
    sides = [side + rng.normal(size=side.shape) / 2 for side in sides]
    sides = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides]
    cosines = sides[0] @ sides[1].T
    nearest = [np.argsort(-c, axis=1)[:, :4] for c in (cosines, cosines.T)]
    means = [
        np.take_along_axis(c, near, axis=1).mean(axis=1)
        for c, near in zip((cosines, cosines.T), nearest, strict=True)
    ]
    margins = cosines / ((means[0][:, None] + means[1][None, :]) / 2)
    # Every sentence's best neighbour by margin, then the best pairs one after the other.
    candidates = {(row, max(near, key=lambda c: margins[row, c])) for row, near in enumerate(nearest[0])}
    candidates |= {(max(near, key=lambda r: margins[r, c]), c) for c, near in enumerate(nearest[1])}
    pairs = []
    for source, target in sorted(candidates, key=lambda pair: -margins[pair]):
        if all(source != first and target != second for first, second in pairs):
            pairs.append((source, target))
    mined = mine_by_margin(*(side.astype(np.float32) for side in sides))
    assert [tuple(row) for row in mined.rows.tolist()] == pairs
    assert mined.margins == pytest.approx([margins[pair] for pair in pairs], abs=1e-5)


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
    corpora = from_bitext(rows, 0)
    for corpus in corpora:
        # Of 200 pairs each half has 100: 50 whole, and 25 more sentences of each language.
        whole = [source for source, target in corpus if source and target]
        sources, targets = ({meaning(text) for text in side if text} for side in zip(*corpus, strict=True))
        assert (len(whole), len(sources), len(targets)) == (50, 75, 75)
        assert sources & targets == {meaning(source) for source in whole}
    assert not {source for source, _ in corpora[0]} & {source for source, _ in corpora[1]} - {""}
    many = [(f"en {number}", f"es {number}") for number in range(30_000)]
    assert [len(corpus) for corpus in from_bitext(many, 0)] == [10_000, 10_000]
    with pytest.raises(UserError, match="8 pairs at least that share no sentence, but has 1;"):
        from_bitext([("a", "x"), ("a", "y")] * 10, 0)


def write(folder, part, *lines):
    folder.mkdir(exist_ok=True)
    text = "".join(f"{line}\n" for line in ("de\ten", *lines))
    (folder / f"bucc.de-en.{part}.tsv").write_text(text)


def test_the_suite_finds_bucc_and_chooses_the_threshold_on_its_training_part(tmp_path):
    folder = tmp_path / "mining"
    gold = [f"de {n}\ten {n}" for n in range(10)]
    single = [line for n in range(20, 50) for line in (f"de {n}\t", f"\ten {n + 100}")]
    write(folder, "training", *gold, *single, gold[0])
    (dataset,) = SUITE.find(tmp_path, 0)
    assert dataset.name == "bucc.de-en"
    published = dataset.load()
    assert published(by_meaning(meaning))["f1"] == 1.0
    assert published.protocol["threshold_from"] == "the scored part itself"
    assert (published.protocol["num_sources"], published.protocol["num_gold"]) == (40, 10)
    write(folder, "test", *gold[:5], *single)
    (dataset,) = SUITE.find(tmp_path, 0)
    assert len(dataset.files) == 2
    both = dataset.load()
    assert both(by_meaning(meaning))["f1"] == 1.0
    assert both.protocol["threshold_from"] == "the other part"
    assert both.protocol["num_gold"] == 5
    write(folder, "test", *single)
    with pytest.raises(UserError, match=r"bucc\.de-en must have a pair of translations"):
        dataset.load()
