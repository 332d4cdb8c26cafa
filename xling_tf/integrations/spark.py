"""Encodes the texts of Apache Spark's data frames on the workers of a cluster."""

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, types

from xling_tf.bulk.record_batches import VECTORS, encode_batches, model_archive
from xling_tf.errors import UserError, require_known
from xling_tf.savedmodel.saved_models import find_model

# Spark has no unsigned bytes, which "ubinary" needs.
_NUMBERS = {"float32": types.FloatType(), "int8": types.ByteType(), "binary": types.ByteType()}


def encode(
    frame: DataFrame,
    model: str | PathLike[str],
    text_column: str = "text",
    *,
    vector_column: str = VECTORS,
    precision: str = "float32",
    **options: Any,
) -> DataFrame:
    """Adds a column of vectors, arrays of floats or bytes, to a data frame.

    Arguments are those of `encode_batches`. A model's folder is sent to each executor once; a URL
    (`hf://owner/name`, `gs://bucket/en-es.tar.gz`) is fetched there. Workers need this package.
    TensorFlow uses all cores, so give each task all cores of a machine (`spark.task.cpus`).

    Examples:
        >>> frame = spark.read.parquet("corpus")  # doctest: +SKIP
        >>> encode(frame, "exported/en-es", "sentence").write.parquet("vectors")  # doctest: +SKIP
    """
    require_known("precision in Spark", precision, _NUMBERS)
    if text_column not in frame.columns or vector_column in frame.columns:
        names = ", ".join(frame.columns)
        raise UserError(f"expected a column {text_column} and no {vector_column}, got {names}")
    name, is_url = str(model), "://" in str(model)
    if not is_url:
        archive = model_archive(model)
        frame.sparkSession.sparkContext.addArchive(str(archive))
        name = f"{archive.name}/{find_model(model).absolute().name}"

    def encode_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        path = name if is_url else SparkFiles.get(name)
        arguments = {"vector_column": vector_column, "precision": precision, **options}
        for batch in encode_batches(batches, path, text_column, **arguments):
            vectors = batch.column(vector_column)
            # Spark has no lists of a fixed size.
            lists = vectors.cast(pa.list_(vectors.type.value_type))
            yield batch.set_column(len(batch.schema) - 1, vector_column, lists)

    kind = types.ArrayType(_NUMBERS[precision], containsNull=False)
    schema = types.StructType([*frame.schema.fields, types.StructField(vector_column, kind)])
    return frame.mapInArrow(encode_partition, schema)
