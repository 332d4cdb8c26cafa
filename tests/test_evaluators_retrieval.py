"""Translations among random others, and among all sentences of a corpus."""

import convert
import numpy as np
import pytest
from encode_functions import by_last_word, constant, looked_up
from evaluation_data import write_table
from raw_files import write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.split import held_out
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError
from xling_tf.evaluators.data import find_bitexts, find_multilingual
from xling_tf.evaluators.encoding import NotApplicableError
from xling_tf.evaluators.retrieval import (
    BITEXT,
    MIXED_POOL,
    RETRIEVAL,
    SIMILARITY_SEARCH,
    BitextRetrieval,
    MixedPoolRetrieval,
    SimilaritySearch,
    TranslationRetrieval,
    find_mixed_pools,
)

PAIRS = [(f"en {number}", f"es {number}") for number in range(300)]


def sampled(pairs=PAIRS, **options):
    return TranslationRetrieval(pairs, ("en", "es"), name="held out", **options)


def test_ranks_by_dot_product_derived_by_hand():
    vectors = {"a": [1, 0], "b": [1, 0], "c": [0, 1], "x": [1, 0], "y": [3, 0], "z": [0, 2]}
    scores = sampled([("a", "x"), ("b", "y"), ("c", "z")])(looked_up(vectors))
    # a: x 1, y 3 -> second; b: y 3, x 1 -> first; c: z 2 -> first.
    assert scores["en-es/precision_at_1"] == pytest.approx(2 / 3)
    # x: a and b tie at 1 -> second; y: a and b tie at 3 -> second; z: c 2 -> first.
    assert scores["es-en/precision_at_1"] == pytest.approx(1 / 3)
    assert scores["en-es/precision_at_3"] == 1.0
    assert scores["num_candidates"] == 3


def test_queries_are_limited_but_candidates_are_not():
    scores = sampled(num_candidates=200, max_queries=50)(by_last_word)
    assert (scores["num_queries"], scores["num_candidates"]) == (50, 200)
    assert sampled(PAIRS[:5] * 10)(by_last_word)["num_queries"] == 5
    same = [("a", "x"), ("a", "y")]
    with pytest.raises(UserError, match="different sentences on both sides"):
        sampled(same)


@pytest.mark.parametrize(("languages", "line"), [("en-es", "{0}\t{1}\n"), ("es-en", "{1}\t{0}\n")])
def test_a_folder_of_corpora_is_scored_on_what_training_never_sees(languages, line, tmp_path):
    lines = [line.format(f"sentence {number}", f"frase {number}") for number in range(2000)]
    shards = {f"parallel/x.{languages}-0000{n}-of-00002.tsv": "".join(lines[n::2]) for n in (0, 1)}
    write_files(tmp_path, shards)
    (texts,) = find_bitexts(tmp_path)
    assert (texts.name, texts.languages, len(texts.files)) == ("x_held_out.en-es", ("en", "es"), 2)
    (corpus,) = transient_store(load_folder(tmp_path, source="en", targets=["es"])).corpora
    assert {*texts.read()} == {tuple(pair[:2]) for pair in corpus.held_out}
    assert 100 < len(texts.read()) < 300
    write_files(tmp_path, {"tiny/parallel/x.en-es.tsv": "a\tb\n"})  # skipped; not an error
    (tiny,) = RETRIEVAL.find(tmp_path / "tiny", 0)
    with pytest.raises(NotApplicableError, match="fewer than 2"):
        tiny.load()


