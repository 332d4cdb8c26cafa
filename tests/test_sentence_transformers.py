"""One script with sentence-transformers and, its import aside, with us; each of its keywords."""

import json
import sys

import numpy as np
import pytest
from programs import PEERS, ROOT, run_python

from xling_tf.errors import UserError
from xling_tf.sentence_encoder import ResponseEncoder, SentenceEncoder

SENTENCES = ["a cat sleeps", "a dog runs", "the cat sleeps", "rain falls", "the rain is falling", "a dog"]
OURS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from xling_tf import SentenceEncoder as SentenceTransformer
import xling_tf as util
"""
THEIRS = "from sentence_transformers import SentenceTransformer, util\n"
# Vectors of a file tell what is computed of them, the model's what form they have.
SCRIPT = """
import json, sys
import numpy as np

folder, vectors = sys.argv[1], np.load("vectors.npy")
sentences = json.load(open("sentences.json"))
model = SentenceTransformer(folder)
options = {"show_progress_bar": False, "convert_to_numpy": True, "normalize_embeddings": True}
encoded = model.encode(sentences, batch_size=2, **options)
one, query = model.encode(sentences[0]), model.encode_query(sentences[0])
documents, cut = model.encode_document(sentences), model.encode(sentences, truncate_dim=4)
similar, pairwise = model.similarity(encoded[:2], encoded), model.similarity_pairwise(encoded, encoded)
mined = util.paraphrase_mining(model, sentences, show_progress_bar=False)
print(json.dumps({
    "forms": [
        *(list(np.shape(v)) for v in (encoded, one, query, documents, cut, similar, pairwise)),
        model.get_sentence_embedding_dimension(),
        str(encoded.dtype), str(model.encode(sentences, precision="int8").dtype),
        len(mined), [type(part).__name__ for part in mined[0]],
    ],
    "searched": [
        [[hit["corpus_id"], round(hit["score"], 4)] for hit in row]
        for row in util.semantic_search(vectors[:3], vectors, top_k=4)
    ],
    "mined": [[round(float(s), 4), i, j] for s, i, j in util.paraphrase_mining_embeddings(vectors)],
    "communities": [
        sorted(group) for group in util.community_detection(vectors, threshold=0.6, min_community_size=2)
    ],
    "similar": np.round(np.asarray(model.similarity(vectors, vectors)), 4).tolist(),
}))
"""
MODEL = """
import sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

