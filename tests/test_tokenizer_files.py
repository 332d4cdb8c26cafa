"""Tokenizers in Hugging Face's files: read with their ids, and written for `tokenizers`."""

import base64
import io
import itertools
import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tensorflow as tf
from programs import run_peers
from raw_files import write_json_files
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from tricky_texts import FRAGMENTS, sample_sentences

from xling_tf.client.piece_models import model_proto, piece_pairs
from xling_tf.client.runtimes import Pieces
from xling_tf.config import TOKENIZERS, SentencePieceConfig, WordPieceConfig
from xling_tf.errors import UserError
from xling_tf.exporters.tokenizer_json import tokenizer_json
from xling_tf.importers.tokenizer_files import added_tokens, read_tokenizer
from xling_tf.tokenizers.base import Tokenizer as OurTokenizer
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer
from xling_tf.tokenizers.wordpiece import WordPieceTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
NORMALIZER = {
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": False,
}
BERT = {
    "normalizer": {"type": "BertNormalizer", **NORMALIZER},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 100,
        "vocab": {piece: row for row, piece in enumerate([*SPECIAL, "Caf", "##é", "!"])},
    },
}
# Without what is documented to differ: names of special tokens, the sign for a space, and U+0085.
PLAIN = [text for text in FRAGMENTS if not text.startswith(("<", "▁", "\x85", "\ud800"))]


