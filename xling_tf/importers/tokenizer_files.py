"""Import of a tokenizer from the files of a Hugging Face model."""

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from xling_tf.client import piece_models as sp
from xling_tf.config import SentencePieceConfig, TokenizerConfig, WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.importers.saved_files import read_settings
from xling_tf.importers.sentence_transformers import read_transformer_settings
from xling_tf.savedmodel.saved_models import LIMITS
from xling_tf.tokenizers.wordpiece import BEGIN, END, SPECIAL

# Tokens that have a role in every text, and are not meant to be written in one.
ROLES = {*SPECIAL, *"<s> </s> <unk> <pad> <mask> <bos> <eos>".split()}
ROLES |= {"<s>NOTUSED", "</s>NOTUSED", "<unk>NOTUSED"}
_JSON, _VOCABULARY = "tokenizer.json", "vocab.txt"  # the second is read in place of the first
# transformers' tokenizers that have BERT's rules, or XLM-RoBERTa's, whatever tokenizer.json says.
_BERTS = re.compile(
    r"(|Distil|Mobile|Conv|Squeeze)BertTokenizer(Fast)?|(Electra|LayoutLM)Tokenizer(Fast)?"
)
_XLM_ROBERTAS = re.compile(r"(XLMRoberta|Camembert)Tokenizer(Fast)?")
# Their kinds, and what they put around a sentence.
_RULES = {
    _BERTS: ("WordPiece", (BEGIN, END)),
    _XLM_ROBERTAS: ("Unigram", ("<s>", "</s>")),
    re.compile("RobertaTokenizer(Fast)?"): ("BPE", ("", "")),
}
# Those that have the rules of tokenizer.json.
_GENERAL = ("", "PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")
# By `model_type`, where no file names one.
_CLASSES = {
    **dict.fromkeys(("bert", "distilbert"), "BertTokenizer"),
    "camembert": "CamembertTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
}
# Settings of transformers' tokenizers that change ids, with the value that they may have.
_FLAGS = {"truncation_side": "right", "padding_side": "right", "do_basic_tokenize": True}
_FLAGS |= {"wordpieces_prefix": "##"}
_FLAGS |= dict.fromkeys(("never_split", "sp_model_kwargs", "add_bos_token", "add_eos_token"))
# What tokenizer.json does to texts, as `_matched` describes it.
_WORDPIECE = (
    r"BertNormalizer clean_text=true handle_chinese_chars=(true|false) lowercase=(true|false) "
    r"strip_accents=(true|false|null); BertPreTokenizer; "
    r'WordPiece continuing_subword_prefix="##" max_input_chars_per_word=100 unk_token="\[UNK\]"; '
)
_UNIGRAM = (
    r"(?:NFC; )?(?P<charsmap>Precompiled; )?"
    r"(?P<strip>Strip strip_left=(?P<left>true|false) strip_right=(?P<right>true|false); )?"
    r'(?P<collapse>Replace content="(?P<space>[ ▁])" pattern=\{"Regex": " \{2,\}"\}; )?'
    r"(?P<split>WhitespaceSplit; )?Metaspace(?: add_prefix_space=(?P<prefix>true|false))?"
    r'(?: prepend_scheme="(?P<scheme>always|first|never)")? replacement="▁"'
    r"(?: split=(?P<words>true|false))?"
    r'(?: str_rep="▁")?; Unigram(?: byte_fallback=(?:true|false))? unk_id=\d+; '
)
# As Gemma's and Llama's, without and with a space before a text.
_BPE = (
    r'(?:NFC; )?(?:Replace content="▁" pattern=\{"String": " "\}; '
    r'(?:Split behavior="MergedWithPrevious" invert=false pattern=\{"String": " "\}; )?'
    r'|Metaspace prepend_scheme="(?P<scheme>always|first|never)" replacement="▁" '
    r"split=(true|false); )"
    r'BPE byte_fallback=true continuing_subword_prefix=(?:null|"") dropout=null '
    r'end_of_word_suffix=(?:null|"") fuse_unk=(?:true|false)(?: ignore_merges=false)? '
    r'unk_token="[^"]+"; '
)
_Settings = dict[str, Any]


