"""A SavedModel as the published CNN's, as small as can be, whose graph is of its own."""

import dataclasses
import io
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as text

from xling_tf.config import EncoderConfig, ExperimentConfig
from xling_tf.published.weights import published_config

SENTENCES = [
    "The cat is sleeping on the red sofa.",
    "El gato duerme en el sofá rojo.",
    "I enjoy long walks with my dog.",
    "12 345 boats were seen at sea.",
    "今天下午我们去公园散步。",
    "Das Wetter wird morgen wieder besser.",
]
# Widths stand to each other as those of the published one: what is equal there is equal here.
DIM, FILTERS, INTERMEDIATE = 8, 4, 5
WIDTHS = (2, 3, 5)
# Rows beyond the last piece fill the parts of the table, as in the published one.
_SHARDS = 3

Layers = Mapping[str, Sequence[np.ndarray]]

# As published modules call theirs; those of the CNN's part are not known.
_SCOPES = {
    **{f"projection_{width}": f"EncoderCNN/width_{width}/dense" for width in WIDTHS},
    **{f"norm_{width}": f"EncoderCNN/width_{width}/layer_norm" for width in WIDTHS},
    **{f"convolution_{width}_0": f"EncoderCNN/width_{width}/conv_0" for width in WIDTHS},
    **{f"convolution_{width}_1": f"EncoderCNN/width_{width}/conv_1" for width in WIDTHS},
    "norm": "EncoderCNN/layer_prepostprocess/layer_norm",
    "pooled_projection": "EncoderCNN/dense",
    "first": "EncoderDNN/DNN/ResidualHidden_0/dense",
    "second": "EncoderDNN/DNN/ResidualHidden_1/dense",
    "second_shortcut": "EncoderDNN/DNN/ResidualHidden_1/AdjustDepth/projection",
    "third": "EncoderDNN/DNN/ResidualHidden_2/dense",
    "output_projection": "EncoderDNN/DNN/ResidualHidden_3/dense",
    "output_shortcut": "EncoderDNN/DNN/ResidualHidden_3/AdjustDepth/projection",
}


def small_config(widths: Sequence[int] = WIDTHS) -> ExperimentConfig:
    """The published model's config with small sizes."""
    config = published_config()
    encoder = EncoderConfig(
        kind="cnn",
        filter_widths=(1, *widths),
        embedding_dim=DIM,
        hidden_dim=DIM,
        num_filters=FILTERS,
        intermediate_dim=INTERMEDIATE,
        num_layers=2,
    )
    tasks = dataclasses.replace(config.tasks, tower_dims=(DIM,))
    return dataclasses.replace(config, encoder=encoder, tasks=tasks)