def train(**options: Any) -> bytes:
    """A SentencePiece model of the sample's sentences."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sample_sentences()),
        model_writer=model,
        **{"vocab_size": 1500, "minloglevel": 2, "hard_vocab_limit": False, **options},
    )
    return model.getvalue()


@pytest.fixture(scope="module")
def pieces():
    return train()


def fairseq(pieces: bytes) -> Tokenizer:
    """What transformers makes of XLM-RoBERTa's model: the pieces in fairseq's order."""
    model = model_proto(pieces)
    first = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    vocabulary = [
        *first,
        *((piece.piece, piece.score) for piece in model.pieces[3:]),
        ("<mask>", 0.0),
    ]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 3, byte_fallback=False))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
            normalizers.Strip(left=False, right=True),
            normalizers.Replace(Regex(" {2,}"), "▁"),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return tokenizer


def read(folder: Path, max_tokens: int = 16) -> OurTokenizer:
    config, files = read_tokenizer(folder, max_tokens)
    return TOKENIZERS.implementation_of(config).from_files(config, files)


def rows(tokenizer: OurTokenizer, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer.tokenize(tf.constant(texts, tf.string)).to_list()


def ids(tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int = 16) -> list[list[int]]:
    tokenizer.enable_truncation(max_tokens)
    return [encoding.ids for encoding in tokenizer.encode_batch(texts)]


def write(folder: Path, content: Any) -> Path:
    return write_json_files(folder, tokenizer=content)


def test_xlm_roberta_has_its_ids(tmp_path, pieces):
    reference = fairseq(pieces)
    reference.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read(tmp_path)
    texts = [*sample_sentences(), *PLAIN, "", "  ", " a  b ", " ".join(PLAIN)]
    expected = ids(reference, texts)
    assert expected[texts.index("")] == [0, 2]
    assert rows(tokenizer, texts) == expected
    assert tokenizer.config.max_tokens == 16
    assert tokenizer.num_words == len(model_proto(pieces).pieces) + 2
    # Decomposed characters are composed first, so that they are the same text.
    decomposed = [unicodedata.normalize("NFD", text) for text in texts]
    assert rows(tokenizer, decomposed) == rows(
        tokenizer, [unicodedata.normalize("NFC", t) for t in texts]
    )
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    with pytest.raises(UserError, match=r"do_lower_case .* must be false, got true"):
        read(tmp_path)


def test_characters_without_a_piece_are_bytes_if_the_model_has_them(tmp_path):
    pieces = [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    vocabulary = [("<unk>", 0.0), *pieces, ("▁a", -1.0), ("▁", -2.0)]
    reference = Tokenizer(models.Unigram(vocabulary, 0, byte_fallback=True))
    reference.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    reference.save(str(tmp_path / "tokenizer.json"))
    texts = ["a é", "a  a", "😀"]
    assert rows(read(tmp_path), texts) == ids(reference, texts)
    assert rows(read(tmp_path), ["é"]) == [[258, 1 + 0xC3, 1 + 0xA9]]


def test_rows_without_a_token_and_tokens_of_two_rows(tmp_path):
    vocabulary = [["<unk>", 0.0], ["▁a", -1.0], ["", -1.0], ["▁a", -2.0], ["b", -3.0]]
    added = {"id": 7, "content": "<mask>", "special": True}
    content = {
        "normalizer": None,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True},
        "post_processor": None,
        "added_tokens": [added],
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocabulary},
    }
    tokenizer = read(write(tmp_path, content))
    assert tokenizer.num_words == 8
    assert rows(tokenizer, ["ab", "c"]) == [[3, 4], [0]]
    words = {
        **BERT,
        "model": {**BERT["model"], "vocab": {**BERT["model"]["vocab"], "a\nb": 9, "": 10}},
    }
    assert read(write(tmp_path, words)).num_words == 11


def steps(*normalizer: dict[str, Any], at_spaces: bool = False, **metaspace: Any) -> dict[str, Any]:
    """A tokenizer.json with "▁" inside pieces, for texts that are not split there."""
    pieces = {"<unk>": 0, "▁a": -1, "▁b": -1.5, "a": -3, "b": -3, "▁": -4, "▁▁": -2}
    pieces |= {"a▁b": -0.1, "▁a▁b": -0.2}
    spaces = [{"type": "WhitespaceSplit"}] * at_spaces
    spaces.append({"type": "Metaspace", "replacement": "▁", **metaspace})
    return {
        "normalizer": {"type": "Sequence", "normalizers": [*normalizer]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": spaces},
        "post_processor": None,
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [*map(list, pieces.items())]},
    }


def with_charsmap(content: Any, charsmap: bytes) -> Any:
    encoded = f'"Precompiled", "precompiled_charsmap": "{base64.b64encode(charsmap).decode()}"'
    return json.loads(json.dumps(content).replace('"Precompiled"', encoded))


CHARSMAP = {"type": "Precompiled"}
COLLAPSE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
RIGHT, BOTH = ({"type": "Strip", "strip_left": left, "strip_right": True} for left in (False, True))


@pytest.mark.parametrize(
    "content",
    [
        steps(),
        steps(prepend_scheme="first"),
        steps(prepend_scheme="never"),
        steps(add_prefix_space=True),
        # Metaspace's own option: pieces may span words.
        steps(split=False, prepend_scheme="always"),
        steps(prepend_scheme="never") | {"normalizer": None},
        steps(RIGHT, COLLAPSE),
        steps(CHARSMAP, RIGHT, {**COLLAPSE, "content": "▁"}, prepend_scheme="first"),
        steps(BOTH, COLLAPSE, prepend_scheme="never"),
        steps(CHARSMAP, at_spaces=True, add_prefix_space=True),
        steps({"type": "NFC"}, CHARSMAP, COLLAPSE, at_spaces=True),
    ],
)
def test_spaces_around_and_between_words(tmp_path, pieces, content):
    content = with_charsmap(content, model_proto(pieces).normalizer_spec.precompiled_charsmap)
    reference = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], **content}))
    config, files = read_tokenizer(write(tmp_path, content), 16, is_static=True)
    tokenizer = TOKENIZERS.implementation_of(config).from_files(config, files)
    texts = ["a b", " a b", "a b ", "  a", "a  b", " a   b  ", "ab"]
    assert rows(tokenizer, texts) == ids(reference, texts)
    (tmp_path / "vocabulary").write_bytes(*files.values())
    runtime = Pieces(tmp_path / "vocabulary", tokenizer.rules())
    assert runtime.tokenize(texts) == ids(reference, texts)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (steps(COLLAPSE), "spaces like Replace"),
        (steps(RIGHT, COLLAPSE, prepend_scheme="never"), "spaces like Strip"),
        (steps(at_spaces=True), "spaces like WhitespaceSplit"),
        (steps(CHARSMAP, {**COLLAPSE, "content": "▁"}, at_spaces=True), "spaces like Precompiled"),
        (steps(fuse=True), "got Metaspace fuse=true"),
    ],
)
def test_spaces_that_sentencepiece_cannot_treat_so_are_refused(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_tokenizer(write(tmp_path, with_charsmap(content, b"")), 16, is_static=True)


def add(content: Any, token: str, **flags: Any) -> None:
    row = content["model"]["vocab"].setdefault(token, len(content["model"]["vocab"]))
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    content["added_tokens"].append({"id": row, "content": token, **plain, **flags})


@pytest.fixture(scope="module")
def learned():
    """A BPE with bytes, as `tokenizers` learns it, by the rules of Gemma."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        "<mask>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    trainer = trainers.BpeTrainer(vocab_size=1500, limit_alphabet=300, special_tokens=special)
    tokenizer.train_from_iterator(sample_sentences(), trainer)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>", special_tokens=[("<bos>", 2), ("<eos>", 1)]
    )
    content = json.loads(tokenizer.to_str())
    return {**content, "added_tokens": content["added_tokens"][:5]}


