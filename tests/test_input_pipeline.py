"""From examples to batches: the order of draws, and the content of a batch."""

import threading
from collections import Counter
from itertools import islice, pairwise, permutations
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest
import tensorflow as tf
from testing import TINY, batch_at_once, corpus, make_examples, tiny_config, tiny_model

from xling_tf.corpora import records
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.settings import apply_overrides
from xling_tf.tokenizers.words import WordTokenizer
from xling_tf.trainer import input_pipeline
from xling_tf.trainer.distribution import ALONE, Cluster, Workers
from xling_tf.trainer.input_pipeline import (
    BatchSampler,
    TrainingInput,
    batch_graphs,
    make_dataset,
    make_sampler,
    neighbourhoods,
    task_examples,
)

TASKS = tiny_model().tasks


def texts_of(lengths):
    return [" ".join("abcdefghijkl"[i % 12] for i in range(length)) for length in lengths]


def numbered(count, corpora=None):
    """Examples of one word each: "0", "1", ..."""
    return make_examples([str(number) for number in range(count)], corpora=corpora)


def make(examples, *, size=4, pool=3, weights=None, seed=1, equal=False, order="length"):
    weights = weights or [1.0] * len(examples.corpora)
    options = {"pool_batches": pool, "seed": seed, "equal_batches": equal, "order": order}
    return BatchSampler(examples, weights, size, **options)


def drawn(sampler, positions):
    return np.concatenate([sampler.batch(position) for position in positions])


RAGGED = make_examples(texts_of(np.random.default_rng(3).integers(1, 30, 500)))


def test_a_batch_depends_on_its_position_alone():
    first, other = make(RAGGED), make(RAGGED)
    batches = [first.batch(position).tolist() for position in range(40)]
    for position in (39, 0, 17, 17, 5, 38):
        assert (
            other.batch(position).tolist()
            == make(RAGGED).batch(position).tolist()
            == batches[position]
        )


@pytest.mark.parametrize("corpora", [[("a", 20), ("b", 40)], [("a", 1), ("b", 48), ("c", 11)]])
def test_an_epoch_holds_every_example_once(corpora):
    # 60 examples in pools of 3 * 4 = 12: positions 0 ... 14 are an epoch.
    sampler = make(numbered(60, corpora))
    first = drawn(sampler, range(15))
    second = drawn(sampler, range(15, 30))
    if corpora[0][1] == 20:  # shares 1/3 and 2/3 of 12 are whole numbers
        assert sorted(first) == sorted(second) == list(range(60))
    # Shares that are no whole numbers come out over a few epochs, within one draw a corpus.
    counts = Counter(drawn(sampler, range(150)).tolist())
    assert set(counts) == set(range(60))
    assert {8, 9, 10, 11} >= set(counts.values())
    assert first.tolist() != second.tolist()


def test_each_epoch_has_an_order_of_its_own():
    # An epoch of 60 examples is five pools of twelve, which the order of the epoch fills: were it
    # the same in every epoch, the n-th pools would hold the same examples, though in other batches.
    sampler = make(numbered(60))
    pools = [set(drawn(sampler, range(3 * pool, 3 * pool + 3)).tolist()) for pool in range(10)]
    assert all(len(pool) == 12 for pool in pools)
    assert not any(first == second for first, second in zip(pools[:5], pools[5:], strict=True))


def test_the_batches_of_a_pool_come_in_random_order():
    # A pool of four batches is cut from short to long texts. Their places are a random order of
    # 0 ... 3 in each pool: over 60 pools, each of the 24 orders is missing with a chance of
    # (23 / 24)^60 = 8 %, so at least half of them are seen.
    examples = make_examples(texts_of([1, 2, 3, 4]))
    sampler = make(examples, size=1, pool=4)
    orders = Counter(
        tuple(drawn(sampler, range(4 * pool, 4 * pool + 4)).tolist()) for pool in range(60)
    )
    assert set(map(len, orders)) == {4}
    assert len(orders) >= 12
    assert orders[0, 1, 2, 3] < 30


def test_weights_are_relative_to_the_size():
    # Sizes 300, 100, 100 with weights 1, 3, 0: shares 300 : 300 : 0.
    examples = numbered(500, [("a", 300), ("b", 100), ("c", 100)])
    indices = drawn(make(examples, size=10, pool=6, weights=[1.0, 3.0, 0.0]), range(60))
    counts = np.bincount(np.digitize(indices, [300, 400]), minlength=3)
    assert counts.tolist() == [300, 300, 0]
    assert Counter(indices[indices >= 300].tolist()) == dict.fromkeys(range(300, 400), 3)


def test_batches_hold_similar_lengths_and_equal_work():
    sampler = make(RAGGED, size=16, pool=10)
    batches = sorted(
        (RAGGED.lengths[sampler.batch(position)] for position in range(10)), key=np.mean
    )
    # They overlap at their ends only.
    assert all(short.max() <= long.min() for short, long in pairwise(batches))
    assert sum(map(len, batches)) == 160
    work = np.array([lengths.sum() for lengths in batches])
    # A cut falls on a sentence, which is at most 29 tokens from where it should.
    assert np.abs(work - work.mean()).max() <= 2 * 29
    # Short sentences come in larger batches: the shortest and the longest tenth of the work.
    assert len(batches[0]) > 3 * len(batches[-1])