def read_tokenizer(
    folder: Path, max_tokens: int, num_rows: int = LIMITS["ids"], *, is_static: bool = False
) -> tuple[TokenizerConfig, dict[str, bytes]]:
    """Reads settings and files of a model's tokenizer, whose ids are rows of its embedding table.

    The table may have more rows, `num_rows`, than the tokenizer has ids; no text needs them.
    Special tokens count among the `max_tokens` of a sentence. The libraries of static models read
    nothing but tokenizer.json, which also cuts the texts; transformers reads the files beside it.
    """
    names = (_JSON,) if is_static else (_JSON, _VOCABULARY)
    path = next((folder / name for name in names if (folder / name).exists()), None)
    if path is None:
        raise UserError(
            f"expected a tokenizer in {' or '.join(names)}, but {folder} has none; write it, in "
            "Python: from transformers import AutoTokenizer; "
            f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
        )
    try:
        content = read_settings(folder / _JSON, {})
        config = {} if is_static else _read_config(folder)
        kind = _kind(content["model"]) if content else "WordPiece"
        _require(
            "the kind of tokenizer", kind, "WordPiece", "Unigram", *([] if is_static else ["BPE"])
        )
        if content:
            _require_rows(token_ids(content), num_rows)
        content = _with_frame(content, kind, config.get("tokenizer_class", ""))
        _require_settings(content, kind, config)
        truncation = content.get("truncation") or {}
        if is_static:
            max_tokens = min(max_tokens, truncation.get("max_length", max_tokens))
            padding = (content.get("padding") or {}).get("strategy")
            # model2vec's `distill` writes {"Fixed": 0}, which pads nothing.
            _require("the padding", padding, None, "BatchLongest", {"Fixed": 0})
        added = [token for token, special in added_tokens(folder, is_static).items() if not special]
        if kind == "BPE":
            added = [*{*added} - {token for token, _ in _rows_of_added(content)}]
        _require("added tokens that are not special", added, [])
        # Sentence-transformers lowercases texts before the tokenizer if this is true.
        lowercase = not is_static and read_transformer_settings(folder).get("do_lower_case", False)
        if kind == "WordPiece":
            settings, vocabulary = (
                _read_wordpiece(content, config)
                if content
                else _read_vocabulary(path, config, num_rows)
            )
            settings["lowercase"] |= lowercase
            return WordPieceConfig(**settings, max_tokens=max_tokens), {"vocab.txt": vocabulary}
        _require("do_lower_case of a SentencePiece model", lowercase, False)
        settings, model = (
            _read_bpe(content) if kind == "BPE" else _read_unigram(content, config, is_static)
        )
        return SentencePieceConfig(**settings, max_tokens=max_tokens), {
            "sentencepiece.model": model
        }
    except UserError as error:
        raise UserError(f"{path} cannot be imported: {error}") from error
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must be as Hugging Face's libraries save it, but is damaged or of another "
            f"form ({type(error).__name__}: {error}); download it again"
        ) from error


def _require_settings(content: _Settings, kind: str, config: _Settings) -> None:
    """Refuses settings of a transformers' tokenizer that change ids."""
    side = (content.get("truncation") or {}).get("direction", "Right").lower()
    config = {"truncation_side": side, **config}
    roles = {}
    if kind == "WordPiece":
        roles = {"unk_token": "[UNK]", "cls_token": BEGIN, "sep_token": END}
    elif _XLM_ROBERTAS.fullmatch(config.get("tokenizer_class", "")):
        roles = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    if kind == "BPE":
        for name, rows in zip(("add_bos_token", "add_eos_token"), _frame(content), strict=True):
            _require(name, config.pop(name, None), None, bool(rows))
    for name, value in {**_FLAGS, **roles}.items():
        if config.get(name) not in (None, [], {}):
            _require(name, _content(config[name]) if name in roles else config[name], value)


def added_tokens(folder: Path, is_static: bool) -> dict[str, bool]:
    """Maps the tokens that a model's library finds whole in texts to whether they are special."""
    config = {} if is_static else _read_config(folder)
    tokens = [] if is_static else [*read_settings(folder / "added_tokens.json", {})]
    tokens += read_settings(folder / _JSON, {}).get("added_tokens", ())
    tokens += (config.get("added_tokens_decoder") or {}).values()
    special = {
        _content(t): _content(t) in ROLES if isinstance(t, str) else t["special"] for t in tokens
    }
    for kind in ("additional", "extra"):
        named = config.get(f"{kind}_special_tokens") or ()
        named = named.values() if isinstance(named, dict) else named
        special |= dict.fromkeys(map(_content, named), True)
    return special


