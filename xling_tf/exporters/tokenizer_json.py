"""Export of a tokenizer as the tokenizer.json of Hugging Face's `tokenizers`."""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xling_tf.config import TOKENIZERS
from xling_tf.errors import require_known
from xling_tf.savedmodel.runtimes import wordpiece_json
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.sentencepiece import CONTROL, UNKNOWN, SentencePieceTokenizer, model_proto
from xling_tf.tokenizers.wordpiece import SPECIAL, WordPieceTokenizer

# The normalizer, pre-tokenizer, decoder and model; the tokens by row; and the rows of special tokens.
_Parts = tuple[dict[str, Any], Sequence[str], list[int]]


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describes a tokenizer as tokenizer.json, with which `tokenizers` gives its rows as ids.

    Texts are cut at `max_tokens`, special tokens included. Unlike here, the names of special tokens in a text
    are read as these tokens there, and a text without tokens has none.

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
    rules = tokenizer.rules()
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


_WRITERS: Mapping[str, Callable[[Any], _Parts]] = {"wordpiece": _wordpiece, "sentencepiece": _sentencepiece}