def test_equal_batches_hold_as_many_examples_of_any_length():
    # 500 examples of 1 to 29 words, 20 in each batch as the paper's recipe has them.
    sampler = make(RAGGED, size=20, pool=25, equal=True, order="random")
    batches = [sampler.batch(position) for position in range(25)]
    assert [len(batch) for batch in batches] == [20] * 25
    assert sorted(np.concatenate(batches)) == list(range(500))
    assert all(np.ptp(RAGGED.lengths[batch]) > 10 for batch in batches)


def test_scores_are_correlated_among_pairs_of_any_length():
    # 512 pairs of 1 and 20 words in turn: every batch of 8 has both but for chance, 64 / 2^7 = 0.5
    # of 64 batches with one length alone. Sorted by length, no more than two could have both.
    config = tiny_config(
        *(f"tasks.graded_similarity.{x}" for x in ("weight=1", "examples_per_batch=8"))
    )
    tasks, examples = tiny_model(config).tasks, make_examples(texts_of([1, 20] * 256))

    def mixed(kind, config=config):
        task = next(task for task in tasks if task.record_type == kind)
        sampler = make_sampler(examples, task, config)
        batches = [examples.lengths[sampler.batch(position)] for position in range(64)]
        assert sum(map(len, batches)) == 512
        return sum(np.ptp(lengths) > 0 for lengths in batches)

    assert mixed("similarity") >= 58
    assert mixed("parallel") <= 2
    # The setting mixes lengths for every task.
    assert mixed("parallel", apply_overrides(config, ["data.equal_batches=true"])) >= 58


def test_questions_are_ranked_among_those_of_the_same_documents():
    config = tiny_config("tasks.question_answering.weight=1")
    examples = make_examples(texts_of(np.random.default_rng(3).integers(1, 30, 64)))
    tasks = tiny_model(config).tasks
    batches = {
        task.record_type: make_sampler(examples, task, config).batch(0).tolist() for task in tasks
    }
    assert batches["questions"] == sorted(batches["questions"])
    assert batches["parallel"] != sorted(batches["parallel"])


@pytest.mark.parametrize("size", [33_000, 1_000_000])
def test_wrong_answers_are_from_the_same_documents_at_every_size(size):
    # Paragraphs of 5 questions in articles of 250. One question in 4 is drawn from a stretch:
    # (5 - 1) / 4 = 1 other question on the same paragraph. Of the others, 250 / 4 - 1 are of the
    # same article, less those beyond the ends of batches and stretches.
    examples = MagicMock(corpora=[("a", size)], lengths=np.ones(size, np.int16))
    examples.__len__.return_value = size
    sampler = make(examples, size=128, pool=64, order="corpus")
    places = np.array([sampler.batch(position)[:127] for position in range(32, 96)])

    def others(length):
        """The mean number of other questions of a batch on the same paragraph or article."""
        documents = places // length
        return np.mean(np.sum(documents[:, :, None] == documents[:, None, :], axis=2)) - 1

    assert others(5) == pytest.approx(1, abs=0.2)
    assert 40 < others(250) < 61.5
    # They are of all parts of the corpus.
    assert len(set((places[:, 0] * 8 // size).tolist())) == 8


@pytest.mark.parametrize("size", [1, 7, 65, 3333])
def test_an_order_of_neighbourhoods_holds_every_element_once(size):
    assert sorted(neighbourhoods(size, 5, np.random.default_rng(1))) == list(range(size))


def test_questions_on_a_paragraph_are_together_though_their_file_has_them_apart():
    config = tiny_config("tasks.question_answering.weight=1")
    task = next(task for task in tiny_model(config).tasks if task.record_type == "questions")
    rows = [
        records.QuestionAnswer(f"{letter}?", letter, f"about {letter.lower()}")
        for letter in "aAbcBAabC"
    ]
    stored = transient_store([corpus("questions", rows)]).corpora[0]
    texts = b"".join(task.select(stored.train).column("answer")).decode()
    held = b"".join(task.select(stored.held_out).column("answer")).decode()
    # Each group in the order of the file.
    assert sorted([*texts, *held]) == sorted("aAbcBAabC")
    assert texts + held in ("".join(order) for order in permutations(["aAAa", "bBb", "cC"]))


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0]])
def test_weights_that_leave_nothing_or_less_are_refused(weights):
    examples = numbered(5, [("tatoeba", 3), ("manpages", 2)])
    with pytest.raises(UserError, match=r"^data\.corpus_weights .* tatoeba, manpages "):
        make(examples, weights=weights)