def _read_config(folder: Path) -> _Settings:
    """Returns transformers' settings of a tokenizer, with the name of its class."""
    config, model = (
        read_settings(folder / name, {}) for name in ("tokenizer_config.json", "config.json")
    )
    family = model.get("model_type", "")
    name = config.get("tokenizer_class") or model.get("tokenizer_class") or _CLASSES.get(family, "")
    if family == "modernbert":  # of which transformers ignores the class
        name = ""
    return {
        **read_settings(folder / "special_tokens_map.json", {}),
        **config,
        "tokenizer_class": name,
    }


def _with_frame(content: _Settings, kind: str, name: str) -> _Settings:
    """Returns tokenizer.json with what transformers' class `name` puts around a sentence, if it has
    nothing there.
    """
    expected, (begin, end) = next(
        (rules for classes, rules in _RULES.items() if re.fullmatch(classes, name)),
        (kind, ("", "")),
    )
    _require(f"the kind of a {name}", kind, expected)
    if not content or name in _GENERAL or content["post_processor"]:
        return content
    if not begin:
        raise UserError(
            f"the marks of {name} around a sentence are not known; save it with a post_processor"
        )
    rows = dict(token_ids(content))
    if not {begin, end} <= rows.keys():
        raise UserError(
            f"{name} puts {begin} and {end} around a sentence, but there are no such tokens"
        )
    frame = {"type": "BertProcessing", "cls": [begin, rows[begin]], "sep": [end, rows[end]]}
    return {**content, "post_processor": frame}


def _content(token: Any) -> str:
    """Returns the text of a token, which files write as that or with its flags."""
    return str(token["content"] if isinstance(token, dict) else token)


def _kind(model: Mapping[str, Any]) -> str:
    """Returns the kind of tokenizer.json's model, which early versions do not name."""
    marks = {"merges": "BPE", "unk_id": "Unigram", "max_input_chars_per_word": "WordPiece"}
    return model.get("type") or next((kind for m, kind in marks.items() if m in model), "WordLevel")


def _require(what: str, value: Any, *expected: Any) -> None:
    if value not in expected:
        values = " or ".join(json.dumps(e) for e in expected if e is not None) or "none"
        raise UserError(f"{what} must be {values}, got {json.dumps(value)}")


def _read_vocabulary(path: Path, config: _Settings, num_rows: int) -> tuple[_Settings, bytes]:
    """Reads vocab.txt."""
    name = config["tokenizer_class"]
    _require("tokenizer_class", name, "", "BertTokenizer", *filter(_BERTS.fullmatch, [name]))
    lines = path.read_text("utf-8").removesuffix("\n").split("\n")
    ids = [(line, row) for row, line in enumerate(lines)]
    _require_rows(ids, num_rows)
    return _rules_of_bert(config), _lines(_by_row(ids))


def _rules_of_bert(config: _Settings) -> _Settings:
    """Returns the rules of transformers' `BertTokenizer`, with its defaults."""
    lowercase, accents = config.get("do_lower_case", True), config.get("strip_accents")
    strip_accents = lowercase if accents is None else accents
    chinese = config.get("tokenize_chinese_chars", True)
    return {"lowercase": lowercase, "strip_accents": strip_accents, "split_chinese": chinese}


def _read_wordpiece(content: Mapping[str, Any], config: _Settings) -> tuple[_Settings, bytes]:
    """Reads a tokenizer.json with a model of the kind WordPiece."""
    rules = map(json.loads, _matched(_WORDPIECE, content).groups())
    tokens = _by_row(token_ids(content))
    begin, end = _frame(content)
    marks = [tokens[row] for row in (*begin, *end)]
    _require("the special tokens around a sentence", marks, [BEGIN, END], [])
    # Classes that are not a BERT's have rules of their own.
    if not _BERTS.fullmatch(config.get("tokenizer_class", "")):
        names = ("tokenize_chinese_chars", "do_lower_case", "strip_accents")
        config = dict(zip(names, rules, strict=True))
    return {**_rules_of_bert(config), "sentence_marks": bool(marks)}, _lines(tokens)


