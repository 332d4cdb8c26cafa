import gzip
import random

import numpy as np
import pytest
from encode_functions import by_meaning, constant, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.data import Dataset, Missing
from xling_tf.evaluators.ranking.paraphrase_files import (
    Pair,
    read_askubuntu,
    read_pairs,
    read_quora,
)
from xling_tf.evaluators.ranking.semantic_retrieval import SUITE, SemanticRetrieval

MAP = "mean_average_precision_at_100"
# 200 meanings in two wordings, and 100 questions that are near none of them.
PAIRS = [Pair(f"ask {n}", f"enquire {n}", True) for n in range(200)]
PAIRS += [Pair(f"ask {n}", f"ask {n + 1000}", False) for n in range(100)]


def number(text):
    return text.split()[-1]


def german(pairs):
    return [Pair(f"de {pair.first}", f"de {pair.second}", pair.duplicate) for pair in pairs]


def write(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_a_perfect_encoder_finds_all():
    scores = SemanticRetrieval({"en": PAIRS}, name="x")(by_meaning(number))
    assert scores == {MAP: 1.0, "num_queries": 400.0, "num_candidates": 499.0}


def test_a_random_encoder_has_chance():
    # One of 499 ranks, all alike: (1/1 + ... + 1/100) / 499 = 5.19 / 499 = 0.0104; its standard
    # error over 400 queries is about sqrt(1.63 / 499 / 400) = 0.003.
    scores = SemanticRetrieval({"en": PAIRS}, name="x")(random_vectors())
    assert 0.002 < scores[MAP] < 0.02


def test_a_constant_encoder_finds_nothing():
    assert SemanticRetrieval({"en": PAIRS}, name="x")(constant)[MAP] == 0.0
    zeros = SemanticRetrieval({"en": PAIRS}, name="x")(lambda texts: np.zeros((len(texts), 3)))
    assert zeros[MAP] == 0.0


def test_neither_the_order_of_lines_nor_a_second_call_makes_a_difference():
    pairs = [pair if n % 2 else Pair(pair[1], pair[0], pair[2]) for n, pair in enumerate(PAIRS)]
    random.Random(0).shuffle(pairs)
    first = SemanticRetrieval({"en": PAIRS}, name="x")
    second = SemanticRetrieval({"en": pairs}, name="x")
    scores = first(random_vectors())
    assert scores == first(random_vectors()) == second(random_vectors())


def test_the_closure_is_transitive():
    # Angles a 0, b 10, c 80, d 20 degrees; a = b and b = c, so a = c; d is a distractor.
    # a: b 10, d 20, c 80 -> (1/1 + 2/3) / 2 = 5/6
    # b: a and d are 10 degrees off, a tie that d wins, then c -> (1/2 + 2/3) / 2 = 7/12
    # c: d 60, b 70, a 80 -> (1/2 + 2/3) / 2 = 7/12
    pairs = [Pair("a", "b", True), Pair("b", "c", True), Pair("c", "d", False)]
    angles = {"a": 0, "b": 10, "c": 80, "d": 20}

    def encode(texts):
        radians = np.radians([angles[text] for text in texts])
        return 3 * np.stack([np.cos(radians), np.sin(radians)], axis=1)

    scores = SemanticRetrieval({"en": pairs}, name="x")(encode)
    assert scores[MAP] == pytest.approx((5 / 6 + 7 / 12 + 7 / 12) / 3)
    assert scores["num_queries"] == 3
    assert scores["num_candidates"] == 3


def test_each_language_is_searched_with_the_other():
    pairs = {"en": PAIRS, "de": german(PAIRS)}
    scores = SemanticRetrieval(pairs, name="x")(by_meaning(number))
    assert scores[f"de-en/{MAP}"] == scores[f"en-de/{MAP}"] == 1.0
    assert scores["de-en/num_candidates"] == 499


def test_the_directions_differ():
    # English queries fall together, so that every one has the right one at the same place.
    pairs = {"en": [Pair("a", "b", True)], "de": [Pair("A", "B", True)]}
    pairs["en"].append(Pair("c", "c", False))
    pairs["de"].append(Pair("C", "C", False))
    vectors = {"a": [1, 0], "b": [1, 0], "c": [0, 1], "A": [1, 0], "B": [1, 2], "C": [2, 1]}
    scores = SemanticRetrieval(pairs, name="x")(lambda texts: np.array([vectors[t] for t in texts]))
    # en-de: a asks for B (C nearer: 1/2), b asks for A (first: 1).
    assert scores[f"en-de/{MAP}"] == pytest.approx(3 / 4)
    # de-en: A asks for b (first: 1), B for a (c nearer: 1/2).
    assert scores[f"de-en/{MAP}"] == pytest.approx(3 / 4)
    # A question with two translations is asked in the first of them, in whatever line it stands.
    pairs["en"].append(Pair("a", "c", False))
    pairs["de"].append(Pair("Z", "C", False))
    vectors["Z"] = [-1, 0]
    again = SemanticRetrieval(pairs, name="x")(lambda texts: np.array([vectors[t] for t in texts]))
    assert again[f"de-en/{MAP}"] == scores[f"de-en/{MAP}"]


@pytest.mark.parametrize(
    "pairs",
    [
        {"en": [Pair("a", "b", False)]},
        {"en": []},
        {"en": [Pair("a", "a", True)]},
        {"en": PAIRS, "de": german(PAIRS[1:])},
        {"en": PAIRS, "de": german(PAIRS[::-1])},
    ],
)
def test_data_that_cannot_be_evaluated(pairs):
    with pytest.raises(UserError, match=r"pairs that mean the same|two different texts"):
        SemanticRetrieval(pairs, name="x")


def test_a_vector_that_is_not_finite_is_told():
    with pytest.raises(UserError, match="finite"):
        SemanticRetrieval({"en": PAIRS}, name="x")(lambda texts: np.full((len(texts), 2), np.nan))


def test_tables(tmp_path):
    rows = ("label\tquestion1\tquestion2", "1\tHow so ?\tWhy ?", "0\tWhy ?\tWhere ?")
    expected = [Pair("How so ?", "Why ?", True), Pair("Why ?", "Where ?", False)]
    assert read_pairs(write(tmp_path / "quora.tsv", *rows)) == expected
    # PAWS-X has its columns in another order, and an id.
    rows = ("id\tsentence1\tsentence2\tlabel", "1\tA b.\tB a.\t0")
    assert read_pairs(write(tmp_path / "pawsx.tsv", *rows)) == [Pair("A b.", "B a.", False)]
    with pytest.raises(UserError, match="question1, question2, label"):
        read_pairs(write(tmp_path / "bad.tsv", "label\ttext1\ttext2"))
    with pytest.raises(UserError, match=r"label 1 .* line 2 has 'yes'"):
        read_pairs(write(tmp_path / "bad.tsv", "label\tquestion1\tquestion2", "yes\ta\tb"))


def test_quora_as_published(tmp_path):
    path = write(
        tmp_path / "quora_duplicate_questions.tsv",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "0\t1\t2\tWhy is the sky blue?\tWhat makes the sky blue?\t1",
        '1\t3\t4\tWhat does "xyz" mean?\t"What does ""xyz""',
        'stand for?"\t0',
        "2\t5\t6\tIs there more?\t\t0",
    )
    assert read_quora(path) == [
        Pair("Why is the sky blue?", "What makes the sky blue?", True),
        Pair('What does "xyz" mean?', 'What does "xyz"\nstand for?', False),
        Pair("Is there more?", "Is there more?", False),
    ]
    with pytest.raises(UserError, match="first line"):
        read_quora(write(tmp_path / "quora.tsv", "0\t1\t2\tWhy?\tHow?\t1"))
    with pytest.raises(UserError, match="6 fields in every line, but line 2 has 5"):
        read_quora(write(tmp_path / "q.tsv", path.read_text().split("\n")[0], "0\t1\t2\tWhy?\t1"))


def test_askubuntu_as_published(tmp_path):
    corpus = tmp_path / "text_tokenized.txt.gz"
    lines = (
        "9\thow do i update ?\tlong story",
        "11\tupdating ?\t",
        "7\tno sound\tnone",
        "8\tgrub\tx",
    )
    with gzip.open(corpus, "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    annotations = write(tmp_path / "dev.txt", "9\t11\t11 7\t3.5 1.5", "7\t\t9 11\t2 1")
    pairs, titles = read_askubuntu(corpus, annotations)
    assert pairs == [Pair("how do i update ?", "updating ?", True)]
    assert titles == ["how do i update ?", "updating ?", "no sound", "grub"]
    evaluator = SemanticRetrieval({"en": pairs}, name="askubuntu", further=titles)
    scores = evaluator(by_meaning(lambda text: "upd" in text))
    assert scores == {MAP: 1.0, "num_queries": 2.0, "num_candidates": 3.0}
    with pytest.raises(UserError, match="'12' is not there"):
        read_askubuntu(corpus, write(tmp_path / "bad.txt", "9\t12\t12\t1"))
    with pytest.raises(UserError, match="similar ids"):
        read_askubuntu(corpus, write(tmp_path / "bad.txt", "9 11"))


def test_the_suite_finds_what_is_there(tmp_path):
    missing = {item.name for item in SUITE.find(tmp_path, 0) if isinstance(item, Missing)}
    assert missing == {"quora.en", "askubuntu.en.dev", "askubuntu.en.test", "cross-lingual.quora"}
    folder = tmp_path / "paraphrase"
    header = "label\tquestion1\tquestion2"
    write(folder / "quora.en.dev.tsv", header, "1\ta 1\tb 1", "0\ta 1\tc 2")
    write(folder / "quora.de.dev.tsv", header, "1\tA 1\tB 1", "0\tA 1\tC 2")
    write(folder / "pawsx.de.test.tsv", header.replace("question", "sentence"), "1\ta 1\tb 1")
    published = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    write(folder / "quora_duplicate_questions.tsv", published, "0\t1\t2\tx 1\ty 1\t1")
    write(folder / "askubuntu" / "text_tokenized.txt", "1\ta 1\t", "2\tb 1\t", "3\tc 2\t")
    write(folder / "askubuntu" / "dev.txt", "1\t2\t2 3\t2 1")
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert {name for name, item in found.items() if isinstance(item, Dataset)} == {
        *("quora.en", "quora.en.dev", "quora.de.dev", "pawsx.de.test"),
        *("cross-lingual.quora.dev", "askubuntu.en.dev"),
    }
    for item in found.values():
        if isinstance(item, Dataset):
            scores = item.load()(by_meaning(number))
            assert [value for key, value in scores.items() if MAP in key] == [1.0] * (
                2 if "cross" in item.name else 1
            )
