"""Texts to ids without TensorFlow: the same as in the graph, whatever the text."""

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from testing import SENTENCES, TINY

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.runtimes.pieces import Pieces
from xling_tf.runtimes.readable import readable
from xling_tf.runtimes.text_files import character_classes, text_settings
from xling_tf.runtimes.words import Words
from xling_tf.text.preprocessor import TextPreprocessor, build_preprocessor, fit_text
from xling_tf.text.sentencepiece import SentencePiecePreprocessor
from xling_tf.text.tokenization import EMPTY_TOKEN
from xling_tf.text.words import WordPreprocessor, ngram_buckets

# What rules look at, what splits or joins words, and what tokenizers stumble over.
_FRAGMENTS = (
    *(
        "don't",
        "DON'T",
        "he's",
        "IT'Sſ",
        "'ſ",
        "l'eau",
        "'quoted'",
        "’tis",
        "``",
        '"',
        "«no»",
        "U.S.",
        "x.y",
    ),
    *(
        "1,234",
        "1,2,3",
        "10:30",
        "٣,٤",
        "½",
        "...",
        "....",
        "…",
        "--",
        "-",
        "_",
        ".",
        "'",
        ",",
        ":",
    ),
    *("hola", "HOLA", "ΣΑΣ", "İI", "ß", "e\u0301", "नमस्ते", "สวัสดี", "שלום", "مرحبا", "ａｂ"),
    *(
        "我爱北京",
        "カー",
        "ひらがなー",
        "ー",
        "한국어",
        "𠮷",
        "\U0002ebf0",
        "😀",
        "👍🏽",
        "👩‍👩‍👧",
        "🇪🇸",
    ),
    *(
        " ",
        "  ",
        "\t",
        "\n",
        "\0",
        "\x85",
        "\u2028",
        "\u00a0",
        "\u200b",
        "\ufeff",
        "\ufffd",
        "\uffff",
    ),
    *("\u0378", "\ue000", "\U000e0001", "<empty>", "<s>", "</s>", "<unk>", "▁", "a" * 60, "é" * 99),
)
# Capitals that are younger than TensorFlow's library for lower case, which leaves them as they are.
_YOUNGER = "".join(
    chr(point)
    for first, last in (
        *((0x1C89, 0x1C89), (0x2C2F, 0x2C2F), (0xA7C0, 0xA7C0), (0xA7CB, 0xA7DC)),
        *((0x10570, 0x10595), (0x10D50, 0x10D65), (0x16EA0, 0x16EB8)),
    )
    for point in range(first, last + 1)
)
_CHARACTERS = st.characters(exclude_categories=("Cs",), exclude_characters=_YOUNGER)
_PARTS = st.text(_CHARACTERS, max_size=4) | st.sampled_from(_FRAGMENTS)
_HOSTILE = st.lists(_PARTS, max_size=8).map("".join)
_VOCABULARY = [EMPTY_TOKEN, "hola", "don", "n't", "ひ", "北京", "😀", "'", "é"]
_KINDS: Mapping[str, Mapping[str, Any]] = {
    "spelt": {},
    "short n-grams of runs": {"split_han": False, "ngram_sizes": (1, 2), "max_tokens": 5},
    "no word so short": {"ngram_sizes": (9,)},
    "words alone": {"ngram_sizes": (), "lowercase": True},
    "pieces": {"tokenizer": "sentencepiece", "sentencepiece_size": 60},
    "marked pieces": {
        "tokenizer": "sentencepiece",
        "sentencepiece_size": 60,
        "sentence_marks": True,
        "max_tokens": 7,
    },
}


def _config(changes: Mapping[str, Any]) -> TextConfig:
    return dataclasses.replace(TINY.text, **changes)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[TextPreprocessor, Any]]:
    """By the names of `_KINDS`: what is in the graph, and what is not."""
    made: dict[str, tuple[TextPreprocessor, Any]] = {}
    learnt: Any = None
    for name, changes in _KINDS.items():
        config, vocabulary = _config(changes), learnt
        if config.tokenizer == "treebank":
            vocabulary = _VOCABULARY
        elif learnt is None:
            _, vocabulary = fit_text(config, {"en": [*SENTENCES, "我爱北京", "ABC abc"]})
            learnt = vocabulary
        preprocessor = build_preprocessor(config, vocabulary)
        folder = tmp_path_factory.mktemp("text")
        made[name] = preprocessor, _outside(preprocessor, folder)
    return made


