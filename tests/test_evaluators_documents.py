"""Document classification: division, pooling, and the scores of known encoders."""

import numpy as np
import pytest
from encode_functions import Counting, looked_up

from xling_tf.evaluators import documents
from xling_tf.evaluators.documents import DocumentClassification, divide, pool


def test_scores_within_and_across_languages():
    # Forty documents of two sentences in each language, and vectors that tell topics in English
    # alone.
    numbered = [(topic, n) for n in range(20) for topic in ("CCAT", "GCAT")]
    rows = {
        code: [(topic, f"{code}{n} {topic} one. {code}{n} {topic} two.") for topic, n in numbered]
        for code in ("en", "de", "fr")
    }
    sets = {code: dict.fromkeys(("train", "dev", "test"), rows[code]) for code in rows}
    evaluator = DocumentClassification(sets, name="news")
    scores = evaluator(lambda texts: np.array([["en" in t and "CCAT" in t, 1.0] for t in texts]))
    # 1 within English, and one half wherever there is another language.
    assert scores["sentences-mean/zero_shot/en/accuracy"] == 1.0
    assert scores["sentences-mean/zero_shot/en-de/accuracy"] == 0.5
    assert scores["sentences-mean/zero_shot/all/accuracy"] == pytest.approx((1 + 8 * 0.5) / 9)
    # Whatever the others teach about a language that is left out is a guess, and so is all about
    # them.
    left_out = {
        name.split("/")[2]: value for name, value in scores.items() if "leave_one_out" in name
    }
    assert left_out == {"all": 0.5, "en": 0.5, "de": 0.5, "fr": 0.5}
    # Zero-shot in four ways and targeted transfer, nine pairs and their mean each.
    assert len(scores) == 5 * 10 + len(left_out)
    assert {
        "windows-max/zero_shot/en-de/accuracy",
        "sentences-mean/targeted/de-en/accuracy",
    } <= scores.keys()


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
    for code in ("zh", "zh_TW"):
        assert [len(part) for part in divide("字" * 150, code, "windows")] == [128, 86]


def test_pooling_by_hand(monkeypatch):
    encode = Counting(looked_up({"a": [1, 0], "b": [3, -2], "c": [2, 2]}))
    # Two documents at once: the third comes in a second call.
    monkeypatch.setattr(documents, "_DOCUMENTS_AT_ONCE", 2)
    pooled = pool(encode, [["a", "b"], ["a"], ["c", "a"]])
    assert pooled["mean"].tolist() == [[2.0, -1.0], [1.0, 0.0], [1.5, 1.0]]
    assert pooled["max"].tolist() == [[3.0, 0.0], [1.0, 0.0], [2.0, 2.0]]
    assert encode.batches == [["a", "b"], ["c", "a"]]
