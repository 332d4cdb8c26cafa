import ast
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.search.neighbours import truncated
from xling_tf.search.quantization import Int8Ranges, quantize
from xling_tf.sentence_encoder import ResponseEncoder, SentenceEncoder


def numbers(texts):
    """Stands for a model: sentence "3 4" has the vector (3, 4)."""
    rows = [[float(number) for number in text.split()] for text in texts.numpy()]
    return np.array(rows, np.float32).reshape(len(rows), -1)


@pytest.fixture(scope="module")
def loaded(hub_folder):
    return xling_tf.load(str(hub_folder))


def test_vectors_are_shortened_and_quantized_batch_by_batch():
    sentences = [" ".join(map(str, row)) for row in np.random.default_rng(0).normal(size=(9, 24))]
    encoder = SentenceEncoder(numbers)
    shortened = truncated(encoder.encode(sentences), 16)
    ranges = Int8Ranges.calibrated(shortened)
    for precision, given in (("float32", None), ("int8", ranges), ("binary", None)):
        found = encoder.encode(sentences, batch_size=2, precision=precision, truncate_dim=16, ranges=given)
        expected = quantize(shortened, precision, ranges=given)
        assert found.dtype == expected.dtype
        assert np.array_equal(found, expected)


def test_loaded_it_encodes_as_the_model_does(loaded, hub_vectors):
    assert loaded.encode(SENTENCES, batch_size=4) == pytest.approx(hub_vectors, abs=1e-6)
    assert loaded.dim == hub_vectors.shape[1]
    assert loaded.encode([], precision="ubinary").shape == (0, 1)
    # What json.loads makes of "\ud83d", half an emoji.
    assert np.isfinite(loaded.encode(["\ud83d", "hola \udc00"])).all()


def test_scripts_for_sentence_transformers_need_another_import_alone(hub_folder, loaded, hub_vectors):
    model, util = SentenceEncoder(str(hub_folder)), xling_tf
    options = {"batch_size": 32, "show_progress_bar": False, "normalize_embeddings": True}
    vectors = model.encode(SENTENCES, convert_to_tensor=True, **options)
    assert vectors.shape == (len(SENTENCES), model.get_sentence_embedding_dimension())
    assert vectors.numpy() == pytest.approx(hub_vectors, abs=1e-6)
    queries = model.encode_query(SENTENCES[:2], **options)
    documents = model.encode_document(SENTENCES, convert_to_numpy=True, **options)
    assert queries == pytest.approx(loaded.question_encoder.encode(SENTENCES[:2]), abs=1e-6)
    assert documents == pytest.approx(loaded.response_encoder.encode(SENTENCES), abs=1e-6)
    assert model.similarity(queries, documents).shape == (2, len(SENTENCES))
    pairwise = model.similarity_pairwise(vectors[:2], vectors[1:3])
    assert pairwise == pytest.approx(np.diag(model.similarity(vectors[:2], vectors[1:3])), abs=1e-6)
    hits = util.semantic_search(vectors, vectors, top_k=1)
    assert [hit["corpus_id"] for (hit,) in hits] == list(range(len(SENTENCES)))
    assert len(util.paraphrase_mining(model, SENTENCES, show_progress_bar=False, top_k=1)) > 0
    assert util.community_detection(vectors, threshold=-1, min_community_size=2)[0][0] == 0


def test_questions_responses_and_inference_are_those_of_the_signatures(loaded, hub_loaded):
    signatures = hub_loaded.signatures
    for name in ("question_encoder", "response_encoder"):
        expected = signatures[name](input=SENTENCES)["outputs"].numpy()
        found = getattr(loaded, name).encode(SENTENCES, batch_size=4)
        assert found == pytest.approx(expected, abs=1e-6)
        assert getattr(loaded, name).encode(SENTENCES[1]) == pytest.approx(expected[1], abs=1e-6)
    expected = signatures["inference"](premise=SENTENCES, hypothesis=SENTENCES[::-1])["outputs"]
    found = loaded.inference(SENTENCES, SENTENCES[::-1], batch_size=4)
    assert found == pytest.approx(expected.numpy(), abs=1e-6)
    assert loaded.inference("hola", "hello").shape == (3,)


