"""Which records are held out, that no such text is in training; shares of texts models saw."""

from itertools import product

import numpy as np
import pytest
from testing import corpus

from xling_tf.corpora.readers import read_documents
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import InferencePair, ResponsePair, SimilarityPair, TranslationPair
from xling_tf.corpora.split import held_out, normalised, text_hashes
from xling_tf.corpora.store import transient_store
from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError


def split_corpora(*corpora):
    return [(list(c.train), list(c.held_out)) for c in transient_store(corpora).corpora]


TEXTS = [f"sentence {number}" for number in range(2000)]
# In the half that is also held out where each of two texts may decide.
HELD = [text for text in TEXTS if held_out(text, 0.05)]
TRAINED = [text for text in TEXTS if not held_out(text)]


def test_a_text_is_held_out_by_its_hash_whatever_its_spelling():
    # 2000 draws at 0.1: mean 200, standard deviation sqrt(2000 * 0.1 * 0.9) = 13.4; five of them.
    held = [text for text in TEXTS if held_out(text)]
    assert 133 < len(held) < 267
    assert all(held_out(text, 0.2) for text in held)
    # blake2b("hello", 8 bytes) = 0xa7b6eda801e5347d, which divided by 2**64 is 0.65513.
    assert not held_out("hello", 0.6551)
    assert held_out("hello", 0.6552)
    assert normalised("  ＦＵＬＬ width\u00a0\n Straße") == "full width strasse"
    for text in TEXTS[:50]:
        assert held_out(f" {text.upper()}\u00a0") == held_out(text)


def test_documents_stay_whole_and_their_spellings_fall_on_one_side(tmp_path):
    held = []
    for spelling in ("{n} a b\n{n} c\n{n} d\n{n} e", "{n}  A b\n{n} C\n{n}\u00a0d\n{n} e"):
        path = tmp_path / "x.txt"
        path.write_text("\n\n".join(spelling.format(n=n) for n in range(200)))
        records, groups = zip(*read_documents(path), strict=True)
        (parts,) = split_corpora(corpus("documents", records, languages="en", groups=groups))
        train, out = ({record.sentence.split()[0] for record in part} for part in parts)
        assert train.isdisjoint(out)
        held.append(out)
    assert held[0] == held[1] != set()


# By type: the number of texts, the place of the text that decides (None: the document), and the
# places that are hidden from training records of the same type. Of scored pairs, the second text
# decides as well.
KINDS = {
    "parallel": (2, 0, {0, 1}),
    "conversations": (2, 0, {1}),
    "documents": (3, None, set()),
    "nli": (2, 0, set()),
    "questions": (3, 2, {1}),
    "similarity": (2, 0, {0, 1}),
}


def corpus_of_one(kind, decider, place, text, **more):
    """A corpus of one record, on which one text decides, with another text at a place."""
    num_texts, deciding, _ = KINDS[kind]
    texts = {number: f"{more['name']} {number}" for number in range(num_texts)}
    texts |= {deciding: decider, place: text} if deciding is not None else {place: text}
    groups = [decider] if deciding is None else None
    return corpus(kind, [RECORD_TYPES[kind].make([*texts.values()], 1)], groups=groups, **more)


