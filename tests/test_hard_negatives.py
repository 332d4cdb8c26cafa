import gzip
import json

import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT, run_python, the_error

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.hard_negatives import (
    mined_path,
    read_mined,
    require_mined,
    with_negatives,
    write_mined,
)
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.search import corpus_mining
from xling_tf.search.corpus_mining import CorpusMiner, embed, model_fingerprint
from xling_tf.search.mining import MiningConfig
from xling_tf.sentence_encoder import SentenceEncoder

PAIRS = [
    TranslationPair("one", "uno", ("dos", "tres")),
    TranslationPair("two", "dos", ("tres",)),
    TranslationPair("two", "dos", ("uno",)),
]
# Sources that the split keeps for training, and some that it holds out.
WORDS = [f"sentence number {number}" for number in range(200)]
TRAINED = [text for text in WORDS if not held_out(text)]
HELD = [text for text in WORDS if held_out(text)]

# Directions of the texts of a toy encoder, in degrees; the sources are never asked for.
ANGLES = {"cero": 0, "cerca": 20, "lejos": 50, "más lejos": 90, "fuera": 1}
ROWS = [
    (TRAINED[0], "cero"),
    (TRAINED[1], "Cerca"),
    (TRAINED[2], "lejos"),
    (TRAINED[3], "más lejos"),
    (TRAINED[0], "lejos"),
    (HELD[0], "fuera"),
]


def encode(texts):
    angles = np.radians([ANGLES[text.lower()] for text in texts])
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def miner(**changes):
    config = {"num_negatives": 2, **changes.pop("knobs", {})}
    return CorpusMiner(
        **{"encode": encode, "model": "toy", "config": MiningConfig(**config), **changes}
    )


def write_corpus(folder, rows=ROWS, name="x.en-es"):
    (folder / "parallel").mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{source}\t{target}\n" for source, target in rows)
    (folder / f"parallel/{name}.tsv").write_text(lines, encoding="utf-8")
    return folder


def negatives(folder, name="x"):
    return [tuple(pair) for pair in read_mined(mined_path(folder, name, "en-es"))]


# --- the file


def test_a_mined_file_is_read_as_it_was_written(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    assert list(read_mined(path)) == PAIRS
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert next(file) == "one\tuno\tdos\ttres\n"
    before = path.read_bytes()
    write_mined(path, PAIRS)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)

    def broken():
        yield PAIRS[0]
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_mined(path, broken())
    assert list(read_mined(path)) == PAIRS
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_line_without_a_negative_is_an_error(tmp_path):
    path = tmp_path / "x.en-es.tsv.gz"
    path.write_bytes(gzip.compress(b"one\tuno\tdos\none\tuno\n"))
    with pytest.raises(UserError, match=r"x.en-es.tsv.gz must hold .* line 2 is 'one\\tuno'"):
        list(read_mined(path))


# --- the join


