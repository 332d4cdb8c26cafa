"""Exports for LiteRT and ONNX Runtime, which map token ids to vectors."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.lite.tools import flatbuffer_utils

from xling_tf.client.backends import RUNTIME_FORMAT
from xling_tf.client.batches import Encode
from xling_tf.client.runtimes import IDS, MASK, MODEL_FILES, VECTORS, RuntimeModel
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.encoders.base import TokenEncoder
from xling_tf.errors import library
from xling_tf.exporters.base import PROBES, OriginalModel
from xling_tf.files import write_json
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.savedmodel.encoder import BUCKET_WORDS, KNOWN_WORDS, ExportedEncoder

# The newest that tf2onnx supports; its reductions and layer norms are what ONNX Runtime can fuse.
_OPSET = 18
_LITERT_TOKENS = 128  # of a text, unless the inputs are resized
# The ids of the tokens of texts, padded with any id, and the mask, which is 1 for tokens.
TOKENS = [tf.TensorSpec([None, None], tf.int64, name=name) for name in (IDS, MASK)]
_CARD = """# A sentence encoder for {runtime}

Maps sentences to {dim}-dimensional vectors of unit length, like the SavedModel that was converted.
In Python, without TensorFlow:

    pip install 'xling_tf[{extra}]'

    import xling_tf
    xling_tf.load(".").encode(["Hola", "Hello"])             # float32 [2, {dim}]

`{model}` maps `input_ids` and `attention_mask`, {inputs}, to `sentence_embedding`,
float32 `[batch, {dim}]`; models of n-grams also take `buckets` and `ngrams`, those of unknown
words. `{vocabulary}` and `runtime.json` describe the tokenizer. In other programming
languages, use the format `sentence-transformers`, whose tokenizer their libraries can read.
"""
# The name of a runtime, the extra that installs it, and its inputs.
_RUNTIMES = {
    "litert": ("LiteRT", "litert", f"int32\n`[1, tokens]` (up to {_LITERT_TOKENS} unless resized)"),
    "onnx": ("ONNX Runtime", "runtime", "int64 `[batch, tokens]`"),
}


def export_litert(source: OriginalModel, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes a model for LiteRT (the former TensorFlow Lite), with its built-in operations only."""
    graph = IdGraph(source.model)
    function = tf.function(
        lambda *inputs: graph.encode(graph.tables, *inputs),
        input_signature=[tf.TensorSpec(s.shape, tf.int32, s.name) for s in graph.signature],
    )
    with tempfile.TemporaryDirectory() as saved:
        tf.saved_model.save(graph, saved, signatures=function.get_concrete_function())
        content = tf.lite.TFLiteConverter.from_saved_model(saved).convert()
    file = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    # LiteRT.js accepts neither int64 nor open shapes; other runtimes can resize any input.
    main = file.subgraphs[0]
    for tensor in (main.tensors[index] for index in main.inputs):
        if tensor.name.decode().endswith((f"_{IDS}:0", f"_{MASK}:0")):
            tensor.shape = [1, min(_LITERT_TOKENS, source.model.tokenizer.config.max_tokens)]
            tensor.shapeSignature = None
    content = bytes(flatbuffer_utils.convert_object_to_bytearray(file))
    return _export(source, folder, "litert", content)


