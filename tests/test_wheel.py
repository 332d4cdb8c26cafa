"""An encoder as a Python package: the vectors of the graph, from NumPy or ONNX Runtime alone."""

import os
import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT
from testing import SENTENCES, add_noise, export_package, tiny_config, tiny_model
from tricky_texts import FRAGMENTS, sample_sentences

from xling_tf.client import word_averages, words
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import open_folder
from xling_tf.client.texts import is_blank
from xling_tf.errors import UserError
from xling_tf.exporters import vocabulary, wheel
from xling_tf.exporters.base import OriginalModel, distribution_name
from xling_tf.exporters.sentence_transformers import vocabulary_rows
from xling_tf.weights import as_int4, write_weights

WORDS = ["<empty>", "hola", "don", "n't", ",", "北", "é", "1,234", "the", "que"]
TEXTS = [
    *SENTENCES,
    *FRAGMENTS,
    " ".join(FRAGMENTS),
    "",
    " \t",
    "Mañana",
    "man\u0303ana",
    "é " * 500_000,
]
STATIC = (
    "encoder.kind=static",
    "encoder.hidden_dim=16",
    "encoder.embedding_dim=12",
    "tokenizer.num_oov_buckets=1",
)


# A program that has imported a wheel, and encodes in forked processes, as gunicorn with preload_app
# does: before the parent has encoded, and afterwards.
FORKING = """
import os, sys
import tiny_model
for uses_it in (True, False) * 2:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        sys.exit(0 if not uses_it or tiny_model.encode("a b c").any() else 1)
    assert tiny_model.encode("a b c").any()
"""


def make_source(tmp_path, *settings):
    model = tiny_model(tiny_config(*STATIC, *settings), WORDS)
    add_noise(model.weights.values(), 0.3)
    tmp_path.mkdir(exist_ok=True)
    return OriginalModel(tmp_path, model, lambda texts: model(list(texts)).numpy(), None)


def opened(folder):
    return SentenceEncoder(open_folder(folder))


def unpacked(folder, output):
    (path,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(path), str(output)], check=True)
    return output / "tiny_model"


# No word of the vocabulary has 17 letters.
@pytest.mark.parametrize("ngrams", ["3,4,5", "", "17"])
def test_vectors_are_those_of_the_graph(ngrams, tmp_path, monkeypatch):
    # Without rounding to 8 bits; the principal components of 16 dimensions, all of them, are a
    # rotation.
    scale = np.ones([1, 1], np.float32)
    monkeypatch.setattr(
        wheel,
        "_quantized",
        lambda name, rows, bits: {name: rows, f"{name}_scales": np.repeat(scale, len(rows), 0)},
    )
    source = make_source(
        tmp_path / "model", f"tokenizer.ngram_sizes={ngrams}", "tokenizer.lowercase=true"
    )
    export_package(wheel, source, tmp_path, bits=8)
    client = opened(unpacked(tmp_path, tmp_path / "wheel"))
    encoded = [text.encode("utf-8", "surrogatepass") for text in TEXTS]
    expected = source.model(tf.constant(encoded, tf.string)).numpy()
    expected[[is_blank(text) for text in TEXTS]] = 0
    actual = client.encode(TEXTS)
    np.testing.assert_allclose(actual @ actual.T, expected @ expected.T, atol=2e-6)
    one_by_one = np.stack([client.encode(text) for text in TEXTS])
    np.testing.assert_allclose(one_by_one, actual, atol=1e-6)


def test_the_wheel_has_the_same_bytes_each_time_and_is_close_to_the_model(tmp_path):
    source = make_source(tmp_path / "model")
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        export_package(wheel, source, tmp_path / name, bits=8)
    (first,), (second,) = (list((tmp_path / name).glob("*.whl")) for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    client = opened(unpacked(tmp_path / "first", tmp_path / "wheel"))
    vectors = client.encode(SENTENCES)
    # Rounded to a 254th of a row's largest entry.
    expected = source.encode(SENTENCES)
    expected[SENTENCES.index("")] = 0
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=0.02)


def test_the_card_tells_the_mean_cosine_and_the_least_of_nearly_all(tmp_path):
    # The vectors of every tenth text are turned round: a tenth of the cosines is -1, and the others
    # are almost 1, so their mean is .8, and 5% are at most -1.
    model = make_source(tmp_path / "model", "tokenizer.ngram_sizes=").model

    def encode(texts):
        vectors = model(list(texts)).numpy()
        vectors[::10] *= -1
        return vectors

    source = OriginalModel(tmp_path / "model", model, encode, None)
    export_package(wheel, source, tmp_path, bits=8)
    card = (tmp_path / "tiny-model.md").read_text("utf-8")
    (numbers,) = re.findall(r"is (-?[\d.]+), .* below (-?[\d.]+)\.", card, re.DOTALL)
    mean, least = map(float, numbers)
    assert (mean, least) == (pytest.approx(0.8, abs=0.01), pytest.approx(-1, abs=0.01))


