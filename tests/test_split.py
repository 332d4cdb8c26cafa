"""Which records are held out, and that no held-out text is in training by another way."""

from functools import partial
from itertools import product

import pytest
from testing import corpus

from xling_tf.corpora.readers import read_documents
from xling_tf.corpora.records import (
    InferencePair,
    QuestionAnswer,
    ResponsePair,
    SentenceTriplet,
    SimilarityPair,
    TranslationPair,
)
from xling_tf.corpora.split import held_out, near_twins, normalised
from xling_tf.corpora.store import transient_store


def split_corpora(corpora):
    return [(list(c.train), list(c.held_out)) for c in transient_store(corpora).corpora]


def split_corpus(alone):
    return split_corpora([alone])[0]


TEXTS = [f"sentence {number}" for number in range(2000)]
HELD = [text for text in TEXTS if held_out(text)]
TRAINED = [text for text in TEXTS if not held_out(text)]


def test_a_text_is_held_out_by_its_hash_whatever_its_spelling():
    # 2000 draws at 0.1: mean 200, standard deviation sqrt(2000 * 0.1 * 0.9) = 13.4; five of them.
    assert 133 < len(HELD) < 267
    assert all(held_out(text, 0.2) for text in HELD)
    # blake2b("hello", 8 bytes) = 0xa7b6eda801e5347d, which divided by 2**64 is 0.65513.
    assert not held_out("hello", 0.6551)
    assert held_out("hello", 0.6552)
    assert normalised("  ＦＵＬＬ width\u00a0\n Straße") == "full width strasse"
    for text in TEXTS[:50]:
        assert held_out(f" {text.upper()}\u00a0") == held_out(text)


def test_a_text_decides_in_any_order():
    pairs = [TranslationPair(text, f"oración {text}") for text in TEXTS]
    asked = [QuestionAnswer(f"{text}?", f"{text} so", text) for text in TEXTS]
    for kind, records, decides in (("parallel", pairs, 0), ("questions", asked, 2)):
        train, held = split_corpus(corpus(kind, records))
        assert [record[decides] for record in held] == HELD
        # By chance no other text of these is a held-out one.
        assert [record[decides] for record in train] == TRAINED
        turned = split_corpus(corpus(kind, records[::-1]))
        assert (turned[0][::-1], turned[1][::-1]) == (train, held)


def test_documents_stay_whole_and_their_spellings_fall_on_one_side(tmp_path):
    plain, spelt = tmp_path / "a.txt", tmp_path / "b.txt"
    plain.write_text("\n\n".join(f"{n} a b\n{n} c\n{n} d\n{n} e" for n in range(200)))
    spelt.write_text("\n\n".join(f"{n}  A b\n{n} C\n{n}\u00a0d\n{n} e" for n in range(200)))
    numbers = []
    for path in (plain, spelt):
        records, groups = zip(*read_documents(path), strict=True)
        parts = split_corpus(corpus("documents", records, languages="en", groups=groups))
        assert sum(map(len, parts)) == 400
        train, held = ({record.sentence.split()[0] for record in part} for part in parts)
        assert train.isdisjoint(held)
        numbers.append(held)
    assert numbers[0] == numbers[1]
    # 200 draws at 0.1: mean 20, standard deviation 4.2; four of them.
    assert 3 <= len(numbers[0]) <= 37


# Of each kind: what makes a record of texts, how many it takes, and the place of that which decides on it.
KINDS = {
    "parallel": (TranslationPair, 2, 0),
    "conversations": (ResponsePair, 2, 0),
    "documents": (SentenceTriplet, 3, None),  # its document
    "nli": (partial(InferencePair, label=0), 2, 0),
    "questions": (QuestionAnswer, 3, 2),
    "similarity": (partial(SimilarityPair, label=50), 2, 0),
}
# The places of the texts that a held-out record keeps from training records of its own kind.
GUARDED = {"parallel": {0, 1}, "conversations": {1}, "questions": {1}}