@pytest.fixture
def gemma(learned):
    """That with all merges, a tab in place of its byte, and pieces of several spaces or lines."""
    content = json.loads(json.dumps(learned))
    vocabulary, merges = content["model"]["vocab"], content["model"]["merges"]
    made = dict.fromkeys(map("".join, merges))
    pieces = {*made, *(token for token in vocabulary if len(token) == 1)}
    vocabulary["\t"] = vocabulary.pop("<0x09>")
    runs = [sign * length for sign in "▁\n" for length in range(1, 9)]
    for run in runs[1:]:
        add(content, run)
    # transformers sorts those of one score by their lengths.
    of_runs = [pair for run in runs for pair in piece_pairs(run, runs)]
    of_runs.sort(key=lambda pair: (-len(pair[0]), -len(pair[1])))
    content["model"]["merges"] = [
        *of_runs,
        *(pair for piece in made for pair in piece_pairs(piece, pieces)),
    ]
    return content


def test_a_gemma_has_its_ids(tmp_path, gemma):
    reference, tokenizer = Tokenizer.from_str(json.dumps(gemma)), read(write(tmp_path, gemma))
    texts = [
        *sample_sentences(),
        *PLAIN,
        *(unit * 30 for unit in ("a", " ", "\n", "ab", " a", "😀", "\t")),
    ]
    texts += ["", "  ", " a  b ", "a\n\n\n b", " ".join(PLAIN)]
    texts = [unicodedata.normalize("NFC", text) for text in texts]
    assert rows(tokenizer, texts) == ids(reference, texts)
    (tmp_path / "model").write_bytes(*tokenizer.files().values())
    assert Pieces(tmp_path / "model", tokenizer.rules()).tokenize(texts) == rows(tokenizer, texts)
    content = tokenizer_json(tokenizer)  # and back
    assert ids(Tokenizer.from_str(json.dumps(content)), texts) == rows(tokenizer, texts)
    assert rows(read(write(tmp_path, content)), texts) == rows(tokenizer, texts)
    # With a space before a text, as in Llama, and without tokens that are found before the merges.
    of_words = [pair for pair in gemma["model"]["merges"] if "".join(pair).strip("▁\n")]
    model, added = {**gemma["model"], "merges": of_words}, gemma["added_tokens"][:5]
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    llama = {
        **gemma,
        "normalizer": None,
        "pre_tokenizer": metaspace,
        "model": model,
        "added_tokens": added,
    }
    texts.remove(" ")  # which has two spaces in SentencePiece
    assert rows(read(write(tmp_path, llama)), texts) == ids(
        Tokenizer.from_str(json.dumps(llama)), texts
    )


def test_bpe_that_sentencepiece_does_not_have_is_refused(tmp_path, gemma, learned):
    bytes_first = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    merges = gemma["model"]["merges"]
    cases = {
        "byte-level BPE, as of RoBERTa": {"pre_tokenizer": bytes_first},
        "SentencePiece makes '.*' of other pairs": learned,
        "which joins the longest pieces": {"model": {**gemma["model"], "merges": merges[::-1]}},
        "must be those of .* or a Gemma, got": {"normalizer": {"type": "Lowercase"}},
    }
    for message, changes in cases.items():
        with pytest.raises(UserError, match=message):
            read(write(tmp_path, {**gemma, **changes}))
    add(gemma, "<table>", lstrip=True)
    with pytest.raises(UserError, match='does not find the added token "<table>"'):
        read(write(tmp_path, gemma))


