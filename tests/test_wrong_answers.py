"""Wrong answers: what searches find, the rules that leave answers out, and a stage's mining."""

import dataclasses

import numpy as np
import pytest
from testing import WORDS, encode, make_examples, make_trainer, rows_of, tiny_config

from xling_tf.config import StageConfig
from xling_tf.search.wrong_answers import Answers, Encoders, find_wrong_answers
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.mining import Miner

DEGREES = {"north": 0, "n": 10, "south": 180, "s": 190, "west": 270, "ne": 60, "nnn": 11}
PAIRS = [("north", "n"), ("south", "s"), ("south", "west")]


def compass(texts):
    degrees = np.radians([DEGREES[text] for text in texts])
    return np.stack([np.cos(degrees), np.sin(degrees)], axis=1)


COMPASS = Encoders(compass, compass)


def find(pairs=PAIRS, count=1, rows=None, **searches):
    rows = np.arange(len(pairs)) if rows is None else np.array(rows)
    return find_wrong_answers(pairs, rows, count, **searches).tolist()


def shared_words(questions, answers):
    words = [set(answer.split()) for answer in answers]
    return (np.array([float(len(w & {*q.split()})) for w in words]) for q in questions)


def test_a_model_finds_answers_of_other_questions_and_the_own_one_stands_for_a_missing_one():
    # Both "s" and "west" are right for "south".
    first, *others = find(count=2, models=[COMPASS])
    assert sorted(first) == [1, 2]
    assert others == [[0, 1], [0, 2]]
    assert find(PAIRS[:1], count=2, models=[COMPASS]) == [[0, 0]]


def test_an_answer_that_is_nearly_as_good_may_be_right():
    # For "north", cos 10 = .985 is right; 95% of it are .936. "nnn" at cos 11 = .982 is left out,
    # "ne" at cos 60 = .5 is not. For "south", both have negative cosines.
    pairs = [("north", "n"), ("south", "nnn"), ("west", "ne")]
    assert find(pairs, models=[COMPASS])[0] == [2]


def test_answers_that_other_questions_lead_to_are_no_wrong_ones():
    # The second question has the first one's answer in other letters, and a further answer.
    pairs = [("a", "yes"), ("b", "YES "), ("b", "of course"), ("c", "no")]
    answers = Answers(pairs)
    assert answers.of_pair.tolist() == [0, 0, 1, 2]
    assert answers.are_wrong(np.array([0, 3]), np.array([[0, 1, 2, -1]] * 2)).tolist() == [
        [False, False, True, False],
        [True, True, False, False],
    ]
    # 101 questions with one answer have only this one in common: 102 texts and their other answers.
    pairs = [(f"q{n}", text) for n in range(101) for text in ("yes", f"answer {n}")]
    wrong = Answers(pairs).are_wrong(np.array([0]), np.array([[0, 1, 2]]))
    assert wrong.tolist() == [[False, False, True]]


def test_words_find_answers_that_share_some_with_the_question():
    pairs = [("who sings well", "she sings well"), ("who ran well", "he ran well"), ("why", "so")]
    # Two shared words are right, one is less than 95% of them; "so" shares none.
    assert find(pairs, lexical=shared_words) == [[1], [0], [2]]
    # Here the right one shares no more than the wrong one.
    assert find([("sings well", "a well"), ("b", "c well")], lexical=shared_words) == [[0], [1]]


def test_searches_take_turns_and_models_judge_what_words_find():
    pairs = [("north", "n"), ("south", "s"), ("west", "west"), ("ne", "ne")]

    def words(questions, answers):
        # Finds all answers but the first for every question, the last one first.
        return (np.array([0.0, 1, 2, 3]) for _ in questions)

    # .95 of "north" to "n" is .936: all three remain. One of each search comes first, none twice.
    (found,) = find(pairs, 3, rows=[0], lexical=words, models=[COMPASS])
    assert sorted(found) == [1, 2, 3]
    # For "ne" itself, cos 0 = 1; "n" has cos 50 = .64. By words alone, the rule is theirs: 3 is
    # right, and 2.85 the bound.
    assert sorted(find(pairs, 2, rows=[3], lexical=words)[0]) == [1, 2]


def test_of_a_part_of_the_pairs_models_search_only_their_answers_and_what_words_find():
    assert find(rows=[0], models=[COMPASS]) == [[0]]
    assert find(rows=[1], models=[COMPASS], lexical=lambda *_: iter([np.array([1.0, 0, 0])])) == [
        [0]
    ]
    draws = {tuple(map(tuple, find(count=1, models=[COMPASS], seed=n))) for n in range(9)}
    assert len(draws) == 2  # "s" or "west" for "north"
    assert find(models=[COMPASS], seed=3) == find(models=[COMPASS], seed=3)


NAME = "question_answering_en"
QUESTIONS, ANSWERS = WORDS[:10], WORDS[9::-1]


def question_config(*settings):
    config = tiny_config(
        *(f"tasks.{name}.weight=0" for name in ("translation_ranking", "inference")),
        *(f"tasks.{name}.weight=0" for name in ("response_prediction", "quick_thought")),
        "tasks.question_answering.weight=1",
        "tasks.question_answering.with_context=false",
        "tasks.question_answering.with_towers=false",
        "tasks.question_answering.examples_per_batch=2",
        "tasks.question_answering.miner=self",
        "tasks.question_answering.wrong_answers=2",
        "optimizer.learning_rate=0.02",
        "optimizer.embedding_learning_rate=0.2",
        "training.steps=6",
        "data.equal_batches=true",
        *settings,
    )
    return dataclasses.replace(
        config, stages={"first": StageConfig(share=0.5), "then": StageConfig()}
    )


def question_trainer(folder, config):
    examples = make_examples(QUESTIONS, ANSWERS, ANSWERS, ANSWERS)
    trainer = make_trainer(folder, config, {NAME: examples})
    workers = Workers(make_strategy())
    trainer._miner = Miner(trainer.model, {}, lambda teacher: None, folder, 1, workers)
    return trainer


@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("stop", [1, 3])
def test_each_stage_mines_with_the_model_of_its_beginning_also_after_a_restart(stop, tmp_path):
    config = question_config()
    whole, parts = question_trainer(tmp_path / "whole", config), tmp_path / "parts"
    before = encode(whole.model, QUESTIONS)
    assert whole.train()
    assert (encode(whole.model, QUESTIONS) != before).any()
    found = [rows_of(stage.inputs[NAME].examples) for stage in whole._stages]
    # Three steps of two, then the six of the second stage's end.
    for stage, rows, batches in zip(whole._stages, found, (3, 6), strict=True):
        part = stage.inputs[NAME]
        assert stage.most_batches(NAME, whole._budget) == batches - stage.begin.steps
        wrong = {row: {*rows[row][2:]} - {rows[row][1]} for row in range(10)}
        assert {row for row, texts in wrong.items() if texts} <= {*part.drawn(batches)}
        assert any(wrong.values())
    assert found[0] != found[1]
    # Killed after some steps, in the middle of a stage or at its end.
    trainer = question_trainer(parts, config)
    trainer._take_steps = _kill_after(trainer._take_steps, stop, trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer = question_trainer(parts, config)
    assert trainer.train()
    for name, value in trainer.model.weights.items():
        assert np.array_equal(value, whole.model.weights[name]), name


def _kill_after(take_steps, stop, trainer):
    def steps():
        if trainer.step == stop:
            trainer._save()
            raise KeyboardInterrupt
        return take_steps()

    return steps