def test_words_are_as_important_as_they_are_frequent_in_training_and_elsewhere(monkeypatch):
    # By Zipf's law, the shares of three words are 1, 1/2 and 1/3 of 11/6: 6/11, 3/11 and 2/11.
    # "que" has half of the words of Spanish, one of two languages, and so .25 more; nothing is
    # known of the other one.
    known = SimpleNamespace(
        available_languages=lambda: {"es": "", "en": ""},
        get_frequency_dict=cache(lambda code: {"que": 0.5}),
        get_frequency_list=cache(list),
    )
    monkeypatch.setattr(vocabulary, "library", lambda *names: known)
    importance = wheel.word_importance(["the", "x", "que"], ["es_MX", "tlh"])
    assert importance == pytest.approx([6 / 11, 3 / 11, 2 / 11 + 0.25])
    # A pair of characters counts a quarter of its 1 / 3.
    assert wheel.word_importance(["中", "中文"], ["tlh"]) == pytest.approx([2 / 3, 1 / 12])


def test_components_are_those_in_which_sentences_are_longest(tmp_path, monkeypatch):
    monkeypatch.setattr(wheel, "_SENTENCES", 100)
    model = make_source(tmp_path / "model", "tokenizer.ngram_sizes=").model
    # Words have 10 in place 3, and 1 or -1 in place 5; all other numbers are zeros.
    table = np.zeros((len(WORDS) + 1, 12))
    table[:, 3], table[:, 5] = 10, (-1) ** np.arange(len(WORDS) + 1)
    model.encoder.embedding.words.table.assign(table)
    model.encoder.input_projection.kernel.assign(np.eye(12, 16))
    model.encoder.input_projection.bias.assign(np.zeros(16))
    components = np.abs(
        wheel.principal_components(model, vocabulary_rows(model), np.ones(len(WORDS)), 2)
    )
    expected = np.zeros((16, 2))
    expected[3, 0] = expected[5, 1] = 1
    assert components == pytest.approx(expected, abs=0.05)


CARD = """---
license: {licence}
base_model: intfloat/some-e5
---

# small-e5

## Where the weights are from

Downloaded from the package `some-weights` of Some Authors.

## Training

None.
"""


