"""Keeps sentences in a vector database, and finds them by a question in another language.

python examples/vector_database.py sqlite "Where is the station?"

Instead of sqlite: duckdb, qdrant, chroma or lancedb, after pip install duckdb, qdrant-client,
chromadb or lancedb. The database stays in the folder made_NAME, and the next search encodes
nothing but its question. To keep the lines of your own file, name it at the end.
"""

import sys
from contextlib import closing
from pathlib import Path

import numpy as np

import xling_tf

SENTENCES = [
    "El gato duerme en la cocina.",
    "Morgen regnet es.",
    "Où est la gare ?",
    "The museum opens at nine.",
    "我喜欢吃巧克力。",
]
LIMIT, PART = 3, 1000


# Each function fills a new database if it gets texts, and returns scores and texts for a question.
def sqlite(folder, model, texts, question):
    """Without a vector index: reads all vectors, a byte a number, and compares them in NumPy."""
    import sqlite3

    with closing(sqlite3.connect(folder / "texts.sqlite")) as connection, connection:
        if texts:
            connection.execute("CREATE TABLE texts (text, vector)")
            vectors = map(bytes, model.encode_document(texts, precision="int8"))
            connection.executemany(
                "INSERT INTO texts VALUES (?, ?)", zip(texts, vectors, strict=True)
            )
        rows = connection.execute("SELECT text, vector FROM texts").fetchall()
    vectors = np.frombuffer(b"".join(row[1] for row in rows), np.int8).reshape(len(rows), -1)
    (hits,) = model.semantic_search(question, vectors, top_k=LIMIT)
    return [(hit["score"], rows[hit["corpus_id"]][0]) for hit in hits]


def duckdb(folder, model, texts, question):
    """Compares all vectors, a byte a number, by a function of the database."""
    import duckdb

    kind = f"FLOAT[{model.dim}]"
    score = f"array_cosine_similarity(vector::{kind}, ?::{kind})"
    search = f"SELECT {score} AS score, text FROM texts ORDER BY score DESC LIMIT {LIMIT}"
    with duckdb.connect(folder / "texts.duckdb") as connection:
        if texts:
            connection.execute(f"CREATE TABLE texts (text VARCHAR, vector TINYINT[{model.dim}])")
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]
            vectors = model.encode_document(part, precision="int8").tolist()
            connection.execute("INSERT INTO texts SELECT unnest(?), unnest(?)", [part, vectors])
        return connection.execute(search, [model.encode_query(question)]).fetchall()


def qdrant(folder, model, texts, question):
    """In this process, for some thousands of texts; `QdrantClient(url=...)` calls a server."""
    from qdrant_client import QdrantClient, models

    with closing(QdrantClient(path=str(folder))) as client:
        if texts:
            size = models.VectorParams(size=model.dim, distance=models.Distance.COSINE)
            client.create_collection("texts", vectors_config=size)
            vectors = model.encode_document(texts)
            client.upload_collection("texts", vectors, [{"text": text} for text in texts])
        found = client.query_points("texts", model.encode_query(question), limit=LIMIT).points
    return [(point.score, point.payload["text"]) for point in found]


def chroma(folder, model, texts, question):
    """In this process; `chromadb.HttpClient` calls a server."""
    import chromadb

    space = {"hnsw": {"space": "cosine"}}
    with chromadb.PersistentClient(folder) as client:
        collection = client.get_or_create_collection("texts", configuration=space)
        for start in range(0, len(texts), PART):
            part = texts[start : start + PART]
            ids = [str(start + row) for row in range(len(part))]
            collection.add(ids, model.encode_document(part), documents=part)
        found = collection.query(model.encode_query(question), n_results=LIMIT)
    scores = (1 - distance for distance in found["distances"][0])
    return list(zip(scores, found["documents"][0], strict=True))


def lancedb(folder, model, texts, question):
    """In files of its own format, which may also lie in an object store."""
    import lancedb

    database = lancedb.connect(folder)
    if texts:
        vectors = model.encode_document(texts)
        rows = [{"text": t, "vector": v} for t, v in zip(texts, vectors, strict=True)]
        database.create_table("texts", rows)
    search = database.open_table("texts").search(model.encode_query(question))
    found = search.distance_type("cosine").limit(LIMIT).to_list()
    return [(1 - row["_distance"], row["text"]) for row in found]


DATABASES = {function.__name__: function for function in (sqlite, duckdb, qdrant, chroma, lancedb)}
name, question, *files = sys.argv[1:]
folder = Path(f"made_{name}")
folder.mkdir(exist_ok=True)
texts = Path(files[0]).read_text("utf-8").splitlines() if files else SENTENCES
texts = [] if any(folder.iterdir()) else texts
for score, text in DATABASES[name](folder, xling_tf.load(), texts, question):
    print(f"{score:.2f}  {text}")