def _read_unigram(
    content: Mapping[str, Any], config: _Settings, is_static: bool
) -> tuple[_Settings, bytes]:
    """Writes SentencePiece's model from a tokenizer.json with a model of the kind Unigram."""
    source, special = content["model"], _rows_of_added(content)
    tokens = _by_row(token_ids(content))
    begin, end = _frame(content)
    controls = {*begin, *end, *(row for _, row in special)}
    model = sp.model_proto()
    is_split = _read_spaces(content, model.normalizer_spec, is_static)
    if _XLM_ROBERTAS.fullmatch(name := config.get("tokenizer_class", "")):
        around = [tokens[row] for row in (*begin, *end)]
        _require(f"add_prefix_space of a {name}", config.get("add_prefix_space"), None, True)
        _require_xlm_roberta(name, source, model.normalizer_spec, around, is_split=is_split)
    for row, token in enumerate(tokens):
        known, score = source["vocab"][row] if row < len(source["vocab"]) else (token, 0.0)
        is_used = token == known and not (is_split and "▁" in token[1:])
        kind = sp.CONTROL if row in controls else sp.NORMAL if is_used else sp.UNUSED
        if source.get("byte_fallback") and re.fullmatch("<0x[0-9A-F]{2}>", token):
            kind = sp.BYTE
        model.pieces.add(
            piece=token, score=score, type=sp.UNKNOWN if row == source["unk_id"] else kind
        )
    return _finished(model, sp.UNIGRAM, (begin, end), has_bytes=bool(source.get("byte_fallback")))


def _require_xlm_roberta(
    name: str, source: Mapping[str, Any], spaces: Any, around: list[str], *, is_split: bool
) -> None:
    """Checks that tokenizer.json has the rules with which transformers' class replaces them."""
    rules = {
        "<s> and </s> around a sentence": around == ["<s>", "</s>"],
        "a space before a text": spaces.add_dummy_prefix,
        "words split at every space": is_split and spaces.remove_extra_whitespaces,
        "other spaces read as spaces": bool(spaces.precompiled_charsmap),
        "no bytes as pieces": not source.get("byte_fallback"),
        "row 3 for unknown characters": source["unk_id"] == 3 or not name.startswith("XLM"),
    }
    if others := [rule for rule, holds in rules.items() if not holds]:
        raise UserError(
            f"transformers' {name} has {', '.join(others)}, unlike this file; if the file is "
            "right, set tokenizer_class to PreTrainedTokenizerFast in tokenizer_config.json"
        )


def _finished(
    model: Any, kind: int, frame: tuple[Sequence[int], Sequence[int]], *, has_bytes: bool
) -> tuple[_Settings, bytes]:
    """Says in SentencePiece's model of which kind it is and what is around a sentence."""
    trainer, pieces = model.trainer_spec, model.pieces
    trainer.model_type, trainer.byte_fallback = kind, has_bytes
    if any(frame):
        trainer.bos_piece, trainer.eos_piece = (
            "".join(pieces[row].piece for row in rows) for rows in frame
        )
    return {"num_pieces": len(pieces), "sentence_marks": any(frame)}, model.SerializeToString()


def _read_bpe(content: Mapping[str, Any]) -> tuple[_Settings, bytes]:
    """Writes SentencePiece's model from a tokenizer.json with a model of the kind BPE."""
    if any(s["type"] == "ByteLevel" for s in _steps(content["pre_tokenizer"], "pretokenizers")):
        raise UserError(
            "byte-level BPE, as of RoBERTa and ModernBERT-base, would have other ids in a graph"
        )
    steps, source, (begin, end) = _matched(_BPE, content), content["model"], _frame(content)
    vocabulary, added = source["vocab"], content["added_tokens"]
    tokens = _by_row(token_ids(content))
    # Tokens that are found before the merges; those of spaces, before spaces are replaced.
    found = {token["content"]: token for token in added if not token["special"]}
    for token, flags in found.items():
        is_changed = any(flags[n] for n in ("single_word", "lstrip", "rstrip")) or steps["scheme"]
        if is_changed or (re.search("[ ▁]", token) and token.strip("▁")):
            raise UserError(
                f"SentencePiece does not find the added token {json.dumps(token)} as this file says"
            )
    made, pieces = _read_merges(source, found)
    if steps[2] == "true" and (several := sorted(piece for piece in pieces if "▁" in piece[1:])):
        raise UserError(f"it splits texts at spaces, but has pieces such as {several[0]}")
    model, scores = sp.model_proto(), {piece: -float(rank) for rank, piece in enumerate(made)}
    for token in tokens:
        kind = sp.NORMAL if token in pieces else sp.USER_DEFINED if token in found else sp.CONTROL
        kind = sp.BYTE if re.fullmatch("<0x[0-9A-F]{2}>", token) else kind
        kind = sp.UNKNOWN if token == source["unk_token"] else kind
        model.pieces.add(piece=token, score=scores.get(token, 0.0), type=kind)
    # Gemma lacks the tab's byte. SentencePiece wants all: a token that no text has stands in.
    spare = [p for r, p in enumerate(model.pieces) if p.type == sp.CONTROL and r not in begin + end]
    for byte in range(256):
        if (name := f"<0x{byte:02X}>") not in vocabulary:
            _require(f"the byte {byte}", byte < 128 and chr(byte) in pieces | found.keys(), True)
            stand_in = spare.pop()
            stand_in.piece, stand_in.type = name, sp.BYTE
    model.normalizer_spec.add_dummy_prefix = steps["scheme"] not in (None, "never")
    model.normalizer_spec.remove_extra_whitespaces = False
    return _finished(model, sp.BPE, (begin, end), has_bytes=True)


