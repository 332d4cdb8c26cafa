"""Import of a tokenizer from the files of a Hugging Face model."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.config import SentencePieceConfig, TokenizerConfig, WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.importers.sentence_transformers import read_settings
from xling_tf.tokenizers.sentencepiece import (
    BYTE,
    CONTROL,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    SentencePieceTokenizer,
    model_proto,
)
from xling_tf.tokenizers.wordpiece import BEGIN, END

# Names of files, in the order in which they are looked for.
FILES = ("tokenizer.json", "vocab.txt", "sentencepiece.bpe.model", "spiece.model")
_JSON, _VOCABULARY, _FAIRSEQ, _ = FILES
# The first rows of the tables of XLM-RoBERTa and CamemBERT, and the number of pieces that they replace.
_XLM_ROBERTA = ("<s>", "<pad>", "</s>", "<unk>"), 3
_CAMEMBERT = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1

_Settings = dict[str, Any]


def read_tokenizer(folder: Path, max_tokens: int) -> tuple[TokenizerConfig, dict[str, bytes]]:
    """Reads settings and files of a model's tokenizer, whose ids are the rows of the model's embedding table.

    The table may have more rows than the tokenizer has ids; no text needs them. Special tokens count among
    the `max_tokens` of a sentence.
    """
    path = next((folder / name for name in FILES if (folder / name).exists()), None)
    if path is None:
        raise UserError(f"expected a tokenizer in {' or '.join(FILES)}, but {folder} has none of them")
    longest = min(max_tokens, TokenizerConfig.max_context_tokens)
    lengths: _Settings = {"max_tokens": max_tokens, "max_context_tokens": longest}
    try:
        # Sentence-transformers lowercases texts before the tokenizer if this is true.
        lowercase = read_settings(folder / "sentence_bert_config.json", {}).get("do_lower_case", False)
        content = read_settings(folder / _JSON, {})
        kind = _kind(content["model"]) if content else None
        _require("the kind of tokenizer", kind, None, "WordPiece", "Unigram")
        if kind == "WordPiece" or path.name == _VOCABULARY:
            settings, vocabulary = _read_wordpiece(content) if content else _read_vocabulary(folder)
            settings["lowercase"] |= lowercase
            return WordPieceConfig(**settings, **lengths), {"vocab.txt": vocabulary}
        _require("do_lower_case of a SentencePiece model", lowercase, False)
        settings, model = _read_unigram(content) if content else _read_pieces(path)
        return SentencePieceConfig(**settings, **lengths), {"sentencepiece.model": model}
    except UserError as error:
        raise UserError(f"{path} cannot be imported: {error}") from error
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must be as Hugging Face's libraries save it, but is damaged or of another form "
            f"({type(error).__name__}: {error}); download it again"
        ) from error


def _kind(model: Mapping[str, Any]) -> str:
    """Returns the kind of the model of tokenizer.json, which early versions of `tokenizers` do not name."""
    marks = {"merges": "BPE", "unk_id": "Unigram", "max_input_chars_per_word": "WordPiece"}
    return model.get("type") or next((kind for mark, kind in marks.items() if mark in model), "WordLevel")


def _require(what: str, value: Any, *expected: Any) -> None:
    if value not in expected:
        values = " or ".join(json.dumps(e) for e in expected if e is not None) or "none"
        raise UserError(f"{what} must be {values}, got {json.dumps(value)}")


def _read_vocabulary(folder: Path) -> tuple[_Settings, bytes]:
    """Reads vocab.txt, with the settings in tokenizer_config.json."""
    config = read_settings(folder / "tokenizer_config.json", {})
    name = config.get("tokenizer_class", "BertTokenizer")
    _require("tokenizer_class", "Japanese" in name and name, False)
    lines = (folder / _VOCABULARY).read_text("utf-8").removesuffix("\n").split("\n")
    settings = _rules_of_bert(
        config.get("do_lower_case", True),
        config.get("strip_accents"),
        config.get("tokenize_chinese_chars", True),
    )
    return settings, _lines(_by_row((line, row) for row, line in enumerate(lines)))


def _rules_of_bert(lowercase: bool, accents: bool | None, chinese: bool) -> _Settings:
    strip_accents = lowercase if accents is None else accents
    return {"lowercase": lowercase, "strip_accents": strip_accents, "split_chinese": chinese}


def _read_wordpiece(content: Mapping[str, Any]) -> tuple[_Settings, bytes]:
    """Reads a tokenizer.json with a model of the kind WordPiece."""
    model, normalizer = content["model"], content["normalizer"] or {}
    _require("the normalizer", normalizer.get("type"), "BertNormalizer")
    _require("clean_text of the normalizer", normalizer["clean_text"], True)
    _require("the pre_tokenizer", (content["pre_tokenizer"] or {}).get("type"), "BertPreTokenizer")
    _require("continuing_subword_prefix", model["continuing_subword_prefix"], "##")
    _require("max_input_chars_per_word", model["max_input_chars_per_word"], 100)
    _require("unk_token", model["unk_token"], "[UNK]")
    tokens = _by_row([*model["vocab"].items(), *_special_tokens(content)])
    begin, end = _frame(content)
    marks = [tokens[row] for row in (*begin, *end)]
    _require("the special tokens around a sentence", marks, [BEGIN, END], [])
    names = ("lowercase", "strip_accents", "handle_chinese_chars")
    settings = _rules_of_bert(*(normalizer[name] for name in names))
    return {**settings, "sentence_marks": bool(marks)}, _lines(tokens)


def _read_unigram(content: Mapping[str, Any]) -> tuple[_Settings, bytes]:
    """Writes SentencePiece's model from a tokenizer.json with a model of the kind Unigram."""
    source, special = content["model"], _special_tokens(content)
    tokens = _by_row([*((token, row) for row, (token, _) in enumerate(source["vocab"])), *special])
    begin, end = _frame(content)
    controls = {*begin, *end, *(row for _, row in special)}
    model = model_proto()
    for row, token in enumerate(tokens):
        known, score = source["vocab"][row] if row < len(source["vocab"]) else (token, 0.0)
        kind = CONTROL if row in controls else NORMAL if token == known else UNUSED
        if source.get("byte_fallback") and re.fullmatch("<0x[0-9A-F]{2}>", token):
            kind = BYTE
        model.pieces.add(piece=token, score=score, type=UNKNOWN if row == source["unk_id"] else kind)
    model.trainer_spec.model_type = UNIGRAM
    model.trainer_spec.byte_fallback = bool(source.get("byte_fallback"))
    if begin or end:
        model.trainer_spec.bos_piece = "".join(tokens[row] for row in begin)
        model.trainer_spec.eos_piece = "".join(tokens[row] for row in end)
    _read_spaces(content, model.normalizer_spec)
    return {"num_pieces": len(tokens), "sentence_marks": bool(begin or end)}, model.SerializeToString()