def corpus_of_one(kind, decider, place, text, **more):
    """A corpus of one record, on which one text decides, with another text at a place."""
    make, num_texts, deciding = KINDS[kind]
    texts = {number: f"{more['name']} {number}" for number in range(num_texts)}
    texts |= {deciding: decider, place: text} if deciding is not None else {place: text}
    groups = [decider] if deciding is None else None
    return corpus(kind, [make(*texts.values())], groups=groups, **more)


@pytest.mark.parametrize("hiding", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_a_held_out_record_is_in_training_in_no_other_kind(hiding, kind):
    for place, other in product(range(KINDS[hiding][1]), range(KINDS[kind][1])):
        decides = place == KINDS[hiding][2]
        if decides and other == KINDS[kind][2]:
            continue  # both are held out
        text = HELD[0] if decides else TRAINED[0]
        hidden = corpus_of_one(hiding, HELD[1], place, text, name="x")
        leak = corpus_of_one(kind, TRAINED[1], other, f" {text.upper()}", name="y", languages="fr-en")
        is_kept = hiding == kind and not {place, other} <= GUARDED.get(kind, set())
        expected = [([], hidden.records), (leak.records if is_kept else [], [])]
        assert split_corpora([hidden, leak]) == expected


@pytest.mark.parametrize("hiding", KINDS)
def test_a_text_of_a_held_out_record_is_in_training_as_no_negative(hiding, caplog):
    for place in range(KINDS[hiding][1]):
        text = HELD[1] if place == KINDS[hiding][2] else TRAINED[0]
        hidden = corpus_of_one(hiding, HELD[1], place, text, name="x")
        negatives = ("wrong", f" {text.upper()}", "as wrong")
        pairs = [TranslationPair(TRAINED[1], "t", negatives), TranslationPair(TRAINED[2], "u", ("v", "w"))]
        store = transient_store([hidden, corpus("parallel", pairs, name="y", languages="fr-en")])
        assert list(store.corpora[1].train) == [pairs[0]._replace(negatives=("wrong",)), pairs[1]]
        # Nor do vocabularies and teachers see them.
        texts = {text for texts in store.training_texts_by_language().values() for text in texts}
        assert texts == {TRAINED[1], "t", "wrong", TRAINED[2], "u", "v", "w"}
    assert "2 wrong texts are left out" in caplog.text


def test_inference_obeys_the_splits_of_file_names():
    pairs = [InferencePair(HELD[0], "h", 0), InferencePair(TRAINED[0], "h", 0)]
    named = {split: corpus("nli", pairs, languages="en", split=split) for split in ("train", "dev", "test")}
    other = corpus("nli", pairs, name="other", languages="en", split="train")
    splits = split_corpora([*named.values(), other])
    assert splits == [(pairs, []), ([], pairs), ([], []), (pairs[1:], pairs[:1])]
    # What is for development or tests hides its texts from other kinds.
    leak = corpus("parallel", [TranslationPair(TRAINED[1], "H")])
    for split, left in (("train", leak.records), ("dev", []), ("test", [])):
        hiding = corpus("nli", pairs[1:], split=split)
        assert split_corpora([hiding, leak])[1] == (left, [])


def test_near_twins_differ_in_a_word_at_most():
    training = [TranslationPair("I like dogs.", "Me gustan los perros."), ("Dogs!", "¡Perros!")]
    expected = {
        ("I like big dogs.", "x"): True,  # a word more
        ("like dogs.", "x"): True,  # a word less
        ("I like cats.", "x"): True,  # another word
        ("dogs. I like", "x"): True,  # a word elsewhere
        ("i  LIKE dogs.", "x"): True,
        ("I hate cats.", "x"): False,
        ("x", "Me gustan mucho los perros."): True,
        ("Me gustan los perros.", "x"): False,  # on the other side
        ("Cats.", "x"): False,
        ("", ""): False,
    }
    assert near_twins(list(expected), iter(training)).tolist() == list(expected.values())