def _outside(preprocessor: TextPreprocessor, folder: Path) -> Words | Pieces:
    if isinstance(preprocessor, SentencePiecePreprocessor):
        (folder / "sentencepiece.model").write_bytes(preprocessor.vocabulary)
        return Pieces(folder, text_settings(preprocessor))
    lines = "".join(f"{word}\n" for word in preprocessor.vocabulary)
    (folder / "vocabulary.txt").write_text(lines, encoding="utf-8")
    return Words(folder, text_settings(preprocessor))


def _require_same(inside: TextPreprocessor, outside: Any, texts: Sequence[str]) -> None:
    ragged = inside.tokenize(tf.constant(texts, tf.string))
    tokens = [outside.tokenize(text) for text in texts]
    expected = ragged.to_list()
    if isinstance(inside, WordPreprocessor):
        expected = [[word.decode() for word in words] for words in expected]
    assert tokens == expected
    inputs = outside.inputs(tokens)
    assert inputs["lengths"].tolist() == ragged.row_lengths().numpy().tolist()
    ids = inputs["ids"][np.arange(inputs["ids"].shape[1]) < inputs["lengths"][:, None]]
    words, rows = ragged.values, inside.word_ids(ragged.values).numpy()
    if "ngrams" not in inputs:
        assert ids.tolist() == rows.tolist()
        return
    num_known, fill = len(inside.vocabulary), inside.num_ngrams
    is_known = rows < num_known
    assert ids[is_known].tolist() == rows[is_known].tolist()
    # An unknown word's number leads to its bucket and its n-grams.
    numbers = ids[~is_known] - num_known
    assert (num_known + inputs["buckets"][numbers]).tolist() == rows[~is_known].tolist()
    ngrams = [[n for n in row if n != fill] for row in inputs["ngrams"][numbers].tolist()]
    assert ngrams == ngram_buckets(words[~is_known], inside.config).to_list()


@pytest.mark.parametrize("name", _KINDS)
def test_fragments_become_the_same_ids(name: str, both: Any) -> None:
    _require_same(*both[name], [*SENTENCES, *_FRAGMENTS, " ".join(_FRAGMENTS), "".join(_FRAGMENTS)])


@settings(max_examples=12, deadline=None, database=None)
@given(texts=st.lists(_HOSTILE, min_size=10, max_size=40))
def test_any_text_becomes_the_same_ids(both: Any, texts: Sequence[str]) -> None:
    for inside, outside in both.values():
        _require_same(inside, outside, texts)


def test_no_letter_but_the_younger_ones_differs_in_lower_case() -> None:
    # Beyond these two planes nothing has a case.
    characters = [chr(p) for p in range(1, 0x20000) if not 0xD800 <= p < 0xE000]
    inside = tf.strings.lower(characters, encoding="utf-8").numpy()
    pairs = zip(characters, inside, strict=True)
    assert {c for c, lower in pairs if lower.decode() != c.lower()} <= set(_YOUNGER)


def test_a_text_is_cut_in_bytes_and_half_a_character_becomes_a_space() -> None:
    assert readable("ñññ", 5) == "ññ "  # two bytes each
    assert readable("\ufffdx", 9) == "\ufffdx"
    assert readable("a" * 2**20, 480) == "a" * 480
    assert readable("a\ud800b", 9).split() == ["a", "b"]  # half a surrogate pair


def test_classes_are_those_of_unicode() -> None:
    classes = character_classes()
    assert classes[r"\pL"][:2] == [(65, 90), (97, 122)]  # A-Z, a-z
    assert classes[r"\pN"][0] == (48, 57)  # 0-9
    assert classes[r"\pC"][0] == (0, 31)
    assert classes[r"\pC"][-1][1] == 0x10FFFD  # the last for private use


@pytest.mark.parametrize(("kind", "package"), [(Words, "pyfarmhash"), (Pieces, "sentencepiece")])
def test_a_missing_package_is_told(
    kind: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package.removeprefix("py"), None)  # importing it fails
    with pytest.raises(UserError, match=rf"need {package}, .*'xling_tf\[runtimes\]'"):
        kind(Path(), {})
