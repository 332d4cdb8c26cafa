"""Export of a tokenizer as the tokenizer.json of Hugging Face's `tokenizers`."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xling_tf.config import TOKENIZERS
from xling_tf.errors import require_known
from xling_tf.savedmodel.runtimes import wordpiece_json
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.sentencepiece import CONTROL, UNKNOWN, SentencePieceTokenizer, model_proto
from xling_tf.tokenizers.treebank import EMPTY_TOKEN, character_classes
from xling_tf.tokenizers.wordpiece import SPECIAL, WordPieceTokenizer
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
    r"(?=[…{SCRIPTS}])|(?<=[…{SCRIPTS}])|(?=[^\p{L}\p{M}\p{N}\s.,:'_-])|(?<=[^\p{L}\p{M}\p{N}\s.,:'_-])",
    r"(?=[,:])|(?<=[,:])",
)
_REMOVED = r"(?<=\p{N}) (?=[,:] \p{N})|(?<=\p{N} [,:]) (?=\p{N})"
_SENTENCE_ENDS = (
    # A full stop at the end of a word, also before or after a quote.
    rf"(?<={_IN_WORD}|{_IN_WORD}')(?=\.'?{_END})"
    rf"|(?<={_IN_WORD}\.|{_IN_WORD}'\.)(?='{_END})|(?<={_IN_WORD}\.'|{_IN_WORD}'\.'){_END}",
    rf"(?<=^'| ')(?={_LETTER_OR_NUMBER})",
    rf"(?<=\S)(?='{_END})",
    rf"(?<={_LETTER})(?='(?:[sSſ]|[mM]|[dD]|[lL][lL]|[rR][eE]|[vV][eE]){_END})",
    rf"(?<={_LETTER})(?=[nN]'[tT]{_END})",
)

# The normalizer, pre-tokenizer, decoder and model; the tokens by row; and the rows of special tokens.
_Parts = tuple[dict[str, Any], Sequence[str], list[int]]


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describes a tokenizer as tokenizer.json, with which `tokenizers` gives its rows as ids.

    Texts are cut at `max_tokens`, special tokens included. Unlike here, the names of special tokens in a text
    are read as these tokens there, a text without tokens has none, and a capital sigma at the end of a word
    is lowercased to "σ", where `WordTokenizer` has "ς".

    Args:
        tokenizer: A tokenizer.

    Returns:
        JSON values.

    Raises:
        UserError: There is no such file for this kind of tokenizer.
    """
    kind = TOKENIZERS.name_of(tokenizer.config)
    require_known("the kind of a tokenizer for tokenizer.json", kind, _WRITERS)
    content, tokens, special = _WRITERS[kind](tokenizer)
    rules = {"begin": (), "end": (), **tokenizer.rules()}
    begin, end = ([tokens[row] for row in rules[side]] for side in ("begin", "end"))
    text, other = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    before, after = (
        [{"SpecialToken": {"id": token, "type_id": 0}} for token in part] for part in (begin, end)
    )
    processor = {
        "type": "TemplateProcessing",
        "single": [*before, text, *after],
        "pair": [*before, text, *after, other, *after],
        "special_tokens": {
            tokens[row]: {"id": tokens[row], "ids": [row], "tokens": [tokens[row]]}
            for row in (*rules["begin"], *rules["end"])
        },
    }
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        **content,
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": rules["max_tokens"],
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [{"id": row, "content": tokens[row], **flags} for row in special],
        "post_processor": processor if begin or end else None,
    }


def _wordpiece(tokenizer: WordPieceTokenizer) -> _Parts:
    tokens = tokenizer.vocabulary
    content = wordpiece_json(tokens, tokenizer.rules())
    return content, tokens, [row for row, token in enumerate(tokens) if token in SPECIAL]


def _sentencepiece(tokenizer: SentencePieceTokenizer) -> _Parts:
    (serialized,) = tokenizer.files().values()
    model = model_proto(serialized)
    tokens, spaces = [piece.piece for piece in model.pieces], model.normalizer_spec
    normalizers: list[dict[str, Any]] = [{"type": "NFC"}]
    if spaces.precompiled_charsmap:
        charsmap = base64.b64encode(spaces.precompiled_charsmap).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if spaces.remove_extra_whitespaces:
        normalizers += [
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
        ]
    scheme = "always" if spaces.add_dummy_prefix else "never"
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": True}
    content = {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": metaspace,
        "decoder": metaspace,
        "model": {
            "type": "Unigram",
            "unk_id": next(row for row, piece in enumerate(model.pieces) if piece.type == UNKNOWN),
            "vocab": [[piece.piece, piece.score] for piece in model.pieces],
            "byte_fallback": model.trainer_spec.byte_fallback,
        },
    }
    return content, tokens, [row for row, p in enumerate(model.pieces) if p.type in (CONTROL, UNKNOWN)]


def _words(tokenizer: WordTokenizer) -> _Parts:
    """Any word outside the vocabulary is `UNKNOWN_WORD`, whose id is that of the first hash bucket."""
    scripts = "".join(
        f"{chr(first)}-{chr(last)}"
        for name in (r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}")
        for first, last in character_classes()[name]
    )
    replaced = [
        *((pattern, " ") for pattern in _SPACES),
        ("[‘’ʼ`´]", "'"),
        ("[“”„«»″]", '"'),
        *((pattern.replace("{SCRIPTS}", scripts), " ") for pattern in _INSERTED),
        (_REMOVED, ""),
        *((pattern, " ") for pattern in _SENTENCE_ENDS),
        (r"^\s*$", EMPTY_TOKEN),
    ]
    normalizers: list[dict[str, Any]] = [{"type": "NFC"}]
    if tokenizer.config.lowercase:
        normalizers.append({"type": "Lowercase"})
    normalizers += [
        {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}
        for pattern, content in replaced
    ]
    words = [*tokenizer.vocabulary, UNKNOWN_WORD]
    content = {
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: row for row, word in enumerate(words)},
            "unk_token": UNKNOWN_WORD,
        },
    }
    return content, words, []


_WRITERS: Mapping[str, Callable[[Any], _Parts]] = {
    "wordpiece": _wordpiece,
    "sentencepiece": _sentencepiece,
    "words": _words,
}
