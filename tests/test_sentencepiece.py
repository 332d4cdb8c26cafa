"""SentencePiece's pieces: learnt from texts, segmented in the graph, stored for restarts."""

import dataclasses
import io
import struct

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tricky_texts import FRAGMENTS, sample_sentences

from xling_tf.client.piece_models import BPE, NORMAL, model_proto, require_charsmap
from xling_tf.client.runtimes import Pieces
from xling_tf.config import SentencePieceConfig
from xling_tf.corpora.folder import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer, draw_balanced

CONFIG = SentencePieceConfig(num_pieces=200, max_tokens=12, lowercase=True)
TEXTS = [
    text
    for line in (SAMPLE_FOLDER / "parallel" / "everyday.en-es.tsv").read_text("utf-8").splitlines()
    for text in line.split("\t")
][:400]
BY_LANGUAGE = {"en": TEXTS[0::2], "es": TEXTS[1::2]}
MARKED = dataclasses.replace(CONFIG, sentence_marks=True)


def fit(config, texts_by_language):
    """The serialized model."""
    (model,) = SentencePieceTokenizer.fit(config, texts_by_language).files().values()
    return model


@pytest.fixture(scope="module")
def model():
    return fit(CONFIG, BY_LANGUAGE)


@pytest.fixture(scope="module")
def tokenizer(model):
    return SentencePieceTokenizer(model, CONFIG)


def rows(tokenizer, *texts):
    return tokenizer.tokenize(tf.constant(texts)).to_list()


def test_the_rule_for_the_case_of_letters_is_the_models(tokenizer):
    one, other = rows(tokenizer, "THE ÁRBOL", "the árbol")
    assert one == other
    cased = SentencePieceTokenizer.fit(dataclasses.replace(CONFIG, lowercase=False), BY_LANGUAGE)
    one, other = rows(cased, "THE ÁRBOL", "the árbol")
    assert one != other


def test_the_model_outlives_tensorflows_caches(tokenizer):
    graph = tf.function(lambda texts: tokenizer.tokenize(texts).to_tensor())
    before = graph(tf.constant(["the cat"])).numpy().tolist()
    tf.random.set_seed(1)  # clears them
    assert graph(tf.constant(["the cat"])).numpy().tolist() == before
    assert rows(tokenizer, "the cat") == before


ODD = [
    b"",
    " \t\n\u00a0\u3000".encode(),
    b"\0",
    "👩‍👩‍👧‍👦🏽".encode(),
    b"\xff\xfe",
    "é".encode()[:1],
    b"</s><s><unk>",
    "我".encode() * 2**18,
]


def test_any_string_has_a_piece_between_marks_too(tokenizer, marked):
    among = rows(tokenizer, b"hello", *ODD, b"the cat")[1:-1]
    for odd, alone, (first, *between, last) in zip(ODD, among, rows(marked, *ODD), strict=True):
        assert rows(tokenizer, odd) == [alone]
        assert 1 <= len(alone) <= 12
        assert all(0 <= piece < tokenizer.num_words for piece in alone)
        # A sentence without pieces has one that no text has.
        assert (alone == [2]) == ([alone] == rows(tokenizer, ""))
        assert alone == [2] or 2 not in alone
        assert (first, last) == (1, 2)
        assert 1 <= len(between) <= 10
        assert not {1, 2} & {*between}


@pytest.fixture(scope="module")
def marked(model):
    return SentencePieceTokenizer(model, MARKED)


def test_the_end_mark_is_kept_whatever_is_cut(tokenizer, marked):
    text = "the cat sat on the mat and had tea with the dog"
    (plain,) = tokenizer.tokenize(tf.constant([text]), 20).to_list()
    assert rows(marked, text) == [[1, *plain[:10], 2]]
    assert marked.tokenize(tf.constant([text, ""]), 3).to_list() == [[1, plain[0], 2], [1, 0, 2]]
    assert marked.tokenize(tf.constant([text]), 20).to_list() == [[1, *plain[:18], 2]]


