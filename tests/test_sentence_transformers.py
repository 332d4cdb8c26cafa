"""The names and options of sentence-transformers: each is supported, or refused with advice."""

import json

import numpy as np
import pytest
from encode_functions import numbers
from programs import run_peers
from testing import encode_responses

from xling_tf.errors import UserError
from xling_tf.sentence_encoder import SentenceEncoder


def unit(texts):
    """Stands for an exported model: text "3 4" has the vector (.6, .8)."""
    return numbers(texts) / np.linalg.norm(numbers(texts), axis=1, keepdims=True)


TEXTS = ["3 4", "0 2"]
UNIT = [[0.6, 0.8], [0.0, 1.0]]
REFUSED = "refused"
# The vectors of the texts for values of each option.
ENCODE = {
    "inputs": [],
    "prompt_name": [("query", UNIT), ("passage", REFUSED), (["query"], REFUSED)],
    # "13 4" has the length sqrt(185), "10 2" sqrt(104).
    "prompt": [("1", [[0.9558, 0.2941], [0.9806, 0.1961]]), (["1"], REFUSED)],
    "batch_size": [(1, UNIT), (0, REFUSED), ("2", REFUSED)],
    "show_progress_bar": [(True, UNIT)],
    "output_value": [("sentence_embedding", UNIT), ("token_embeddings", REFUSED), (None, REFUSED)],
    # A step is 5 / sqrt(2) * 2 / 255, and 128 steps less -128 are zero.
    "precision": [("int8", [[21, 28], [0, 36]]), ("float64", REFUSED), (None, REFUSED)],
    "convert_to_numpy": [(False, UNIT)],
    "convert_to_tensor": [(True, UNIT)],
    "device": [(None, UNIT), ("cpu", UNIT), ("cuda", REFUSED)],
    "normalize_embeddings": [(True, UNIT), (False, UNIT)],
    "truncate_dim": [(1, [[1.0], [0.0]]), (0, REFUSED), (3, REFUSED)],
    "pool": [({"processes": []}, REFUSED)],
    "chunk_size": [(7, UNIT)],
    "task": [(None, UNIT), ("query", REFUSED)],
    "processing_kwargs": [({}, UNIT), ({"text": {"max_length": 4}}, REFUSED)],
    "no_such_option": [(1, REFUSED)],
}
NO_EFFECT = (
    "modules prompts default_prompt_name cache_folder revision local_files_only token "
    "use_auth_token"
)
NO_EFFECT += " model_kwargs processor_kwargs tokenizer_kwargs config_kwargs model_card_data"
CONSTRUCTOR = {
    "model_name_or_path": [],
    "device": [("cpu", UNIT), ("cpu:0", UNIT), ("cpu:1", REFUSED), ("cuda", REFUSED)],
    "trust_remote_code": [(True, UNIT)],
    "backend": [("torch", UNIT), ("onnx", REFUSED)],
    "similarity_fn_name": [("cosine", UNIT), ("dot", REFUSED)],
    "truncate_dim": [(1, [[1.0], [0.0]]), (0, REFUSED)],
    "no_such_option": [(1, REFUSED)],
    **{name: [(None, UNIT), ({"a": 1}, REFUSED)] for name in NO_EFFECT.split()},
}


@pytest.mark.parametrize("name", ENCODE)
def test_an_option_of_encode_is_supported_or_refused(name):
    check(ENCODE[name], name, lambda **option: SentenceEncoder(unit).encode(inputs=TEXTS, **option))


@pytest.mark.parametrize("name", CONSTRUCTOR)
def test_an_option_of_the_constructor_is_supported_or_refused(name):
    check(CONSTRUCTOR[name], name, lambda **option: SentenceEncoder(unit, **option).encode(TEXTS))


def check(cases, name, encode):
    for value, expected in cases:
        if expected is REFUSED:
            with pytest.raises(UserError, match=name):
                encode(**{name: value})
        else:
            assert np.asarray(encode(**{name: value})) == pytest.approx(
                np.array(expected), abs=1e-4
            )


def test_vectors_are_returned_in_its_containers():
    encoder = SentenceEncoder(unit)
    rows = encoder.encode(TEXTS, convert_to_numpy=False)
    assert [row.numpy().tolist() for row in rows] == encoder.encode(TEXTS).tolist()
    assert encoder.encode(TEXTS[0], convert_to_numpy=False).shape == (2,)
    assert encoder.encode(sentences=TEXTS, convert_to_tensor=True).shape == (2, 2)
    # Its order of arguments: prompt_name, prompt, batch_size, show_progress_bar.
    assert encoder.encode(TEXTS, None, None, 1, False).tolist() == encoder.encode(TEXTS).tolist()


def test_lengths_are_those_of_the_model_or_one():
    encoder = SentenceEncoder(numbers)
    assert encoder.encode(TEXTS).tolist() == [[3, 4], [0, 2]]
    assert encoder.encode(TEXTS, normalize_embeddings=False, batch_size=1).tolist() == [
        [3, 4],
        [0, 2],
    ]
    assert encoder.encode(TEXTS, normalize_embeddings=True) == pytest.approx(np.array(UNIT))
    assert encoder.encode(TEXTS, normalize_embeddings=False, truncate_dim=1).tolist() == [[3], [0]]
    with pytest.raises(UserError, match="int8' needs unit vectors"):
        encoder.encode(TEXTS, normalize_embeddings=False, precision="int8")
    for false in (False, np.False_, 0):
        with pytest.raises(UserError, match="normalize_embeddings=False"):
            encode_responses(numbers, TEXTS, takes_contexts=False, normalize_embeddings=false)


SIGNATURES = """
import inspect, json
from sentence_transformers import SentenceTransformer

def names(method):
    parameters = inspect.signature(getattr(SentenceTransformer, method)).parameters.values()
    return [p.name for p in parameters if p.name != "self" and p.kind != p.VAR_KEYWORD]

methods = ["__init__", "encode", "encode_query", "encode_document"]
methods += ["similarity", "similarity_pairwise"]
print(json.dumps({method: names(method) for method in methods}))
"""


@pytest.mark.slow
def test_no_option_of_its_current_release_is_missing(tmp_path):
    signatures = json.loads(run_peers(tmp_path, SIGNATURES).splitlines()[-1])
    # `tokenizer_kwargs` is an older name; `task` and `processing_kwargs` are in encode's **kwargs.
    ours = set(CONSTRUCTOR) - {"tokenizer_kwargs", "no_such_option"}
    assert set(signatures.pop("__init__")) == ours
    for method in ("encode", "encode_query", "encode_document"):
        ours = set(ENCODE) - {"task", "processing_kwargs", "no_such_option"}
        assert set(signatures.pop(method)) == ours
    assert set(map(tuple, signatures.values())) == {("embeddings1", "embeddings2")}
