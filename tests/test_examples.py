from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY

from xling_tf.corpora.folder import Corpus
from xling_tf.corpora.readers import ReadReport
from xling_tf.corpora.records import (
    InferencePair,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.examples import SplitCorpus, split, task_examples, training_texts
from xling_tf.tasks.registry import build_tasks
from xling_tf.text.tokenization import tokenize


def make(kind, languages, train, held_out=(), name="x"):
    records = [*train, *held_out]
    report = ReadReport(path=Path("x"), num_records=len(records))
    corpus = Corpus(
        name=name, kind=kind, languages=languages, split="", records=records, report=report
    )
    return SplitCorpus(corpus, list(train), list(held_out))


PARALLEL = make(
    "parallel",
    "en-es",
    [TranslationPair("one two", "uno"), TranslationPair("x", "y")],
    [TranslationPair("held", "fuera")],
)
MORE = make("parallel", "en-es", [TranslationPair("我爱你", "ñu")], name="more")
NLI = make("nli", "en", [InferencePair("p q r", "h", 2), InferencePair("p", "h i", 1)])
REPLIES = make("conversations", "es", [ResponsePair("m", "r s t u")])
STORY = make("documents", "en", [SentenceTriplet("a", "b b b", "c c")])


@pytest.fixture(scope="module")
def examples():
    return task_examples(build_tasks(TINY), [PARALLEL, NLI, REPLIES, STORY, MORE])


def test_tasks_without_examples_are_left_out(examples):
    assert list(examples) == [
        "translation_ranking_en-es",
        "response_prediction_es",
        "quick_thought_en",
        "inference",
    ]


def test_columns_are_the_records_in_order(examples):
    train = examples["translation_ranking_en-es"].train
    assert [list(column) for column in train.columns] == [
        [b"one two", b"x", "我爱你".encode()],
        [b"uno", b"y", "ñu".encode()],
    ]
    assert train.corpora == (("x", 2), ("more", 1))
    story = examples["quick_thought_en"].train
    assert [list(column) for column in story.columns] == [[b"a"], [b"b b b"], [b"c c"]]


def test_labels(examples):
    assert examples["inference"].train.labels.tolist() == [2, 1]
    assert examples["translation_ranking_en-es"].train.labels.tolist() == [0, 0, 0]


def test_lengths_are_of_the_longest_column(examples):
    # Words; "我爱你" is a word of 3 characters without spaces.
    assert examples["translation_ranking_en-es"].train.lengths.tolist() == [2, 1, 4]
    assert examples["inference"].train.lengths.tolist() == [3, 2]
    assert examples["quick_thought_en"].train.lengths.tolist() == [3]


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("", 1),
        (" \t ", 1),
        ("Hello, world!", 4),
        ("well-known l'amie x.y 3.50", 4),
        ("¿Qué tal, José?", 6),
        ("... -- ()", 7),
        ("el niño", 2),
        # A run of unspaced script is one word to the pattern, and each of its characters one more.
        ("我爱你", 1 + 3),
        ("カナ abc", 1 + 2 + 1),
        ("word " * 256, 256),
        ("word " * 257, 256),
        ("!" * 100_000, 256),
    ],
)
def test_lengths_are_about_the_tokens_and_clipped(text, length):
    pair = make("parallel", "en-es", [TranslationPair(text, "x")])
    (parts,) = task_examples(build_tasks(TINY), [pair]).values()
    assert parts.train.lengths.tolist() == [length]


def test_lengths_order_texts_as_their_tokens_do():
    texts = [
        *(
            "Hi.",
            "It was late.",
            "«¿Qué hora es?», dijo.",
            "The cat, the dog and a well-known bird.",
        ),
        "She said: 'I don't know', and left; nobody, of those who were there, ever saw her again.",
    ]
    pairs = make("parallel", "en-es", [TranslationPair(text, "x") for text in texts])
    (parts,) = task_examples(build_tasks(TINY), [pairs]).values()
    tokens = tokenize(tf.constant(texts), max_tokens=64, lowercase=False).row_lengths().numpy()
    assert parts.train.lengths == pytest.approx(tokens, rel=0.2, abs=1)
    assert np.argsort(parts.train.lengths).tolist() == np.argsort(tokens).tolist()


def test_held_out_examples_are_apart(examples):
    held_out = examples["translation_ranking_en-es"].held_out
    assert [list(column) for column in held_out.columns] == [[b"held"], [b"fuera"]]
    assert held_out.corpora == (("x", 1),)
    assert len(examples["inference"].held_out) == 0


def test_texts_of_some_examples_come_column_by_column(examples):
    texts = examples["translation_ranking_en-es"].train.texts([1, 0])
    assert texts.tolist() == [b"x", b"one two", b"y", b"uno"]


def test_languages_and_kinds_are_not_mixed(examples):
    assert examples["response_prediction_es"].train.columns[0].tolist() == [b"m"]
    swapped = make("parallel", "es-en", [TranslationPair("a", "b")])
    assert task_examples(build_tasks(TINY), [swapped]) == {}


def test_training_texts_are_distinct_and_not_held_out():
    again = make("nli", "en", [InferencePair("x", "new", 0)])
    assert training_texts([PARALLEL, again]) == ["one two", "uno", "x", "y", "new"]


def test_about_a_tenth_is_held_out_and_nothing_is_in_both_parts():
    pairs = [TranslationPair(f"sentence {i}", f"frase {i}") for i in range(1000)]
    (parts,) = split([make("parallel", "en-es", pairs).corpus])
    # 1000 draws at 0.1: mean 100, standard deviation 9.5.
    assert 50 < len(parts.held_out) < 150
    assert not set(parts.train) & set(parts.held_out)
    assert len(parts.train) + len(parts.held_out) == 1000
