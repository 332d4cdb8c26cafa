"""Encodes the texts of Ray's data sets on the workers of a cluster."""

from collections.abc import Mapping
from os import PathLike
from typing import Any

import pyarrow as pa
import ray
from ray.data import Dataset

from xling_tf.bulk.record_batches import encode_batches, model_archive
from xling_tf.files import folder_of_this_process
from xling_tf.sentence_encoder import SentenceEncoder


def encode(
    dataset: Dataset,
    model: str | PathLike[str],
    text_column: str = "text",
    *,
    map_options: Mapping[str, Any] = {"concurrency": 1},
    **options: Any,
) -> Dataset:
    """Adds a column of vectors to a data set.

    The model is put into the object store, which sends it to each machine once. Each worker loads
    it once.

    Args:
        dataset: The data set.
        model: The exported model, as `SentenceEncoder` takes it.
        text_column: Name of the column of texts.
        map_options: Those of `Dataset.map_batches`: the number of workers, `concurrency`, and what
            each needs, `num_cpus` and `num_gpus`.
        **options: Those of `encode_batches`.

    Examples:
        >>> dataset = ray.data.read_parquet("corpus")  # doctest: +SKIP
        >>> workers = {"concurrency": 8}
        >>> encoded = encode(dataset, "exported/en-es", map_options=workers)  # doctest: +SKIP
        >>> encoded.write_parquet("vectors")  # doctest: +SKIP
    """
    archive = model_archive(model)
    content = ray.put(archive.read_bytes())
    return dataset.map_batches(
        _Worker,
        fn_constructor_args=(archive.name, content, text_column, options),
        batch_format="pyarrow",
        **{"batch_size": 1 << 14, **map_options},
    )


class _Worker:
    """An actor with a model."""

    def __init__(
        self, name: str, content: ray.ObjectRef, column: str, options: Mapping[str, Any]
    ) -> None:
        archive = folder_of_this_process() / name
        archive.write_bytes(ray.get(content))
        self._encoder = SentenceEncoder(archive)
        self._column, self._options = column, options

    def __call__(self, table: pa.Table) -> pa.Table:
        batches = table.combine_chunks().to_batches()
        encoded = encode_batches(batches, self._encoder, self._column, **self._options)
        return pa.Table.from_batches([*encoded])
