"""Hard negatives: which candidates are taken, the mined files of a folder, and the program."""

import json

import numpy as np
import pytest
from encode_functions import Counting
from hard_negatives import mine_folder
from programs import run_program
from raw_files import write_files
from serving_models import save_hashed

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.readers import mined_path, read_mined
from xling_tf.corpora.records import TranslationPair
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.savedmodel.saved_models import checksum
from xling_tf.search.hard_negatives import mine_and_count, mine_hard_negatives

# Directions of texts, in degrees: the inner products of the first with all are 1, 0.8, 0.6, 0 and
# -1.
ANGLES = {"a": 0, "b": 36.87, "c": 53.13, "d": 90, "e": 180}
ANGLES |= {"cero": 0, "cerca": 20, "lejos": 50, "más lejos": 90, "fuera": 1}


def encode(texts):
    angles = np.radians([ANGLES[text.strip().lower().removesuffix(" source")] for text in texts])
    return 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)


def negatives_of(*pairs, **options):
    """The negatives of the first pair, where the others make "a" to "e" candidates; the counts."""
    others = [(f"{letter} source", letter) for letter in "abcde"]
    found, counts = mine_and_count([*pairs, *others], encode, **{"num_negatives": 2, **options})
    return "".join(found[0]), counts


def test_the_nearest_wrong_candidates_come_nearest_first():
    assert negatives_of(("x", "a"), num_negatives=7)[0] == "bcde"
    # Of d: c 0.8, b 0.6, a and e 0.
    assert negatives_of(("x", "d"))[0] == "cb"
    # The right one scores 1, so that b and c are above its half, 0.5; the count is that of all
    # pairs.
    found, counts = negatives_of(("x", "a"), relative_margin=0.5)
    assert (found, counts["dropped by relative_margin"] > 2) == ("de", True)


def test_candidates_may_resemble_the_query_instead():
    # The query "b" has these cosines: a .8, b 1, c .96, d .6, e -.8; its answer is c.
    assert negatives_of(("b", "c"), by_query=True)[0] == "ba"
    # Below .9 of .96.
    assert negatives_of(("b", "c"), by_query=True, relative_margin=0.1)[0] == "ad"


def at(*cosines):
    """Unit vectors whose cosines to the first axis are these."""
    return np.array([[cosine, (1 - cosine**2) ** 0.5, 0.0] for cosine in cosines])


def test_a_relative_margin_is_a_share_of_the_right_ones_cosine_whatever_its_sign():
    names = ["query", "right", "near", "far", "x", "y"]
    pairs = [("query", "right"), ("x", "near"), ("y", "far")]

    def kept(right, near, far, margin):
        vectors = dict(
            zip(names, [*at(1.0, right, near, far), [0, 0, 1.0], [0, 0, -1.0]], strict=True)
        )
        options = {"by_query": True, "relative_margin": margin}

        def encode(texts):
            return np.array([vectors[t] for t in texts])

        return mine_hard_negatives(pairs, encode, **options)[0]

    # A tenth of .5 less is .45, not .4.
    assert kept(0.5, 0.47, 0.43, 0.1) == ("far",)
    # Below -.5 there is -.525: -.48 and -.51 are nearer to the query than the right answer, or
    # about as near.
    assert kept(-0.5, -0.48, -0.9, 0.05) == ("far",)
    assert kept(-0.5, -0.51, -0.53, 0.05) == ("far",)
    assert kept(-0.5, -0.48, -0.51, 0.0) == ("far",)
    assert kept(0.0, 0.2, -0.2, 0.5) == ("far",)