@cache
def pieces() -> bytes:
    """A SentencePiece model of the sentences."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3),
        model_writer=model,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    return model.getvalue()


def random_layers(widths: Sequence[int] = WIDTHS) -> dict[str, list[np.ndarray]]:
    """Kernel and bias, or scale and offset, of each layer, by its name."""
    random = np.random.default_rng(0)

    def dense(*shape: int, bias: bool = True) -> list[np.ndarray]:
        kernel = random.normal(0, np.prod(shape[:-1]) ** -0.5, shape)
        return [a.astype(np.float32) for a in (kernel, random.normal(0, 0.3, shape[-1]))][
            : 1 + bias
        ]

    def norm(dim: int) -> list[np.ndarray]:
        return [
            a.astype(np.float32)
            for a in (random.uniform(0.5, 1.5, dim), random.normal(0, 0.3, dim))
        ]

    tokens = DIM + len(widths) * FILTERS
    return {
        **{f"projection_{width}": dense(DIM, FILTERS) for width in widths},
        **{f"norm_{width}": norm(FILTERS) for width in widths},
        **{f"convolution_{width}_0": dense(width, FILTERS, FILTERS) for width in widths},
        **{f"convolution_{width}_1": dense(width, FILTERS, FILTERS) for width in widths},
        "norm": norm(tokens),
        "pooled_projection": dense(tokens, DIM),
        "first": dense(DIM, INTERMEDIATE, bias=False),
        "second": dense(INTERMEDIATE, INTERMEDIATE, bias=False),
        "second_shortcut": dense(DIM, INTERMEDIATE, bias=False),
        "third": dense(INTERMEDIATE, DIM, bias=False),
        "output_projection": dense(DIM, DIM, bias=False),
        "output_shortcut": dense(INTERMEDIATE, DIM, bias=False),
    }


def published_table() -> np.ndarray:
    """A row for each piece, and some more, as many as make all parts equally long."""
    num_pieces = sentencepiece.SentencePieceProcessor(model_proto=pieces()).get_piece_size()
    rows = -(-num_pieces // _SHARDS) * _SHARDS
    return np.random.default_rng(5).normal(0, 0.5, (rows, DIM)).astype(np.float32)


def save_published(
    folder: Path,
    layers: Layers,
    *,
    order: Sequence[str] | None = None,
    as_asset: bool = False,
    flat_kernels: bool = False,
    residual: bool = True,
) -> None:
    """Saves a SavedModel as the published one is: the table and some kernels in parts.

    Args:
        folder: Its folder.
        layers: As `random_layers` gives them.
        order: In which they are listed; where it is given, numbers are all that names tell.
        as_asset: The SentencePiece model is a file beside the graph.
        flat_kernels: Convolutions are products.
        residual: What a convolution gives is added to what it gets.
    """
    table = published_table()
    shards = [
        _variable(table[shard::_SHARDS], f"Embeddings/sharded_{shard}") for shard in range(_SHARDS)
    ]
    made = {}
    for number, name in enumerate(order or layers):
        scope = f"scope_{number}" if order else _SCOPES[name]
        made[name] = _variables(name, scope, layers[name], flat_kernels=flat_kernels)
    root = tf.train.Checkpoint()
    # Parts are listed as their names are sorted, the tenth before the second.
    root.variables = [
        *shards[::-1],
        *(v for parts in made.values() for p in parts for v in p[::-1]),
    ]
    root.step = tf.Variable(7, dtype=tf.int64, name="global_step")
    content = pieces()
    if as_asset:
        path = folder.parent / "published.model"
        path.write_bytes(content)
        root.asset = tf.saved_model.Asset(str(path))
    root.tokenizer = text.SentencepieceTokenizer(content, add_bos=True, add_eos=True)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def encode(inputs: tf.Tensor) -> tf.Tensor:
        joined = {name: [tf.concat(part, 0) for part in parts] for name, parts in made.items()}

        def encode_one(ids: tf.Tensor) -> tf.Tensor:
            rows = tf.stack([ids % _SHARDS, ids // _SHARDS], axis=1)
            return _forward(tf.gather_nd(tf.stack(shards), rows), joined, residual=residual)

        ids = root.tokenizer.tokenize(inputs)
        return tf.map_fn(encode_one, ids, fn_output_signature=tf.TensorSpec([DIM], tf.float32))

    root.__call__ = encode
    tf.saved_model.save(root, str(folder), signatures=encode)


def _variables(
    name: str, scope: str, arrays: Sequence[np.ndarray], *, flat_kernels: bool
) -> list[list[tf.Variable]]:
    """One list of parts for each array of a layer."""
    endings = ("layer_norm_scale", "layer_norm_bias") if "norm" in name else ("kernel", "bias")
    made = []
    for array, ending in zip(arrays, endings[: len(arrays)], strict=True):
        if array.ndim == 3 and flat_kernels:
            array = array.reshape(-1, array.shape[-1])
        elif array.ndim == 3:
            array = array[:, None]  # a convolution in two dimensions
        if "DNN" in scope:
            parts = np.array_split(array, 3)
            names = [f"{scope}/{ending}/part_{number}" for number in range(len(parts))]
            made.append([_variable(*part) for part in zip(parts, names, strict=True)])
        else:
            made.append([_variable(array, f"{scope}/{ending}")])
    return made


def _variable(array: np.ndarray, name: str) -> tf.Variable:
    return tf.Variable(array, dtype=tf.float32, name=name)


def _forward(
    tokens: tf.Tensor, layers: Mapping[str, Sequence[tf.Tensor]], *, residual: bool
) -> tf.Tensor:
    """Maps the `[tokens, DIM]` embeddings of a sentence to its unit vector."""
    outputs = [tokens]
    for width in (width for width in WIDTHS if f"norm_{width}" in layers):
        hidden = _norm(_dense(tokens, layers[f"projection_{width}"]), layers[f"norm_{width}"])
        for index in range(2):
            left = (width - 1) // 2
            padded = tf.pad(hidden, [[left, width - 1 - left], [0, 0]])
            count = tf.shape(tokens)[0]
            windows = tf.concat([padded[place : place + count] for place in range(width)], axis=1)
            convolved = tf.nn.relu(_dense(windows, layers[f"convolution_{width}_{index}"]))
            hidden = hidden + convolved if residual else convolved
        outputs.append(hidden)
    normed = _norm(tf.concat(outputs, axis=1), layers["norm"])
    projected = tf.reduce_sum(_dense(normed, layers["pooled_projection"]), axis=0, keepdims=True)
    pooled = projected / tf.sqrt(tf.cast(tf.shape(tokens)[0], tf.float32))
    first = tf.nn.relu(pooled @ layers["first"][0])
    second = tf.nn.relu(pooled @ layers["second_shortcut"][0] + first @ layers["second"][0])
    third = tf.nn.relu(second @ layers["third"][0])
    output = second @ layers["output_shortcut"][0] + third @ layers["output_projection"][0]
    return tf.linalg.l2_normalize(tf.tanh(output[0]))


def _dense(inputs: tf.Tensor, layer: Sequence[tf.Tensor]) -> tf.Tensor:
    kernel, bias = layer
    return inputs @ tf.reshape(kernel, [inputs.shape[-1], -1]) + bias


def _norm(inputs: tf.Tensor, layer: Sequence[tf.Tensor]) -> tf.Tensor:
    # Not as tf.nn.moments has it: TensorFlow makes that a kernel whose epsilon is another one.
    mean = tf.reduce_mean(inputs, axis=1, keepdims=True)
    variance = tf.reduce_mean(tf.square(inputs), axis=1, keepdims=True) - tf.square(mean)
    return (inputs - mean) * tf.math.rsqrt(variance) * layer[0] + layer[1]
