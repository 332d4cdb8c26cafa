"""Encodes files of any size: texts in, vectors out, in Arrow record batches as engines use."""

from xling_tf.errors import library

for _package in ("pyarrow", "fsspec", "zstandard"):
    library(_package, _package, "bulk")
