r"""Keeps sentences and their vectors, a byte a number, in a DuckDB file, and searches them.

pip install duckdb
python examples/vector_database.py multilingual-mini sentences.txt made.duckdb \
    "Where is the station?"

Another search of the file encodes nothing but its query.
"""

import sys
from pathlib import Path

import duckdb
import pandas as pd

import xling_tf

model_path, text_file, database, query = sys.argv[1:]
model = xling_tf.load(model_path)
if not Path(database).exists():
    sentences = Path(text_file).read_text("utf-8").splitlines()
    vectors = model.encode(sentences, precision="int8")
    rows = pd.DataFrame({"sentence": sentences, "vector": list(vectors)})
    with duckdb.connect(database) as made:
        made.execute(
            f"CREATE TABLE sentences AS SELECT sentence, vector::TINYINT[{model.dim}] AS vector "
            "FROM rows"
        )
with duckdb.connect(database, read_only=True) as connection:
    kind = f"FLOAT[{model.dim}]"
    score = f"array_cosine_similarity(vector::{kind}, ?::{kind})"
    search = f"SELECT {score} AS score, sentence FROM sentences ORDER BY score DESC LIMIT 5"
    hits = connection.execute(search, [model.encode(query)]).fetchall()
for score, sentence in hits:
    print(f"{score:.2f}  {sentence}")