def test_a_bert_has_its_ids_from_either_file(tmp_path):
    tokenizer = read(write(tmp_path, BERT))
    assert tokenizer.config == WordPieceConfig(max_tokens=16)
    assert rows(tokenizer, ["Café!", "café"]) == [[2, 5, 6, 7, 3], [2, 1, 3]]
    # Early versions of the library do not name the kind of the model; `Tokenizer.from_str` reads
    # their files.
    untyped = {name: value for name, value in BERT["model"].items() if name != "type"}
    assert read(write(tmp_path, {**BERT, "model": untyped})).files() == tokenizer.files()
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(BERT["model"]["vocab"]).encode())
    with pytest.raises(UserError, match=r"expected a tokenizer in tokenizer\.json, but"):
        read_tokenizer(tmp_path, 16, is_static=True)
    assert read(tmp_path).config == WordPieceConfig(
        max_tokens=16, lowercase=True, strip_accents=True
    )
    settings = {"do_lower_case": False, "tokenize_chinese_chars": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    cased = read(tmp_path)
    assert cased.config == WordPieceConfig(max_tokens=16, split_chinese=False)
    assert cased.files() == tokenizer.files()
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    assert (read(tmp_path).config.lowercase, read(tmp_path).config.strip_accents) == (True, False)


LOWER = {**BERT, "normalizer": {"type": "BertNormalizer", **NORMALIZER, "lowercase": True}}


# By transformers' BertTokenizer, which makes a normalizer of its settings, and takes that of
# tokenizer.json with a general class: lowercase, strip_accents, split_chinese.
@pytest.mark.parametrize(
    ("content", "config", "rules"),
    [
        (BERT, {"do_lower_case": True, "tokenizer_class": "BertTokenizer"}, (True, True, True)),
        (
            LOWER,
            {"do_lower_case": False, "tokenizer_class": "BertTokenizerFast"},
            (False, False, True),
        ),
        (BERT, {"strip_accents": True, "do_lower_case": False}, (False, True, True)),
        (BERT, {"do_lower_case": False, "tokenize_chinese_chars": False}, (False, False, False)),
        (
            LOWER,
            {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"},
            (True, True, True),
        ),
        (BERT, {}, (True, True, True)),  # the class of the model's type, with its defaults
    ],
)
def test_tokenizer_config_decides_where_the_class_reads_it(tmp_path, content, config, rules):
    write_json_files(
        tmp_path, tokenizer=content, tokenizer_config=config, config={"model_type": "bert"}
    )
    read_config = read(tmp_path).config
    assert (read_config.lowercase, read_config.strip_accents, read_config.split_chinese) == rules
    # The libraries of static models do not read it.
    static, _ = read_tokenizer(tmp_path, 16, is_static=True)
    assert static.lowercase == content["normalizer"]["lowercase"]


def unigram(frame: str, form: str, charsmap: bytes) -> Tokenizer:
    """A tokenizer of XLM-RoBERTa's kind, with `frame` around a sentence and `form` of spaces."""
    special = [(token, 0.0) for token in ("<s>", "<pad>", "</s>", "<unk>")]
    pieces = {"▁a": -1.0, "▁b": -1.5, "a": -3.0, "b": -3.0, "▁": -4.0, "▁▁": -2.0, "▁a▁b": -0.2}
    tokenizer = Tokenizer(models.Unigram([*special, *pieces.items()], 3, byte_fallback=False))
    if form == "words":
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    metaspace = {"split": False} if form == "long" else {"prepend_scheme": "always"}
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(**metaspace)
    if form == "words":
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
        )
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    return framed(tokenizer, frame, ("<s>", 0), ("</s>", 2))


def wordpiece(frame: str, form: str) -> Tokenizer:
    """A tokenizer of BERT's kind."""
    words = {token: row for row, token in enumerate([*SPECIAL, "a", "b", "A", "é", "e", "##b"])}
    tokenizer = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=form == "lower")
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    return framed(tokenizer, frame, ("[CLS]", 2), ("[SEP]", 3))


