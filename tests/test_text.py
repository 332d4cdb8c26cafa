"""Words: tokens, their rows and n-grams, and the vocabulary that is counted of texts."""

import dataclasses
from collections import Counter

import pytest
import tensorflow as tf

from xling_tf.config import TextConfig
from xling_tf.text import words as words_module
from xling_tf.text.preprocessor import fit_text
from xling_tf.text.tokenization import EMPTY_TOKEN, tokenize
from xling_tf.text.words import (
    WordNgramPreprocessor,
    count_words,
    ngram_buckets,
    select_vocabulary,
    word_preprocessor,
)


def tokens(text, **config):
    (row,) = tokenize(tf.constant([text]), TextConfig(**config)).to_list()
    return [token.decode("utf-8") for token in row]


TOKENS = {
    # The Penn Treebank's: contractions part before their apostrophe, "n't" keeps its n.
    "It's John's dog.": "It 's John 's dog .",
    "They'll say we've won; can't they?": "They 'll say we 've won ; ca n't they ?",
    "can’t": "ca n't",
    "the dogs' tails": "the dogs ' tails",
    "'tis": "' tis",
    # Numbers stay whole, marks beside them part.
    "$3.50, 1,000:2 and 10:30.": "$ 3.50 , 1,000:2 and 10:30 .",
    "50% of 3,": "50 % of 3 ,",
    # Stops end words at their end only.
    "Mr. Smith left. He": "Mr . Smith left . He",
    'the end.") (x) [y] {z}': 'the end . " ) ( x ) [ y ] { z }',
    "wait... what--no… well-known": "wait ... what -- no … well-known",
    "me@x.com": "me @ x.com",
    # Quotes of every kind become the typewriter's.
    'He said "hi".': 'He said " hi " .',
    "«hola» “hey” ‘a’": '" hola " " hey " \' a \'',
    # Marks that touch.
    "He said 'no.'": "He said ' no . '",
    "a::b::c": "a : : b : : c",
    "'no,'": "' no , '",
    "('no')": "( ' no ' )",
    "10:30, 1,000:2:": "10:30 , 1,000:2 :",
    # Other languages.
    "¿Qué? ¡Sí, José!": "¿ Qué ? ¡ Sí , José !",
    "我爱你。": "我 爱 你 。",
    "你好,世界 ok": "你 好 , 世 界 ok",
    "スーパーで買う人々": "ス ー パ ー で 買 う 人 々",
    "2024年5月,3日": "2024 年 5 月 , 3 日",
    "한국어 문장": "한국어 문장",
    "مرحبا بالعالم؟": "مرحبا بالعالم ؟",
    "l'amie": "l'amie",
    "😀ok": "😀 ok",
    "<empty>": "< empty >",
    # Every kind of space and control character parts words.
    " a\t\n b\u00a0c\u3000d\u200be\x00f\r": "a b c d e f",
    # Bytes that are not UTF-8 do too, and a sentence without tokens becomes one.
    b"\xff\xfe ok\x80no": "ok no",
    b"\xe6\x88": EMPTY_TOKEN,
    b"a\xc3": "a",
    "\t\n\u00a0\u200b": EMPTY_TOKEN,
    "\x00": EMPTY_TOKEN,
}


def test_treebank_style():
    assert {text: " ".join(tokens(text)) for text in TOKENS} == TOKENS


def test_lowercase():
    expected = ["ñandú", "àé", "do", "n't", "world", "ωmega"]
    assert tokens("Ñandú ÀÉ Don't WORLD Ωmega", lowercase=True) == expected