def test_held_out_sentences_with_a_translation_in_each_language_are_searched(tmp_path):
    numbers = {"es": range(2000), "fr": range(500, 2500)}  # English is shared from 500 to 1999
    write_files(
        tmp_path,
        {
            f"parallel/x.{pair}.tsv": "".join(line.format(n) for n in numbers[code])
            for pair, code, line in (
                ("en-es", "es", "sentence {0}\tfrase {0}\n"),
                ("fr-en", "fr", "phrase {0}\tsentence {0}\nautre {0}\tsentence {0}\n"),
            )
        },
    )
    (texts,) = find_multilingual(tmp_path)
    assert (texts.name, texts.languages, len(texts.files)) == ("x_held_out", ("en", "es", "fr"), 2)
    # Of two French translations, the first counts.
    shared = [n for n in range(500, 2000) if held_out(f"sentence {n}")]
    assert {*texts.read()} == {(f"sentence {n}", f"frase {n}", f"phrase {n}") for n in shared}
    (tmp_path / "parallel/x.fr-en.tsv").unlink()  # one pair is of `find_bitexts`
    assert not find_multilingual(tmp_path)


def test_other_translations_of_a_query_are_no_candidates():
    pairs = [("yes", "sí"), ("Yes ", "claro"), ("no", "no"), ("cat", "gato")]
    # "sí" and "claro" score the same for "yes": a tie, were they candidates of the same query.
    yes, no, cat = np.eye(3)
    vectors = {"yes": yes, "Yes ": yes, "sí": yes, "claro": yes, "no": no, "cat": cat, "gato": cat}
    scores = sampled(pairs)(looked_up(vectors))
    assert scores["en-es/precision_at_1"] == 1.0
    assert scores["es-en/precision_at_1"] == 1.0
    # Of four targets two translate "yes", which leaves two others and the right one.
    assert scores["num_candidates"] == 3


def test_translations_outside_the_sample_count_too():
    # Every "es n" below 40 translates "en n" and "hub 0"; half of these pairs are not sampled.
    # Those of "hub 0" tie: one more of them among the candidates is an error. For "en n", only "es
    # n" has 1.
    hub = [("hub 0", f"es {n}") for n in range(40)]
    vectors = {f"{language} {n}": np.eye(81)[n] for language in ("en", "es") for n in range(80)}
    vectors |= {f"es {n}": np.eye(81)[n] + 10 * np.eye(81)[80] for n in range(40)}
    evaluator = sampled(hub + PAIRS[:80], num_candidates=10, max_queries=60)
    scores = evaluator(looked_up({**vectors, "hub 0": np.eye(81)[80]}))
    assert scores["en-es/precision_at_1"] == 1.0
    assert scores["es-en/precision_at_1"] == 1.0


def test_nearest_by_cosine_derived_by_hand():
    rows = [("a", "x"), ("b", "y"), ("c", "z")]
    vectors = {"a": [2, 0], "b": [1, 1], "c": [0, 1], "x": [1, 0], "y": [9, 1], "z": [0, 3]}
    scores = BitextRetrieval(rows, ("en", "es"), name="x")(looked_up(vectors))
    # a: x 1.0 before y 0.99. b: y (9 + 1) / sqrt(2 * 82) = 0.78 before x and z, 0.71. c: z 1.0.
    assert scores["en-es/precision_at_1"] == 1.0
    # x: a. y: a 9 / sqrt(82) = 0.99 before b 0.78, an error. z: c.
    assert scores["es-en/precision_at_1"] == pytest.approx(2 / 3)
    assert scores["error_rate"] == pytest.approx(1 / 6)


def test_errors_of_three_languages_derived_by_hand():
    # German's two sentences lie swapped; Chinese's agree with English's.
    rows = [("a", "A", "1"), ("b", "B", "2")]
    vectors = {"a": [1, 0], "A": [0, 1], "1": [3, 1], "b": [0, 1], "B": [1, 0], "2": [1, 3]}
    scores = SimilaritySearch(rows, ("en", "de", "zh"), name="x")(looked_up(vectors))
    pairs = ["en-de", "en-zh", "de-en", "de-zh", "zh-en", "zh-de"]
    errors = {f"{pair}/error_rate": float("de" in pair) for pair in pairs}
    errors |= {f"{code}-{code}/error_rate": 0.0 for code in ("en", "de", "zh")}
    means = {"mean/error_rate": pytest.approx(4 / 6), "all/error_rate": pytest.approx(4 / 9)}
    assert scores == {**means, **errors}


