"""Encodes the texts of Apache Beam's collections on the workers of any runner."""

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection

from xling_tf.bulk.record_batches import VECTORS, encode_batches, load_once, vectors_of
from xling_tf.errors import UserError

_BATCH_ROWS = 4096


class EncodeTexts(beam.PTransform[Any, Any]):
    """Adds a vector, a NumPy array, to each of a collection of dictionaries.

    Arguments are those of `encode_batches`. Each process of a worker loads the model once, from a path that
    all workers see or a URL.

    Example:
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
        self._worker = _Encode(fspath(model), text_column, vector_column, options)

    def expand(self, rows: PCollection[dict[str, Any]]) -> PCollection[dict[str, Any]]:
        """Returns the dictionaries with vectors."""
        batches = rows | beam.BatchElements(min_batch_size=64, max_batch_size=_BATCH_ROWS)
        return batches | beam.ParDo(self._worker)


class _Encode(beam.DoFn):
    def __init__(self, model: str, text_column: str, vector_column: str, options: Mapping[str, Any]) -> None:
        self._model, self._column = model, text_column
        self._options = {"vector_column": vector_column, **options}

    def setup(self) -> None:
        load_once(self._model)

    def process(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        vector_column = self._options["vector_column"]
        if any(vector_column in row for row in rows):
            raise UserError(f"the field {vector_column} exists already; leave it out or rename it")
        texts = pa.record_batch({self._column: [row[self._column] for row in rows]})
        (batch,) = encode_batches([texts], self._model, self._column, **self._options)
        for row, vector in zip(rows, vectors_of(batch.column(vector_column)), strict=True):
            yield {**row, vector_column: vector}
