"""Spark, Ray and Beam, each with two workers in processes of their own, against the local result.

What is not installed is skipped; docs/scale.md says how to install it.
"""

import os
import shutil
import sys
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest
from programs import ROOT, run_python
from pyarrow import parquet
from serving_models import save_hashed

from xling_tf.bulk.record_batches import encode_batches

TEXTS = [f"text {number % 700}" for number in range(3000)] + [""]
TABLE = pa.table({"id": range(len(TEXTS)), "sentence": TEXTS})

# Each prints a line of JSON for every row, and the process that encoded it.
SPARK = """
from pyspark.sql import SparkSession
from xling_tf.integrations.spark import encode

builder = SparkSession.builder.master("local-cluster[2,1,1024]")
spark = builder.config("spark.ui.enabled", False).getOrCreate()
frame = spark.read.parquet("x.parquet").repartition(4)
encode(frame, "model", "sentence", precision="int8").write.parquet("vectors")
spark.stop()
"""
RAY = """
import logging
import ray
from xling_tf.integrations.ray import encode

ray.init(num_cpus=4, include_dashboard=False, logging_level=logging.ERROR)
dataset = ray.data.read_parquet("x.parquet").repartition(4)
workers = {"concurrency": 2, "batch_size": 500}
encode(dataset, "model", "sentence", precision="int8", map_options=workers).write_parquet("vectors")
"""
BEAM = """
import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from pathlib import Path
from xling_tf.integrations.beam import EncodeTexts

FIELDS = [("id", pa.int64()), ("sentence", pa.string())]
flags = ["--runner=DirectRunner", "--direct_num_workers=2"]
flags.append("--direct_running_mode=multi_processing")
if __name__ == "__main__":
    model = str(Path("model").absolute())
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        rows = pipeline | beam.io.ReadFromParquet("x.parquet") | beam.Reshuffle()
        vectors = rows | EncodeTexts(model, "sentence", precision="int8")
        schema = pa.schema([*FIELDS, ("vector", pa.list_(pa.int8()))])
        vectors | beam.io.WriteToParquet("vectors/x", schema)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "script"), [("pyspark", SPARK), ("ray", RAY), ("apache_beam", BEAM)]
)
def test_workers_make_the_vectors_of_one_machine(tmp_path, monkeypatch, package, script):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    if package == "pyspark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    model = save_hashed(tmp_path / "model")
    parquet.write_table(TABLE, tmp_path / "x.parquet")
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    # Workers run in folders of their own.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("RAY_worker_niceness", "0")
    done = run_python(tmp_path, "script.py")
    assert done.status == 0, done.errors
    table = parquet.read_table(tmp_path / "vectors").sort_by("id")
    assert table.select(["id", "sentence"]).to_pydict() == TABLE.to_pydict()
    (local,) = encode_batches(TABLE.to_batches(), model, "sentence", precision="int8")
    vectors, expected = (np.array(part["vector"].to_pylist()) for part in (table, local))
    np.testing.assert_allclose(vectors, expected, atol=1)