def test_pairs_get_their_negatives_and_the_others_none(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    # In the corpus' order, with pairs between that were not mined.
    bare = [pair._replace(negatives=()) for pair in PAIRS]
    other = TranslationPair("three", "tres")
    corpus = [other, bare[0], other, bare[1], bare[2], other]
    joined = list(with_negatives(corpus, path))
    assert joined == [other, PAIRS[0], other, PAIRS[1], PAIRS[2], other]


def test_a_file_of_another_corpus_is_an_error_that_says_what_to_do(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    message = r"'two' is not in the corpus, .*data/mine.py .* --source en --target es"
    with pytest.raises(UserError, match=message):
        list(with_negatives([TranslationPair("one", "uno")], path))


def test_texts_with_tabs_are_joined_as_well(tmp_path):
    # A Moses file may have them.
    path = mined_path(tmp_path, "x", "en-es")
    pair = TranslationPair("\ta\tb", "c\t", ("d\te",))
    write_mined(path, [pair])
    (joined,) = with_negatives([pair._replace(negatives=())], path)
    assert joined == TranslationPair("\ta\tb", "c\t", ("d e",))


def test_a_folder_gives_negatives_where_they_are_asked_for(tmp_path):
    # The corpus is es-en; the mined file is named as the pair is used.
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel/x.es-en.tsv").write_text("uno\tone\ndos\ttwo\n", encoding="utf-8")
    write_mined(mined_path(tmp_path, "x", "en-es"), PAIRS[:1])
    (plain,) = load_folder(tmp_path, source="en", targets=["es"])
    pairs = [TranslationPair("one", "uno"), TranslationPair("two", "dos")]
    assert list(plain) == [(pair, None) for pair in pairs]
    (mined,) = load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    assert list(mined) == [(PAIRS[0], None), (pairs[1], None)]


def test_without_any_mined_file_the_command_is_named(tmp_path, caplog):
    write_corpus(tmp_path)
    message = rf"hard_negatives needs mined files .*data/mine.py .* --data {tmp_path}"
    with pytest.raises(UserError, match=message):
        load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    write_mined(mined_path(tmp_path, "x", "en-es"), PAIRS)
    require_mined(tmp_path, "en", ["es"])
    # A corpus that has none beside one that has some is told.
    write_corpus(tmp_path, name="y.en-es")
    write_corpus(tmp_path, [pair[:2] for pair in PAIRS])
    with caplog.at_level("WARNING"):
        load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    assert ["y.en-es.tsv has no hard negatives" in line for line in caplog.messages] == [True]
    with pytest.raises(UserError, match="none for en-fr"):
        require_mined(tmp_path, "en", ["es", "fr"])


# --- mining a folder


def test_the_nearest_wrong_targets_of_the_corpus_are_mined(tmp_path):
    write_corpus(tmp_path)
    counts = miner().mine_folder(tmp_path, source="en", targets=["es"])
    # TRAINED[0] has two right answers, "cero" (0) and "lejos" (50), so that neither is a negative
    # of it; "fuera" (1) is held out, so it is no candidate. "Cerca" (20): 20 and 30 away from
    # "cero" and "lejos"; "más lejos" (90): 40 and 70 away from "lejos" and "Cerca".
    assert negatives(tmp_path) == [
        (TRAINED[0], "cero", ("Cerca", "más lejos")),
        (TRAINED[1], "Cerca", ("cero", "lejos")),
        (TRAINED[2], "lejos", ("Cerca", "más lejos")),
        (TRAINED[3], "más lejos", ("lejos", "Cerca")),
        (TRAINED[0], "lejos", ("Cerca", "más lejos")),
    ]
    # The nearest two wrong ones and room for two right answers make four: of TRAINED[0]'s two
    # examples, each sees the other's answer.
    assert counts == {
        "x.en-es": {
            "pairs": 5,
            "distinct targets": 4,
            "pairs with 0": 0,
            "pairs with 1": 0,
            "pairs with 2": 5,
            "dropped by right_answer": 2,
        }
    }


def test_targets_that_differ_in_case_alone_are_one(tmp_path):
    rows = [(TRAINED[0], "cero"), (TRAINED[1], "CERO "), (TRAINED[2], "cerca")]
    write_corpus(tmp_path, rows)
    miner().mine_folder(tmp_path, source="en", targets=["es"])
    assert [found for _, _, found in negatives(tmp_path)] == [("cerca",), ("cerca",), ("cero",)]


def test_pairs_without_a_negative_have_no_line(tmp_path):
    write_corpus(tmp_path, ROWS[:4])
    # cos 20 = 0.94 and cos 30 = 0.87 are near, cos 40 = 0.77 is not: "más lejos" alone has none.
    knobs = {"min_score": 0.8}
    counts = miner(knobs=knobs).mine_folder(tmp_path, source="en", targets=["es"])
    assert [target for _, target, _ in negatives(tmp_path)] == ["cero", "Cerca", "lejos"]
    assert counts["x.en-es"]["pairs with 0"] == 1
    (mined,) = load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    assert [len(pair.negatives) for pair, _ in mined] == [1, 2, 1, 0]


def test_the_query_may_be_the_source(tmp_path, monkeypatch):
    monkeypatch.setitem(ANGLES, TRAINED[0], 85)
    monkeypatch.setitem(ANGLES, TRAINED[1], 0)
    write_corpus(tmp_path, [(TRAINED[0], "cero"), (TRAINED[1], "cerca"), (TRAINED[0], "lejos")])
    knobs = {"num_negatives": 1}
    miner(query="source", knobs=knobs).mine_folder(tmp_path, source="en", targets=["es"])
    assert [found for _, _, found in negatives(tmp_path)] == [("cerca",), ("cero",), ("cerca",)]


def test_what_is_mined_already_is_kept_until_something_changes(tmp_path):
    write_corpus(tmp_path)
    write_corpus(tmp_path, ROWS[:3], name="y.en-es")
    encoded = []

    def counting(texts):
        encoded.append(len(texts))
        return encode(texts)

    def mine(**changes):
        encoded.clear()
        counts = miner(encode=counting, **changes).mine_folder(
            tmp_path, source="en", targets=["es"]
        )
        return counts, list(encoded)

    counts, sizes = mine()
    assert sizes == [4, 3]
    assert mine() == (counts, [])
    assert mine(model="another")[1] == [4, 3]
    assert mine(model="another", knobs={"num_negatives": 1})[1] == [4, 3]
    assert mine() == (counts, [4, 3])
    mined_path(tmp_path, "x", "en-es").unlink()
    assert mine()[1] == [4]
    write_corpus(tmp_path, ROWS[:2], name="y.en-es")
    assert mine()[1] == [2]
    # Killed between the file and its record: it is mined again.
    (tmp_path / "hard_negatives/x.en-es.json").write_text("{", encoding="utf-8")
    assert mine()[1] == [4]


def test_some_corpora_into_another_folder(tmp_path):
    data, output = write_corpus(tmp_path / "data"), tmp_path / "output"
    write_corpus(data, name="y.en-es")
    counts = miner().mine_folder(data, source="en", targets=["es"], names=["y"], output=output)
    assert list(counts) == ["y.en-es"]
    names = {path.name for path in output.rglob("*") if path.is_file()}
    assert names == {"y.en-es.tsv.gz", "y.en-es.json"}
    assert not (data / "hard_negatives").exists()
    with pytest.raises(UserError, match=r"the name of a corpus is expected, got 'z'; .* has x, y"):
        miner().mine_folder(data, source="en", targets=["es"], names=["z"])


def test_a_corpus_that_is_held_out_has_nothing_to_mine(tmp_path):
    write_corpus(tmp_path, ROWS[-1:])
    assert miner().mine_folder(tmp_path, source="en", targets=["es"]) == {}
    assert list((tmp_path / "hard_negatives").iterdir()) == []


def test_a_full_disk_is_told_and_leaves_what_is_done(tmp_path, monkeypatch):
    write_corpus(tmp_path)
    write_corpus(tmp_path, ROWS[:3], name="y.en-es")

    def full(path, pairs):
        if path.name.startswith("y"):
            raise OSError(28, "No space left on device")
        write_mined(path, pairs)

    monkeypatch.setattr(corpus_mining, "write_mined", full)
    with pytest.raises(UserError, match=r"y.en-es.tsv.gz must be written, .*No space left"):
        miner().mine_folder(tmp_path, source="en", targets=["es"])
    names = {path.name for path in (tmp_path / "hard_negatives").iterdir()}
    assert names == {"x.en-es.tsv.gz", "x.en-es.json"}


def test_an_unknown_query_is_an_error():
    with pytest.raises(UserError, match="query expects target or source, got 'both'"):
        miner(query="both")


def test_vectors_are_unit_ones_in_order_however_many_are_encoded_at_once(tmp_path, monkeypatch):
    texts = ["cero", "lejos", "cerca"]
    whole = embed(texts, encode, tmp_path)
    monkeypatch.setattr(corpus_mining, "_ENCODED", 2)
    parts = embed(texts, encode, tmp_path)
    assert whole.tolist() == parts.tolist()
    assert parts == pytest.approx(encode(texts) / 3, abs=1e-3)
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_finite_vectors_is_an_error(tmp_path):
    with pytest.raises(UserError, match="finite"):
        embed(["a"], lambda texts: np.full((1, 2), np.nan), tmp_path)


# --- the program


class Toy(tf.Module):
    """A letter's share in a text for each letter."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, inputs):
        letters = tf.strings.unicode_decode(inputs, "UTF-8")
        return tf.reduce_sum(tf.one_hot(letters, 256), axis=1) + 1e-3


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tf.saved_model.save(Toy(), str(folder))
    return folder


@pytest.mark.slow
def test_the_program_mines_prints_counts_and_keeps_what_is_there(tmp_path, model):
    data = write_corpus(tmp_path / "data")
    flags = (str(ROOT / "data/mine.py"), f"--model={model}", "--data=data", "--top=1")
    first = run_python(tmp_path, *flags)
    assert first.status == 0, first.errors
    assert first.output.startswith("x.en-es: pairs 5, distinct targets 4, pairs with 0 0, ")
    assert [len(found) for _, _, found in negatives(data)] == [1] * 5
    record = json.loads((data / "hard_negatives/x.en-es.json").read_text(encoding="utf-8"))
    assert record["recipe"]["model"] == model_fingerprint(model)
    assert record["recipe"]["relative_margin"] == 0.05
    second = run_python(tmp_path, *flags)
    assert second.output == first.output
    assert "is kept" in second.errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--data=data"], "--model"),
        (["--data=data", "--model=nothing"], "has no saved_model.pb"),
        (["--data=data", "--model=nothing", "--top=0"], "num_negatives must be at least 1"),
        (["--data=data", "--model=nothing", "--sampling_strategy=best"], "top|random"),
    ],
)
def test_mistakes_are_told_in_one_line(tmp_path, flags, message):
    write_corpus(tmp_path / "data")
    assert message in the_error(run_python(tmp_path, str(ROOT / "data/mine.py"), *flags))


def test_a_saved_model_encodes_any_number_of_sentences(model):
    encoder = SentenceEncoder.load(model)
    assert encoder.encode(["ab", "b"]).shape == (2, 256)


def test_no_held_out_text_is_a_negative(tmp_path):
    rows = [(source, f"frase {number}") for number, source in enumerate(WORDS)]
    write_corpus(tmp_path, rows)
    random = np.random.default_rng(0)
    miner(encode=lambda texts: random.normal(size=(len(texts), 4))).mine_folder(
        tmp_path, source="en", targets=["es"]
    )
    (split,) = transient_store(load_folder(tmp_path, source="en", targets=["es"])).corpora
    hidden = {pair.target for pair in split.held_out}
    assert hidden
    mined = negatives(tmp_path)
    assert len(mined) == len(split.train)
    assert not hidden & {text for _, _, found in mined for text in found}
