import gzip
import random

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.bitext.corpus_retrieval import SUITE, BitextRetrieval
from xling_tf.evaluators.bitext.parallel_files import find_bitexts, read_aligned
from xling_tf.evaluators.bitext.parallel_search import ParallelSearch, share_found

ROWS = [(f"en {number}", f"es {number}") for number in range(200)]


def meaning(text):
    return text.split()[1]


def evaluator(rows=ROWS):
    return BitextRetrieval(rows, ("en", "es"), name="numbers")


def by_text(vectors):
    return lambda texts: np.array([vectors[text] for text in texts], np.float32)


def test_a_perfect_encoder_finds_all():
    assert evaluator()(by_meaning(meaning)) == {
        "en-es/precision_at_1": 1.0,
        "es-en/precision_at_1": 1.0,
        "error_rate": 0.0,
    }


def test_a_constant_encoder_finds_none():
    assert evaluator()(constant)["error_rate"] == 1.0


def test_a_random_encoder_scores_chance():
    # One of 200: the number found is Poisson with mean 1, and above 7 once in 100,000.
    scores = evaluator()(random_vectors())
    assert scores["en-es/precision_at_1"] <= 7 / 200
    assert scores["es-en/precision_at_1"] <= 7 / 200


def test_the_order_of_rows_makes_no_difference():
    encode = random_vectors(dim=2)
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    assert evaluator()(encode) == evaluator(shuffled)(encode) == evaluator()(encode)


def test_nearest_by_cosine_derived_by_hand():
    rows = [("a", "x"), ("b", "y"), ("c", "z")]
    vectors = {"a": [2, 0], "b": [1, 1], "c": [0, 1], "x": [1, 0], "y": [9, 1], "z": [0, 3]}
    scores = evaluator(rows)(by_text(vectors))
    # a: x 1.0 before y 0.99. b: y (9 + 1) / sqrt(2 * 82) = 0.78 before x and z, 0.71. c: z 1.0.
    assert scores["en-es/precision_at_1"] == 1.0
    # x: a. y: a 9 / sqrt(82) = 0.99 before b 0.78, an error. z: c.
    assert scores["es-en/precision_at_1"] == pytest.approx(2 / 3)
    assert scores["error_rate"] == pytest.approx(1 / 6)


def test_copies_and_other_translations_are_right():
    rows = [("yes", "sí"), ("yes", "claro"), ("yes", "sí"), ("cat", "gato")]
    vectors = {"yes": [1, 0], "sí": [1, 0.1], "claro": [1, 0], "cat": [0, 1], "gato": [0, 1]}
    found = evaluator(rows)
    assert found(by_text(vectors))["error_rate"] == 0.0
    # The nearest of all three rows of "yes" is now that of "cat": one row of four is found.
    wrong = found(by_text({**vectors, "gato": [1, 0.001], "sí": [1, 1], "claro": [1, 1]}))
    assert wrong["en-es/precision_at_1"] == 0.0
    assert found.protocol["num_rows"] == 4
    assert found.protocol["num_candidates"] == {"en": 2, "es": 3}
    assert found.protocol["index"] == "flat"


def brute_force(queries, candidates, query_rows, answer_rows):
    """The same by every cosine there is."""
    cosines = queries.astype(np.float64) @ candidates.T.astype(np.float64)
    right = np.zeros(cosines.shape, bool)
    right[query_rows, answer_rows] = True
    best_right = np.where(right, cosines, -np.inf).max(axis=1)
    best_wrong = np.where(right, -np.inf, cosines).max(axis=1)
    return float(np.mean((best_wrong < best_right - 1e-6)[query_rows]))


@pytest.mark.parametrize("seed", range(4))
def test_equals_every_cosine_computed(seed):
    rng = np.random.default_rng(seed)
    candidates = rng.normal(size=(300, 8))
    candidates[100:110] = candidates[:10]  # copies, which are ties
    # Each of 80 queries has an answer near it, some have others, and the first one fifteen.
    more = rng.integers(0, 80, size=60)
    query_rows = np.concatenate([np.arange(80), more, np.zeros(14, int)])
    answer_rows = rng.permutation(300)[: len(query_rows)]
    queries = candidates[answer_rows[:80]] + rng.normal(size=(80, 8)) / 2
    queries, candidates = (
        v / np.linalg.norm(v, axis=1, keepdims=True) for v in (queries, candidates)
    )
    arguments = (queries.astype(np.float32), candidates.astype(np.float32), query_rows, answer_rows)
    assert 0.1 < share_found(*arguments) < 0.9
    assert share_found(*arguments) == pytest.approx(brute_force(*arguments))