def framed(
    tokenizer: Tokenizer, frame: str, begin: tuple[str, int], end: tuple[str, int]
) -> Tokenizer:
    templates = {"both": f"{begin[0]} $A {end[0]}", "end": f"$A {end[0]}"}
    if frame in templates:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=templates[frame], special_tokens=[begin, end]
        )
    return tokenizer


def of_class(folder: Path, reference: Tokenizer, name: str, family: str = "bert") -> Path:
    """Writes a tokenizer with the class that transformers reads it with."""
    reference.save(str(folder / "tokenizer.json"))
    return write_json_files(
        folder, tokenizer_config={"tokenizer_class": name or None}, config={"model_type": family}
    )


@pytest.mark.parametrize("name", ["BertTokenizer", "PreTrainedTokenizerFast", "AlbertTokenizer"])
def test_the_class_of_a_bert_puts_marks_where_tokenizer_json_has_none(tmp_path, name):
    of_class(tmp_path, wordpiece("none", "lower"), name)
    if name == "AlbertTokenizer":
        with pytest.raises(UserError, match="marks of AlbertTokenizer around a sentence"):
            read(tmp_path)
        return
    marks = ([2], [3]) if name == "BertTokenizer" else ([], [])
    assert rows(read(tmp_path), ["A b"]) == [[*marks[0], 5, 6, *marks[1]]]
    # The libraries of static models read tokenizer.json alone.
    static, _ = read_tokenizer(tmp_path, 16, is_static=True)
    assert not static.sentence_marks


@pytest.mark.parametrize("name", ["XLMRobertaTokenizerFast", "CamembertTokenizer"])
def test_the_class_of_an_xlm_roberta_decides_about_marks_and_spaces(tmp_path, pieces, name):
    charsmap = model_proto(pieces).normalizer_spec.precompiled_charsmap
    of_class(tmp_path, unigram("none", "words", charsmap), name)
    assert rows(read(tmp_path), ["a  b", "\ta"]) == [[0, 4, 5, 2], [0, 4, 2]]
    for reference, rule in (
        (unigram("end", "words", charsmap), "<s> and </s> around"),
        (unigram("both", "always", charsmap), "words split"),
        (unigram("both", "long", charsmap), "words split"),
        (wordpiece("both", "lower"), 'must be "Unigram", got "WordPiece"'),
    ):
        with pytest.raises(UserError, match=rule):
            read(of_class(tmp_path, reference, name))
    of_class(tmp_path, unigram("end", "long", charsmap), "PreTrainedTokenizerFast")
    assert rows(read(tmp_path), ["a b"]) == [[10, 2]]


# The ids that transformers gives to texts, or null where it reads no tokenizer.
CLASSES = """
import json, sys
from pathlib import Path
from transformers import AutoTokenizer

texts, ids = json.loads(Path("texts.json").read_text("utf-8")), {}
for folder in sorted(Path(".").glob("case*")):
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids[folder.name] = [tokenizer(text)["input_ids"] for text in texts]
    except Exception:
        ids[folder.name] = None
print(json.dumps(ids))
"""


