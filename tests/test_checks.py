import pytest
from absl import logging

from xling_tf.corpora.checks import corpus_faults
from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import InferencePair, ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.store import transient_store

# 48 sentences of 5 or more words in each language, no two of them equal.
_ANIMALS = (("dog", "perro"), ("cat", "gato"), ("horse", "caballo"), ("wolf", "lobo"))
_PLACES = (("garden", "jardín"), ("house", "casa"), ("street", "calle"), ("forest", "bosque"))
_VERBS = (("sleeps", "duerme"), ("waits", "espera"), ("plays", "juega"))
ENGLISH = [
    f"My neighbour's old {a} often {v} near the big {p}"
    for a, _ in _ANIMALS
    for p, _ in _PLACES
    for v, _ in _VERBS
]
SPANISH = [
    f"Cuando llueve, el {a} de nuestros vecinos {v} junto a su {p} y los niños lo miran"
    for _, a in _ANIMALS
    for _, p in _PLACES
    for _, v in _VERBS
]


def pairs(sources, targets):
    return [TranslationPair(*sides) for sides in zip(sources, targets, strict=True)]


def faults(languages, records):
    return list(corpus_faults("corpus", languages, records))


def test_a_sound_corpus_has_no_faults():
    assert faults("en-es", pairs(ENGLISH, SPANISH)) == []
    assert faults("en", [SentenceTriplet(*ENGLISH[i : i + 3]) for i in range(46)]) == []


def test_sides_that_were_swapped():
    assert faults("en-es", pairs(SPANISH, ENGLISH)) == [
        "corpus: 100% of the en side look like es",
        "corpus: 100% of the es side look like en",
    ]


def test_the_share_of_another_language():
    # 12 of 48 are a quarter; equal sides are told as well.
    mixed = ENGLISH[:12] + SPANISH[12:]
    assert faults("en-es", pairs(ENGLISH, mixed)) == [
        "corpus: 25% of the es side look like en",
        "corpus: 25% of the pairs are the same text on both sides",
    ]


def test_the_frequent_ones_of_other_languages_are_named():
    french = [
        f"Le chien numéro {i} dort toujours devant la maison de mes parents" for i in range(48)
    ]
    # 24 English, 23 French and 1 Spanish.
    assert faults(
        "de", [ResponsePair(a, "") for a in ENGLISH[:24] + french[:23] + SPANISH[:1]]
    ) == ["corpus: 100% of the de side look like en or fr"]


def test_a_tenth_and_less_is_no_fault():
    # 4 of 48 are 8%.
    assert faults("en-es", pairs(ENGLISH, ENGLISH[:4] + SPANISH[4:])) == []


@pytest.mark.parametrize(
    "records",
    [
        [ResponsePair(*sides) for sides in zip(SPANISH, SPANISH[::-1], strict=True)],
        [SentenceTriplet(*SPANISH[i : i + 3]) for i in range(46)],
        [InferencePair(text, text, 0) for text in SPANISH],
    ],
    ids=["conversations", "documents", "nli"],
)
def test_every_kind_is_looked_at(records):
    assert faults("en", records) == ["corpus: 100% of the en side look like es"]


def test_a_few_texts_say_nothing_of_a_language():
    # 30 texts whose language can be told are needed.
    assert faults("en-es", pairs(SPANISH[:29], SPANISH[19:48])) == []
    assert faults("en-es", pairs(SPANISH[:30], SPANISH[18:48])) != []


def test_names_say_nothing_of_a_language():
    names = [f"libfoo{i}.so" for i in range(60)]
    assert faults("en-es", pairs(names, [f"{name}.1" for name in names])) == []


def test_a_language_that_cannot_be_recognised_is_not_doubted():
    assert faults("en-tlh", pairs(ENGLISH, SPANISH)) == []


def test_nothing_but_repeats():
    assert faults(
        "en-es", pairs(ENGLISH[:23], SPANISH[:23]) + pairs(ENGLISH[:1], SPANISH[:1]) * 25
    ) == ["corpus: only 23 of 48 records looked at differ"]
    assert faults("en-es", pairs(ENGLISH[:24], SPANISH[:24]) * 2) == []


def test_an_empty_sample():
    assert faults("en-es", []) == []


def test_the_sample_has_no_faults():
    targets = ["es", "fr", "de", "zh"]
    corpora = load_folder(SAMPLE_FOLDER, source="en", targets=targets)
    assert [
        list(corpus_faults(c.name, c.languages, [record for record, _ in c])) for c in corpora
    ] == [[]] * len(corpora)


def test_a_swapped_corpus_is_warned_of_when_it_is_read(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: warnings.append(text % args))
    (tmp_path / "parallel").mkdir()
    # More records than are looked at.
    sides = zip(SPANISH * 50, ENGLISH * 50, strict=True)
    lines = [f"{i} {spanish}\t{i} {english}" for i, (spanish, english) in enumerate(sides)]
    (tmp_path / "parallel" / "x.en-es.tsv").write_text("\n".join(lines), encoding="utf-8")
    transient_store(load_folder(tmp_path, source="en", targets=["es"]))
    advice = "; correct the corpus or take it out, if that is not meant so"
    assert warnings == [
        f"parallel/x.en-es: 100% of the en side look like es{advice}",
        f"parallel/x.en-es: 100% of the es side look like en{advice}",
    ]
