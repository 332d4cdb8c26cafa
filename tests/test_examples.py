import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, ListCorpus

from xling_tf.config import TextConfig
from xling_tf.corpora.records import (
    InferencePair,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.corpora.store import transient_store
from xling_tf.tasks.base import build_tasks
from xling_tf.text.tokenization import tokenize
from xling_tf.trainer.examples import task_examples


def make(kind, languages, records, name="x", split=""):
    groups = [str(record) for record in records] if kind == "documents" else None
    return ListCorpus(
        name=name, kind=kind, languages=languages, split=split, records=records, groups=groups
    )


def examples_of(*corpora):
    return task_examples(build_tasks(TINY), transient_store(corpora).corpora)


PARALLEL = make(
    "parallel",
    "en-es",
    [
        TranslationPair("two words", "uno"),
        TranslationPair("x", "y"),
        TranslationPair("held 2", "fuera"),
    ],
)
MORE = make("parallel", "en-es", [TranslationPair("我爱你", "ñu")], name="more")
NLI = make("nli", "en", [InferencePair("p q r", "h", 2), InferencePair("q", "h i", 1)])
REPLIES = make("conversations", "es", [ResponsePair("m", "r s t u")])
STORY = make("documents", "en", [SentenceTriplet("a", "b b b", "c c")])


@pytest.fixture(scope="module")
def examples():
    return examples_of(PARALLEL, NLI, REPLIES, STORY, MORE)


def test_tasks_without_examples_are_left_out(examples):
    assert list(examples) == [
        "translation_ranking_en-es",
        "response_prediction_es",
        "quick_thought_en",
        "inference",
    ]


def test_columns_are_the_records_in_order(examples):
    train = examples["translation_ranking_en-es"].train
    columns = [[b"two words", b"x", "我爱你".encode()], [b"uno", b"y", "ñu".encode()]]
    assert train.texts(range(3)).tolist() == columns[0] + columns[1]
    assert train.corpora == (("x", 2), ("more", 1))
    story = examples["quick_thought_en"].train
    assert story.texts([0]).tolist() == [b"a", b"b b b", b"c c"]


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
    (parts,) = examples_of(make("parallel", "en-es", [TranslationPair("x", text)])).values()
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
    pairs = make("parallel", "en-es", [TranslationPair("x", text) for text in texts])
    (parts,) = examples_of(pairs).values()
    tokens = tokenize(tf.constant(texts), TextConfig()).row_lengths().numpy()
    assert parts.train.lengths == pytest.approx(tokens, rel=0.2, abs=1)
    assert np.argsort(parts.train.lengths).tolist() == np.argsort(tokens).tolist()


def test_held_out_examples_are_apart(examples):
    held = examples["translation_ranking_en-es"].held_out
    assert held.texts([0]).tolist() == [b"held 2", b"fuera"]
    assert held.corpora == (("x", 1),)
    assert len(examples["inference"].held_out) == 0


def test_texts_of_some_examples_come_column_by_column(examples):
    texts = examples["translation_ranking_en-es"].train.texts([1, 0])
    assert texts.tolist() == [b"x", b"two words", b"y", b"uno"]


def test_languages_and_kinds_are_not_mixed(examples):
    assert examples["response_prediction_es"].train.texts([0]).tolist() == [b"m", b"r s t u"]
    swapped = make("parallel", "es-en", [TranslationPair("a", "b")])
    assert examples_of(swapped) == {}
