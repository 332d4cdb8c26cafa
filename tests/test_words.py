"""Words: tokens, their rows and n-grams, and the vocabulary counted in texts."""

import dataclasses
from collections import Counter

import pytest
import tensorflow as tf

from xling_tf.client.words import WordSplitter
from xling_tf.config import WordsConfig
from xling_tf.tokenizers import words as words_module
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.words import (
    WordTokenizer,
    common_words,
    count_words,
    ngram_buckets,
    select_vocabulary,
)


def tokens(text, **config):
    (row,) = (
        WordTokenizer([EMPTY_TOKEN], WordsConfig(**config)).tokenize(tf.constant([text])).to_list()
    )
    return [token.decode("utf-8") for token in row]


TOKENS = {
    # The Penn Treebank's: contractions part before their apostrophe, "n't" keeps its n.
    "It's John's dog, they've won.": "It 's John 's dog , they 've won .",
    "can’t": "ca n't",
    "the dogs' tails": "the dogs ' tails",
    "'tis": "' tis",
    # Numbers stay whole, marks beside them part.
    "$3.50, 1,000:2 and 10:30.": "$ 3.50 , 1,000:2 and 10:30 .",
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
    # Other languages.
    "¿Qué? ¡Sí, José!": "¿ Qué ? ¡ Sí , José !",
    "我爱你。": "我 爱 你 。",
    "スーパーで買う人々": "ス ー パ ー で 買 う 人 々",
    "2024年5月,3日": "2024 年 5 月 , 3 日",
    "مرحبا بالعالم؟": "مرحبا بالعالم ؟",
    "😀ok": "😀 ok",
    "<empty>": "< empty >",
    # Every kind of space and control character parts words.
    " a\t\n b\u00a0c\u3000d\u200be\x00f\r": "a b c d e f",
    # Bytes that are not UTF-8 do too, and a sentence without tokens becomes one.
    b"\xff\xfe ok\x80no": "ok no",
    b"\xe6\x88": EMPTY_TOKEN,
    b"a\xc3": "a",
    "\t\n\u00a0\u200b": EMPTY_TOKEN,
}


def test_treebank_style():
    assert {text: " ".join(tokens(text)) for text in TOKENS} == TOKENS


PAIRS = {
    # Each character, each pair of neighbours, and the first and the last paired with nothing.
    "我爱你。": "我 我 我爱 爱 爱你 你 你 。",
    "我 a我b": "我 我 我 a 我 我 我 b",
    "C语言": "C 语 语 语言 言 言",
    "スーパー": "ス ス スー ー ーパ パ パー ー ー",
    "ｶﾞｷ": "ｶﾞ ｶﾞ ｶﾞｷ ｷ ｷ",
    "二〇年,3日": "二 二 二〇 〇 〇年 年 年 , 3 日 日 日",
    # Consonants with their vowels and marks: pra-the-s-thai, tem, n-a-m with a tone.
    "ประเทศไทย2566": "ป ป ประ ระ ระเท เท เทศ ศ ศไท ไท ไทย ย ย 2566",
    "Thaiเต็มน้ำ": "Thai เต็ เต็ เต็ม ม มน้ำ น้ำ น้ำ",
    "๑๒ ฯลฯ": "๑๒ ฯ ฯ ฯล ล ลฯ ฯ ฯ",
    "ພາສາ": "ພາ ພາ ພາສາ ສາ ສາ",
    "ខ្មែរ": "ខ្មែ ខ្មែ ខ្មែរ រ រ",
    "မြန်မာ": "မြ မြ မြန် န် န်မာ မာ မာ",
    # Vowels and marks without a consonant.
    "xะ เ \u0e48": "xะ เ เ เ \u0e48",
    # Other scripts are not divided.
    "안녕 don't नमस्ते": "안녕 do n't नमस्ते",
}


def test_pairs_of_neighbours_are_words_in_scripts_without_spaces():
    assert {text: " ".join(tokens(text, bigrams=True)) for text in PAIRS} == PAIRS
    # 200 characters, 199 pairs, and the two at the ends; a decomposed one is composed first.
    assert len(tokens("我爱" * 100, bigrams=True, max_tokens=1000)) == 401
    assert tokens("我爱你", bigrams=True, max_tokens=4) == ["我", "我", "我爱", "爱"]
    assert tokens("\u304b\u3099", bigrams=True) == ["が"] * 3


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
CONFIG = WordsConfig(max_tokens=6, num_oov_buckets=5, num_ngram_buckets=97)


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer(VOCABULARY, CONFIG)


SENTENCES = [
    "a hola hola a.",
    "",
    "xyz hola desconocido mundo",
    "a a a a a a a a a a",
    "😀 我 \u200b",
]


def test_the_features_spell_out_the_tokens(tokenizer):
    features = tokenizer(tf.constant(SENTENCES))
    rows = tokenizer.tokenize(tf.constant(SENTENCES)).to_list()
    word_ids, places = features.words.ids.numpy(), features.tokens.numpy()
    assert features.lengths.numpy().tolist() == [len(row) for row in rows]
    assert places.shape == (len(SENTENCES), max(map(len, rows)))
    for row, place in zip(rows, places, strict=True):
        expected = tokenizer.word_ids(tf.constant(row)).numpy()
        assert word_ids[place[: len(row)]].tolist() == expected.tolist()
        assert not place[len(row) :].any()  # padding points at word 0