def test_of_a_megabyte_a_page_is_looked_at_and_no_character_is_cut_in_two():
    for unit in ("word ", "😀", "..."):
        text = unit * (2**20 // len(unit.encode()))
        page = text.encode()[: 40 * 64].decode(errors="ignore")
        assert tokens(text, lowercase=True) == tokens(page, lowercase=True)
        assert 1 <= len(tokens(text)) <= 64
    assert tokens("a b c d", max_tokens=3) == ["a", "b", "c"]
    assert tokens("我" * 100, max_tokens=64) == ["我"] * 64
    # 40 bytes are looked at for one token: 39 a's and half of "é", which is none.
    assert tokens("a" * 39 + "é", max_tokens=1) == ["a" * 39]


VOCABULARY = ["hola", "mundo", "a", "."]
CONFIG = TextConfig(max_tokens=6, num_oov_buckets=5, num_ngram_buckets=97)


@pytest.fixture(scope="module")
def preprocess():
    return WordNgramPreprocessor(VOCABULARY, CONFIG)


SENTENCES = [
    "hola mundo.",
    "a hola hola a",
    "",
    "xyz hola desconocido mundo",
    "a a a a a a a a a a",
    "😀 我 \u200b",
]


def test_the_features_spell_out_the_tokens(preprocess):
    features = preprocess(tf.constant(SENTENCES))
    rows = preprocess.tokenize(tf.constant(SENTENCES)).to_list()
    word_ids, places = features.words.ids.numpy(), features.tokens.numpy()
    assert features.lengths.numpy().tolist() == [len(row) for row in rows]
    assert places.shape == (len(SENTENCES), max(map(len, rows)))
    for row, place in zip(rows, places, strict=True):
        expected = preprocess.word_ids(tf.constant(row)).numpy()
        assert word_ids[place[: len(row)]].tolist() == expected.tolist()
        assert not place[len(row) :].any()  # padding points at word 0


def test_known_words_have_their_rows_and_others_a_bucket_after_them(preprocess):
    assert preprocess.num_words == 9
    assert preprocess.word_ids(tf.constant(VOCABULARY)).numpy().tolist() == [0, 1, 2, 3]
    unknown = preprocess.word_ids(tf.constant([f"w{i}" for i in range(200)])).numpy()
    # 200 words over 5 buckets: all of 4 ... 8 and nothing else.
    assert set(unknown.tolist()) == {4, 5, 6, 7, 8}


def test_ngrams_by_hand():
    # "<a>": one 3-gram, no 4-gram. "<ab>": <ab ab> and <ab>. "<hola>" (6 characters): 4 and 3.
    # "<我>" counts characters, not bytes.
    ragged = ngram_buckets(tf.constant(["a", "ab", "hola", "我"]), CONFIG)
    assert ragged.row_lengths().numpy().tolist() == [1, 3, 7, 1]
    grams = ["<ho", "hol", "ola", "la>", "<hol", "hola", "ola>"]
    expected = tf.strings.to_hash_bucket_fast(grams, CONFIG.num_ngram_buckets)
    assert sorted(ragged[2].numpy().tolist()) == sorted(expected.numpy().tolist())
    # Longer words are clipped: 50 characters and two marks have 52 - 2 three-grams and 52 - 3 four-grams.
    assert ngram_buckets(tf.constant(["é" * 1000]), CONFIG).row_lengths().numpy().tolist() == [99]


def test_words_alone_have_the_same_rows_and_no_ngrams(preprocess):
    alone = word_preprocessor(VOCABULARY, dataclasses.replace(CONFIG, ngram_sizes=()))
    assert (preprocess.num_words, preprocess.num_ngrams) == (9, 97)
    assert (alone.num_words, alone.num_ngrams) == (9, 0)
    features, expected = alone(tf.constant(SENTENCES)), preprocess(tf.constant(SENTENCES))
    assert len(features.words.ngram_ids) == len(features.words.ngram_words) == 0
    assert features.words.ids.numpy().tolist() == expected.words.ids.numpy().tolist()
    assert features.tokens.numpy().tolist() == expected.tokens.numpy().tolist()
    assert features.lengths.numpy().tolist() == expected.lengths.numpy().tolist()
    # The n-grams of "hola", and that of "a".
    words = preprocess(tf.constant(["hola a"])).words
    assert words.ngram_words.numpy().tolist() == [0] * 7 + [1]
    ngrams = ngram_buckets(tf.constant(["hola", "a"]), CONFIG).values
    assert words.ngram_ids.numpy().tolist() == ngrams.numpy().tolist()


def test_texts_that_encoders_cannot_tell_apart_have_one_fingerprint():
    texts = tf.constant(["Ñandú", "ñandú", "nandu", b"\xff", "", "N\u0303andu\u0301"])
    for lowercase, distinct in ((False, 5), (True, 4)):
        config = dataclasses.replace(CONFIG, lowercase=lowercase)
        found = word_preprocessor(VOCABULARY, config).fingerprints(texts).numpy()
        assert (found >= 0).all()
        assert len(set(found)) == distinct
        assert (found[0] == found[1]) == lowercase
        assert found[0] == found[5]


def test_counts_of_tokens(monkeypatch):
    texts = ["Hola, hola.", "the cat, the dog", "cat"]
    # "Hola , hola ." + "the cat , the dog" + "cat"
    expected = {"Hola": 1, "hola": 1, ",": 2, ".": 1, "the": 2, "cat": 2, "dog": 1}
    assert count_words(texts, TextConfig()) == expected
    monkeypatch.setattr(words_module, "_SENTENCES_PER_CHUNK", 2)
    assert count_words(texts, TextConfig()) == expected


def test_the_most_frequent_come_first_and_equals_by_the_alphabet():
    counts = Counter({"rare": 1, "b": 2, "a": 2, "z": 5, "ñ": 2, EMPTY_TOKEN: 3})
    # Of (most words, fewest of a word).
    expected = {
        (100, 1): ["z", "a", "b", "ñ", "rare"],
        (3, 1): ["z", "a"],
        (0, 1): [],
        (100, 2): ["z", "a", "b", "ñ"],
        (3, 3): ["z"],
    }
    for (max_words, min_word_count), words in expected.items():
        config = TextConfig(max_words=max_words, min_word_count=min_word_count)
        assert select_vocabulary(counts, config) == [EMPTY_TOKEN, *words]


def test_the_ngram_table_has_a_row_for_each_bucket_in_use_and_one_for_all_others():
    # "<<empty>>": 7 three-grams and 6 four-grams. "<ab>": <ab ab> <ab>. "<abc>": <ab abc bc> <abc abc>,
    # of which "<ab" comes twice: 13 + 7 n-grams, no two in one of a million buckets.
    config = TextConfig(num_ngram_buckets=10**6, min_word_count=2)
    fitted, words = fit_text(config, {"en": iter(["ab abc"]), "es": iter(["ab abc xyz"])})
    assert words == [EMPTY_TOKEN, "ab", "abc"]
    assert dataclasses.replace(fitted, num_ngrams=0) == config
    assert fitted.num_ngrams == WordNgramPreprocessor(words, fitted).num_ngrams == 1 + 13 + 7


def test_no_two_ngrams_share_a_row_unless_they_share_a_bucket():
    # Hashed into as many buckets as are in use, 1 - 1/e of these 3,000 n-grams shared one.
    config = TextConfig(num_ngram_buckets=200_000)
    words = [f"{number:05d}" for number in range(0, 100_000, 97)]
    fitted, vocabulary = fit_text(config, {"en": [" ".join(words[i::20]) for i in range(20)]})
    buckets = ngram_buckets(tf.constant(vocabulary), config).values.numpy()
    rows = WordNgramPreprocessor(vocabulary, fitted).ngrams(tf.constant(vocabulary)).values.numpy()
    assert rows.min() == 1
    assert rows.max() == fitted.num_ngrams - 1 == len(set(buckets))
    assert len(set(zip(buckets, rows, strict=True))) == len(set(buckets))


def test_ngrams_that_no_known_word_has_share_row_0():
    config = TextConfig(num_ngram_buckets=10**6)
    fitted, vocabulary = fit_text(config, {"en": ["ab"]})
    words = tf.constant(["ab", "xyz", "abz"])
    rows = WordNgramPreprocessor(vocabulary, fitted).ngrams(words)
    # "<abz>": "<ab" is known of "<ab>".
    found = [sorted(row > 0 for row in word) for word in rows.to_list()]
    assert found == [[True] * 3, [False] * 5, [False] * 4 + [True]]
    # Models of before the rows were counted have one for each bucket.
    before = WordNgramPreprocessor(["ab"], dataclasses.replace(config, num_ngram_buckets=50))
    assert before.num_ngrams == 50
    assert before.ngrams(words).to_list() == ngram_buckets(words, before.config).to_list()