@pytest.mark.slow
def test_ids_are_those_of_the_class_that_transformers_takes(tmp_path, pieces):
    charsmap = model_proto(pieces).normalizer_spec.precompiled_charsmap
    forms = {
        f"{kind} {frame} {form}": make(frame, form, *rest)
        for kind, make, all_forms, *rest in (
            ("wordpiece", wordpiece, ("lower", "cased")),
            ("unigram", unigram, ("words", "always", "long"), charsmap),
        )
        for frame in ("none", "both", "end")
        for form in all_forms
    }
    names = ["BertTokenizer", "DistilBertTokenizerFast", "ElectraTokenizer", "XLMRobertaTokenizer"]
    names += ["CamembertTokenizerFast", "RobertaTokenizer", "PreTrainedTokenizerFast", ""]
    families = ["bert", "distilbert", "roberta", "xlm-roberta", "camembert", "modernbert"]
    texts, cases = ["A b é", "ab  a", "\ta b"], {}
    for number, case in enumerate(itertools.product(forms, names, families)):
        (folder := tmp_path / f"case{number:03}").mkdir()
        of_class(folder, forms[case[0]], *case[1:])
        cases[folder.name] = case
    write_json_files(tmp_path, texts=texts)
    expected = json.loads(run_peers(tmp_path, CLASSES))
    accepted = {}
    for folder, case in cases.items():
        try:
            accepted[case] = rows(read(tmp_path / folder), texts)
        except UserError:
            continue
        assert accepted[case] == expected[folder], case
    # All that have a class's own form are read.
    for name, form in (
        ("BertTokenizer", "wordpiece none cased"),
        ("", "wordpiece both lower"),
        ("PreTrainedTokenizerFast", "unigram end long"),
    ):
        assert (form, name, "bert") in accepted
    for name in ("XLMRobertaTokenizer", ""):
        assert ("unigram none words", name, "xlm-roberta") in accepted
        assert ("unigram both words", name, "xlm-roberta") in accepted


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"added_tokens": {"dog": 8}}, r'not special must be .*"dog"'),
        (
            {
                "tokenizer_config": {
                    "added_tokens_decoder": {"8": {"content": "dog", "special": False}}
                }
            },
            "dog",
        ),
        (
            {"special_tokens_map": {"cls_token": {"content": "!"}}},
            r'cls_token must be "\[CLS\]", got "!"',
        ),
        (
            {"tokenizer_config": {"truncation_side": "left"}},
            'truncation_side must be "right", got "left"',
        ),
        # Padding on the left moves BERT's positions.
        ({"tokenizer_config": {"padding_side": "left"}}, "padding_side"),
        ({"tokenizer_config": {"tokenizer_class": "RoFormerTokenizer"}}, "RoFormerTokenizer"),
        ({"sentence_bert_config": {"query_length": 32}}, "query_length .* left out, got 32"),
        ({"sentence_bert_config": {"transformer_task": "fill-mask"}}, "must be feature-extraction"),
    ],
)
def test_files_beside_a_vocabulary_that_change_its_ids_are_refused(tmp_path, files, message):
    (tmp_path / "vocab.txt").write_bytes("\n".join(BERT["model"]["vocab"]).encode())
    if "special" not in str(files):  # also where the files agree
        write_json_files(
            tmp_path, tokenizer_config={"truncation_side": "right", "never_split": None}
        )
        assert read(tmp_path).num_words == 8
    with pytest.raises(UserError, match=message):
        read(write_json_files(tmp_path, **files))


def test_special_tokens_outside_the_vocabulary_are_no_rows(tmp_path):
    (tmp_path / "vocab.txt").write_bytes("\n".join(BERT["model"]["vocab"]).encode())
    named = {"additional_special_tokens": ["[E]"], "sep_token": "[SEP]"}
    decoder = {
        row: {"content": token, "special": True} for row, token in (("8", "[D]"), ("2", "[CLS]"))
    }
    files = {"special_tokens_map": named, "tokenizer_config": {"added_tokens_decoder": decoder}}
    write_json_files(tmp_path, added_tokens={"[D]": 8, "[E]": 9, "[MASK]": 4}, **files)
    assert read(tmp_path).num_words == 8
    assert added_tokens(tmp_path, False) == dict.fromkeys(("[CLS]", "[D]", "[MASK]", "[E]"), True)
    for extra in (["[Q]"], {"query_token": "[Q]"}):  # by transformers 5 and 4
        write_json_files(tmp_path, tokenizer_config={"extra_special_tokens": extra})
        assert added_tokens(tmp_path, False)["[Q]"]