def export_onnx(source: OriginalModel, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes a model for ONNX Runtime and other programs that read ONNX."""
    graph = IdGraph(source.model)
    return _export(source, folder, "onnx", to_onnx(graph.encode, graph.tables, graph.signature))


def _export(
    source: OriginalModel, folder: Path, runtime: str, content: bytes
) -> tuple[Sequence[str], Encode]:
    (folder / MODEL_FILES[runtime]).write_bytes(content)
    tokenizer = source.model.tokenizer
    ((name, vocabulary),) = tokenizer.files().items()
    (folder / name).write_bytes(vocabulary)
    settings = {
        "format": RUNTIME_FORMAT,
        "runtime": runtime,
        "model": MODEL_FILES[runtime],
        "vocabulary": name,
        "dim": source.model.encoder.hidden_dim,
        **source.client_settings,
        "text": tokenizer.rules(),
    }
    write_json(folder / RUNTIME_SETTINGS, settings)
    about = dict(zip(("runtime", "extra", "inputs"), _RUNTIMES[runtime], strict=True))
    card = _CARD.format(**settings | about)
    (folder / "README.md").write_text(card, encoding="utf-8")
    model = RuntimeModel(folder)
    return PROBES, lambda texts: model.embed([source.prompt + text for text in texts], "")


class IdGraph(tf.Module):
    """The graph from ids to vectors.

    If words have n-grams, ids from the vocabulary's size on number the unknown words. An unknown
    word has an element of `buckets`, `[words]`, and a row of `ngrams`, `[words, ngrams]`, which is
    padded with the number of n-gram buckets.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        body, tokenizer = model.encoder, model.tokenizer
        self._body = lambda: body  # hidden, so that TensorFlow does not save Keras' functions
        self.signature = [*TOKENS]
        self._ngram_rows = tokenizer.ngram_rows
        tables = [variable.numpy() for variable in body.table_variables]
        if self._ngram_rows is not None:
            served = ExportedEncoder(tokenizer, body).named_weights
            # The last row, of zeros, is that of padding.
            ngrams = np.pad(tables[1], ((0, 1), (0, 0)))
            tables = [served[KNOWN_WORDS].numpy(), served[BUCKET_WORDS].numpy(), ngrams]
            self.signature += [
                tf.TensorSpec([None], tf.int32, name="buckets"),
                tf.TensorSpec([None, None], tf.int32, name="ngrams"),
            ]
        self.dense = [v.value for v in body.dense_variables]
        self.tables = [tf.Variable(table) for table in tables]

    def encode(
        self,
        tables: Sequence[tf.Tensor],
        input_ids: tf.Tensor,
        mask: tf.Tensor,
        *spelling: tf.Tensor,
    ) -> dict[str, tf.Tensor]:
        """Maps inputs as in `signature` to vectors, `[batch, dim]` float32 of unit length."""
        ids, lengths = ids_and_lengths(input_ids, mask)
        if self._ngram_rows is None:
            vectors = embed_ids(self._body(), tables, ids)
        else:
            known_rows, bucket_rows, ngram_rows = tables
            buckets, ngrams = spelling
            num_known = known_rows.shape[0]
            ngrams = tf.gather(np.append(self._ngram_rows, ngram_rows.shape[0] - 1), ngrams)
            sums = tf.reduce_sum(tf.gather(ngram_rows, ngrams), axis=1)
            spelled = (
                tf.gather(bucket_rows, buckets) + self._body().embedding.ngram_part(sums)
            ) / 2
            vectors = tf.where(
                tf.expand_dims(ids < num_known, axis=-1),
                tf.gather(known_rows, tf.minimum(ids, num_known - 1)),
                tf.gather(spelled, tf.maximum(ids - num_known, 0)),
            )
        return {VECTORS: unit_length(self._body().encode_tokens(vectors, lengths))}


def ids_and_lengths(input_ids: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns `[batch, tokens]` ids, padded with 0, and `[batch]` lengths, int32, from `TOKENS`."""
    lengths = tf.cast(tf.reduce_sum(mask, axis=1), tf.int32)
    return tf.cast(input_ids * mask, tf.int32), lengths


def embed_ids(body: TokenEncoder, tables: Sequence[tf.Tensor], ids: tf.Tensor) -> tf.Tensor:
    """Embeds `[batch, length]` ids of words without n-grams, by these embedding tables."""
    with keras.StatelessScope(state_mapping=list(zip(body.table_variables, tables, strict=True))):
        words = body.embed_words(tf.reshape(ids, [-1]))
    return tf.reshape(words, tf.concat([tf.shape(ids), [words.shape[-1]]], axis=0))


def to_onnx(
    encode: Callable[..., dict[str, tf.Tensor]],
    tables: Sequence[tf.Variable],
    signature: Sequence[tf.TensorSpec],
) -> bytes:
    """Returns the content of an `.onnx` file.

    `encode` takes values of the embedding tables, which become initializers, and the inputs of
    `signature`; it returns tensors by name.
    """
    # Tables are inputs at first, because tf2onnx copies constants many times.
    named = {f"table_{index}": table for index, table in enumerate(tables)}
    specs = [tf.TensorSpec(table.shape, name=name) for name, table in named.items()]
    proto, _ = library("tf2onnx.convert", "tf2onnx", "export").from_function(
        tf.function(lambda *inputs: encode(inputs[: len(specs)], *inputs[len(specs) :])),
        input_signature=(*specs, *signature),
        opset=_OPSET,
    )
    inputs = [value for value in proto.graph.input if value.name not in named]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    from_array = library("onnx.numpy_helper", "onnx", "export").from_array
    proto.graph.initializer.extend(from_array(table.numpy(), name) for name, table in named.items())
    kept = [value.name for value in (*proto.graph.input, *proto.graph.output)]
    number_values(proto.graph, dict(zip(kept, kept, strict=True)))
    return proto.SerializeToString()


def number_values(graph: Any, names: dict[str, str]) -> None:
    """Orders the nodes of a graph, and numbers its values, by what they are computed from.

    The order and the names that tf2onnx gives differ from run to run; an export has the same bytes
    each time.

    Args:
        graph: The graph, which is changed.
        names: New names by old ones, of values around the graph; those in it are added.
    """

    def renamed(values: Iterable[str]) -> list[str]:
        return [names.setdefault(name, name and f"value_{len(names)}") for name in values]

    nodes = _ordered(graph)
    for node in nodes:
        node.name = f"{node.op_type}_{len(names)}"
        node.input[:] = renamed(node.input)
        for branch in branches(node):
            number_values(branch, names)
        node.output[:] = renamed(node.output)
    for value in (*graph.input, *graph.output):
        (value.name,) = renamed([value.name])
    place = {name: number for number, name in enumerate(names)}
    constants = [constant for constant in graph.initializer if constant.name in names]
    constants.sort(key=lambda constant: place[constant.name])
    for constant in constants:
        constant.name = names[constant.name]
    del graph.value_info[:]  # shapes of values inside, which runtimes infer
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)


def _ordered(graph: Any) -> list[Any]:
    """Returns copies of a graph's nodes, each after those that it needs, from the outputs on."""
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output if name}
    wanted = [maker[value.name] for value in graph.output if value.name in maker]
    needs: dict[int, list[int]] = {}
    for index in wanted:  # grows by what each node needs
        if index not in needs:
            needs[index] = [maker[name] for name in _needs(graph.node[index]) if name in maker]
            wanted += needs[index]
    return [deepcopy(graph.node[index]) for index in TopologicalSorter(needs).static_order()]


def _needs(node: Any) -> list[str]:
    """The values that a node reads, in its branches as well."""
    inside = [name for branch in branches(node) for part in branch.node for name in _needs(part)]
    outputs = [value.name for branch in branches(node) for value in branch.output]
    return [*node.input, *inside, *outputs]


def branches(node: Any) -> list[Any]:
    """Returns the graphs inside a node: its branches, or the body of a loop."""
    graphs = [graph for each in node.attribute for graph in (each.g, *each.graphs)]
    return [graph for graph in graphs if graph.node]
