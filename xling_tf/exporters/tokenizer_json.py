"""Hugging Face's `tokenizer.json`, with which the `tokenizers` library gives the ids of a tokenizer of ours."""

from typing import Any

from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.treebank import EMPTY_TOKEN, character_classes
from xling_tf.tokenizers.words import WordTokenizer

UNKNOWN_WORD = "[UNK]"
# `treebank.RULES` as insertions of a space between what is before and what is after it: the library's rules
# have no groups. Only `\p{..}`, literals and look-around of fixed length are used, which JavaScript has too.
# Rule 1 of `treebank.RULES` leaves no other white space than single spaces.
_SPACES = (
    r"[\p{Z}\p{Cc}\p{Cf}\p{Co}]{2,}",
    "[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\\p{Cc}\\p{Cf}\\p{Co}]",
)
_LETTER, _LETTER_OR_NUMBER, _IN_WORD = r"\p{L}", r"[\p{L}\p{N}]", r"[\p{L}\p{M}\p{N}]"
_END = r"(?!\S)"
_INSERTED = (
    # Runs of dots and hyphens, and characters that are words of their own.
    r"(?<!\.)(?=\.\.\.)|(?<=\.\.\.)(?!\.)|(?<!-)(?=--)|(?<=--)(?!-)",
    r"(?=[…{HAN}])|(?<=[…{HAN}])|(?=[^\p{L}\p{M}\p{N}\s.,:'_-])|(?<=[^\p{L}\p{M}\p{N}\s.,:'_-])",
    r"(?=[,:])|(?<=[,:])",
)
_REMOVED = r"(?<=\p{N}) (?=[,:] \p{N})|(?<=\p{N} [,:]) (?=\p{N})"
_INSERTED_AFTER = (
    # A full stop at the end of a word, also before or after a quote.
    rf"(?<={_IN_WORD}|{_IN_WORD}')(?=\.'?{_END})"
    rf"|(?<={_IN_WORD}\.|{_IN_WORD}'\.)(?='{_END})|(?<={_IN_WORD}\.'|{_IN_WORD}'\.'){_END}",
    rf"(?<=^'| ')(?={_LETTER_OR_NUMBER})",
    rf"(?<=\S)(?='{_END})",
    rf"(?<={_LETTER})(?='(?:[sSſ]|[mM]|[dD]|[lL][lL]|[rR][eE]|[vV][eE]){_END})",
    rf"(?<={_LETTER})(?=[nN]'[tT]{_END})",
)


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    assert isinstance(tokenizer, WordTokenizer)
    return _words(tokenizer)


def _words(tokenizer: WordTokenizer) -> dict[str, Any]:
    """Any word outside the vocabulary is `UNKNOWN_WORD`, whose id is that of the first hash bucket."""
    classes = character_classes()
    han = "".join(
        f"{chr(first)}-{chr(last)}" if first < last else chr(first)
        for name in (r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}")
        for first, last in classes[name]
    )
    replaced = [(pattern, " ") for pattern in _SPACES]
    replaced += [("[‘’ʼ`´]", "'"), ("[“”„«»″]", '"')]
    replaced += [(pattern.replace("{HAN}", han), " ") for pattern in _INSERTED]
    replaced += [(_REMOVED, "")]
    replaced += [(pattern, " ") for pattern in _INSERTED_AFTER]
    replaced += [(r"^\s*$", EMPTY_TOKEN)]
    words = {word: row for row, word in enumerate((*tokenizer.vocabulary, UNKNOWN_WORD))}
    lowercase = [{"type": "Lowercase"}] if tokenizer.config.lowercase else []
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": tokenizer.config.max_tokens,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFC"},
                *lowercase,
                *({"type": "Replace", "pattern": {"Regex": p}, "content": content} for p, content in replaced),
            ],
        },
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": UNKNOWN_WORD},
    }
