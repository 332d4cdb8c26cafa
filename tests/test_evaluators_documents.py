"""Document classification: how documents are divided and pooled, and what known systems score."""

import numpy as np
import pytest
from encode_functions import Counting, by_meaning, looked_up
from evaluation_data import write_table

from xling_tf.errors import UserError
from xling_tf.evaluators import documents
from xling_tf.evaluators.data import Missing
from xling_tf.evaluators.documents import SUITE, DocumentClassification, divide, pool

TOPICS = ("CCAT", "GCAT")
LANGUAGES = ("en", "de", "fr")


def thrice(rows):
    return {"train": rows, "dev": rows, "test": rows}


def made_up(language):
    """Forty documents of two sentences each, whose second words are the topic."""
    return [
        (topic, f"{language}{place} {topic} one. {language}{place} {topic} two.")
        for place in range(20)
        for topic in TOPICS
    ]


def make(languages=LANGUAGES):
    return DocumentClassification({code: thrice(made_up(code)) for code in languages}, name="news")


def test_a_perfect_encoder_scores_one_everywhere():
    scores = make()(by_meaning(lambda text: text.split()[1]))
    assert set(scores.values()) == {1.0}
    assert next(iter(scores)) == "sentences-mean/zero_shot/all/accuracy"
    # Zero-shot in four ways and targeted transfer: nine pairs and their mean; three left out in turn.
    assert len(scores) == 5 * 10 + 4
    assert "windows-max/zero_shot/en-de/accuracy" in scores
    assert "sentences-mean/targeted/de-fr/accuracy" in scores
    assert "sentences-mean/leave_one_out/de/accuracy" in scores


def test_all_is_the_mean_within_and_across():
    # Vectors tell English topics only: 1 within English, and one half wherever there is another.
    scores = make(("en", "de"))(lambda texts: np.array([["en" in t and "CCAT" in t, 1.0] for t in texts]))
    assert scores["sentences-mean/zero_shot/en/accuracy"] == 1.0
    assert scores["sentences-mean/zero_shot/en-de/accuracy"] == 0.5
    assert scores["sentences-mean/zero_shot/all/accuracy"] == (1 + 0.5 + 0.5 + 0.5) / 4
    assert not any("leave_one_out" in name for name in scores)
    one = [row for row in made_up("en") if row[0] == "CCAT"]
    with pytest.raises(UserError, match=r"in en has only \['CCAT'\] in training"):
        DocumentClassification({"en": thrice(made_up("en")) | {"train": one}}, name="news")


def test_documents_are_divided():
    # 128 words every 64: 129 words need a second window, which holds words 64 to 128.
    words = [str(number) for number in range(200)]
    assert divide(" ".join(words[:128]), "en", "windows") == [" ".join(words[:128])]
    first, second = divide(" ".join(words[:129]), "en", "windows")
    assert (first, second) == (" ".join(words[:128]), " ".join(words[64:129]))
    assert divide("今天下雨。我们走吧！", "zh", "sentences") == ["今天下雨。", "我们走吧！"]
    assert len(divide("So it is. " * 100, "en", "sentences")) == documents.MAX_PARTS
    assert divide("", "en", "sentences") == divide("", "en", "windows") == [""]
    # Of Chinese, windows are of characters.
    assert [len(part) for part in divide("字" * 150, "zh", "windows")] == [128, 86]


def test_pooling_by_hand(monkeypatch):
    encode = Counting(looked_up({"a": [1, 0], "b": [3, -2], "c": [2, 2]}))
    # Two documents at once: the third comes in a second call.
    monkeypatch.setattr(documents, "_DOCUMENTS_AT_ONCE", 2)
    pooled = pool(encode, [["a", "b"], ["a"], ["c", "a"]])
    assert pooled["mean"].tolist() == [[2.0, -1.0], [1.0, 0.0], [1.5, 1.0]]
    assert pooled["max"].tolist() == [[3.0, 0.0], [1.0, 0.0], [2.0, 2.0]]
    assert encode.batches == [["a", "b"], ["c", "a"]]


def test_tables_are_found(tmp_path):
    for name in ("wiki.en.train", "wiki.en.dev", "wiki.en.test", "wiki.de.test"):
        write_table(tmp_path / f"documents/{name}.tsv", "label text", ("A", "x"), ("B", "y"))
    found = {item.name: item for item in SUITE.find(tmp_path, 0)}
    assert found["wiki"].load().protocol["num_documents"] == {"en": {"train": 2, "dev": 2, "test": 2}}
    assert isinstance(found["wiki.de"], Missing)
    assert "documents/wiki.de.train.tsv" in found["wiki.de"].expected