def test_by_query_the_nearest_of_the_query_come_first_although_others_resemble_the_answer():
    # From the query at 0 degrees, the answer is at 60, and others at -30 and 80: 90 and 20 from the
    # answer.
    angles = {"q": 0, "answer": 60, "like query": -30, "like answer": 80, "r": 180, "s": 200}

    def encode(texts):
        radians = np.radians([angles[text] for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1)

    pairs = [("q", "answer"), ("r", "like query"), ("s", "like answer")]
    for by_query, found in (
        (True, ("like query", "like answer")),
        (False, ("like answer", "like query")),
    ):
        assert mine_hard_negatives(pairs, encode, by_query=by_query)[0] == found
    # cos 60 = .5 is the right one's cosine to the query: cos 30 = .87 is above, cos 80 = .17 below.
    assert mine_hard_negatives(pairs, encode, by_query=True, relative_margin=0.1)[0] == (
        "like answer",
    )


@pytest.mark.parametrize("by_query", [False, True])
@pytest.mark.parametrize("relative_margin", [None, 0.05])
def test_more_right_answers_than_the_first_search_finds_leave_room_for_negatives(
    by_query, relative_margin
):
    # 180 right answers within 2 degrees of each other and of their query, and others 30 degrees
    # away.
    angles = {"many": 0.0} | {f"right {n}": n / 90 for n in range(180)}
    angles |= {f"{side} {n}": 30.0 + n for n in range(30) for side in ("other", "query")}

    def encode(texts):
        radians = np.radians([angles[text] for text in texts])
        return np.stack([np.cos(radians), np.sin(radians)], axis=1)

    pairs = [("many", f"right {n}") for n in range(180)]
    pairs += [(f"query {n}", f"other {n}") for n in range(30)]
    options = {"by_query": by_query, "relative_margin": relative_margin}
    found, counts = mine_and_count(pairs, encode, num_negatives=3, **options)
    assert found[:180] == [("other 0", "other 1", "other 2")] * 180
    # The second search, among all, counts a pair's candidates once.
    assert counts["pairs with 3 negatives"] == 210
    assert counts["dropped by right_answer"] == 180 * 179


def test_blank_texts_are_no_negatives_and_have_none():
    vectors = {"a": [1, 0], "none": [0, 0], "b": [-1, 0], "c": [0, 1], "blank": [0, 0]}
    pairs = [("x", "a"), ("y", "none"), ("z", "b")]
    found = mine_hard_negatives(pairs, lambda texts: np.array([vectors[t] for t in texts], float))
    assert found == [("b",), (), ("a",)]


def test_right_answers_of_one_source_are_no_negatives():
    # Texts that differ in case alone are one.
    assert negatives_of(("x", "a"), ("y", "B"), ("z", "b "))[0] == "Bc"
    # Of b: c 0.96, a 0.8, d 0.6; a is the answer of another pair with the same source.
    found, counts = negatives_of(("x", "b"), ("X ", "a"))
    assert found == "cd"
    assert counts["dropped by right_answer"] == 2
    # With fewer candidates than are asked for, all wrong ones are taken, and only right ones
    # dropped.
    found, counts = mine_and_count([("x", "a"), ("y", "b"), ("x", "c")], encode)
    assert found == [("b",), ("c", "a"), ("b",)]
    assert counts["dropped by right_answer"] == 2


class Model:
    encode = staticmethod(encode)


def test_pairs_come_first_and_then_a_model_or_its_function():
    pairs = [("x", "a"), ("y", "b"), ("z", "d")]
    for arguments in ((pairs, encode), (pairs, Model())):
        assert mine_hard_negatives(*arguments, num_negatives=1) == [("b",), ("a",), ("b",)]
    for arguments, options, message in (
        (([(*pair, "wrong") for pair in pairs], encode), {}, "expected pairs of two texts"),
        ((pairs, "exported/en-es"), {}, "then a model of xling_tf.load"),
        ((encode, pairs), {}, "expected pairs, then a model"),
        ((pairs, encode), {"relative_margin": "0.5"}, "`relative_margin` must be"),
    ):
        with pytest.raises(UserError, match=message):
            mine_hard_negatives(*arguments, **options)


def test_equal_vectors_are_within_a_margin_of_zero_though_they_are_rounded():
    vectors = np.random.default_rng(0).normal(size=(50, 64))
    pairs = [(f"source {n} {i}", f"target {n} {i}") for n in range(50) for i in range(3)]

    def equal(texts):
        return np.stack([vectors[int(text.split()[1])] for text in texts])

    mined = mine_hard_negatives(pairs, equal, num_negatives=2, relative_margin=0.0)
    assert [len(found) for found in mined] == [2] * 150


MINED = [
    TranslationPair("one", "uno", ("dos", "tres")),
    TranslationPair("two", "dos", ("tres",)),
    TranslationPair("two", "dos", ("uno",)),
]
LINES = ["one\tuno\tdos\ttres\n", "two\tdos\ttres\n", "two\tdos\tuno\n"]


def write_corpus(folder, rows, name="x.en-es"):
    text = "".join(f"{row[0]}\t{row[1]}\n" for row in rows)
    return write_files(folder, {f"parallel/{name}.tsv": text})


def test_pairs_get_their_negatives_where_they_are_asked_for(tmp_path, caplog):
    def load(**options):
        return [
            list(corpus) for corpus in load_folder(tmp_path, source="en", targets=["es"], **options)
        ]

    # The corpus is es-en; the mined file is named as the pair is used. Pairs between were not
    # mined.
    other = TranslationPair("three", "tres")
    pairs = [other, MINED[0], other, *MINED[1:], other]
    write_corpus(tmp_path, [(pair.target, pair.source) for pair in pairs], "x.es-en")
    with pytest.raises(
        UserError, match=rf"needs files .*xling-tf mine negatives .* --data {tmp_path}"
    ):
        load(with_mined=True)
    write_files(tmp_path, {"hard_negatives/x.en-es.tsv.gz": "".join(LINES)})
    assert load() == [[(pair._replace(negatives=()), None) for pair in pairs]]
    assert load(with_mined=True) == [[(pair, None) for pair in pairs]]
    # A corpus that has none beside one that has some is told, and negatives of other pairs are
    # refused.
    write_corpus(tmp_path, MINED, "y.en-es")
    with caplog.at_level("WARNING"):
        load(with_mined=True)
    assert ["y.en-es.tsv has no hard negatives" in line for line in caplog.messages] == [True]
    write_corpus(tmp_path, [("uno", "one")], "x.es-en")
    with pytest.raises(UserError, match=r"the corpus was changed .*'two'.*--source en --target es"):
        load(with_mined=True)


# Sources that the split keeps for training, and some that it holds out.
WORDS = [f"sentence number {number}" for number in range(200)]
TRAINED = [text for text in WORDS if not held_out(text)]
HELD = [text for text in WORDS if held_out(text)]
ROWS = [
    (TRAINED[0], "cero"),
    (TRAINED[1], "Cerca"),
    (TRAINED[2], "lejos"),
    (TRAINED[3], "más lejos"),
    (TRAINED[0], "lejos"),
    (HELD[0], "fuera"),
]


def mine(data, *, encode=encode, **options):
    settings = {"model": "toy", "num_negatives": 2, **options}
    return mine_folder(data, encode, source="en", targets=["es"], **settings)


def mined(folder, name="x"):
    return [tuple(pair) for pair in read_mined(mined_path(folder, name, "en-es"))]


def test_the_nearest_wrong_targets_that_no_corpus_holds_out_are_mined(tmp_path):
    counts = mine(write_corpus(tmp_path, ROWS))
    # TRAINED[0] has two right answers, "cero" (0) and "lejos" (50), so that neither is a negative
    # of it; "fuera" (1) is held out, so it is no candidate. "Cerca" (20): 20 and 30 away from
    # "cero" and "lejos"; "más lejos" (90): 40 and 70 away from "lejos" and "Cerca".
    assert mined(tmp_path) == [
        (TRAINED[0], "cero", ("Cerca", "más lejos")),
        (TRAINED[1], "Cerca", ("cero", "lejos")),
        (TRAINED[2], "lejos", ("Cerca", "más lejos")),
        (TRAINED[3], "más lejos", ("lejos", "Cerca")),
        (TRAINED[0], "lejos", ("Cerca", "más lejos")),
    ]
    # The nearest two wrong ones and room for two right answers make four: of TRAINED[0]'s two
    # examples, each sees the other's answer.
    numbers = {"pairs": 5, "distinct targets": 4, "dropped by right_answer": 2}
    shares = {"pairs with 0 negatives": 0, "pairs with 1 negatives": 0, "pairs with 2 negatives": 5}
    assert counts == {"x.en-es": numbers | shares}
    # Another corpus comes, in which "Cerca" is a reply to what is held out: what was mined is not
    # trained on.
    write_files(tmp_path, {"conversations/c.es.tsv": f"{HELD[0]}\tCerca\n"})
    corpora = load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    trained = list(transient_store(corpora).corpora[0].train)
    assert len(trained) == 4
    assert "Cerca" not in {text for pair in trained for text in (*pair[:2], *pair.negatives)}
    mine(tmp_path)
    # The nearest that may be taken: of "cero" "más lejos" (90), of which "lejos" is another answer.
    assert [negatives for _, _, negatives in mined(tmp_path)] == [
        ("más lejos",),
        ("más lejos", "cero"),
        ("lejos", "cero"),
        ("más lejos",),
    ]


def test_what_is_mined_already_is_kept_until_something_changes(tmp_path):
    write_corpus(write_corpus(tmp_path, ROWS), ROWS[:3], "y.en-es")

    def sizes(**changes):
        counting = Counting(encode)
        mine(tmp_path, encode=counting, **changes)
        return [len(batch) for batch in counting.batches]

    assert [sizes(), sizes()] == [[4, 3], []]
    assert sizes(model="another") == sizes() == sizes(num_negatives=1) == [4, 3]
    mined_path(tmp_path, "x", "en-es").unlink()
    write_corpus(tmp_path, ROWS[:2], "y.en-es")
    assert sizes(num_negatives=1) == [4, 2]
    # Killed between the file and its record: it is mined again.
    (tmp_path / "hard_negatives/x.en-es.json").write_text("{", encoding="utf-8")
    assert sizes(num_negatives=1) == [4]


@pytest.mark.slow
def test_the_program_mines_and_prints_counts(tmp_path):
    model = save_hashed(tmp_path / "model")
    data = write_corpus(tmp_path / "data", ROWS)
    first = run_program(tmp_path, "data/mine.py", "negatives", f"--model={model}", "--data=data")
    assert first.output.startswith("x.en-es: 5 pairs, 4 distinct targets, ")
    # Of four targets, a pair's own is none, and for two pairs another right answer is none either.
    assert [len(found) for _, _, found in mined(data)] == [2, 3, 3, 3, 2]
    record = json.loads((data / "hard_negatives/x.en-es.json").read_text(encoding="utf-8"))
    assert record["recipe"]["model"] == checksum(model)