def test_bad_vectors_name_their_text():
    def encode(texts):
        return np.where([[text == "es 7"] for text in texts], 0.0, by_meaning(meaning)(texts))

    with pytest.raises(UserError, match="1 of 200 have zero only, first 'es 7'"):
        evaluator()(encode)


@pytest.mark.parametrize("rows", [[], ROWS[:1], [("a", "x"), ("b", "x")]])
def test_too_few_sentences(rows):
    with pytest.raises(UserError, match="two different sentences at least"):
        ParallelSearch(rows, ("en", "es"), name="numbers")


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_bitexts_are_found_in_every_layout(tmp_path):
    table = write(tmp_path / "bitext" / "test.2016.de-en.tsv.gz", "en\tde\tnote", "One\tEins\t-")
    write(tmp_path / "bitext" / "README.md", "text")
    write(tmp_path / "tatoeba" / "tatoeba.deu-eng.deu", "Eins", "Zwei")
    write(tmp_path / "tatoeba" / "tatoeba.deu-eng.eng", "One", "Two")
    write(tmp_path / "un" / "UNv1.0.en-zh_CN.en.gz", "One")
    write(tmp_path / "un" / "UNv1.0.en-zh_CN.zh_CN.gz", "一")
    write(tmp_path / "un" / "UNv1.0.en-zh_CN.ids", "1 1")
    found = {bitext.name: bitext for bitext in find_bitexts(tmp_path)}
    assert {name: (bitext.languages, bitext.read()) for name, bitext in found.items()} == {
        "UNv1.0.en-zh_CN": (("en", "zh_CN"), [("One", "一")]),
        "tatoeba.deu-eng": (("deu", "eng"), [("Eins", "One"), ("Zwei", "Two")]),
        "test.2016.de-en": (("de", "en"), [("Eins", "One")]),
    }
    assert found["test.2016.de-en"].files == (table,)
    assert len(found["UNv1.0.en-zh_CN"].files) == 2


def test_hypotheses_of_xnli_are_bitexts_of_english_and_each_other_language(tmp_path):
    header = "pair_id\tlabel\tpremise\thypothesis"
    for language, lines in {
        "en": ("1\tneutral\tP\tOne", "2\tneutral\tP\tTwo"),
        "es": ("2\tneutral\tP\tDos", "1\tneutral\tP\tUno"),
        "zh": ("2\tneutral\tP\t二",),
    }.items():
        write(tmp_path / "nli" / f"xnli.{language}.dev.tsv", header, *lines)
    # Without numbers nothing tells which rows belong together.
    write(tmp_path / "nli" / "xnli.de.dev.tsv", "label\tpremise\thypothesis", "neutral\tP\tEins")
    found = {bitext.name: bitext.read() for bitext in find_bitexts(tmp_path)}
    assert found == {
        "xnli.dev.hypotheses.en-es": [("One", "Uno"), ("Two", "Dos")],
        "xnli.dev.hypotheses.en-zh": [("Two", "二")],
    }


def test_a_side_that_is_not_there_is_told_when_it_is_read(tmp_path):
    write(tmp_path / "bitext" / "x.en-es.en", "One")
    (bitext,) = find_bitexts(tmp_path)
    with pytest.raises(UserError, match=r"x\.en-es\.es must be a readable file"):
        bitext.read()


def test_files_that_do_not_belong_together(tmp_path):
    paths = [write(tmp_path / "a.en", "One", "Two"), write(tmp_path / "a.es", "Uno")]
    with pytest.raises(
        UserError, match=r"a\.es must have as many lines as .*a\.en.* before line 2"
    ):
        read_aligned(paths)
    (tmp_path / "a.es").write_bytes(b"Uno\nse\xf1or\n")
    with pytest.raises(
        UserError, match=r"a\.es must be lines of UTF-8 text .* but line 2 is not UTF-8"
    ):
        read_aligned(paths)


def test_the_suite(tmp_path):
    write(tmp_path / "tatoeba" / "tatoeba.spa-eng.spa", *(es for _, es in ROWS))
    write(tmp_path / "tatoeba" / "tatoeba.spa-eng.eng", *(en for en, _ in ROWS))
    dataset, missing = SUITE.find(tmp_path, 0)
    assert dataset.name == "tatoeba.spa-eng"
    assert dataset.load()(by_meaning(meaning))["spa-eng/precision_at_1"] == 1.0
    assert missing.name == "UNv1.0"
    assert [item.name for item in SUITE.find(tmp_path / "elsewhere", 0)] == ["tatoeba", "UNv1.0"]