@pytest.mark.parametrize(
    ("licence", "expression"),
    [("mit", "Apache-2.0 AND MIT"), ("apache-2.0", "Apache-2.0"), ("odd", None)],
)
def test_a_wheel_says_whose_weights_it_has_and_what_was_changed(licence, expression, tmp_path):
    source = make_source(tmp_path / "model")
    (source.folder / "README.md").write_text(CARD.format(licence=licence))
    (source.folder / "LICENSE").write_text("Their licence.")
    (source.folder / "NOTICE.txt").write_text("Copyright Some Authors.")
    export_package(wheel, source, tmp_path)
    assert (tmp_path / "tiny-model.md").is_file()
    assert not (tmp_path / "README.md").exists()
    unpacked(tmp_path, output := tmp_path / "wheel")
    assert (output / "tiny_model" / "py.typed").is_file()
    licences = output / "tiny_model-1.dist-info" / "licenses"
    assert (licences / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (licences / "LICENSE-of-the-weights").read_text() == "Their licence."
    notice = " ".join((licences / "NOTICE").read_text().split())
    for fact in (
        "small-e5",
        "intfloat/some-e5",
        licence,
        "some-weights",
        "Some Authors",
        "folded",
        "4 bits",
    ):
        assert fact in notice, fact
    assert "None." not in notice
    metadata = (output / "tiny_model-1.dist-info" / "METADATA").read_text().splitlines()
    expressions = [line for line in metadata if line.startswith("License-Expression:")]
    assert expressions == ([f"License-Expression: {expression}"] if expression else [])


def test_a_wheel_of_an_unknown_model_says_that_nothing_is_known(tmp_path):
    export_package(wheel, make_source(tmp_path / "model"), tmp_path)
    unpacked(tmp_path, output := tmp_path / "wheel")
    notice = (output / "tiny_model-1.dist-info" / "licenses" / "NOTICE").read_text()
    assert "not stated" in notice


def test_a_byte_of_four_bit_rows_holds_two_numbers(tmp_path):
    source = make_source(tmp_path / "model", "tokenizer.ngram_sizes=")
    (folder := tmp_path / "numpy").mkdir()
    wheel.export_numpy(source, folder, bits=4)
    # Lower halves come first, and 8 stands for 0: 0x1c is 12 - 8 and 1 - 8, and 0xa8 is 0 and 2. By
    # the scale of 2, these are 8, -14, 0 and 4, a vector of length sqrt(64 + 196 + 16).
    numbers, scales = np.zeros((len(WORDS), 2), np.uint8), np.full((len(WORDS), 1), 2, np.float32)
    numbers[WORDS.index("hola")] = 0x1C, 0xA8
    weights = {"words": numbers, "words_scales": scales, "unknown_bias": np.zeros(4, np.float32)}
    write_weights(folder / word_averages.WEIGHTS, weights)
    vector = opened(folder).encode("hola")
    assert vector[:4] == pytest.approx(np.array([8, -14, 0, 4]) / np.sqrt(276))
    assert vector[4:].tolist() == [0.0] * 12  # what is not stored


def test_rows_in_four_bits_are_as_near_as_the_largest_number_allows():
    random = np.random.default_rng(0)
    rows = random.normal(size=(200, 64)).astype(np.float32)
    rows[0], rows[1] = 0, np.arange(-32, 32)
    numbers, scales = as_int4(rows)
    assert numbers.shape == (200, 32)
    halves = np.stack([numbers & 15, numbers >> 4], axis=2).reshape(200, 64).astype(int) - 8
    assert (halves.min(), halves.max()) == (-7, 7)
    # Rounding to a seventh of the largest number is wrong by half of that at most, and the scale
    # that was chosen has no larger squared error.
    steps = np.abs(rows).max(axis=1) / 7
    errors = np.sum((halves * scales - rows) ** 2, axis=1)
    assert np.all(errors <= 64 * (steps / 2) ** 2 + 1e-6)
    # A single large number is cut off if this makes 63 others finer.
    assert np.any(scales[2:, 0] < 0.95 * steps[2:])


@pytest.mark.parametrize("ngrams", ["3,4", ""])
def test_a_folder_in_four_bits_is_close_to_the_model_and_is_packed(ngrams, tmp_path):
    source = make_source(tmp_path / "model", f"tokenizer.ngram_sizes={ngrams}")
    (folder := tmp_path / "numpy").mkdir()
    wheel.export_numpy(source, folder, dim=384, bits=4)
    client, expected = opened(folder), source.encode(SENTENCES)
    expected[SENTENCES.index("")] = 0
    vectors = client.encode(SENTENCES)
    # The encoder has 16 numbers, from a table of 12: the bias adds a thirteenth, which is left out.
    assert vectors.shape == (len(SENTENCES), 16)
    assert not vectors[:, 12:].any()
    np.testing.assert_allclose(vectors @ vectors.T, expected @ expected.T, atol=0.25)
    for name, write in (
        ("direct", partial(export_package, wheel, source, dim=384, bits=4)),
        ("packed", partial(wheel.pack, folder)),
    ):
        (tmp_path / name).mkdir()
        write(tmp_path / name, name="tiny-model")
    (direct,), (packed,) = ([*(tmp_path / name).glob("*.whl")] for name in ("direct", "packed"))
    assert direct.read_bytes() == packed.read_bytes()
    unpacked(tmp_path / "packed", output := tmp_path / "wheel")
    assert np.array_equal(opened(output / "tiny_model").encode(SENTENCES), vectors)


@pytest.mark.parametrize(
    ("sizes", "message"), [({"bits": 5}, "4 or 8, got 5"), ({"dim": 1}, "at least 2, got 1")]
)
def test_sizes_that_are_not_possible_are_refused(sizes, message, tmp_path):
    with pytest.raises(UserError, match=message):
        wheel.export_numpy(make_source(tmp_path / "model"), tmp_path, **sizes)


def test_few_megabytes_keep_the_words_that_are_frequent(tmp_path):
    model = make_source(tmp_path / "model", "tokenizer.ngram_sizes=").model
    importance = np.arange(len(WORDS), 0, -1.0)
    # A word has 4 numbers of a byte, a scale of 4, its letters and a line break: 16 + 13 + 12 + 12
    # bytes.
    rows, components = vocabulary_rows(model), np.eye(16, 4, dtype=np.float32)
    words, weights = wheel.small_tables(model, rows, components, importance, 45, 8)
    assert words == ["<empty>", "hola", "don"]
    assert weights["words"].shape == (3, 4)
    # In 4 bits, a word has 2 bytes less, so a fourth one fits in two bytes more.
    words, weights = wheel.small_tables(model, rows, components, importance, 47, 4)
    assert words == ["<empty>", "hola", "don", "n't"]
    assert weights["words"].shape == (4, 2)


def test_words_have_fewer_numbers_if_nearly_all_running_words_fit_only_then():
    # Of 3 letters: 256 + 3 + 5 = 264 bytes with 256 numbers of 8 bits, 200 with 192, 152 with 144.
    words = ["one", "two", "six", "ten"]
    common = np.array([0.5, 0.3, 0.197, 0.003])  # three words are 99.7% of a text, two 80%
    assert wheel.num_components(words, common, 3 * 264, 8) == 256
    assert wheel.num_components(words, common, 3 * 264 - 1, 8) == 192
    assert wheel.num_components(words, common, 3 * 200 - 1, 8) == 144
    assert wheel.num_components(words, common, 10, 8) == 144  # no word fits
    # In 4 bits, half of the bytes hold as many numbers: 128 + 8 each.
    assert wheel.num_components(words, common, 3 * 136, 4) == 256


def test_ngrams_have_the_room_that_words_leave(tmp_path):
    model = make_source(tmp_path / "model").model
    rows, components = vocabulary_rows(model), np.eye(16, 4, dtype=np.float32)
    tables = partial(wheel.small_tables, model, rows, components, np.ones(len(WORDS)), bits=8)
    words, weights = tables(1e6)
    count = len(weights["ngrams"])  # with a row for n-grams that training did not see
    assert count == 1 + np.count_nonzero(model.tokenizer.ngram_rows)
    size = (
        sum(array.nbytes for array in weights.values()) + len("".join(words).encode()) + len(words)
    )
    words, weights = tables(size)
    assert (len(words), len(weights["ngrams"])) == (len(WORDS), count)


def test_methods_take_one_text_or_several(tmp_path):
    export_package(wheel, make_source(tmp_path / "model"), tmp_path)
    client = opened(unpacked(tmp_path, tmp_path / "wheel"))
    first, second = client.encode(["hola", "the don"])
    assert client.similarity("hola", "the don") == pytest.approx(first @ second, abs=1e-6)
    assert client.similarity(["hola"], ["the don", "hola"]).shape == (1, 2)
    hits = client.semantic_search("hola", ["the don", "hola", "que"], top_k=2)
    assert hits[0][0] == {"corpus_id": 1, "score": pytest.approx(1, abs=1e-6)}
    assert len(hits[0]) == 2
    assert len(client.semantic_search("hola", "one text")[0]) == 1
    assert client.embed_query("hola") == client.embed_documents(["hola"])[0] == first.tolist()
    assert client.encode([]).shape == (0, 16)
    with pytest.raises(UserError, match=r"inputs\[1\] is NoneType None"):
        client.encode(["hola", None])


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """A client whose vectors have 16 numbers."""
    folder = tmp_path_factory.mktemp("wheel")
    export_package(wheel, make_source(folder / "model"), folder)
    return opened(unpacked(folder, folder / "wheel"))


def test_blank_texts_have_zero_vectors_and_win_no_search(client):
    blanks = ["", "  ", "\n", "\u200b\ufeff"]
    assert not client.encode(blanks).any()
    assert client.encode("").tolist() == [0.0] * 16
    texts = ["", "hola", " ", "the don"]
    (hits,) = client.semantic_search("hola", texts)
    assert [hit["corpus_id"] for hit in hits] == [1, 3]
    scores = [pytest.approx(hit["score"], abs=1e-6) for hit in hits]
    for queries in ("hola", client.encode("hola"), ["hola", ""]):
        for corpus in (texts, client.encode(texts)):
            others, *none = client.semantic_search(queries, corpus)
            assert [hit["corpus_id"] for hit in others] == [1, 3]
            assert [hit["score"] for hit in others] == scores
            assert none == [[]] * (isinstance(queries, list))


def test_a_search_takes_vectors_of_any_length_in_any_form(client):
    vectors, long = client.encode(["hola", "the don"]), 3 * client.encode(["hola", "the don"])
    expected = pytest.approx(vectors @ vectors.T, abs=1e-6)
    assert client.similarity(long, long) == expected
    assert client.similarity(long.tolist(), [*long]) == expected
    ((first, _),) = client.semantic_search("hola", np.array(["the don", "hola"]))
    assert first == {"corpus_id": 1, "score": pytest.approx(1, abs=1e-6)}
    for call in (client.similarity, client.semantic_search):
        with pytest.raises(UserError, match=r"have 16 and .* 5"):
            call("hola", np.ones((2, 5)))


@pytest.mark.parametrize(
    "texts",
    [{"q": "hola"}, {"hola"}, None, 5, np.array([["a", "b"]]), [b"\xff"], bytearray(2)],
)
def test_what_is_no_column_of_texts_is_refused(client, texts):
    for call in (
        client.encode,
        client.embed_documents,
        lambda texts: client.similarity(texts, "a"),
    ):
        with pytest.raises(UserError, match=r"texts|strings"):
            call(texts)


def test_threads_may_share_the_spellings(client, monkeypatch):
    monkeypatch.setattr(word_averages, "_MAX_KEPT", 10)
    monkeypatch.setattr(words, "_MAX_KEPT", 10)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    texts = [[f"w{i}x{j}" for j in range(8)] for i in range(40)]
    try:
        with ThreadPoolExecutor(8) as threads:
            vectors = [*threads.map(client.encode, texts * 5)]
    finally:
        sys.setswitchinterval(interval)
    np.testing.assert_allclose(vectors, [client.encode(some) for some in texts] * 5, atol=1e-6)


def test_an_encoder_of_pieces_gets_the_prompts_of_its_texts(tmp_path):
    settings = (
        "tokenizer.kind=sentencepiece",
        "tokenizer.num_pieces=900",
        "tokenizer.max_tokens=32",
    )
    model = tiny_model(tiny_config(*settings, *STATIC[:3]), {"en": sample_sentences()})
    prompts = {"query": "query: ", "passage": "text: "}
    queries, documents = (
        model([mark + text for text in SENTENCES]).numpy() for mark in prompts.values()
    )
    model.info = replace(model.info, prompts=prompts, default_prompt_name="query")
    source = OriginalModel(tmp_path, model, lambda texts: model(list(texts)).numpy(), None)
    with pytest.raises(UserError, match="`bits` is for averages of words"):
        export_package(wheel, source, tmp_path, bits=4)
    export_package(wheel, source, tmp_path)
    client = opened(unpacked(tmp_path, tmp_path / "wheel"))
    # Weights have 8 bits; the last sentence is blank.
    assert SENTENCES.index("") == len(SENTENCES) - 1
    assert np.sum(client.encode(SENTENCES) * queries, axis=1)[:-1].min() > 0.999
    assert (
        np.sum(np.array(client.embed_documents(SENTENCES)) * documents, axis=1)[:-1].min() > 0.999
    )
    assert not client.encode(SENTENCES)[-1].any()
    assert np.sum(queries * documents, axis=1).max() < 0.99
    assert client.embed_query(SENTENCES[0]) == pytest.approx(client.encode(SENTENCES[0]), abs=1e-6)
    # The texts beside it leave a vector as it is.
    beside = client.encode([SENTENCES[0], *sorted(sample_sentences(), key=len)[-31:]])
    assert client.encode(SENTENCES[0]) == pytest.approx(beside[0], abs=1e-6)
    # A character that has no bytes is a space, as in the graph.
    assert client.encode("a\ud800b") == pytest.approx(client.encode("a b"), abs=1e-6)
    ((hit,),) = client.semantic_search(SENTENCES[0], SENTENCES, top_k=1)
    assert hit["score"] == pytest.approx(np.max(documents[:-1] @ queries[0]), abs=0.01)
    # Pickle loads it again, as a worker of multiprocessing does.
    copy = pickle.loads(pickle.dumps(client.encode))
    assert copy("hola") == pytest.approx(client.encode("hola"), abs=1e-6)
    # Exporting has turned telemetry off in this process; the wheel alone has to do the same.
    environment = {key: text for key, text in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-c", FORKING]
    subprocess.run(command, cwd=tmp_path / "wheel", check=True, timeout=60, env=environment)


def test_models_that_the_client_cannot_compute_are_refused(tmp_path):
    with pytest.raises(UserError, match="num_oov_buckets=1"):
        export_package(
            wheel,
            make_source(tmp_path / "model", "tokenizer.num_oov_buckets=2"),
            tmp_path,
            name="tiny",
        )


def test_names_of_packages_have_their_normal_form():
    assert distribution_name("Tiny.Model__2") == "tiny-model-2"
    with pytest.raises(UserError, match="as multilingual-static, got 'tiny model'"):
        distribution_name("Tiny Model")
