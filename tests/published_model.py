"""A small model in the files of packages: the published CNN with its names of variables."""

from functools import cache
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from testing import add_noise

from xling_tf.config import CnnConfig, ModelInfo, SentencePieceConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.importers import published
from xling_tf.model import Model
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer
from xling_tf.weights import assign_weights

SENTENCES = [
    "The cat is sleeping on the red sofa.",
    "El gato duerme en el sofá rojo.",
    "I enjoy long walks with my dog.",
    "12 345 boats were seen at sea.",
    "今天下午我们去公园散步。",
    "Das Wetter wird morgen wieder besser.",
]
SMALL = CnnConfig(
    filter_widths=(1, 2, 3, 5),
    embedding_dim=8,
    hidden_dim=8,
    num_filters=4,
    intermediate_dim=5,
    num_layers=2,
)


def model_of(config, files, weights) -> Model:
    """Makes a model of the parts that an importer returns."""
    model = Model.from_config(config, files.__getitem__)
    assign_weights(model.weights, weights, "the test")
    return model


@cache
def pieces() -> bytes:
    """A SentencePiece model of the sentences."""
    config = SentencePieceConfig(num_pieces=100)
    (model,) = SentencePieceTokenizer.fit(config, {"en": SENTENCES}).files().values()
    return model


def random_model() -> Model:
    """A small CNN all of whose variables are random."""
    keras.utils.set_random_seed(1)
    tokenizer = SentencePieceTokenizer(
        pieces(), SentencePieceConfig(max_tokens=4096, sentence_marks=True)
    )
    model = Model(tokenizer, encoder_settings(SMALL, tokenizer), ModelInfo())
    # With other seeds, all units of a ReLU layer may be zero.
    add_noise(model.encoder.variables, 0.3, seed=2)
    return model


def save_published(model: Model, folder: Path) -> None:
    """Saves a `random_model` with the published names: the table and some kernels in parts."""
    (table,) = model.encoder.table_variables
    num_parts = 3
    filled = np.pad(table.numpy(), ((0, -table.shape[0] % num_parts), (0, 0)))
    arrays = {f"Embeddings/sharded_{part}": filled[part::num_parts] for part in range(num_parts)}
    for ours, layer in published.named_layers(model.encoder).items():
        names = published.variable_names(ours)
        for name, array in zip(names, layer.get_weights(), strict=True):
            if array.ndim == 3:  # convolutions are two-dimensional there
                array = array[:, None]
            if "DNN/Residual" in name:
                parts = np.array_split(array, 3)
                arrays |= {f"{name}/part_{n}": part for n, part in enumerate(parts)}
            else:
                arrays[name] = array
    root = tf.train.Checkpoint()
    root.variables = [tf.Variable(array, name=name) for name, array in arrays.items()][::-1]
    root.module = model.module()
    spec = tf.TensorSpec([None], tf.string)
    root.__call__ = tf.function(lambda inputs: root.module(inputs), input_signature=[spec])
    tf.saved_model.save(root, str(folder))


def save_onnx(model: Model, path: Path) -> None:
    """Writes the constants of a `random_model` as the published module's ONNX file has them."""
    import onnx

    (table,) = model.encoder.table_variables
    filled = np.pad(table.numpy(), ((0, -table.shape[0] % published._NUM_PARTS), (0, 0)))
    arrays = {
        f"Func/StatefulPartitionedCall/input/_{1 + p}:0": filled[p :: published._NUM_PARTS]
        for p in range(17)
    }
    for ours, layer in published.named_layers(model.encoder).items():
        for name, array in zip(published.variable_names(ours), layer.get_weights(), strict=True):
            arrays[f"StatefulPartitionedCall/{name}:0"] = array.reshape(-1, array.shape[-1])
    # A kernel of 8 bits: -2 and 1 are the ends, 85 steps a unit.
    name = next(name for name in arrays if name.endswith("dense/kernel:0"))
    arrays[f"{name}_quantized"] = (
        np.round(arrays.pop(name) * 85 + 170).clip(0, 255).astype(np.uint8)
    )
    arrays |= {f"{name}_scale": np.float32(1 / 85), f"{name}_zero_point": np.uint8(170)}
    constants = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    node = onnx.helper.make_node("SentencepieceTokenizer", [], [], model=pieces())
    graph = onnx.helper.make_graph([node], "g", [], [], constants)
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
