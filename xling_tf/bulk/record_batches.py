"""Encodes the texts of Arrow record batches: the function that files, Spark, Ray and Beam call."""

import tarfile
from collections.abc import Iterable, Iterator
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any

import fsspec
import pyarrow as pa
from numpy.typing import NDArray

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.texts import as_texts
from xling_tf.errors import UserError, as_user_error
from xling_tf.files import folder_of_this_process
from xling_tf.savedmodel.saved_models import HUGGING_FACE, checksum, find_model, model_name
from xling_tf.sentence_encoder import load

VECTORS = "vector"  # the column of vectors

_loaded: dict[str, SentenceEncoder] = {}
_loading = Lock()


def encode_batches(
    batches: Iterable[pa.RecordBatch],
    model: SentenceEncoder | str | PathLike[str],
    text_column: str = "text",
    *,
    vector_column: str = VECTORS,
    **options: Any,
) -> Iterator[pa.RecordBatch]:
    """Adds a column of vectors to record batches. Equal texts of a batch are encoded once.

    A null is encoded as the empty text. Batches of at least some thousand rows are encoded fastest.

    Args:
        batches: Record batches with a column of texts.
        model: An encoder, also that of a wheel; or the name of a model, as `SentenceEncoder` takes
            it, or the URL of an archive that fsspec opens (`gs://bucket/en-es.tar.gz`), which is
            loaded once in each process.
        text_column: Name of the column of texts.
        vector_column: Name of the new column: fixed-size lists of float32, int8 or uint8.
        **options: Those of `SentenceEncoder.encode`, such as `precision="int8"`.

    Yields:
        Each batch with the column of vectors behind its own columns.

    Raises:
        UserError: There is no such column, it holds no texts, or the new column exists already.

    Examples:
        >>> batch = pa.record_batch({"id": [7, 8], "text": ["1 2", "3 4"]})
        >>> encoder = SentenceEncoder(lambda texts: [[float(x) for x in t.split()] for t in texts])
        >>> next(encode_batches([batch], encoder)).to_pydict()
        {'id': [7, 8], 'text': ['1 2', '3 4'], 'vector': [[1.0, 2.0], [3.0, 4.0]]}
    """
    encoder = load_once(fspath(model)) if isinstance(model, str | PathLike) else model
    for batch in batches:
        texts = column_of_texts(batch, text_column).fill_null("").dictionary_encode()
        if vector_column in batch.schema.names:
            raise UserError(f"the column {vector_column} exists already; leave it out or rename it")
        unique = as_texts(texts.dictionary.to_pylist(), text_column)
        vectors = encoder.encode(unique, **options)
        if len(unique) < len(texts):
            vectors = vectors[texts.indices.to_numpy()]
        numbers = pa.array(vectors.reshape(-1))
        kind = pa.list_(pa.field("element", numbers.type, nullable=False), vectors.shape[1])
        column = pa.FixedSizeListArray.from_arrays(numbers, type=kind)
        yield batch.append_column(pa.field(vector_column, kind, nullable=False), column)


def column_of_texts(batch: pa.RecordBatch, name: str) -> pa.LargeStringArray:
    """Returns a column of strings, or of bytes in UTF-8; anything else raises a `UserError`."""
    if name not in (columns := batch.schema.names):
        raise UserError(
            f"expected the column {name}, but there is only {', '.join(columns)}; name one of these"
        )
    column = batch.column(name)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    message = f"expected texts in the column {name}, but it holds {column.type}; choose another"
    with as_user_error(message, pa.ArrowNotImplementedError):
        # Works for strings, null and all of Arrow's types of bytes.
        column = column.cast(pa.large_binary())
    with as_user_error(
        f"expected UTF-8 in the column {name}, but it has other bytes; convert it",
        pa.ArrowInvalid,
    ):
        return column.cast(pa.large_string())


def vectors_of(column: pa.FixedSizeListArray) -> NDArray[Any]:
    """Returns a column of vectors as an array `[rows, dim]`, without copying it."""
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)


def load_once(model: str) -> SentenceEncoder:
    """Loads a model, once in each process; threads wait for each other."""
    with _loading:
        if model not in _loaded:
            path = model
            if "://" in model and not model.startswith(HUGGING_FACE):
                # The ending of the name tells the format.
                path = fsspec.open_local(f"filecache::{model}", filecache={"same_names": True})
            _loaded[model] = load(path)
        return _loaded[model]


def model_archive(model: str | PathLike[str]) -> Path:
    """Packs a model's folder into an archive for workers; each model has its own name."""
    folder = find_model(model).absolute()
    return _packed(folder, f"{model_name(model)}-{checksum(folder)[:8]}")


@cache
def _packed(folder: Path, name: str) -> Path:
    archive = folder_of_this_process() / f"{name}.tar"
    # Files in Hugging Face's cache are links.
    with tarfile.open(archive, "w", dereference=True) as file:
        file.add(folder, folder.name)
    return archive
