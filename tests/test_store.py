"""Corpora on disk: they are read as they were written, and written again only if they changed."""

from itertools import pairwise

import pytest
from raw_files import small_disk
from testing import accept, corpus

from xling_tf.corpora import records
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import open_store, transient_store
from xling_tf.errors import UserError

WORDS = [f"sentence {number}" for number in range(400)]
TRAINED = [word for word in WORDS if not held_out(word)]
HELD = [word for word in WORDS if held_out(word)]

PAIRS = corpus(
    "parallel",
    [
        records.TranslationPair(TRAINED[0], "ñ我🙂", ("neg", "")),
        records.TranslationPair(TRAINED[1], "b"),
        records.TranslationPair(TRAINED[1], "b"),
        records.TranslationPair("b", "b" * 1000),
        records.TranslationPair(HELD[0], "c"),
        records.TranslationPair(TRAINED[2], "C"),
    ],
)
# Each reply is the next message.
TALK = corpus("conversations", [records.ResponsePair(*two) for two in pairwise(TRAINED)])
TALE = [records.SentenceTriplet(*three) for three in zip(WORDS, WORDS[1:], WORDS[2:], strict=False)]
STORY = corpus("documents", TALE, groups=[TRAINED[0]] * 200 + [TRAINED[1]] * 198)
LABELLED = corpus("nli", [records.InferencePair(TRAINED[0], "h", label) for label in (2, 0, 1)])
ASKED = corpus(
    "questions",
    [
        records.QuestionAnswer("who?", "he.", TRAINED[3]),
        records.QuestionAnswer("he.", "she.", TRAINED[3]),
        records.QuestionAnswer("where?", TRAINED[4], TRAINED[4]),
    ],
    languages="es",
)
ALL = [PAIRS, TALK, STORY, LABELLED, ASKED]


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_records_come_back_as_they_were(caplog):
    pairs, talk, story, labelled, asked = transient_store(ALL).corpora
    # The fifth is held out, and the translation of the sixth is the same but for its case.
    assert list(pairs.train) == PAIRS.records[:4]
    assert list(pairs.held_out) == [PAIRS.records[4]]
    assert list(talk.train) == TALK.records
    # The sentence that is held out as a translation is in three triplets.
    assert list(story.train) == [triplet for triplet in TALE if HELD[0] not in triplet]
    assert list(labelled.train) == LABELLED.records
    assert labelled.train.lengths.tolist() == [2, 2, 2]
    assert list(asked.train) == ASKED.records
    assert list(story.train[5:8]) == TALE[8:11]
    assert story.train[-1] == TALE[-1]
    # All records of this corpus share a text with a held-out one.
    transient_store([PAIRS, corpus("parallel", [records.TranslationPair(TRAINED[0], "C")] * 2)])
    assert "none of its 2 records is left for training: 0 are held out" in caplog.text


def test_the_log_says_how_many_records_leave_training_for_held_out_texts(caplog):
    caplog.set_level("INFO", logger="absl")
    alone = [records.TranslationPair(word, f"target of {word}") for word in WORDS]
    # Two translations of a held-out sentence are the second text of pairs that share it: 2 of 360
    # are few.
    few = [records.TranslationPair(f"{word} again", f"target of {HELD[0]}") for word in TRAINED[:2]]
    few = [pair for pair in few if not held_out(pair.source)]
    (stored,) = transient_store([corpus("parallel", alone + few)]).corpora
    assert len(stored.train) == len(TRAINED)
    levels = {r.levelname for r in caplog.records if "left out: they share" in r.getMessage()}
    assert (bool(few), levels) == (True, {"INFO"})
    # In both orders, the turned pairs of all held-out sentences leave: more than a few.
    caplog.clear()
    turned = [records.TranslationPair(pair.target, pair.source) for pair in alone]
    (stored,) = transient_store([corpus("parallel", alone + turned)]).corpora
    held = [pair for pair in alone + turned if held_out(pair.source)]
    texts = {text for pair in held for text in pair[:2]}
    assert list(stored.train) == [pair for pair in alone + turned if texts.isdisjoint(pair[:2])]
    num_left_out = 2 * len(WORDS) - len(held) - len(stored.train)
    (record,) = [r for r in caplog.records if "left out: they share" in r.getMessage()]
    assert record.levelname == "WARNING"
    assert f" {num_left_out} of {num_left_out + len(stored.train)} " in record.getMessage()


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
    assert open_store(path, ALL, accept).contents() == first.contents()
    assert files(path) == before
    for others in (ALL[:3], ALL[::-1], [*ALL[:3], corpus("nli", LABELLED.records, name="y")]):
        for _ in range(2):
            stored = open_store(path, others, accept).corpora
            assert [c.title for c in stored] == [c.title for c in others]
            assert [c.num_records for c in stored] == [len(c.records) for c in others]
    # The digest of a corpus changes with its records, and with no other corpus.
    changed = corpus("nli", [LABELLED.records[0]._replace(label=1), *LABELLED.records[1:]])
    after = open_store(path, [*ALL[:3], changed, ASKED], accept).contents()
    assert [each for each in after if after[each] != first.contents()[each]] == [changed.title]
    # Neighbouring records share their texts.
    open_store(path, [STORY], accept)
    assert (path / "texts").read_text() == "".join(WORDS)


def test_a_store_that_is_refused_leaves_the_earlier_one(tmp_path):
    def refuse(store):
        raise UserError(f"not {len(store.corpora)} corpora")

    open_store(tmp_path / "store", ALL, accept)
    before = files(tmp_path / "store")
    for corpora in (ALL[:2], ALL):
        with pytest.raises(UserError, match=f"not {len(corpora)} corpora"):
            open_store(tmp_path / "store", corpora, refuse)
    assert files(tmp_path / "store") == before
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_a_full_disk_is_told_and_nothing_is_left(tmp_path):
    message = r"store cannot be written: File too large;"
    with small_disk(6000), pytest.raises(UserError, match=message):  # the largest, texts, has 14 kB
        open_store(tmp_path / "store", ALL, accept)
    assert list(tmp_path.iterdir()) == []