def test_models_without_marks_and_what_is_no_model_are_told(model):
    # Fields in another order, and one that nobody knows (field 31, of the length 3), are in a
    # model, too.
    extra = b"\xfa\x01\x03abc"
    assert SentencePieceTokenizer(extra + model + extra, CONFIG).num_words == 200
    for content in (b"", b"hello", b"\0" * 100, model[:-10]):
        with pytest.raises(UserError, match=f"these {len(content)} bytes are not one"):
            SentencePieceTokenizer(content, CONFIG)
    buffer, options = io.BytesIO(), {"vocab_size": 200, "hard_vocab_limit": False, "minloglevel": 2}
    texts = {"sentence_iterator": iter(TEXTS), "model_writer": buffer}
    sentencepiece.SentencePieceTrainer.train(**texts, **options, bos_id=-1, eos_id=-1)
    with pytest.raises(UserError, match=r"sentence_marks=true expects .* <s> or </s>"):
        SentencePieceTokenizer(buffer.getvalue(), MARKED)


def unit(label=0, offset=0, *, ends_rule=False):
    """A unit of a Darts trie: the bits of the label, of the end of a rule, and of the offset."""
    return label | ends_rule << 8 | offset << 10


def charsmap(units, strings=b"b\0", size=256):
    """A trie of some units by their places, as SentencePiece keeps it, and the replacements."""
    trie = np.full(size, VALUE, "<u4")  # which is the label of no byte
    for place, value in units.items():
        trie[place] = value
    return struct.pack("<I", 4 * size) + trie.tobytes() + strings


VALUE = 1 << 31
ROOT = unit(offset=1)  # leads to state 1, from where "a" (97) leads to the unit at 1 ^ 97 = 96
# "a" becomes "b": from the unit at 96, to the state 96 ^ 3 = 99, which has the value 0.
A_TO_B = {0: ROOT, 96: unit(97, 3, ends_rule=True), 99: VALUE}


@pytest.mark.parametrize(
    "rules",
    [
        struct.pack("<I", 1024) + b"\xff\xff\xff\x7f" * 256 + b"abc\0",
        struct.pack("<I", 16) + bytes(500),  # no whole block of 256 units
        struct.pack("<I", 1 << 30) + bytes(500),
        b"\1",
        charsmap(A_TO_B, b"b"),  # no end
        charsmap(A_TO_B, b""),
        charsmap({**A_TO_B, 99: VALUE | 2}),  # beyond the replacements
        charsmap({**A_TO_B, 96: unit(97, 256, ends_rule=True)}),  # beyond the units
        charsmap({**A_TO_B, 0: unit(offset=256)}),
        charsmap({0: ROOT, 96: unit(97, 97, ends_rule=True)}),  # "aaa...": matches at every length
        charsmap(A_TO_B, b"b" * 1000 + b"\0"),  # a text a thousand times as long
    ],
)
def test_rules_for_characters_that_leave_their_bytes_are_refused(model, rules, tmp_path):
    proto = model_proto(model)
    proto.normalizer_spec.precompiled_charsmap = rules
    with pytest.raises(UserError, match="damaged or made up"):
        SentencePieceTokenizer(proto.SerializeToString(), CONFIG)
    (path := tmp_path / "sentencepiece.model").write_bytes(proto.SerializeToString())
    with pytest.raises(UserError, match="damaged or made up"):
        Pieces(path, {})


def test_compiled_rules_for_characters_are_taken(model, tmp_path):
    require_charsmap(model_proto(model).normalizer_spec.precompiled_charsmap)  # NFKC and lower case
    proto = model_proto(model)
    proto.normalizer_spec.precompiled_charsmap = charsmap(A_TO_B)
    changed = SentencePieceTokenizer(proto.SerializeToString(), CONFIG)
    assert rows(changed, "a") == rows(changed, "b")
    # A rule of one's own, with keys of up to 40 characters that begin with each other.
    table = tmp_path / "rules.tsv"
    table.write_text("".join(f"{' '.join(['61'] * n)}\t62\n" for n in (1, 20, 40)))
    buffer, options = io.BytesIO(), {"vocab_size": 200, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=buffer,
        normalization_rule_tsv=str(table),
        **options,
    )
    assert SentencePieceTokenizer(buffer.getvalue(), MARKED).num_words == 200