def _read_merges(source: Mapping[str, Any], found: Mapping[str, Any]) -> tuple[list[str], set[str]]:
    """Returns the pieces that merges make, in their order, and these with the single characters.

    SentencePiece joins any two pieces that make a piece, that with the highest score first: the
    merges must be all such pairs, and those of one piece must follow each other.
    """
    merges = [tuple(p.split(" ") if isinstance(p, str) else p) for p in source["merges"]]
    if runs := {token for token, f in found.items() if token[:1] == "▁" and not f["normalized"]}:
        _require_longest(merges, runs)
    # Merges that give or use a token found whole never apply.
    merges = [pair for pair in merges if not found.keys() & {*pair, "".join(pair)}]
    made = [piece for piece, _ in groupby(map("".join, merges))]
    pieces = {*made, *(token for token in source["vocab"] if len(token) == 1)} - found.keys()
    other = {*merges} ^ {pair for piece in made for pair in sp.piece_pairs(piece, pieces)}
    if other or len({*made}) < len(made):
        pair = min(other, default=merges[0])
        raise UserError(
            f"SentencePiece makes {''.join(pair)!r} of other pairs, or in another order, than its "
            "merges"
        )
    return made, pieces


def _require_longest(merges: Sequence[Any], runs: set[str]) -> None:
    """Raises a `UserError` unless merges make the longest pieces of spaces, like SentencePiece."""
    of_runs = {pair: rank for rank, pair in enumerate(merges) if "".join(pair) in runs}
    others = [r for r, pair in enumerate(merges) if {*pair} & {"▁", *runs} and pair not in of_runs]
    is_longest = max(of_runs.values(), default=0) < min(others, default=len(merges))
    longest = "▁" * max(map(len, runs))
    for length in range(2 * len(longest) + 1):
        run = ["▁"] * length
        while met := [(of_runs[p], at) for at, p in enumerate(pairwise(run)) if p in of_runs]:
            _, at = min(met)
            run[at : at + 2] = ["".join(run[at : at + 2])]
        is_longest &= run == re.findall(f"▁{{1,{len(longest)}}}", "▁" * length)
    if not is_longest or any({*merges[rank]} & runs for rank in others):
        raise UserError(
            "its merges of spaces differ from SentencePiece's, which joins the longest pieces"
        )


def _read_spaces(content: Mapping[str, Any], normalizer: Any, is_static: bool) -> bool:
    """Reads what tokenizer.json does before the model into SentencePiece's `NormalizerSpec`.

    Returns true if texts are split at spaces, so that no piece has a space after its first
    character.
    """
    steps = _matched(_UNIGRAM, content)
    charsmaps = [
        step.get("precompiled_charsmap") for step in _steps(content["normalizer"], "normalizers")
    ]
    normalizer.precompiled_charsmap = b"".join(base64.b64decode(c or "") for c in charsmaps)
    # Older files have a boolean.
    scheme = steps["scheme"] or ("never" if steps["prefix"] == "false" else "always")
    # SentencePiece removes all spaces that are not between two words, or none.
    # Sentence-transformers removes those around a text. "first" puts no space where spaces were
    # stripped.
    is_known = not (steps["charsmap"] or steps["strip"])
    if steps["split"]:
        is_known = bool(steps["charsmap"]) and steps["space"] != "▁" and scheme == "always"
    elif steps["collapse"]:
        strips_left, strips_right = (steps[side] == "true" for side in ("left", "right"))
        is_known = (strips_right or not is_static) and strips_left in (
            scheme == "never",
            scheme != "first",
        )
    if not is_known:
        raise UserError(f"SentencePiece does not treat spaces like {steps[0][:-2]}")
    normalizer.add_dummy_prefix = scheme != "never"
    normalizer.remove_extra_whitespaces = bool(steps["split"] or steps["collapse"])
    return bool(steps["split"]) or steps["words"] != "false"