words = {word: number for number, word in enumerate(["[UNK]", *sorted(set(sys.argv[2].split()))])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="sentence-transformers is not there; make .peers/.installed")
def test_a_script_gives_the_same_by_another_import(hub_folder, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (tmp_path / "sentences.json").write_text(json.dumps(SENTENCES))
    for name, text in (("model", MODEL), ("theirs", THEIRS + SCRIPT), ("ours", OURS + SCRIPT)):
        (tmp_path / f"{name}.py").write_text(text)
    runs = [
        run_python(tmp_path, *script, python=python)
        for python, *script in (
            (PEERS, "model.py", "peer", " ".join(SENTENCES)),
            (PEERS, "theirs.py", "peer"),
            (sys.executable, "ours.py", str(hub_folder)),
        )
    ]
    for run in runs:
        assert run.status == 0, run.errors
    theirs, ours = (json.loads(run.output.splitlines()[-1]) for run in runs[1:])
    assert ours.pop("similar") == pytest.approx(np.array(theirs.pop("similar")), abs=2e-4)
    assert ours == theirs


def numbers(texts):
    """Stands for a model with lengths of its own: text "3 4" has the vector (3, 4)."""
    return np.array([[float(number) for number in text.split()] for text in texts.numpy()], np.float32)


def unit(texts):
    """Stands for an exported model: text "3 4" has the vector (.6, .8)."""
    return numbers(texts) / np.linalg.norm(numbers(texts), axis=1, keepdims=True)


TEXTS = ["3 4", "0 2"]
UNIT = [[0.6, 0.8], [0.0, 1.0]]
REFUSED = "refused"
# What each keyword, with its default in sentence-transformers and with other values, makes of the texts.
ENCODE = {
    "inputs": [],
    "prompt_name": [(None, UNIT), ("query", UNIT), ("passage", REFUSED)],
    # "13 4" has the length sqrt(185), "10 2" sqrt(104).
    "prompt": [(None, UNIT), ("1", [[0.9558, 0.2941], [0.9806, 0.1961]]), (["1"], REFUSED)],
    "batch_size": [(32, UNIT), (1, UNIT), (0, REFUSED), ("2", REFUSED)],
    "show_progress_bar": [(None, UNIT), (True, UNIT)],
    "output_value": [("sentence_embedding", UNIT), ("token_embeddings", REFUSED), (None, REFUSED)],
    # A step is 5 / sqrt(2) * 2 / 255, and 128 steps less -128 are zero.
    "precision": [("float32", UNIT), ("int8", [[21, 28], [0, 36]]), ("float64", REFUSED)],
    "convert_to_numpy": [(True, UNIT), (False, UNIT)],
    "convert_to_tensor": [(False, UNIT), (True, UNIT)],
    "device": [
        *((device, UNIT) for device in (None, "cpu", "cpu:0", "/device:CPU:0", ["cpu", "cpu"])),
        *((device, REFUSED) for device in ("cuda", "mps", 0, ["cpu", "cuda:1"])),
    ],
    "normalize_embeddings": [(None, UNIT), (True, UNIT), (False, REFUSED)],
    "truncate_dim": [(None, UNIT), (1, [[1.0], [0.0]]), (0, REFUSED), (3, REFUSED)],
    "pool": [(None, UNIT), ({"processes": []}, REFUSED)],
    "chunk_size": [(None, UNIT), (7, UNIT), (0, REFUSED)],
    "task": [(None, UNIT), ("query", REFUSED)],
    "processing_kwargs": [({}, UNIT), ({"text": {"max_length": 4}}, REFUSED)],
    "no_such_option": [(None, REFUSED)],
}
CONSTRUCTOR = {
    "model_name_or_path": [],
    "modules": [(None, UNIT), ([print], REFUSED)],
    "device": [(None, UNIT), ("cpu", UNIT), ("cuda", REFUSED)],
    "prompts": [(None, UNIT), ({}, UNIT), ({"query": "query: "}, REFUSED)],
    "default_prompt_name": [(None, UNIT), ("query", REFUSED)],
    "cache_folder": [(None, UNIT), ("models", REFUSED)],
    "trust_remote_code": [(False, UNIT), (True, UNIT)],
    "revision": [(None, UNIT), ("main", REFUSED)],
    "local_files_only": [(False, UNIT), (True, REFUSED)],
    "token": [(None, UNIT), ("hf_x", REFUSED)],
    "use_auth_token": [(None, UNIT), (True, REFUSED)],
    "model_kwargs": [(None, UNIT), ({"dtype": "float16"}, REFUSED)],
    "processor_kwargs": [(None, UNIT), ({"padding": True}, REFUSED)],
    "tokenizer_kwargs": [(None, UNIT), ({"padding": True}, REFUSED)],
    "config_kwargs": [(None, UNIT), ({"dropout": 0}, REFUSED)],
    "model_card_data": [(None, UNIT), ({"language": "en"}, REFUSED)],
    "backend": [("torch", UNIT), ("onnx", REFUSED)],
    "similarity_fn_name": [(None, UNIT), ("cosine", UNIT), ("dot", REFUSED)],
    "truncate_dim": [(None, UNIT), (1, [[1.0], [0.0]]), (0, REFUSED)],
    "no_such_option": [(None, REFUSED)],
}
CASES = [
    (part, name, value, expected)
    for part, table in (("encode", ENCODE), ("constructor", CONSTRUCTOR))
    for name, cases in table.items()
    for value, expected in cases
]


@pytest.mark.parametrize(("part", "name", "value", "expected"), CASES)
def test_a_keyword_is_done_or_refused(part, name, value, expected):
    def encode():
        if part == "encode":
            return SentenceEncoder(unit).encode(inputs=TEXTS, **{name: value})
        return SentenceEncoder(model_name_or_path=unit, **{name: value}).encode(TEXTS)

    if expected is REFUSED:
        with pytest.raises(UserError, match=name):
            encode()
    else:
        assert np.asarray(encode()) == pytest.approx(np.array(expected), abs=1e-4)


def test_vectors_come_in_its_containers():
    encoder = SentenceEncoder(unit)
    assert isinstance(encoder.encode(TEXTS), np.ndarray)
    rows = encoder.encode(TEXTS, convert_to_numpy=False)
    assert [row.numpy().tolist() for row in rows] == encoder.encode(TEXTS).tolist()
    assert encoder.encode(TEXTS[0], convert_to_numpy=False).shape == (2,)
    assert encoder.encode(sentences=TEXTS, convert_to_tensor=True).shape == (2, 2)
    # Its order of arguments: prompt_name, prompt, batch_size, show_progress_bar.
    assert encoder.encode(TEXTS, None, None, 1, False).tolist() == encoder.encode(TEXTS).tolist()


def test_lengths_are_the_models_own_or_one_as_asked():
    encoder = SentenceEncoder(numbers)
    assert encoder.encode(TEXTS).tolist() == [[3, 4], [0, 2]]
    assert encoder.encode(TEXTS, normalize_embeddings=False, batch_size=1).tolist() == [[3, 4], [0, 2]]
    assert encoder.encode(TEXTS, normalize_embeddings=True) == pytest.approx(np.array(UNIT))
    assert encoder.encode(TEXTS, normalize_embeddings=False, truncate_dim=1).tolist() == [[3], [0]]
    with pytest.raises(UserError, match="need ranges"):
        encoder.encode(TEXTS, normalize_embeddings=False, precision="int8")
    for exported in (SentenceEncoder(unit), ResponseEncoder(unit, takes_contexts=False)):
        with pytest.raises(UserError, match="normalize_embeddings=False"):
            exported.encode(TEXTS, normalize_embeddings=False)


def test_questions_and_documents_take_the_same_keywords(hub_folder):
    model = SentenceEncoder(str(hub_folder), truncate_dim=4)
    for encode in (model.encode_query, model.encode_document):
        vectors = encode(inputs=SENTENCES, device="cpu", prompt_name="query", normalize_embeddings=True)
        assert vectors.shape == (len(SENTENCES), model.get_embedding_dimension()) == (len(SENTENCES), 4)
        assert encode(SENTENCES[0], None, None, 8, convert_to_tensor=True).shape == (4,)
        assert encode(sentences=[]).shape == (0, 4)
        for refused in ({"normalize_embeddings": False}, {"pool": {1: 2}}, {"task": "query"}, {"batch": 3}):
            with pytest.raises(UserError, match=next(iter(refused))):
                encode(SENTENCES, **refused)
    assert model.similarity(embeddings1=vectors, embeddings2=vectors[:2]).shape == (len(SENTENCES), 2)
    assert model.similarity_pairwise(embeddings1=vectors, embeddings2=vectors).shape == (len(SENTENCES),)
    assert (model.similarity_fn_name, model.device) == ("cosine", "cpu")


SIGNATURES = """
import inspect, json
from sentence_transformers import SentenceTransformer

methods = ["__init__", "encode", "encode_query", "encode_document", "similarity", "similarity_pairwise"]
print(json.dumps({
    method: [
        name for name, parameter in inspect.signature(getattr(SentenceTransformer, method)).parameters.items()
        if name != "self" and parameter.kind != parameter.VAR_KEYWORD
    ]
    for method in methods
}))
"""


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="sentence-transformers is not there; make .peers/.installed")
def test_no_keyword_of_its_current_release_is_missing(tmp_path):
    (tmp_path / "signatures.py").write_text(SIGNATURES)
    run = run_python(tmp_path, "signatures.py", python=PEERS)
    assert run.status == 0, run.errors
    signatures = json.loads(run.output.splitlines()[-1])
    # `tokenizer_kwargs` is an older name; encode's `task` and `processing_kwargs` are in its **kwargs.
    assert set(signatures.pop("__init__")) == set(CONSTRUCTOR) - {"tokenizer_kwargs", "no_such_option"}
    for method in ("encode", "encode_query", "encode_document"):
        ours = set(ENCODE) - {"task", "processing_kwargs", "no_such_option"}
        assert set(signatures.pop(method)) == ours
    assert set(map(tuple, signatures.values())) == {("embeddings1", "embeddings2")}
