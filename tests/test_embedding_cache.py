"""Stored embeddings: each text is encoded once, and keeps its vector."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encode_functions import Counting, random_vectors

from xling_tf.errors import UserError
from xling_tf.evaluators.cache import cached
from xling_tf.evaluators.encoding import BatchLimits, Embedder, Encode

# A lone surrogate can stand in JSON, and a text may end in the null character.
TEXTS = ["b", "a longer one", "", "b", "猫在睡觉。", "a\0", "a", "\ud800"]


def make(
    sentences: Encode, folder: Path | None, *, checksum: str | None = "x", **more: Any
) -> Embedder:
    """Makes a cached embedder."""
    embedder = Embedder(name="embedder", sentences=sentences, checksum=checksum, **more)
    return cached(embedder, folder, show_progress=False)


@pytest.fixture
def encode():
    return Counting(random_vectors(dim=5))


def test_each_text_is_encoded_once_and_its_vector_is_exact(encode, tmp_path):
    expected = encode.encode([*TEXTS[:-1], " "])  # what an embedder makes of a lone surrogate
    first = make(encode, tmp_path, batch_limits=BatchLimits(2))(TEXTS)
    np.testing.assert_array_equal(first, expected)
    # Two at a time, the longest first, "b" once.
    assert [len(batch) for batch in encode.batches] == [2, 2, 2, 1]
    assert encode.batches[0] == ["a longer one", "猫在睡觉。"]
    again = Counting(encode.encode)
    np.testing.assert_array_equal(make(again, tmp_path)([*TEXTS, "new"])[:-1], expected)
    assert again.batches == [["new"]]


@pytest.mark.parametrize("checksum", [None, "x"])
def test_without_checksum_or_folder_vectors_last_as_long_as_the_embedder(
    checksum, encode, tmp_path
):
    folder = None if checksum else tmp_path
    for calls in (1, 2):
        embedder = make(encode, folder, checksum=checksum)
        np.testing.assert_array_equal(embedder(["a", "b"]), embedder(["a", "b"]))
        assert len(encode.batches) == calls
    assert list(tmp_path.iterdir()) == []


def test_embedders_roles_and_contexts_do_not_mix(tmp_path):
    def ones(width: int) -> Callable[..., np.ndarray]:
        return lambda *columns: np.full((len(columns[0]), width), width)

    calls = []

    def responses(answers: list[str], contexts: list[str]) -> np.ndarray:
        calls.extend(zip(answers, contexts, strict=True))
        return np.array([[len(a), len(c)] for a, c in calls[-len(answers) :]])

    embedder = make(ones(1), tmp_path, raw=ones(5), questions=ones(3), responses=responses)
    other = make(ones(4), tmp_path, checksum="y")
    for system, widths in ((embedder, [1, 5, 3]), (other, [4, 4, 4])):
        encodes = (system, system.encode_raw, system.encode_questions)
        assert [encode(["a"]).shape[1] for encode in encodes] == widths
    # "ab" + "c" and "a" + "bc" are the same letters in a row.
    vectors = embedder.encode_responses(["ab", "a", "ab"], ["c", "bc", "c"])
    assert vectors.tolist() == [[2, 1], [1, 2], [2, 1]]
    assert sorted(calls) == [("a", "bc"), ("ab", "c")]


def test_invalid_vectors_are_rejected_and_not_stored(encode, tmp_path):
    bad = make(
        lambda texts: np.where([[t == "bad"] for t in texts], np.nan, encode(texts)), tmp_path
    )
    with pytest.raises(UserError, match="for 1 of 2 texts, first 'bad'"):
        bad(["fine", "bad"])
    make(encode, tmp_path)(["fine", "bad"])
    assert encode.batches[1:] == [["fine", "bad"]]


def test_a_run_that_ends_leaves_all_batches_but_the_last(tmp_path):
    def end_at_the_third(texts: list[str]) -> np.ndarray:
        if "third" in texts:
            raise KeyboardInterrupt
        return np.ones((len(texts), 3))

    texts = ["longest text", "long text", "third", "a"]
    with pytest.raises(KeyboardInterrupt):
        make(end_at_the_third, tmp_path, batch_limits=BatchLimits(2))(texts)
    encode = Counting(lambda texts: np.full((len(texts), 3), 2.0))
    assert make(encode, tmp_path)(texts)[:, 0].tolist() == [1, 1, 2, 2]
    assert encode.batches == [["third", "a"]]


def test_two_embedders_agree_on_many_texts_and_a_damaged_file_is_an_error(encode, tmp_path):
    texts = [f"text {i}" for i in range(2000)]
    ones = make(lambda texts: np.ones((len(texts), 5)), tmp_path)
    # The other one comes first with one of the texts.
    vectors = make(lambda batch: (ones(texts[:1]), encode(batch))[1], tmp_path)(texts)
    np.testing.assert_array_equal(vectors[1:], encode.encode(texts[1:]))
    assert vectors[0].tolist() == [1] * 5
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"SQLite says .*remove it"):
        make(encode, tmp_path)(texts)
