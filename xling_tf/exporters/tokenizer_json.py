"""Export of a tokenizer as the tokenizer.json of Hugging Face's `tokenizers`."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xling_tf.client import piece_models as sp
from xling_tf.client.runtimes import wordpiece
from xling_tf.corpora.line_files import without_country
from xling_tf.errors import UserError, library, require_known
from xling_tf.tokenizers.base import Tokenizer
from xling_tf.tokenizers.treebank import EMPTY_TOKEN
from xling_tf.tokenizers.wordpiece import SPECIAL

UNKNOWN_WORD = "[UNK]"
# Languages whose writers put no spaces between words, in the scripts of `treebank`.
_UNSPACED = {"ja", "km", "lo", "my", "th", "zh"}
# The rules of `treebank` as insertions of a space between what is before and what is after it: the
# library's rules have no groups. Only `\p{..}`, literals and look-around of fixed length are used,
# which JavaScript has too. The first rule of `treebank` leaves no other white space than single
# spaces.
_SPACES = (
    r"[\p{Z}\p{Cc}\p{Cf}\p{Co}]{2,}",
    "[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\\p{Cc}\\p{Cf}\\p{Co}]",
)
_LETTER, _LETTER_OR_NUMBER, _IN_WORD = r"\p{L}", r"[\p{L}\p{N}]", r"[\p{L}\p{M}\p{N}]"
_END = r"(?!\S)"
_INSERTED = (
    # Runs of dots and hyphens, and characters that are words of their own.
    r"(?<!\.)(?=\.\.\.)|(?<=\.\.\.)(?!\.)|(?<!-)(?=--)|(?<=--)(?!-)",
    r"(?=[…{UNSPACED}])|(?<=[…{UNSPACED}])"
    r"|(?=[^\p{L}\p{M}\p{N}\s.,:'_-])|(?<=[^\p{L}\p{M}\p{N}\s.,:'_-])",
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

# A tokenizer of the `tokenizers` library; the tokens by row; and the rows of special tokens.
_Parts = tuple[Any, Sequence[str], list[int]]


def tokenizer_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Describes a tokenizer as tokenizer.json, with which `tokenizers` gives its rows as ids.

    Texts are cut at `max_tokens`, special tokens included. Three things differ in `tokenizers`: it
    reads the names of special tokens in a text as these tokens, gives a text without tokens none,
    and lowercases a capital sigma at the end of a word to "σ", where our words have "ς".
    """
    rules = {"begin": (), "end": (), **tokenizer.rules()}
    require_known("the kind of rules of a tokenizer for tokenizer.json", rules["kind"], _WRITERS)
    tokenizers = library("tokenizers", "tokenizers", "export")
    built, tokens, special = _WRITERS[rules["kind"]](tokenizers, tokenizer)
    built.add_special_tokens([tokens[row] for row in special])
    built.enable_truncation(rules["max_tokens"])
    if marks := [*rules["begin"], *rules["end"]]:
        begin, end = ([tokens[row] for row in rules[side]] for side in ("begin", "end"))
        built.post_processor = tokenizers.processors.TemplateProcessing(
            single=[*begin, "$A", *end],
            pair=[*begin, "$A", *end, "$B", *end],
            special_tokens=[(tokens[row], row) for row in marks],
        )
    return json.loads(built.to_str())


def require_no_bigrams(tokenizer: Tokenizer, languages: Iterable[str]) -> None:
    """Raises a `UserError` if a tokenizer has bigrams and the model's languages need them."""
    unspaced = sorted({*map(without_country, languages)} & _UNSPACED)
    if unspaced and getattr(tokenizer.config, "bigrams", False):
        raise UserError(
            f"the format cannot express bigrams, and the model has them for {', '.join(unspaced)}; "
            "train with tokenizer.bigrams=false, or export to savedmodel, onnx, litert or wheel"
        )


def _wordpiece(tokenizers: Any, tokenizer: Any) -> _Parts:
    tokens = tokenizer.vocabulary
    special = [row for row, token in enumerate(tokens) if token in SPECIAL]
    return wordpiece(tokens, tokenizer.rules()), tokens, special


