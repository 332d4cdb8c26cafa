"""WordPiece in the graph: the ids of Hugging Face's `tokenizers` for any string in any language."""

import dataclasses
import unicodedata
from collections.abc import Sequence

import pytest
import tensorflow as tf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from tricky_texts import FRAGMENTS, sample_sentences

from xling_tf.client.words import BYTES_PER_TOKEN
from xling_tf.config import WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CONFIGS = {
    "uncased": WordPieceConfig(lowercase=True, strip_accents=True),
    "cased": WordPieceConfig(),
    "cased, without accents": WordPieceConfig(strip_accents=True),
    "lowercase, Chinese words": WordPieceConfig(lowercase=True, split_chinese=False),
}
MORE = [
    "",
    "   ",
    " hello",
    "##ing",
    "ΣΑΣ Σ ς ΌΣΟΣ",
    "İstanbul I ı",
    "ẞ Æ Å ﬁ",
    "豈 丽 豈",
    "\u037e\u0387≠",
    "x" * 100,
    "x" * 101,
    "é" * 100,
    "é" * 101,
    "a\u0301\u0323b",
    "\n\ta\r\nb\x0bc\x85d",
    "a\u2028b",
    "\ufeffa",
]


def reference(tokenizer: WordPieceTokenizer) -> Tokenizer:
    """The same rules in `tokenizers`, written by hand, without a limit of tokens."""
    config = tokenizer.config
    vocabulary = {piece: row for row, piece in enumerate(tokenizer.vocabulary)}
    hugging = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    hugging.normalizer = normalizers.BertNormalizer(
        handle_chinese_chars=config.split_chinese,
        strip_accents=config.strip_accents,
        lowercase=config.lowercase,
    )
    hugging.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return hugging


def reference_rows(tokenizer: WordPieceTokenizer, texts: Sequence[str]) -> list[list[int]]:
    begin, end = (tokenizer.vocabulary.index(mark) for mark in ("[CLS]", "[SEP]"))
    return [
        [begin, *encoding.ids[:62], end] for encoding in reference(tokenizer).encode_batch(texts)
    ]


def rows(tokenizer: WordPieceTokenizer, texts: Sequence[str | bytes]) -> list[list[int]]:
    return tokenizer.tokenize(tf.constant(texts, tf.string)).to_list()


@pytest.fixture(scope="module", params=CONFIGS)
def tokenizer(request):
    """A tokenizer with a vocabulary that `tokenizers` learned from the built-in sample."""
    empty = WordPieceTokenizer(SPECIAL, CONFIGS[request.param])
    hugging = reference(empty)
    trainer = trainers.WordPieceTrainer(
        vocab_size=2000, special_tokens=SPECIAL, show_progress=False
    )
    hugging.train_from_iterator(sample_sentences(), trainer)
    vocabulary = hugging.get_vocab()
    return WordPieceTokenizer(sorted(vocabulary, key=vocabulary.__getitem__), empty.config)


def test_ids_are_those_of_hugging_face(tokenizer):
    texts = sample_sentences()
    texts += [unicodedata.normalize("NFD", text) for text in texts] + [
        text.upper() for text in texts
    ]
    assert rows(tokenizer, texts) == reference_rows(tokenizer, texts)
    used = {tokenizer.vocabulary[row] for ids in rows(tokenizer, texts) for row in ids}
    assert sum(piece.startswith("##") for piece in used) > 100
    strange = [text for text in [*FRAGMENTS, *MORE] if "\ud800" not in text]
    strange += [" ".join(strange), "".join(strange), "a" + "\u0301" * 500]
    assert rows(tokenizer, strange) == reference_rows(tokenizer, strange)


def test_characters_count_as_in_hugging_face_in_common_scripts():
    """Each character: removed, a space, its own word, or a letter, small and without its accent."""
    blocks = [(0x20, 0x55F), (0x5D0, 0x61C), (0x61E, 0x6FF), (0x900, 0x963), (0xE00, 0xE5B)]
    blocks += [(0x1E00, 0x2BFF), (0x3000, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFFFF)]
    characters = [chr(point) for first, last in blocks for point in range(first, last + 1)]
    texts = [f"a{c}b" for c in characters if unicodedata.category(c) not in ("Cs", "Cn")]
    tokenizer = WordPieceTokenizer([*SPECIAL, "a"], CONFIGS["uncased"])
    normal = [
        text.decode().split() for text in tokenizer._normalized(tf.constant(texts), 64).numpy()
    ]
    hugging = reference(tokenizer)
    split, normalize = hugging.pre_tokenizer.pre_tokenize_str, hugging.normalizer.normalize_str
    assert normal == [[word for word, _ in split(normalize(text))] for text in texts]


def test_no_text_is_read_as_a_special_token_and_bytes_that_are_no_text_are_spaces():
    vocabulary = [*SPECIAL, "[", "]", "cls", "a", "b"]
    tokenizer = WordPieceTokenizer(vocabulary, CONFIGS["uncased"])
    begin, end, row = 2, 3, vocabulary.index
    texts = [b"[CLS]", b"a\xff\xfeb", b"a\xc3", b"\xff", b"[PAD]"]
    assert rows(tokenizer, texts) == [
        [begin, row("["), row("cls"), row("]"), end],
        [begin, row("a"), row("b"), end],
        [begin, row("a"), end],
        [begin, end],
        [begin, row("["), row("[UNK]"), row("]"), end],
    ]
    plain = WordPieceTokenizer(
        vocabulary, dataclasses.replace(tokenizer.config, sentence_marks=False)
    )
    assert rows(plain, [b"a b", b""]) == [[row("a"), row("b")], [row("[UNK]")]]


def test_of_a_long_text_the_beginning_is_read():
    config = dataclasses.replace(CONFIGS["uncased"], max_tokens=5)
    tokenizer = WordPieceTokenizer([*SPECIAL, "a", "##a", "猫"], config)
    cut = BYTES_PER_TOKEN * 5
    texts = ["a " * 50_000, "猫" * 40_000, "a" * 100_000, "\0" * (cut - 2) + "a a" * 40_000]
    assert rows(tokenizer, texts) == [[2, 5, 5, 5, 3], [2, 7, 7, 7, 3], [2, 1, 3], [2, 5, 3]]
    assert tokenizer.tokenize(tf.constant(texts[:1]), 9).to_list() == [[2, *[5] * 7, 3]]


def test_equal_words_have_equal_hashes():
    tokenizer = WordPieceTokenizer([*SPECIAL, "cafe", "!"], CONFIGS["uncased"])
    one, other, third = tokenizer.fingerprints(tf.constant(["café!", "CAFE !", "cafe"])).numpy()
    assert one == other != third


def test_other_vocabularies_and_learning_one_are_refused():
    with pytest.raises(UserError, match=r"lacks \[CLS\]"):
        WordPieceTokenizer(["[UNK]", "[SEP]"], WordPieceConfig())
    with pytest.raises(UserError, match="kind=sentencepiece"):
        WordPieceTokenizer.fit(WordPieceConfig(), {"en": ["a"]})
    with pytest.raises(UserError, match=r"at least 3, .* got 2"):
        WordPieceConfig(max_tokens=2)