def _matched(pattern: str, content: Mapping[str, Any]) -> re.Match[str]:
    """Describes what tokenizer.json does to texts, with all flags, and matches a pattern."""
    steps = [*_steps(content["normalizer"], "normalizers")]
    steps += _steps(content["pre_tokenizer"], "pretokenizers")
    text = ""
    for step in (*steps, {**content["model"], "type": _kind(content["model"])}):
        names = sorted(step.keys() - {"type", "vocab", "merges", "precompiled_charsmap"})
        flags = (f" {name}={json.dumps(step[name], ensure_ascii=False)}" for name in names)
        text += f"{step['type']}{''.join(flags)}; "
    if not (match := re.fullmatch(pattern, text)):
        raise UserError(
            f"its rules must be those of a BERT, an XLM-RoBERTa or a Gemma, got {text[:-2]}"
        )
    return match


def _frame(content: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Returns the rows of the special tokens before and after a sentence in tokenizer.json."""
    processor = content["post_processor"]
    kind = processor and processor["type"]
    _require(
        "the post_processor",
        kind,
        None,
        "BertProcessing",
        "RobertaProcessing",
        "TemplateProcessing",
    )
    if kind is None:
        return [], []
    if kind != "TemplateProcessing":
        return [processor["cls"][1]], [processor["sep"][1]]
    names = [
        item["SpecialToken"]["id"] if "SpecialToken" in item else None
        for item in processor["single"]
    ]
    types = {part["type_id"] for item in processor["single"] for part in item.values()}
    _require("the type_id of a sentence", sorted(types), [0])
    index = names.index(None)
    begin, end = (
        [row for name in part for row in processor["special_tokens"][name]["ids"]]
        for part in (names[:index], names[index + 1 :])
    )
    _require("the special tokens on a side of a sentence", max(len(begin), len(end)), 1, 0)
    return begin, end


def token_ids(content: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Returns the tokens of tokenizer.json with their ids, which are rows of the model's table."""
    vocabulary = content["model"]["vocab"]
    known = (
        vocabulary.items()
        if isinstance(vocabulary, Mapping)
        else ((token, row) for row, (token, _) in enumerate(vocabulary))
    )
    return [*known, *_rows_of_added(content)]


def _rows_of_added(content: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(token["content"], token["id"]) for token in content.get("added_tokens", ())]


def _steps(step: Mapping[str, Any] | None, key: str) -> Sequence[Mapping[str, Any]]:
    """Returns the steps of a sequence, which may be a single step or none."""
    if not step:
        return []
    if step["type"] == "Sequence":
        return [inner for part in step[key] for inner in _steps(part, key)]
    return [step]


def _lines(tokens: Iterable[str]) -> bytes:
    return "".join(token.replace("\n", " ") + "\n" for token in tokens).encode()


def _require_rows(ids: Iterable[tuple[str, int]], num_rows: int) -> None:
    """Checks that the model has a row for each token, before anything is made of the ids."""
    for token, row in ids:
        if type(row) is not int or not 0 <= row < num_rows:
            raise UserError(
                f"ids must be from 0 to {num_rows - 1}, for the rows of the model's table, but "
                f"that of {token!r} is {row!r}; take the tokenizer and the weights from one model"
            )


def _by_row(ids: Sequence[tuple[str, int]]) -> list[str]:
    """Returns tokens by row; rows without one, or whose token has a later row, get placeholders."""
    tokens = [f"[no token {row}]" for row in range(1 + max(row for _, row in ids))]
    for token, row in dict(ids).items():
        tokens[row] = token or tokens[row]
    return tokens