def test_a_sentence_finds_itself_unless_another_row_is_the_same():
    # "yes" is there twice, and "Cat" has the vector of "cat": one row of five finds itself.
    rows = [(text, f"x{number}") for number, text in enumerate(["yes", "yes", "cat", "Cat", "no"])]
    vectors = {"yes": [1, 0], "cat": [0, 1], "Cat": [0, 2], "no": [1, 1]}
    others = {f"x{number}": [np.cos(number), np.sin(number)] for number in range(5)}
    scores = SimilaritySearch(rows, ("en", "es"), name="x")(looked_up({**vectors, **others}))
    assert scores["en-en/error_rate"] == pytest.approx(4 / 5)
    assert scores["es-es/error_rate"] == 0


def test_a_pool_of_two_languages_derived_by_hand():
    radians = {
        text: np.radians(angle) for text, angle in {"a": 0, "A": 5, "b": 30, "B": 12}.items()
    }
    vectors = {text: [np.cos(angle), np.sin(angle)] for text, angle in radians.items()}
    pool = MixedPoolRetrieval([("a", "A"), ("b", "B")], ("en", "es"), name="x")
    # a: A at 5 degrees. b: B at 18. A: a at 5. B: A at 7, of its own language, before b at 18.
    expected = {"en/recall_at_1": 1.0, "es/recall_at_1": 0.5, "mean/recall_at_1": 0.75}
    expected |= {
        f"{code}/own_language_share": share
        for code, share in (("en", 0), ("es", 0.5), ("mean", 0.25))
    }
    # Of the three other sentences, one is in the query's language.
    expected["mean/own_language_share_by_chance"] = pytest.approx(1 / 3)
    assert pool(looked_up(vectors)) == expected
    # If all three tie, none is found, and a third of the nearest is in the query's language.
    tied = pool(constant)
    assert (tied["mean/recall_at_1"], tied["mean/own_language_share"]) == (0, pytest.approx(1 / 3))


def test_copies_and_other_translations_are_right():
    rows = [("yes", "sí"), ("yes", "claro"), ("yes", "sí"), ("cat", "gato")]
    vectors = {"yes": [1, 0], "sí": [1, 0.1], "claro": [1, 0], "cat": [0, 1], "gato": [0, 1]}
    found = BitextRetrieval(rows, ("en", "es"), name="x")
    assert found(looked_up(vectors))["error_rate"] == 0.0
    # The nearest of all three rows of "yes" is now that of "cat": one row of four is found.
    wrong = found(looked_up({**vectors, "gato": [1, 0.001], "sí": [1, 1], "claro": [1, 1]}))
    assert wrong["en-es/precision_at_1"] == 0.0
    assert found.protocol["num_rows"] == 4
    assert found.protocol["num_candidates"] == {"en": 2, "es": 3}
    assert found.protocol["index"] == "flat"


def test_hypotheses_of_xnli_are_joined_by_their_numbers(tmp_path):
    folder, columns = tmp_path / "nli", "pair_id hypothesis"
    write_table(folder / "xnli.en.dev.tsv", columns, (1, "One"), (2, "Two"))
    write_table(folder / "xnli.es.dev.tsv", columns, (2, "Dos"), (1, "Uno"))
    write_table(folder / "xnli.zh.dev.tsv", columns, (2, "二"))
    # Without pair_id nothing tells which rows belong together.
    write_table(folder / "xnli.de.dev.tsv", "label hypothesis", ("neutral", "Eins"))
    assert {texts.name: texts.read() for texts in find_bitexts(tmp_path)} == {
        "xnli.dev.hypotheses.en-es": [("One", "Uno"), ("Two", "Dos")],
        "xnli.dev.hypotheses.en-zh": [("Two", "二")],
    }
    (texts,) = find_multilingual(tmp_path)
    assert (texts.name, texts.languages) == ("xnli.dev.hypotheses", ("en", "es", "zh"))
    assert texts.read() == [("Two", "Dos", "二")]
    write_table(tmp_path / "similarity_search/europarl.tsv", "en es zh", ("One", "Uno", "一"))
    assert {found.name for found in SIMILARITY_SEARCH.find(tmp_path, 3)} == {
        "europarl",
        "xnli.dev.hypotheses",
    }


