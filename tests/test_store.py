"""Corpora on the disk: what comes back, when it is written, and what it takes of the memory."""

import re
import resource
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from testing import TINY, accept, corpus

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import (
    InferencePair,
    QuestionAnswer,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import open_store, transient_store
from xling_tf.errors import UserError
from xling_tf.tasks.base import build_tasks
from xling_tf.trainer.input_pipeline import task_examples

WORDS = [f"sentence {number}" for number in range(400)]
TRAINED = [word for word in WORDS if not held_out(word)]
HELD = [word for word in WORDS if held_out(word)]


PAIRS = corpus(
    "parallel",
    [
        TranslationPair(TRAINED[0], "ñ我🙂", ("neg", "")),
        TranslationPair(TRAINED[1], "b"),
        TranslationPair(TRAINED[1], "b"),
        TranslationPair("b", "b" * 1000),
        TranslationPair(HELD[0], "c"),
        TranslationPair(TRAINED[2], "C"),
    ],
)
# Each reply is the next message.
TALK = corpus("conversations", [ResponsePair(*two) for two in pairwise(TRAINED)])
TALE = [SentenceTriplet(*three) for three in zip(WORDS, WORDS[1:], WORDS[2:], strict=False)]
STORY = corpus("documents", TALE, groups=[TRAINED[0]] * 200 + [TRAINED[1]] * 198)
LABELLED = corpus("nli", [InferencePair(TRAINED[0], "h", label) for label in (2, 0, 1)])
ASKED = corpus(
    "questions",
    [
        QuestionAnswer("who?", "he.", TRAINED[3]),
        QuestionAnswer("he.", "she.", TRAINED[3]),
        QuestionAnswer("where?", TRAINED[4], TRAINED[4]),
    ],
    languages="es",
)
ALL = [PAIRS, TALK, STORY, LABELLED, ASKED]


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_records_come_back_as_they_were():
    pairs, talk, story, labelled, asked = transient_store(ALL).corpora
    # The fifth is held out, and the translation of the sixth is the same but for its case.
    assert list(pairs.train) == PAIRS.records[:4]
    assert list(pairs.held_out) == [PAIRS.records[4]]
    assert list(talk.train) == TALK.records
    # The sentence that is held out as a translation is in three triplets.
    assert list(story.train) == [triplet for triplet in TALE if HELD[0] not in triplet]
    assert list(labelled.train) == LABELLED.records
    assert list(asked.train) == ASKED.records
    assert list(story.train[5:8]) == TALE[8:11]
    assert story.train[-1] == TALE[-1]


def test_lengths_stay_with_their_records_where_a_batch_adds_no_text(monkeypatch):
    monkeypatch.setattr("xling_tf.corpora.store._BUFFERED", 1)
    again = corpus("parallel", [TranslationPair(TRAINED[0], "It's 3.14 - isn't it?")] * 3)
    first, second = transient_store([again, LABELLED]).corpora
    assert first.train.lengths.tolist() == [6, 6, 6]  # It's, 3.14, -, isn't, it and ?
    assert second.train.lengths.tolist() == [2, 2, 2]


def test_training_texts_are_distinct_and_in_order():
    by_language = transient_store(ALL).training_texts_by_language()
    english, spanish = (list(by_language[language]) for language in by_language)
    assert list(by_language) == ["en", "es"]
    # "b" is a target, and the source of the fourth pair, which ends in the same letter 1000 times.
    assert english[:3] == [TRAINED[0], TRAINED[1], "b"]
    assert len(english) == len(set(english))
    assert set(english) == {*WORDS, "b", "h"} - {HELD[0]}
    of_questions = ["who?", "he.", TRAINED[3], "she.", "where?", TRAINED[4]]
    assert spanish == ["ñ我🙂", "neg", "", "b", "b" * 1000, *of_questions]


def test_a_store_is_written_once_and_that_of_others_replaced(tmp_path):
    path = tmp_path / "store"
    first = open_store(path, ALL, accept)
    before = files(path)
    again = open_store(path, ALL, accept)
    assert files(path) == before
    for one, other in zip(first.corpora, again.corpora, strict=True):
        assert list(one.train) == list(other.train)
        assert list(one.held_out) == list(other.held_out)
    for others in (ALL[:3], ALL[::-1], [*ALL[:3], corpus("nli", LABELLED.records, name="y")]):
        store = open_store(path, others, accept)
        assert store.counts() == {c.title: len(c.records) for c in others}
        assert open_store(path, others, accept).counts() == store.counts()
    # Neighbouring records share their texts.
    open_store(path, [STORY], accept)
    assert (path / "texts").read_text() == "".join(WORDS)


def test_contents_tell_corpora_apart_and_know_no_neighbours(tmp_path):
    before = open_store(tmp_path / "one", ALL, accept).contents()
    assert open_store(tmp_path / "two", ALL[::-1], accept).contents() == before
    changed = corpus("nli", [LABELLED.records[0]._replace(label=1), *LABELLED.records[1:]])
    title = changed.title
    after = open_store(tmp_path / "three", [*ALL[:3], changed, ASKED], accept).contents()
    assert after[title].split(",")[0] == before[title].split(",")[0]
    assert [each for each in before if after[each] != before[each]] == [title]


def test_a_store_that_is_refused_leaves_the_earlier_one(tmp_path):
    def refuse(store):
        raise UserError(f"not {len(store.counts())} corpora")

    open_store(tmp_path / "store", ALL, accept)
    before = files(tmp_path / "store")
    for corpora in (ALL[:2], ALL):
        with pytest.raises(UserError, match=f"not {len(corpora)} corpora"):
            open_store(tmp_path / "store", corpora, refuse)
    assert files(tmp_path / "store") == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path):
    # No file may grow beyond the limit; the largest, texts, has 14 kB.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))
    try:
        with pytest.raises(UserError, match=r"store, but cannot be: File too large; make room"):
            open_store(tmp_path / "store", ALL, accept)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_a_corpus_of_which_nothing_is_left_for_training_is_named(caplog):
    leaking = corpus("parallel", [TranslationPair(TRAINED[0], "C")] * 2)
    tests = corpus("nli", LABELLED.records, split="test", name="quiet")
    with caplog.at_level("WARNING"):
        transient_store([PAIRS, leaking, tests])
    (line,) = (line for line in caplog.messages if "left for training" in line)
    assert re.match(r"parallel/x\.en-es: of its 2 records none is left .* 0 are held out", line)


def peak(folder: Path, count: int) -> int:
    """Bytes that are in use at most while so many pairs are read and gone through."""
    (folder / "parallel").mkdir(parents=True)
    with (folder / "parallel/x.en-es.tsv").open("w") as file:
        file.writelines(f"a short line {number}\tlínea {number}\n" for number in range(count))
    tracemalloc.start()
    try:
        corpora = load_folder(folder, source="en", targets=["es"])
        store = open_store(folder / "store", corpora, accept)
        by_language = store.training_texts_by_language()
        assert sum(1 for texts in by_language.values() for text in texts) > count
        examples = task_examples(build_tasks(TINY), store.corpora)["translation_ranking_en-es"]
        for begin in range(100):
            examples.train.texts(np.arange(begin, 800, 10))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_grows_by_some_numbers_a_record(tmp_path):
    peak(tmp_path / "first", 1000)  # what is loaded once
    few, many = 10_000, 40_000
    growth = (peak(tmp_path / "many", many) - peak(tmp_path / "few", few)) / (many - few)
    # The peak is where the two texts of a record are told apart, by 41 bytes of numbers for each.
    # A record in memory takes 230 bytes: 90 for the tuple, and 70 for each of two strings.
    assert growth < 100
