"""Encoding of files of any size: texts in, vectors out, in Arrow record batches that engines share
too.
"""

from xling_tf.errors import library

for _package in ("pyarrow", "fsspec", "zstandard"):
    library(_package, _package, "bulk")
