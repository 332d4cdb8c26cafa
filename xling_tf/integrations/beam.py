"""Encodes the texts of Apache Beam's collections on the workers of any runner."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from xling_tf.bulk.record_batches import VECTORS, encode_batches, vectors_of
from xling_tf.errors import UserError


class EncodeTexts(beam.PTransform[Any, Any]):
    """Adds a vector, a NumPy array, to each of a collection of dictionaries.

    Arguments are those of `encode_batches`. Each process of a worker loads the model once, from a
    path that all workers see or a URL.

    Examples:
        >>> rows = pipeline | beam.io.ReadFromParquet("corpus/*.parquet")  # doctest: +SKIP
        >>> rows | EncodeTexts("hf://owner/en-es", "sentence", precision="int8")  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | PathLike[str],
        text_column: str = "text",
        *,
        vector_column: str = VECTORS,
        **options: Any,
    ) -> None:
        super().__init__()
        self._arguments = {"text_column": text_column, "vector_column": vector_column, **options}
        self._model = fspath(model)

    def expand(self, rows: PCollection[dict[str, Any]]) -> PCollection[dict[str, Any]]:
        """Returns the dictionaries with vectors."""
        batches = rows | beam.BatchElements(min_batch_size=64, max_batch_size=4096)
        return batches | beam.FlatMap(_with_vectors, self._model, **self._arguments)


def _with_vectors(
    rows: Sequence[Mapping[str, Any]],
    model: str,
    text_column: str,
    vector_column: str,
    **options: Any,
) -> Iterator[dict[str, Any]]:
    if any(vector_column in row for row in rows):
        raise UserError(f"the field {vector_column} exists already; leave it out or rename it")
    texts = pa.record_batch({text_column: [row[text_column] for row in rows]})
    (batch,) = encode_batches([texts], model, text_column, vector_column=vector_column, **options)
    for row, vector in zip(rows, vectors_of(batch.column(vector_column)), strict=True):
        yield {**row, vector_column: vector}