def test_the_side_and_the_length_of_tokenizer_json(tmp_path):
    cut = {"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    write_json_files(tmp_path, tokenizer={**BERT, "truncation": cut})
    with pytest.raises(UserError, match="truncation_side"):
        read(tmp_path)
    write_json_files(
        tmp_path, tokenizer_config={"truncation_side": "right", "tokenizer_class": None}
    )
    assert read(tmp_path).config.max_tokens == 16  # sentence-transformers sets another length
    write_json_files(tmp_path, tokenizer={**BERT, "truncation": {**cut, "direction": "Right"}})
    assert read_tokenizer(tmp_path, 16, is_static=True)[0].max_tokens == 5
    padding = {"strategy": {"Fixed": 8}, "direction": "Right"}
    write_json_files(tmp_path, tokenizer={**BERT, "padding": padding})
    with pytest.raises(UserError, match="padding"):
        read_tokenizer(tmp_path, 16, is_static=True)


@pytest.mark.parametrize(
    "kind", ["wordpiece", "marked pieces", "pieces", "pieces, nothing normalised"]
)
def test_what_is_written_gives_the_same_ids_and_is_read_back(tmp_path, kind, pieces):
    tokenizer: OurTokenizer
    if kind == "wordpiece":
        vocabulary = [*SPECIAL, *"abcdeo!猫", *(f"##{c}" for c in "abcdeos")]
        config = WordPieceConfig(max_tokens=16, lowercase=True, split_chinese=False)
        tokenizer = WordPieceTokenizer(vocabulary, config)
    else:
        if kind == "pieces, nothing normalised":
            pieces = train(normalization_rule_name="identity", byte_fallback=True)
        config = SentencePieceConfig(max_tokens=16, sentence_marks=kind == "marked pieces")
        tokenizer = SentencePieceTokenizer(pieces, config)
    content = tokenizer_json(tokenizer)
    written = Tokenizer.from_str(json.dumps(content))
    texts = [*sample_sentences(), *PLAIN]
    texts = [text for text in texts if written.encode(text, add_special_tokens=False).ids]
    ours = rows(tokenizer, texts)
    assert ours == [encoding.ids for encoding in written.encode_batch(texts)]
    again = read(write(tmp_path, content))
    assert rows(again, texts) == ours
    assert tokenizer_json(again) == content


TYPED = {
    "type": "TemplateProcessing",
    "single": [
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 1}},
    ],
    "special_tokens": {"[CLS]": {"ids": [2]}},
}
ODD_END = {"type": "BertProcessing", "sep": ["!", 7], "cls": ["[CLS]", 2]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({**BERT, "model": {"type": "WordLevel"}}, '"Unigram" or "BPE", got "WordLevel"'),
        ({**BERT, "normalizer": {**BERT["normalizer"], "fold": 1}}, "got BertNormalizer .*fold=1"),
        ({**BERT, "post_processor": TYPED}, r"type_id of a sentence must be \[0\], got \[0, 1\]"),
        (
            {**BERT, "post_processor": ODD_END},
            r'around a sentence must be .*got \["\[CLS\]", "!"\]',
        ),
        (
            {**BERT, "added_tokens": [{"id": 8, "content": "x", "special": False}]},
            r'not special must be .*"x"',
        ),
        ({**BERT, "model": 3}, "damaged or of another form"),
    ],
)
def test_other_tokenizers_are_refused_by_name(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        read_tokenizer(write(tmp_path, content), 16)


@pytest.mark.parametrize("row", [300_000_000, 10**18, -1, "7", None])
def test_ids_beyond_any_table_are_refused_before_a_list_is_made(tmp_path, row):
    content = json.loads(json.dumps(BERT))
    content["model"]["vocab"]["far"] = row
    with pytest.raises(UserError, match="ids must be"):
        read(write(tmp_path, content))


def test_more_ids_than_the_model_has_rows_are_refused_before_anything_is_made(tmp_path):
    write(tmp_path, BERT)
    (tmp_path / "vocab").mkdir()
    (tmp_path / "vocab" / "vocab.txt").write_bytes("\n".join(BERT["model"]["vocab"]).encode())
    for folder in (tmp_path, tmp_path / "vocab"):
        assert len(read_tokenizer(folder, 16, 8)[1]["vocab.txt"].split()) == 8
        with pytest.raises(UserError, match=r"from 0 to 6, .* that of '!' is 7"):
            read_tokenizer(folder, 16, 7)


def test_damaged_and_missing_files_are_refused(tmp_path):
    (tmp_path / "sentencepiece.bpe.model").write_bytes(b"x")
    with pytest.raises(
        UserError, match=r"tokenizer\.json or vocab\.txt, .* has none; .*AutoTokenizer"
    ):
        read_tokenizer(tmp_path, 16)
    (tmp_path / "tokenizer.json").write_bytes(b"{")
    with pytest.raises(UserError, match="must be a JSON file"):
        read_tokenizer(tmp_path, 16)
