"""The F1 of mined translations, its threshold, and the two parts of a bitext."""

import numpy as np
import pytest
from encode_functions import by_last_word, looked_up
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext_mining import SUITE, BitextMining, best_threshold, from_bitext

ROWS = [(f"en {number}", f"es {number}") for number in range(200)]


def test_scores_derived_by_hand():
    # Two directions a right angle apart: "a" and "x" share the one, "b" and "y" the other. Of the two
    # mined pairs (a, x) is gold, and so is (b, z), which is not found: P = R = 1/2.
    rows = [("a", "x"), ("b", "z"), ("", "y")]
    vectors = {"a": [1, 0], "b": [0, 1], "x": [1, 0], "y": [0, 1], "z": [-1, -1]}
    evaluator = BitextMining(rows, name="x")
    scores = evaluator(looked_up(vectors))
    assert (scores["precision"], scores["recall"], scores["f1"]) == (0.5, 0.5, 0.5)
    assert evaluator.protocol["threshold_from"] == "the scored part itself"


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
        sources, targets = ({text.split()[1] for text in side if text} for side in zip(*corpus, strict=True))
        assert (len(whole), len(sources), len(targets)) == (50, 75, 75)
        assert sources & targets == {source.split()[1] for source in whole}
    assert not {source for source, _ in corpora[0]} & {source for source, _ in corpora[1]} - {""}
    with pytest.raises(UserError, match="8 pairs that share no sentence, but has 1"):
        from_bitext([("a", "x"), ("a", "y")] * 10, 0)


def test_the_suite_finds_bucc_and_chooses_the_threshold_on_its_training_part(tmp_path):
    training, test = (tmp_path / f"mining/bucc.de-en.{part}.tsv" for part in ("training", "test"))
    gold = [(f"de {n}", f"en {n}") for n in range(10)]
    single = [row for n in range(20, 50) for row in ((f"de {n}", ""), ("", f"en {n + 100}"))]
    write_table(training, "de en", *gold, *single, gold[0])
    (dataset,) = SUITE.find(tmp_path, 0)
    assert dataset.name == "bucc.de-en"
    published = dataset.load()
    assert (published.protocol["num_sources"], published.protocol["num_gold"]) == (40, 10)
    write_table(test, "de en", *gold[:5], *single)
    (dataset,) = SUITE.find(tmp_path, 0)
    assert len(dataset.files) == 2
    both = dataset.load()
    assert both(by_last_word)["f1"] == 1.0
    assert both.protocol["threshold_from"] == "the other part"
    assert both.protocol["num_gold"] == 5
    write_table(test, "de en", *single)
    with pytest.raises(UserError, match=r"bucc\.de-en must have a pair of translations"):
        dataset.load()
