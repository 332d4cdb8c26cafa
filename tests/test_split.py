from pathlib import Path

import pytest

from xling_tf.corpora.folder import Corpus
from xling_tf.corpora.readers import ReadReport, read_documents
from xling_tf.corpora.records import InferencePair, ResponsePair, TranslationPair
from xling_tf.corpora.split import held_out, normalised, split_corpora, split_corpus


def corpus(kind, records, *, name="x", languages="en-es", split="", groups=None):
    report = ReadReport(path=Path("x"), num_records=len(records))
    return Corpus(
        name=name,
        kind=kind,
        languages=languages,
        split=split,
        records=records,
        report=report,
        groups=groups,
    )


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
    assert [len(split.train) for split in splits] == [0, 0, 1]


def test_conversations_are_split_by_message_and_guard_responses():
    held = ResponsePair(HELD[0], "Fine.")
    same = ResponsePair(TRAINED[0], "fine.")
    other = ResponsePair(TRAINED[1], "Bad.")
    split = split_corpus(corpus("conversations", [held, same, other], languages="en"))
    assert split == ([other], [held])


def test_documents_stay_whole(tmp_path):
    path = tmp_path / "d.en.txt"
    path.write_text("\n\n".join(f"{n} a\n{n} b\n{n} c\n{n} d" for n in range(200)))
    read = read_documents(path)
    whole = corpus("documents", read.records, languages="en", groups=read.groups)
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
    assert [tuple(split) for split in splits] == [
        (pairs, []),
        ([], pairs),
        ([], []),
        (pairs[1:], pairs[:1]),
    ]


@pytest.mark.parametrize("kind", ["parallel", "conversations", "nli", "documents"])
def test_no_records(kind):
    assert split_corpus(corpus(kind, [], groups=[] if kind == "documents" else None)) == ([], [])