def _read_spaces(content: Mapping[str, Any], normalizer: Any) -> None:
    """Reads what tokenizer.json does before the model into SentencePiece's `NormalizerSpec`."""
    steps = _steps(content["normalizer"], "normalizers")
    splits = _steps(content["pre_tokenizer"], "pretokenizers")
    normalizer.remove_extra_whitespaces = False
    for step in steps:
        # Composition to NFC is part of the tokenizer here, and the others are part of SentencePiece.
        _require("a normalizer", step["type"], "Precompiled", "Replace", "Strip", "NFC")
        if step["type"] == "Precompiled":
            normalizer.precompiled_charsmap = base64.b64decode(step["precompiled_charsmap"] or "")
        if step["type"] == "Replace":
            _require("the pattern of a normalizer", step["pattern"], {"Regex": " {2,}"})
            _require("the content of a normalizer", step["content"], " ", "▁")
            normalizer.remove_extra_whitespaces = True
    for split in splits:
        _require("a pre_tokenizer", split["type"], "WhitespaceSplit", "Metaspace")
        if split["type"] == "WhitespaceSplit":
            normalizer.remove_extra_whitespaces = True
    metaspace = next((split for split in splits if split["type"] == "Metaspace"), {})
    _require("the replacement of the pre_tokenizer Metaspace", metaspace.get("replacement"), "▁")
    # Older files have a boolean.
    scheme = metaspace.get("prepend_scheme", "always" if metaspace.get("add_prefix_space") else "never")
    _require("prepend_scheme", scheme, "always", "first", "never")
    normalizer.add_dummy_prefix = scheme != "never"


def _read_pieces(path: Path) -> tuple[_Settings, bytes]:
    """Reads SentencePiece's model."""
    SentencePieceTokenizer(path.read_bytes(), SentencePieceConfig())  # raises an error for anything else
    model = model_proto(path.read_bytes())
    if path.name == _FAIRSEQ:
        is_camembert = read_settings(path.with_name("config.json"), {}).get("model_type") == "camembert"
        first, num_replaced = _CAMEMBERT if is_camembert else _XLM_ROBERTA
        rest = [*model.pieces[num_replaced:]]
        del model.pieces[:]
        for name in first:
            model.pieces.add(piece=name, type=UNKNOWN if name == "<unk>" else CONTROL)
        model.pieces.extend(rest)
        model.pieces.add(piece="<mask>", type=CONTROL)
    trainer = model.trainer_spec
    marks = {trainer.bos_piece, trainer.eos_piece} & {p.piece for p in model.pieces if p.type == CONTROL}
    return {"num_pieces": len(model.pieces), "sentence_marks": bool(marks)}, model.SerializeToString()


def _special_tokens(content: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the special tokens of tokenizer.json with their rows."""
    tokens = content.get("added_tokens", [])
    _require("added tokens that are not special", [t["content"] for t in tokens if not t["special"]], [])
    return [(token["content"], token["id"]) for token in tokens]


def _frame(content: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Returns the rows of the special tokens before and after a sentence in tokenizer.json."""
    processor = content["post_processor"]
    kind = processor and processor["type"]
    _require("the post_processor", kind, None, "BertProcessing", "RobertaProcessing", "TemplateProcessing")
    if kind is None:
        return [], []
    if kind != "TemplateProcessing":
        return [processor["cls"][1]], [processor["sep"][1]]
    names = [item["SpecialToken"]["id"] if "SpecialToken" in item else None for item in processor["single"]]
    index = names.index(None)
    begin, end = (
        [row for name in part for row in processor["special_tokens"][name]["ids"]]
        for part in (names[:index], names[index + 1 :])
    )
    _require("the number of special tokens on a side of a sentence", max(len(begin), len(end)), 1, 0)
    return begin, end


def _steps(step: Mapping[str, Any] | None, key: str) -> Sequence[Mapping[str, Any]]:
    """Returns the steps of a sequence, which may be a single step or none."""
    if not step:
        return []
    return [inner for s in step[key] for inner in _steps(s, key)] if step["type"] == "Sequence" else [step]


def _lines(tokens: Iterable[str]) -> bytes:
    return "".join(token.replace("\n", " ") + "\n" for token in tokens).encode()


def _by_row(ids: Iterable[tuple[str, int]]) -> list[str]:
    """Returns tokens by row; a row without a token, or whose token has a later row, gets a placeholder."""
    ids = [*ids]
    tokens = [f"[no token {row}]" for row in range(1 + max(row for _, row in ids))]
    for token, row in dict(ids).items():
        tokens[row] = token or tokens[row]
    return tokens