def test_known_words_have_their_rows_and_others_a_bucket_after_them(tokenizer):
    assert tokenizer.num_words == 9
    assert tokenizer.word_ids(tf.constant(VOCABULARY)).numpy().tolist() == [0, 1, 2, 3]
    unknown = tokenizer.word_ids(tf.constant([f"w{i}" for i in range(200)])).numpy()
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
    # Longer words are clipped: 50 characters and two marks have 52 - 2 three-grams and 52 - 3
    # four-grams.
    assert ngram_buckets(tf.constant(["é" * 1000]), CONFIG).row_lengths().numpy().tolist() == [99]


def test_known_and_unknown_words_are_spelled_in_the_order_of_the_batch(tokenizer):
    # "<hola>" and "<xola>" have four 3-grams and three 4-grams each, "<a>" has one 3-gram.
    words = tokenizer(tf.constant(["hola xola a"])).words
    assert words.ngram_words.numpy().tolist() == [0] * 7 + [1] * 7 + [2]
    ngrams = tokenizer.ngrams(tf.constant(["hola", "xola", "a"])).values
    assert words.ngram_ids.numpy().tolist() == ngrams.numpy().tolist()


def test_texts_that_encoders_cannot_tell_apart_have_one_fingerprint():
    texts = tf.constant(["Ñandú", "ñandú", "nandu", b"\xff", "", "N\u0303andu\u0301"])
    for lowercase, distinct in ((False, 5), (True, 4)):
        config = dataclasses.replace(CONFIG, lowercase=lowercase)
        found = WordTokenizer(VOCABULARY, config).fingerprints(texts).numpy()
        assert (found >= 0).all()
        assert len(set(found)) == distinct
        assert (found[0] == found[1]) == lowercase
        assert found[0] == found[5]


def test_counts_of_tokens(monkeypatch):
    texts = ["Hola, hola.", "the cat, the dog", "cat"]
    expected = {"Hola": 1, "hola": 1, ",": 2, ".": 1, "the": 2, "cat": 2, "dog": 1}
    assert count_words(texts, WordsConfig()) == expected
    monkeypatch.setattr(words_module, "_SENTENCES_PER_CHUNK", 2)
    assert count_words(texts, WordsConfig()) == expected


def test_the_most_frequent_come_first_and_equals_by_the_alphabet():
    counts = Counter({"rare": 1, "b": 2, "a": 2, "z": 5, "ñ": 2, EMPTY_TOKEN: 3})
    for most, fewest, words in (
        (100, 1, "z a b ñ rare"),
        (3, 1, "z a"),
        (0, 1, ""),
        (100, 2, "z a b ñ"),
    ):
        config = WordsConfig(max_words=most, min_word_count=fewest)
        assert select_vocabulary(counts, config) == [EMPTY_TOKEN, *words.split()]


def test_common_words_of_each_language_join_those_of_the_texts():
    pytest.importorskip("wordfreq")
    config = WordsConfig(common_words=100, lowercase=True)
    words = common_words(["en", "es_MX", "zh", "xx"], [EMPTY_TOKEN, "the"], config)
    # The lists take turns, from the most frequent word. "don't" and Chinese words are several
    # tokens.
    assert words.index("of") < words.index("you")
    assert words.index("que") < words.index("pero")
    assert {"of", "que", "的"} <= set(words)
    assert not {"the", "don't", "我们"} & set(words)
    pairs = common_words(["zh"], [EMPTY_TOKEN], dataclasses.replace(config, bigrams=True))
    assert {"的", "我们"} <= set(pairs)
    assert len(set(words)) == len(words)
    # The corpora's words come first, and fill the room.
    texts = {"en": ["zebra", "the zebra"], "es": ["okapi"]}
    fitted = WordTokenizer.fit(dataclasses.replace(config, max_words=5), texts)
    assert fitted.vocabulary == (EMPTY_TOKEN, "zebra", "okapi", "the", "de", "to")


def test_the_ngram_table_has_a_row_for_each_bucket_in_use_and_one_for_all_others():
    # "<<empty>>": 7 three-grams and 6 four-grams. "<ab>": <ab ab> <ab>. "<abc>": <ab abc bc> <abc
    # abc>, of which "<ab" comes twice: 13 + 7 n-grams, no two in one of a million buckets.
    config = WordsConfig(num_ngram_buckets=10**6, min_word_count=2)
    tokenizer = WordTokenizer.fit(config, {"en": iter(["ab abc"]), "es": iter(["ab abc xyz"])})
    assert tokenizer.vocabulary == (EMPTY_TOKEN, "ab", "abc")
    assert tokenizer.num_ngrams == 1 + 13 + 7
    # Others are row 0. Of "<abz>", "<ab" is known.
    rows = tokenizer.ngrams(tf.constant(["ab", "xyz", "abz"])).to_list()
    assert [sum(row > 0 for row in word) for word in rows] == [3, 0, 1]


def test_the_client_splits_each_letter_digit_and_mark_as_the_graph_does():
    tokenizer = WordTokenizer([EMPTY_TOKEN], WordsConfig(max_tokens=128, bigrams=True))
    rules = tokenizer.rules()
    ranges = [pair for name in (r"\pL", r"\pN", r"\pM") for pair in rules["classes"][name]]
    characters = [chr(point) for first, last in ranges for point in range(first, last + 1)]
    characters += [chr(point) for point in range(0x20, 0x3000)]
    texts = [
        " ".join(f"{character} a{character}b" for character in characters[start : start + 16])
        for start in range(0, len(characters), 16)
    ]

    inside = tokenizer.tokenize(tf.constant(texts)).to_list()

    assert WordSplitter(rules)(texts) == [[word.decode() for word in row] for row in inside]