TOKENIZER = WordTokenizer(list("abcdefgh"), TINY.tokenizer)
GRAPHS = batch_graphs(TOKENIZER)
PAIRS = make_examples(
    [f"a {number}" for number in range(20)],
    ["b c" if number % 2 else f"c {number}" for number in range(20)],
    labels=[number % 3 for number in range(20)],
    meanings=[number // 2 for number in range(20)],
)


def as_lists(batch):
    return [np.asarray(part).tolist() for part in tf.nest.flatten(batch)]


def test_a_stream_is_the_sampler_through_the_tokenizer_with_a_fingerprint_of_each_text(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: ["GPU:0"])
    # 16 batches are made at once, and arrive in order.
    monkeypatch.setattr(input_pipeline, "available_cpus", lambda: 32)
    sampler = make(PAIRS, size=10, pool=1)
    batches = list(make_dataset(PAIRS, sampler.batch, GRAPHS, count=20))
    assert len(batches) == 20
    for position, batch in enumerate(batches):
        indices = sampler.batch(position)
        texts = PAIRS.texts(indices)
        assert as_lists(batch.features) == as_lists(TOKENIZER(tf.constant(texts)))
        assert batch.labels.numpy().tolist() == (indices % 3).tolist()
        assert batch.meanings.numpy().tolist() == (indices // 2).tolist()
        fingerprints = batch.fingerprints.numpy()
        assert fingerprints.shape == (2, len(indices))
        equal = fingerprints.reshape(-1)[:, None] == fingerprints.reshape(-1)[None, :]
        assert equal.tolist() == (texts[:, None] == texts[None, :]).tolist()


@pytest.mark.parametrize("replicas", [1, 2, 4, 16])
@pytest.mark.usefixtures("without_graphs")
def test_replicas_share_the_batch_that_one_would_see(replicas):
    # Two workers with half of the replicas each; 16 are more than a batch has examples.
    (task,) = (task for task in TASKS if task.name == "inference")
    sampler = make_sampler(PAIRS, task, TINY)

    def read(cluster):
        workers = Workers(SimpleNamespace(num_replicas_in_sync=replicas), cluster)
        task_input = TrainingInput(task, PAIRS, GRAPHS, TINY, workers)
        batches = islice(task_input.stream(2, threading.Event()), 2 * len(workers.replicas))
        parts = [batch.fingerprints.numpy() for batch in batches]
        return parts[: len(parts) // 2], parts[len(parts) // 2 :]

    clusters = [Cluster(("a", "b"), rank) for rank in (0, 1)] if replicas > 1 else [ALONE]
    whole = [batch_at_once(GRAPHS, PAIRS, sampler.batch(n)).fingerprints.numpy() for n in (2, 3)]
    for step, parts in enumerate(zip(*map(read, clusters), strict=True)):
        of_step = [part for of_worker in parts for part in of_worker]
        assert len(of_step) == replicas
        assert np.concatenate(of_step, axis=1).tolist() == whole[step].tolist()
        sizes = [part.shape[1] for part in of_step]
        assert max(sizes) - min(sizes) <= 1


def test_records_become_examples_of_the_tasks_on_them():
    pairs = [("two words", "uno"), ("x", "y"), ("held 2", "fuera")]
    corpora = [
        corpus("parallel", [records.TranslationPair(*pair) for pair in pairs]),
        corpus(
            "nli", [records.InferencePair("p q r", "h", 2), records.InferencePair("q", "h i", 1)]
        ),
        corpus("conversations", [records.ResponsePair("m", "r s t u")], languages="es"),
        corpus("documents", [records.SentenceTriplet("a", "b b b", "c c")], groups=["a"]),
        corpus("parallel", [records.TranslationPair("我爱你", "ñu")], name="more"),
        corpus("parallel", [records.TranslationPair("a", "b")], languages="es-en"),  # of no task
    ]
    examples = task_examples(TASKS, transient_store(corpora).corpora, {})
    found = {
        name: (train.texts(np.arange(len(train))).tolist(), train.lengths.tolist(), train.corpora)
        for name, (train, _) in examples.items()
    }
    # Column after column; lengths are of the longest one in words. "我爱你" has 3, one each
    # character. Tasks without examples are left out.
    columns = ["two words", "x", "我爱你", "uno", "y", "ñu"]
    assert found == {
        "translation_ranking_en-es": (
            [t.encode() for t in columns],
            [2, 1, 3],
            (("x", 2), ("more", 1)),
        ),
        "response_prediction_es": ([b"m", b"r s t u"], [4], (("x", 1),)),
        "quick_thought_en": ([b"a", b"b b b", b"c c"], [3], (("x", 1),)),
        "inference": ([b"p q r", b"q", b"h", b"h i"], [3, 2], (("x", 2),)),
    }
    held = examples["translation_ranking_en-es"].held_out
    assert held.texts(np.array([0])).tolist() == [b"held 2", b"fuera"]
    assert held.corpora == (("x", 1),)
    assert len(examples["inference"].held_out) == 0


def test_translations_of_all_corpora_say_what_means_the_same():
    corpora = [
        corpus("parallel", [records.TranslationPair(*pair) for pair in pairs], name=name)
        for name, pairs in {"x": [("a", "b")], "more": [("c", "d"), ("a", "e")]}.items()
    ]
    train = task_examples(TASKS, transient_store(corpora).corpora, {})[
        "translation_ranking_en-es"
    ].train
    first, other, third = train.meanings
    assert first == third != other
