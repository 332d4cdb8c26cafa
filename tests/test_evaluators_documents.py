import numpy as np
import pytest
from encode_functions import by_meaning, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.classification import documents
from xling_tf.evaluators.classification.document_files import SUITE, read_mldoc
from xling_tf.evaluators.classification.documents import (
    DocumentClassification,
    Splits,
    divide,
    pool,
)
from xling_tf.evaluators.data import Dataset, Missing

TOPICS = ("CCAT", "GCAT")
LANGUAGES = ("en", "de", "fr")


def made_up(language, num_documents=40):
    """Documents of two sentences each, whose second words are the topic."""
    rows = [
        (topic, f"{language}{place} {topic} one. {language}{place} {topic} two.")
        for place in range(num_documents // 2)
        for topic in TOPICS
    ]
    return Splits(rows, rows, rows)


def make(languages=LANGUAGES):
    return DocumentClassification({code: made_up(code) for code in languages}, name="news")


def find(folder):
    return {found.name: found for found in SUITE.find(folder, 0)}


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_mldoc(folder, language, text="{topic} text."):
    lines = [f"{topic}\t{text.format(topic=topic)}" for topic in TOPICS] * 5
    for split in ("train.1000", "dev", "test"):
        write(folder / f"{language}.{split}", lines)


def test_a_perfect_encoder_scores_one_everywhere():
    scores = make()(by_meaning(lambda text: text.split()[1]))
    assert set(scores.values()) == {1.0}
    assert next(iter(scores)) == "sentences-mean/zero_shot/all/accuracy"
    # Zero-shot in four ways and targeted transfer: nine pairs and their mean; three left out in turn.
    assert len(scores) == 5 * 10 + 4
    assert "windows-max/zero_shot/en-de/accuracy" in scores
    assert "sentences-mean/targeted/de-fr/accuracy" in scores
    assert "sentences-mean/leave_one_out/de/accuracy" in scores


def test_random_vectors_score_chance():
    # Of two topics 0.5; 40 documents have a standard deviation of 0.08, the mean of six directions
    # with shared classifiers and test sets about 0.05.
    scores = make()(random_vectors())
    across = [
        scores[f"windows-mean/zero_shot/{a}-{b}/accuracy"]
        for a in LANGUAGES
        for b in LANGUAGES
        if a != b
    ]
    assert np.mean(across) == pytest.approx(0.5, abs=0.2)


def test_all_is_the_mean_within_and_across():
    # Vectors tell English topics only: 1 within English, and one half wherever there is another.
    scores = make(("en", "de"))(
        lambda texts: np.array([["en" in t and "CCAT" in t, 1.0] for t in texts])
    )
    assert scores["sentences-mean/zero_shot/en/accuracy"] == 1.0
    assert scores["sentences-mean/zero_shot/en-de/accuracy"] == 0.5
    assert scores["sentences-mean/zero_shot/all/accuracy"] == (1 + 0.5 + 0.5 + 0.5) / 4
    assert not any("leave_one_out" in name for name in scores)


def test_the_order_of_documents_makes_no_difference():
    rows = made_up("en").train
    shuffled = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    evaluator = make(("en",))
    scores = evaluator(random_vectors())
    assert evaluator(random_vectors()) == scores
    other = DocumentClassification({"en": Splits(shuffled, shuffled, shuffled)}, name="news")
    assert other(random_vectors()) == scores


def test_windows_overlap_by_half():
    # 128 words every 64: 129 words need a second window, which holds words 64 to 128.
    words = [str(number) for number in range(200)]
    assert divide(" ".join(words[:128]), "en", "windows") == [" ".join(words[:128])]
    assert divide(" ".join(words[:129]), "en", "windows") == [
        " ".join(words[:128]),
        " ".join(words[64:129]),
    ]
    assert [part.split()[0] for part in divide(" ".join(words), "en", "windows")] == [
        "0",
        "64",
        "128",
    ]


def test_windows_of_chinese_are_of_characters():
    parts = divide("字" * 150, "zh", "windows")
    assert [len(part) for part in parts] == [128, 86]


def test_sentences_of_scripts_with_their_own_marks():
    assert divide("今天下雨。我们走吧！", "zh", "sentences") == ["今天下雨。", "我们走吧！"]


def test_long_documents_are_cut_and_empty_ones_have_a_part():
    assert len(divide("So it is. " * 100, "en", "sentences")) == documents.MAX_PARTS
    assert divide("", "en", "sentences") == divide("", "en", "windows") == [""]


def test_pooling_by_hand(monkeypatch):
    vectors = {"a": [1.0, 0.0], "b": [3.0, -2.0], "c": [2.0, 2.0]}
    asked = []

    def encode(texts):
        asked.append(texts)
        return np.array([vectors[text] for text in texts])

    # Two documents at once: the third comes in a second call.
    monkeypatch.setattr(documents, "_DOCUMENTS_AT_ONCE", 2)
    pooled = pool(encode, [["a", "b"], ["a"], ["c", "a"]])
    assert pooled["mean"].tolist() == [[2.0, -1.0], [1.0, 0.0], [1.5, 1.0]]
    assert pooled["max"].tolist() == [[3.0, 0.0], [1.0, 0.0], [2.0, 2.0]]
    assert asked == [["a", "b"], ["c", "a"]]


def test_bad_data_is_refused():
    rows = made_up("en").train
    with pytest.raises(UserError, match="en has none in dev"):
        DocumentClassification({"en": Splits(rows, [], rows)}, name="news")
    one = [row for row in rows if row[0] == "CCAT"]
    with pytest.raises(UserError, match="all documents of en are labelled 'CCAT'"):
        DocumentClassification({"en": Splits(one, rows, rows)}, name="news")


def test_a_vector_that_is_not_finite_names_its_text():
    with pytest.raises(UserError, match="en0 CCAT one"):
        make(("en",))(lambda texts: np.full([len(texts), 2], np.nan))


def test_mldoc_is_found_in_both_places(tmp_path):
    write_mldoc(tmp_path / "documents", "english")
    write_mldoc(tmp_path / "documents" / "german", "german")
    write(tmp_path / "documents" / "french.dev", ["CCAT\ttexte"])
    found = find(tmp_path)
    assert isinstance(found["MLDoc"], Dataset)
    sizes = found["MLDoc"].load().protocol["num_documents"]
    assert sizes == {code: {"train": 10, "dev": 10, "test": 10} for code in ("de", "en")}
    assert isinstance(found["MLDoc.fr"], Missing)
    assert "documents/french.train.1000, .dev and .test" in found["MLDoc.fr"].expected


def test_mldoc_written_by_python_3(tmp_path):
    path = tmp_path / "french.dev"
    write(
        path,
        [
            r"CCAT" + "\t" + r"b'L\xc3\xa9a dit \"non\"'",
            "GCAT\tb'it is left as it is",
            "ECAT\tplain",
        ],
    )
    assert read_mldoc(path) == [
        ("CCAT", 'Léa dit "non"'),
        ("GCAT", "b'it is left as it is"),
        ("ECAT", "plain"),
    ]


def test_an_unknown_label_is_named(tmp_path):
    path = tmp_path / "english.dev"
    write(path, ["CCAT\tgood", "SPORT\tbad"])
    with pytest.raises(UserError, match=r"line 2 is 'SPORT\\tbad'; correct that line"):
        read_mldoc(path)


def test_tables_are_found_and_reviews_are_not(tmp_path):
    for split in ("train", "dev", "test"):
        write(tmp_path / f"documents/wiki.en.{split}.tsv", ["label\ttext", "A\tx", "B\ty"])
    write(tmp_path / "documents/wiki.de.test.tsv", ["label\ttext", "A\tx"])
    write(tmp_path / "sentiment/chnsenticorp.zh.train.tsv", ["label\ttext", "1\tx"])
    found = find(tmp_path)
    assert set(found) == {"MLDoc", "wiki", "wiki.de"}
    assert found["wiki"].load().protocol["num_documents"]["en"]["train"] == 2
    assert "documents/wiki.de.train.tsv" in found["wiki.de"].expected
    assert "documents/<language>.train.1000" in found["MLDoc"].expected


def test_a_missing_column_is_named(tmp_path):
    for split in ("train", "dev", "test"):
        write(tmp_path / f"documents/wiki.en.{split}.tsv", ["topic\ttext", "A\tx"])
    with pytest.raises(UserError, match="label is not in"):
        find(tmp_path)["wiki"].load()
