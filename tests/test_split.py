"""Which records are held out, and that no held-out text is in training by another way."""

import random
from collections import defaultdict

import pytest
from testing import corpus

from xling_tf.corpora.readers import read_documents
from xling_tf.corpora.records import (
    InferencePair,
    QuestionAnswer,
    ResponsePair,
    SentenceTriplet,
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


HIDDEN = TranslationPair(HELD[0], "Sí.")
OTHER = TranslationPair(TRAINED[1], "No.")


def test_a_held_out_translation_is_in_training_in_no_kind():
    pairs = corpus("parallel", [HIDDEN, OTHER])
    for kind, leak in (
        ("parallel", TranslationPair(TRAINED[0], "SÍ. ")),
        ("conversations", ResponsePair(TRAINED[0], HELD[0].upper())),
        ("documents", SentenceTriplet("a", "sí.", "b")),
        ("nli", InferencePair(TRAINED[0], HELD[0], 0)),
        ("questions", QuestionAnswer("Sí.", "b", TRAINED[0])),
    ):
        groups = [TRAINED[0]] if kind == "documents" else None
        leaking = corpus(kind, [leak], name="y", languages="en-fr", groups=groups)
        assert split_corpora([pairs, leaking]) == [([OTHER], [HIDDEN]), ([], [])]
        # Alone it is for training.
        assert split_corpora([leaking]) == [([leak], [])]


def test_inference_obeys_the_splits_of_file_names():
    pairs = [InferencePair(HELD[0], "h", 0), InferencePair(TRAINED[0], "h", 0)]
    named = {split: corpus("nli", pairs, languages="en", split=split) for split in ("train", "dev", "test")}
    other = corpus("nli", pairs, name="other", languages="en", split="train")
    splits = split_corpora([*named.values(), other])
    assert splits == [(pairs, []), ([], pairs), ([], []), (pairs[1:], pairs[:1])]


def texts_of(record):
    return [normalised(text) for text in record[:3] if isinstance(text, str)]


def expected_split(corpora):
    """The rules in words, over all corpora in memory."""
    deciding = {
        "parallel": "source",
        "conversations": "message",
        "nli": "premise",
        "questions": "context",
    }
    answers = slice(1, 2)
    guarded = {"parallel": slice(0, 2), "conversations": answers, "questions": answers}
    splits = []
    shown, hidden = defaultdict(set), defaultdict(set)
    for c in corpora:
        parts = ([], [])
        has_dev = any(d.split.startswith("dev") and d.name == c.name for d in corpora)
        for record, group in c:
            if c.split.startswith("dev"):
                is_held_out = True
            elif c.split == "train" and has_dev:
                is_held_out = False
            else:
                is_held_out = held_out(group or getattr(record, deciding[c.kind]))
            if c.split != "test":
                parts[is_held_out].append(record)
            if is_held_out or c.split == "test":
                shown[c.kind].update(texts_of(record))
                hidden[c.kind].update(texts_of(record)[guarded.get(c.kind, slice(0))])
        splits.append(parts)

    def is_told(kind, record):
        others = set().union(*(texts for other, texts in shown.items() if other != kind))
        guards = texts_of(record)[guarded.get(kind, slice(0))]
        return bool(others.intersection(texts_of(record)) or hidden[kind].intersection(guards))

    return [
        ([record for record in train if not is_told(c.kind, record)], held)
        for c, (train, held) in zip(corpora, splits, strict=True)
    ]


def any_corpora(draw):
    """Corpora of few texts, so that many of their records share some."""
    texts = [text for number in range(200) for text in (f"text {number}", f"TEXT  {number}")]
    pick = lambda: draw.choice(texts)  # noqa: E731
    makers = {
        "parallel": lambda: TranslationPair(pick(), pick(), tuple(pick() for _ in range(2))),
        "conversations": lambda: ResponsePair(pick(), pick()),
        "documents": lambda: SentenceTriplet(pick(), pick(), pick()),
        "nli": lambda: InferencePair(pick(), pick(), draw.randrange(3)),
        "questions": lambda: QuestionAnswer(pick(), pick(), pick()),
    }
    for number in range(draw.randrange(1, 8)):
        kind = draw.choice(list(makers))
        records = [makers[kind]() for _ in range(draw.randrange(60))]
        groups = [draw.choice(texts) for _ in records] if kind == "documents" else None
        split = draw.choice(["train", "dev_matched", "test", ""]) if kind == "nli" else ""
        languages = draw.choice(["en-es", "en-fr"]) if kind == "parallel" else "en"
        yield corpus(kind, records, name=str(number // 2), languages=languages, split=split, groups=groups)


@pytest.mark.parametrize("seed", range(6))
def test_the_streamed_split_is_that_of_the_rules(seed):
    corpora = list(any_corpora(random.Random(seed)))
    assert split_corpora(corpora) == expected_split(corpora)


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