def test_what_a_model_lacks_is_named(loaded):
    with pytest.raises(UserError, match="can be called with sentences, is expected"):
        SentenceEncoder(object())
    with pytest.raises(UserError, match=r"shape \[2, dim\] for 2 texts .* gave shape \[2\]"):
        SentenceEncoder(lambda texts: np.zeros(len(texts))).encode(["a", "b"])
    with pytest.raises(UserError, match=r"the signature inference .* not loaded from an export"):
        SentenceEncoder(numbers).inference("a", "b")
    with pytest.raises(UserError, match="was trained without contexts, but got some"):
        loaded.response_encoder.encode("a", "b")
    with pytest.raises(UserError, match=r"as many hypotheses as premises .* got 1 for 2"):
        loaded.inference(["a", "b"], ["c"])


def test_bfloat16_rounds_the_products_of_many_texts(hub_folder, loaded):
    rounding = xling_tf.load(hub_folder, dtype="bfloat16")
    texts = [f"{text} {n}" for n in range(4) for text in SENTENCES]
    for name in (None, "question_encoder", "response_encoder"):
        rounded, exact = (getattr(model, name) if name else model for model in (rounding, loaded))
        assert np.array_equal(rounded.encode(texts[:4]), exact.encode(texts[:4]))
        found, expected = rounded.encode(texts), exact.encode(texts)
        assert found.dtype == np.float32
        assert found == pytest.approx(expected, abs=0.02)
        if "avx512f" in Path("/proc/cpuinfo").read_text():  # elsewhere oneDNN has no products of bfloat16
            assert not np.array_equal(found, expected)
    for model, dtype in ((hub_folder, "float16"), (numbers, "bfloat16")):
        with pytest.raises(UserError, match=f"dtype: float32 is expected.*{dtype}"):
            SentenceEncoder(model, dtype)


def test_contexts_go_with_their_responses():
    rows = []

    def call(responses, contexts):
        rows.extend(zip(responses.numpy().tolist(), contexts.numpy().tolist(), strict=True))
        return np.zeros((len(responses), 2))

    encoder = ResponseEncoder(call, takes_contexts=True)
    encoder.encode(["a", "bbb", "cc"], ["x", "y", "z"], batch_size=2)
    assert sorted(rows) == [(b"a", b"x"), (b"bbb", b"y"), (b"cc", b"z")]
    rows.clear()
    encoder.encode(["a", "b"], "x")
    encoder.encode("c")
    assert rows == [(b"a", b"x"), (b"b", b"x"), (b"c", b"")]
    with pytest.raises(UserError, match=r"as many contexts as responses .* got 1 for 2"):
        encoder.encode(["a", "b"], ["x"])


def test_threads_share_one(loaded):
    lists = [[f"{word} {number}" for word in SENTENCES] for number in range(4)]
    expected = [loaded.encode(some, batch_size=4) for some in lists]
    fresh = SentenceEncoder(loaded._embed)  # nothing computed beforehand
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda some: fresh.encode(some, batch_size=4), lists))
        dims = set(threads.map(lambda _: fresh.dim, lists))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert dims == {expected[0].shape[1]}


def test_the_package_gives_its_short_names_and_what_needs_no_tensorflow_without_it():
    code = (
        "import sys, xling_tf\n"
        "heavy = {'tensorflow', 'keras', 'numpy', 'faiss'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "heavy_names = {'KerasEncoder', 'fine_tune'}\n"
        "[getattr(xling_tf, name) for name in set(xling_tf.__all__) - heavy_names]\n"
        "import xling_tf.presets, xling_tf.corpora.folder, xling_tf.evaluators.running\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "assert set(xling_tf.__all__) <= set(dir(xling_tf))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_type_checkers_are_told_of_every_short_name():
    stub = Path(xling_tf.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    told = {
        alias.name: node.module
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert told == {name: f"xling_tf.{home}" for name, home in xling_tf._HOMES.items()}


def test_documents_are_pooled_from_their_parts():
    encoder = SentenceEncoder(
        lambda texts: np.array([[len(text), -len(text)] for text in texts.numpy()], np.float32)
    )
    documents = ["One. Four more.", "x"]
    assert encoder.encode_documents(documents, "en").tolist() == [[7, -7], [1, -1]]
    assert encoder.encode_documents(documents, "en", pooling="max").tolist() == [[10, -4], [1, -1]]
    # 129 words of one letter: the windows are of 128 and of 65 words, with the spaces between them.
    long = encoder.encode_documents([" ".join("x" * 129)], "en", segmentation="windows")
    assert long.tolist() == [[(255 + 129) / 2, -(255 + 129) / 2]]
    with pytest.raises(UserError, match="segmentation is expected to be sentences or windows"):
        encoder.encode_documents(documents, "en", segmentation="words")