def _sentencepiece(tokenizers: Any, tokenizer: Any) -> _Parts:
    (serialized,) = tokenizer.files().values()
    model = sp.model_proto(serialized)
    pieces, spaces, normalizers = model.pieces, model.normalizer_spec, tokenizers.normalizers
    is_bpe = model.trainer_spec.model_type == sp.BPE
    if is_bpe:
        built = tokenizers.Tokenizer(_bpe(tokenizers.models, pieces))
        found = [piece.piece for piece in pieces if piece.type == sp.USER_DEFINED]
        built.add_tokens([tokenizers.AddedToken(token, normalized="▁" in token) for token in found])
    else:
        built = tokenizers.Tokenizer(
            tokenizers.models.Unigram(
                [(piece.piece, piece.score) for piece in pieces],
                next(row for row, piece in enumerate(pieces) if piece.type == sp.UNKNOWN),
                model.trainer_spec.byte_fallback,
            )
        )
    steps = [normalizers.NFC()]
    if spaces.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spaces.precompiled_charsmap))
    if spaces.remove_extra_whitespaces:
        steps += [normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    scheme = "always" if spaces.add_dummy_prefix else "never"
    # Added tokens may consist of spaces.
    if is_bpe and scheme == "never":
        steps.append(normalizers.Replace(" ", "▁"))
    else:
        spaced = tokenizers.pre_tokenizers.Metaspace(prepend_scheme=scheme, split=not is_bpe)
        built.pre_tokenizer = spaced
    built.normalizer = normalizers.Sequence(steps)
    built.decoder = tokenizers.decoders.Metaspace(prepend_scheme=scheme)
    special = [row for row, piece in enumerate(pieces) if piece.type in (sp.CONTROL, sp.UNKNOWN)]
    return built, [piece.piece for piece in pieces], special


def _bpe(models: Any, pieces: Sequence[Any]) -> Any:
    """Returns a BPE with every pair of pieces that makes a piece, as SentencePiece merges."""
    scores = {piece.piece: piece.score for piece in pieces if piece.type == sp.NORMAL}
    made = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: -scores[piece])
    return models.BPE(
        {piece.piece: row for row, piece in enumerate(pieces)},
        [pair for piece in made for pair in sp.piece_pairs(piece, scores)],
        unk_token=next(piece.piece for piece in pieces if piece.type == sp.UNKNOWN),
        fuse_unk=True,
        byte_fallback=True,
    )


def _words(tokenizers: Any, tokenizer: Any) -> _Parts:
    """Words outside the vocabulary are `UNKNOWN_WORD`, whose id is the first hash bucket's."""
    rules = tokenizer.rules()
    unspaced = rules["unspaced"]
    for name, ranges in rules["classes"].items():
        unspaced = unspaced.replace(name, "".join(f"{chr(a)}-{chr(b)}" for a, b in ranges))
    # The library cannot repeat characters, so bigrams, and the characters beside them, are unknown.
    lost = [(f"[{unspaced}]", f" {UNKNOWN_WORD} ")] if tokenizer.config.bigrams else []
    replaced = [
        *((pattern, " ") for pattern in _SPACES),
        ("[‘’ʼ`´]", "'"),
        ("[“”„«»″]", '"'),
        *((pattern.replace("{UNSPACED}", unspaced), " ") for pattern in _INSERTED),
        (_REMOVED, ""),
        *((pattern, " ") for pattern in _SENTENCE_ENDS),
        *lost,
        (r"^\s*$", EMPTY_TOKEN),
    ]
    words, normalizers = [*tokenizer.known_words, UNKNOWN_WORD], tokenizers.normalizers
    rows = {word: row for row, word in enumerate(words)}
    built = tokenizers.Tokenizer(tokenizers.models.WordLevel(rows, UNKNOWN_WORD))
    steps = [normalizers.NFC(), *([normalizers.Lowercase()] if tokenizer.config.lowercase else [])]
    steps += [normalizers.Replace(tokenizers.Regex(p), content) for p, content in replaced]
    built.normalizer = normalizers.Sequence(steps)
    built.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return built, words, []


# By the kind of the tokenizer's rules.
_WRITERS: Mapping[str, Callable[[Any, Any], _Parts]] = {
    "wordpiece": _wordpiece,
    "pieces": _sentencepiece,
    "words": _words,
}