@pytest.mark.parametrize("hiding", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_text_of_a_held_out_record_is_in_training_in_no_other_kind(hiding, kind):
    for place, other in product(range(KINDS[hiding][0]), range(KINDS[kind][0])):
        decides = place == KINDS[hiding][1]
        if decides and (other == KINDS[kind][1] or kind == "similarity"):
            continue  # both are held out
        text = HELD[0] if decides else TRAINED[0]
        hidden = corpus_of_one(hiding, HELD[1], place, text, name="x")
        leak = corpus_of_one(
            kind, TRAINED[1], other, f" {text.upper()}", name="y", languages="fr-en"
        )
        is_kept = hiding == kind and not {place, other} <= KINDS[kind][2]
        expected = [([], hidden.records), (leak.records if is_kept else [], [])]
        assert split_corpora(hidden, leak) == expected


@pytest.mark.parametrize("hiding", KINDS)
def test_a_text_of_a_held_out_record_is_in_training_as_no_negative(hiding, caplog):
    for place in range(KINDS[hiding][0]):
        text = HELD[1] if place == KINDS[hiding][1] else TRAINED[0]
        hidden = corpus_of_one(hiding, HELD[1], place, text, name="x")
        negatives = ("wrong", f" {text.upper()}", "as wrong")
        pairs = [
            TranslationPair(TRAINED[1], "t", negatives),
            TranslationPair(TRAINED[2], "u", ("v", "w")),
        ]
        store = transient_store([hidden, corpus("parallel", pairs, name="y", languages="fr-en")])
        assert list(store.corpora[1].train) == [pairs[0]._replace(negatives=("wrong",)), pairs[1]]
        # Nor do vocabularies and teachers see them.
        texts = {text for texts in store.training_texts_by_language().values() for text in texts}
        assert texts == {TRAINED[1], "t", "wrong", TRAINED[2], "u", "v", "w"}
    assert "2 negatives are left out" in caplog.text


def test_inference_obeys_the_splits_of_file_names():
    pairs = [InferencePair(HELD[0], "h", 0), InferencePair(TRAINED[0], "h", 0)]
    named = {
        split: corpus("nli", pairs, languages="en", split=split)
        for split in ("train", "dev", "test")
    }
    other = corpus("nli", pairs, name="other", languages="en", split="train")
    splits = split_corpora(*named.values(), other)
    assert splits == [(pairs, []), ([], pairs), ([], []), (pairs[1:], pairs[:1])]
    # What is for development or tests hides its texts from other kinds.
    leak = corpus("parallel", [TranslationPair(TRAINED[1], "H")])
    for split, left in (("train", leak.records), ("dev", []), ("test", [])):
        hiding = corpus("nli", pairs[1:], split=split)
        assert split_corpora(hiding, leak)[1] == (left, [])


def faq(kind, num_questions, num_answers, form="question {}"):
    """Questions that share answers, each in a context of its own."""
    fields = RECORD_TYPES[kind].fields
    return [
        RECORD_TYPES[kind].make(
            [form.format(n), f"answer {n % num_answers}", f"context {n}"][: len(fields)], n % 100
        )
        for n in range(num_questions)
    ]


@pytest.mark.parametrize("num_answers", [1, 5, 20, 70])
@pytest.mark.parametrize("kind", ["parallel", "conversations", "questions"])
def test_records_that_share_a_few_second_texts_stay_in_training(kind, num_answers, caplog):
    caplog.set_level("INFO", logger="absl")
    records = faq(kind, 200, num_answers)
    ((train, held),) = split_corpora(corpus(kind, records))
    place = KINDS[kind][1]
    assert held == [record for record in records if held_out(record[place])] != []
    assert train == [record for record in records if record not in held]
    assert "they stay" in caplog.text


def test_few_second_texts_that_are_shared_leave_training(caplog):
    """Of 300 translations, and 30 that two sources share, few leave."""
    caplog.set_level("INFO", logger="absl")
    records = [TranslationPair(f"source {n}", f"target {n}") for n in range(300)]
    twice = [
        TranslationPair(f"{out} {n}", f"both {n}")
        for n in range(30)
        for out in ("twin", "second twin")
    ]
    ((train, held),) = split_corpora(corpus("parallel", records + twice))
    assert held == [pair for pair in records + twice if held_out(pair.source)]
    hidden = {pair.target for pair in held}
    assert train == [pair for pair in records + twice if pair.target not in hidden]
    assert len(train) + len(held) < len(records + twice)
    assert "they stay" not in caplog.text
    assert "are left out: they share texts" in caplog.text


def test_what_decided_stays_hidden_where_shared_texts_stay():
    """Each question also is the second text of a pair with a source of its own."""
    asked = faq("parallel", 200, 5)
    turned = [TranslationPair(f"title {n}", pair.source) for n, pair in enumerate(asked)]
    ((train, held),) = split_corpora(corpus("parallel", asked + turned))
    assert held == [pair for pair in asked + turned if held_out(pair.source)]
    sources = {pair.source for pair in held}
    kept = [pair for pair in asked + turned if sources.isdisjoint(pair)]
    # No answer of a held-out question leaves training, and so no question that is a second text
    # does.
    assert train == kept
    assert len(kept) > 330


def test_shared_texts_that_stay_are_in_other_kinds_and_negatives_too():
    asked = [pair._replace(negatives=("answer 1", "answer 2")) for pair in faq("parallel", 200, 5)]
    talk = faq("conversations", 200, 5)
    (train, held), (said, _) = split_corpora(
        corpus("parallel", asked), corpus("conversations", talk)
    )
    assert train == [pair for pair in asked if pair not in held]
    assert said == [pair for pair in talk if not held_out(pair.message)]
    # A held-out question is hidden from both.
    leak = [ResponsePair("new", held[0].source), ResponsePair("newer", "answer 1")]
    wrong = [pair._replace(negatives=("answer 1", held[0].source)) for pair in asked]
    (train, _), (said, _) = split_corpora(
        corpus("parallel", wrong), corpus("conversations", talk + leak)
    )
    assert {pair.negatives for pair in train} == {("answer 1",)}
    assert leak[0] not in said
    assert leak[1] in said


def test_scored_pairs_are_held_out_in_both_orders():
    base = [SimilarityPair(f"sentence a {n}", f"sentence b {n}", n % 100) for n in range(1000)]
    turned = [SimilarityPair(pair.second, pair.first, pair.label) for pair in base]
    ((train, held), (others, more)) = split_corpora(
        corpus("similarity", base + turned), corpus("similarity", turned, name="turned")
    )
    # 1000 draws at 0.1: mean 100, standard deviation 9.5; five of them.
    assert 52 < len(more) < 148
    assert len(held) == 2 * len(more)
    assert len(train) == 2 * len(others) == 2000 - len(held)
    assert {text for pair in train + others for text in pair[:2]}.isdisjoint(
        text for pair in held + more for text in pair[:2]
    )


def test_scored_pairs_across_languages_share_no_text_with_held_out_ones():
    """Sentences in two languages (STS) and pairs of one in each: no held-out text is trained on."""
    sides = {
        code: [(f"{code} a {n}", f"{code} b {n}") for n in range(500)] for code in ("en", "es")
    }
    sides["en-es"] = [(en[0], es[1]) for en, es in zip(sides["en"], sides["es"], strict=True)]
    corpora = [
        corpus(
            "similarity",
            [SimilarityPair(*pair, n % 100) for n, pair in enumerate(pairs)],
            languages=code,
        )
        for code, pairs in sides.items()
    ]
    train, held = ([*map(set, part)] for part in zip(*split_corpora(*corpora), strict=True))
    seen, unseen = (
        {text for pairs in part for pair in pairs for text in pair[:2]} for part in (train, held)
    )
    assert seen.isdisjoint(unseen)
    assert all(len(pairs) > 380 for pairs in train)


def test_of_pairs_between_shared_texts_none_is_lost_and_what_decided_is_new():
    """Scores of 60 queries with 40 documents each: a part of both is in no training record."""
    records = [
        SimilarityPair(f"query {q}", f"document {d}", q) for q, d in product(range(60), range(40))
    ]
    ((train, held),) = split_corpora(corpus("similarity", records))
    assert len(train) + len(held) == len(records)
    seen = {text for pair in train for text in pair[:2]}
    assert all(not seen >= {*pair[:2]} for pair in held)
    assert 0 < len(held) < 700


PAIRS = [("A dog.", "Un perro."), ("A cat.", "Un gato.")]


def trained_on(*records: tuple[str, ...]) -> TrainedOn:
    return TrainedOn.from_hashes([map(text_hashes, zip(*records, strict=True))])


def test_texts_and_pairs_are_found_again_whatever_their_order_case_and_form():
    known = trained_on(*PAIRS, ("Mañana.", "Tomorrow."))
    decomposed = "man\u0303ana. "
    assert known.share_of_texts(["a  DOG.", decomposed, "new", "newer"]) == 0.5
    # The texts of the last one are known, each of another record.
    pairs = [("un perro.", "A DOG."), ("Tomorrow.", decomposed), ("A dog.", "Un gato.")]
    assert known.share_of_pairs(pairs) == pytest.approx(2 / 3)

    assert trained_on(PAIRS[0]).joined(trained_on(PAIRS[1])).share_of_pairs(PAIRS) == 1
    # All texts of a record count, but its pair is the first two.
    known = trained_on(("question", "answer", "the answer's paragraph"))
    assert known.share_of_texts(["the answer's paragraph"]) == 1
    assert (
        known.share_of_pairs([("question", "answer"), ("answer", "the answer's paragraph")]) == 0.5
    )


def test_a_file_keeps_what_was_trained_on_in_few_bytes(tmp_path):
    hashes = np.random.default_rng(0).integers(2**64, size=(2, 50_000), dtype=np.uint64)
    known = TrainedOn.from_hashes([hashes])
    (tmp_path / TRAINED_ON).write_bytes(known.to_bytes())
    read = TrainedOn.read(tmp_path)
    assert read is not None
    np.testing.assert_array_equal(read.texts, known.texts)
    np.testing.assert_array_equal(read.pairs, known.pairs)
    assert (tmp_path / TRAINED_ON).stat().st_size < 4 * (len(known.texts) + len(known.pairs))
    assert TrainedOn.read(tmp_path / "another") is None
    (tmp_path / TRAINED_ON).write_bytes(known.to_bytes()[:-100])
    with pytest.raises(UserError, match="damaged"):
        TrainedOn.read(tmp_path)
