"""The SentencePiece model within a SavedModel: an asset, or bytes in its graph."""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from xling_tf.config import TextConfig
from xling_tf.errors import UserError
from xling_tf.text.sentencepiece import SentencePiecePreprocessor


def find_pieces(folder: Path, config: TextConfig) -> SentencePiecePreprocessor:
    """Opens the first SentencePiece model of a SavedModel folder.

    Args:
        folder: With `saved_model.pb`.
        config: How its pieces are to be used.

    Raises:
        UserError: There is none that can be used, or tensorflow-text is not installed.
    """
    rejected = []
    for name, content in _candidates(folder):
        try:
            return SentencePiecePreprocessor(content, config)
        except UserError as error:
            rejected.append(f"{name}: {error}")
    raise UserError(
        f"a SentencePiece model is expected in {folder}, as an asset or in an operation of its graph, but "
        f"none can be used ({'; '.join(rejected) or 'there is nothing that could be one'}); give the "
        "folder as it was published"
    )


def _candidates(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Assets, then the models of operations, then constants, in that order."""
    for path in sorted((folder / "assets").rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path.read_bytes()
    try:
        saved = SavedModel.FromString((folder / "saved_model.pb").read_bytes())
    except (DecodeError, OSError) as error:
        raise UserError(
            f"a SavedModel is expected in {folder}, but its saved_model.pb cannot be read ({error}); give "
            "the folder with saved_model.pb and variables/"
        ) from error
    graph = saved.meta_graphs[0].graph_def
    nodes = [
        *graph.node,
        *(node for function in graph.library.function for node in function.node_def),
    ]
    for node in nodes:
        if node.op == "SentencepieceOp" and node.attr["model"].s:
            yield node.name, node.attr["model"].s
    for node in nodes:
        if node.op == "Const":
            # No model is shorter than a page; signatures' names and the like are.
            yield from (
                (node.name, text)
                for text in node.attr["value"].tensor.string_val
                if len(text) > 1000
            )