def test_rows_with_a_blank_text_are_neither_queries_nor_candidates(tmp_path, caplog):
    sides = {"x.en-es.en": "One\n\nTwo\n\u200b\n", "x.en-es.es": "Uno\nvacío\nDos\nnada\n"}
    lines = {
        "news.en": "One\nTwo\nSix\n",
        "news.es": "Uno\n \nSeis\n",
        "news.de": "Eins\nZwei\nSechs\n",
    }
    for name, files in {"moses": sides, "parallel_lines": lines}.items():
        convert.convert(name, write_files(tmp_path / name, files), tmp_path)
    for code, texts in (("en", ("One", "Two", " ")), ("es", ("Uno", "", "Tres"))):
        rows = [(number, text) for number, text in enumerate(texts)]
        write_table(tmp_path / f"nli/xnli.{code}.dev.tsv", "pair_id hypothesis", *rows)
    assert {texts.name: texts.read() for texts in find_bitexts(tmp_path)} == {
        "x.en-es": [("One", "Uno"), ("Two", "Dos")],
        "xnli.dev.hypotheses.en-es": [("One", "Uno")],
    }
    assert ["x.en-es: 2 of 4 rows" in line for line in caplog.messages] == [True, False]
    news = next(texts for texts in find_multilingual(tmp_path) if texts.name == "news")
    assert news.read() == [("Eins", "One", "Uno"), ("Sechs", "Six", "Seis")]
    # Two right pairs are found, whatever the vectors of the others would be.
    dataset = next(found for found in BITEXT.find(tmp_path, 0) if found.name == "x.en-es")
    vectors = {"One": [1, 0], "Uno": [1, 0], "Two": [0, 1], "Dos": [0, 1]}
    assert dataset.load()(looked_up(vectors))["error_rate"] == 0.0


def test_a_pool_has_no_second_sentences_of_pairs_that_mean_the_same(tmp_path):
    columns = "sentence1 sentence2 score"
    for code, texts in (("en", "ABCD"), ("es", "abcd")):
        rows = ((texts[0], texts[1], 4), (texts[2], texts[3], 3.9))
        write_table(tmp_path / f"sts/stsb.{code}.dev.tsv", columns, *rows)
    pools = {dataset.name: dataset for dataset in MIXED_POOL.find(tmp_path, 0)}
    assert [path.name for path in pools["stsb.dev"].files] == ["stsb.en.dev.tsv", "stsb.es.dev.tsv"]
    assert pools["stsb.dev"].load().pairs == [("A", "a"), ("C", "c"), ("D", "d")]
    # The same texts are searched by the other languages' alone.
    (search,) = SIMILARITY_SEARCH.find(tmp_path, 0)
    assert search.load().pairs == pools["stsb.dev"].load().pairs
    # At the end of a training, in the model's languages.
    write_table(tmp_path / "eval/sts/stsb.en.dev.tsv", columns, ("A", "B", 3))
    write_table(tmp_path / "eval/sts/stsb.es.dev.tsv", columns, ("a", "b", 3))
    (pool,) = find_mixed_pools(tmp_path, ("es", "de", "en"))
    assert (pool.name, pool.pairs) == ("mixed_pool/stsb.dev", [("a", "A"), ("b", "B")])
    assert not [*find_mixed_pools(tmp_path, ("es", "de"))]