def test_languages_are_drawn_alike_as_far_as_they_go():
    numbers = {"en": map(str, range(1000)), "es": map(str, range(100)), "zh": ["a", "b"]}
    drawn = draw_balanced(numbers, 60)
    assert [len(texts) for texts in drawn.values()] == [20, 20, 2]
    assert len({*drawn["en"]}) == 20
    assert draw_balanced({"en": map(str, range(1000))}, 20)["en"] == drawn["en"]


def test_too_few_texts_or_pieces_are_told(caplog):
    for texts in ({}, {"en": ["", " "]}):
        with pytest.raises(UserError, match="num_pieces=200 expects enough texts"):
            fit(CONFIG, texts)
    # "a", "▁a", "▁", and the three that every model has.
    with caplog.at_level("WARNING", logger="absl"):
        few = SentencePieceTokenizer.fit(CONFIG, {"en": ["a a a"]})
    assert few.num_words <= 6
    assert "num_pieces=200 asks for more pieces than the texts have" in caplog.text
    config = dataclasses.replace(CONFIG, num_pieces=5)
    with pytest.raises(UserError, match=r"=5 expects .* smaller than required_chars"):
        fit(config, BY_LANGUAGE)


def test_the_same_texts_give_the_same_model(caplog, model):
    with caplog.at_level("INFO", logger="absl"):
        assert fit(CONFIG, BY_LANGUAGE) == model
    assert caplog.messages == ["learned 200 pieces from 400 texts"]


def test_texts_whose_pieces_are_all_kept_have_the_same_ones(model):
    # Real and odd texts, and random pieces; some texts lose a piece, others do not.
    config = dataclasses.replace(CONFIG, max_tokens=512)
    whole = SentencePieceTokenizer(model, config)
    texts = [*sample_sentences()[::3], *FRAGMENTS]
    texts = [text.encode("utf-8", "surrogatepass") for text in texts] + ODD
    before, num_unchanged = rows(whole, *texts), 0
    for seed in range(5):
        chosen = np.random.default_rng(seed).random(whole.num_words) < 0.9
        small, kept = whole.only(lambda pieces, chosen=chosen: chosen)
        assert small.num_words == small.config.num_pieces == len(kept) < whole.num_words
        assert set(kept) >= set(np.flatnonzero(chosen))
        for old, new in zip(before, rows(small, *texts), strict=True):
            if set(old) <= set(kept):
                assert kept[new].tolist() == old
                num_unchanged += 1
            # No more text is unknown: the first two rows are the unknown piece and a mark.
            assert new.count(0) <= old.count(0)
    assert 0 < num_unchanged < 5 * len(texts)


def test_what_scores_depend_on_stays(model):
    # An unknown character costs 10 more than the rarest piece.
    proto = model_proto(model)
    scores = [piece.score for piece in proto.pieces if piece.type == NORMAL]
    small, kept = SentencePieceTokenizer(model, CONFIG).only(lambda pieces: [False] * len(pieces))
    pieces = [proto.pieces[row] for row in kept]
    bounds = {min(scores), max(scores)}
    assert bounds <= {piece.score for piece in pieces if piece.type == NORMAL}
    assert {"<unk>", "<s>", "</s>", "e", "▁"} <= {piece.piece for piece in pieces}
    assert all(
        len(piece.piece) == 1 or piece.type != NORMAL or piece.score in bounds for piece in pieces
    )
    (serialized,) = small.files().values()
    assert [*model_proto(serialized).pieces] == pieces


def test_pieces_of_pairs_of_pieces_cannot_be_left_out(model):
    proto = model_proto(model)
    proto.trainer_spec.model_type = BPE
    tokenizer = SentencePieceTokenizer(proto.SerializeToString(), CONFIG)
    with pytest.raises(UserError, match="SentencePiece's unigram models"):
        tokenizer.only(lambda pieces: [True] * len(pieces))
