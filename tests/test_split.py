import random
from collections import defaultdict

import pytest
from testing import ListCorpus

from xling_tf.corpora.readers import read_documents
from xling_tf.corpora.records import InferencePair, ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.corpora.split import held_out, normalised
from xling_tf.corpora.store import transient_store


def corpus(kind, records, *, name="x", languages="en-es", split="", groups=None):
    return ListCorpus(
        name=name, kind=kind, languages=languages, split=split, records=records, groups=groups
    )


def split_corpora(corpora):
    return [(list(c.train), list(c.held_out)) for c in transient_store(corpora).corpora]


def split_corpus(alone):
    return split_corpora([alone])[0]


TEXTS = [f"sentence {number}" for number in range(2000)]
HELD = [text for text in TEXTS if held_out(text)]
TRAINED = [text for text in TEXTS if not held_out(text)]


def test_about_the_fraction_is_held_out():
    # 2000 draws at 0.1: mean 200, standard deviation sqrt(2000 * 0.1 * 0.9) = 13.4; five of them.
    assert 133 < len(HELD) < 267
    assert not any(held_out(text, 0.0) for text in TEXTS)
    assert all(held_out(text, 1.0) for text in TEXTS)


def test_larger_fractions_hold_out_more_of_the_same():
    assert all(held_out(text, 0.2) for text in HELD)


def test_the_hash_is_pinned():
    # blake2b("hello", 8 bytes) = 0xa7b6eda801e5347d, which divided by 2**64 is 0.65513.
    assert not held_out("hello", 0.6551)
    assert held_out("hello", 0.6552)


def test_spelling_of_one_sentence_does_not_matter():
    assert normalised("  ＦＵＬＬ width\u00a0\n Straße") == "full width strasse"
    for text in TEXTS[:50]:
        assert held_out(f" {text.upper()}\u00a0") == held_out(text)


def test_parallel_is_split_by_source():
    pairs = [TranslationPair(text, f"oración {text}") for text in TEXTS]
    train, held = split_corpus(corpus("parallel", pairs))
    assert [pair.source for pair in train] == TRAINED
    assert [pair.source for pair in held] == HELD


def test_order_makes_no_difference():
    pairs = [TranslationPair(text, text) for text in TEXTS]
    train, held = split_corpus(corpus("parallel", pairs))
    train_turned, held_turned = split_corpus(corpus("parallel", pairs[::-1]))
    assert (train_turned[::-1], held_turned[::-1]) == (train, held)


def test_training_pairs_with_a_held_out_target_are_dropped():
    held = TranslationPair(HELD[0], "Sí.")
    same = TranslationPair(TRAINED[0], "SÍ. ")
    other = TranslationPair(TRAINED[1], "No.")
    assert split_corpus(corpus("parallel", [held, same, other])) == ([other], [held])


def test_targets_are_guarded_across_corpora_of_the_same_languages():
    held = TranslationPair(HELD[0], "Sí.")
    same = TranslationPair(TRAINED[0], "Sí.")
    splits = split_corpora(
        [
            corpus("parallel", [same], name="a"),
            corpus("parallel", [held], name="b"),
            corpus("parallel", [same], name="a", languages="en-it"),
        ]
    )
    assert [len(train) for train, _ in splits] == [0, 0, 1]


def test_conversations_are_split_by_message_and_guard_responses():
    held = ResponsePair(HELD[0], "Fine.")
    same = ResponsePair(TRAINED[0], "fine.")
    other = ResponsePair(TRAINED[1], "Bad.")
    split = split_corpus(corpus("conversations", [held, same, other], languages="en"))
    assert split == ([other], [held])


def test_documents_stay_whole(tmp_path):
    path = tmp_path / "d.en.txt"
    path.write_text("\n\n".join(f"{n} a\n{n} b\n{n} c\n{n} d" for n in range(200)))
    records, groups = zip(*read_documents(path), strict=True)
    whole = corpus("documents", records, languages="en", groups=groups)
    train, held = split_corpus(whole)
    assert len(train) + len(held) == 400
    documents = [{record.sentence.split()[0] for record in part} for part in (train, held)]
    assert documents[0].isdisjoint(documents[1])
    # 200 draws at 0.1: mean 20, standard deviation 4.2; four of them.
    assert 3 <= len(documents[1]) <= 37


def test_inference_without_a_development_file_is_split_by_premise():
    pairs = [InferencePair(text, "h", label) for text in TEXTS[:100] for label in (0, 1)]
    train, held = split_corpus(corpus("nli", pairs, languages="en", split="train"))
    assert held
    assert {pair.premise for pair in held} == set(HELD) & set(TEXTS[:100])
    assert len(train) + len(held) == 200


def test_inference_obeys_the_splits_of_file_names():
    pairs = [InferencePair(HELD[0], "h", 0), InferencePair(TRAINED[0], "h", 0)]
    named = {
        split: corpus("nli", pairs, languages="en", split=split)
        for split in ("train", "dev", "test")
    }
    other = corpus("nli", pairs, name="other", languages="en", split="train")
    splits = split_corpora([named["train"], named["dev"], named["test"], other])
    assert splits == [
        (pairs, []),
        ([], pairs),
        ([], []),
        (pairs[1:], pairs[:1]),
    ]


@pytest.mark.parametrize("kind", ["parallel", "conversations", "nli", "documents"])
def test_no_records(kind):
    assert split_corpus(corpus(kind, [], groups=[] if kind == "documents" else None)) == ([], [])


def expected_split(corpora):
    """The rules in words, over all corpora in memory."""
    deciding = {"parallel": "source", "conversations": "message", "nli": "premise"}
    guarded = {"parallel": "target", "conversations": "response"}
    splits = []
    for c in corpora:
        parts = ([], [])
        has_dev = any(d.split.startswith("dev") and d.name == c.name for d in corpora)
        for record, group in c:
            if c.split == "test":
                continue
            if c.split.startswith("dev"):
                is_held_out = True
            elif c.split == "train" and has_dev:
                is_held_out = False
            else:
                is_held_out = held_out(group or getattr(record, deciding[c.kind]))
            parts[is_held_out].append(record)
        splits.append(parts)
    hidden = defaultdict(set)
    for c, (_, held) in zip(corpora, splits, strict=True):
        if c.kind in guarded:
            texts = (getattr(record, guarded[c.kind]) for record in held)
            hidden[c.kind, c.languages].update(map(normalised, texts))
    return [
        (
            [
                record
                for record in train
                if c.kind not in guarded
                or normalised(getattr(record, guarded[c.kind])) not in hidden[c.kind, c.languages]
            ],
            held,
        )
        for c, (train, held) in zip(corpora, splits, strict=True)
    ]


def any_corpora(draw):
    """Corpora of few texts, so that many of their records share some."""
    texts = [text for number in range(60) for text in (f"text {number}", f"TEXT  {number}")]
    pick = lambda: draw.choice(texts)  # noqa: E731
    makers = {
        "parallel": lambda: TranslationPair(pick(), pick(), tuple(pick() for _ in range(2))),
        "conversations": lambda: ResponsePair(pick(), pick()),
        "documents": lambda: SentenceTriplet(pick(), pick(), pick()),
        "nli": lambda: InferencePair(pick(), pick(), draw.randrange(3)),
    }
    for number in range(draw.randrange(1, 8)):
        kind = draw.choice(list(makers))
        records = [makers[kind]() for _ in range(draw.randrange(60))]
        groups = [draw.choice(texts) for _ in records] if kind == "documents" else None
        split = draw.choice(["train", "dev_matched", "test", ""]) if kind == "nli" else ""
        languages = draw.choice(["en-es", "en-fr"]) if kind == "parallel" else "en"
        yield corpus(
            kind, records, name=str(number // 2), languages=languages, split=split, groups=groups
        )


@pytest.mark.parametrize("seed", range(30))
def test_the_streamed_split_is_that_of_the_rules(seed):
    corpora = list(any_corpora(random.Random(seed)))
    assert split_corpora(corpora) == expected_split(corpora)
