"""Measures search in compressed vectors, by FAISS.

python evaluation/benchmarks/vectors.py --model exported/en-es --texts tatoeba.en-es.tsv
"""

import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

# Works in a checkout without installation.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
from absl import flags

from evaluation.benchmarks.workloads import run_benchmark
from xling_tf.client.neighbours import nearest, truncated, unit_vectors
from xling_tf.corpora.readers import read_parallel
from xling_tf.errors import library
from xling_tf.program import quiet_start

_MODEL = flags.DEFINE_string("model", None, "Model, as xling-tf evaluate takes it.", required=True)
_TEXTS = flags.DEFINE_string("texts", None, "File of queries and translations.", required=True)
_SENTENCES = flags.DEFINE_integer(
    "sentences", 100_000, "Largest number of candidates.", lower_bound=1
)
_QUERIES = flags.DEFINE_integer("queries", 1000, "Largest number of queries.", lower_bound=1)
flags.DEFINE_string("output", "evaluation/results/quantization.json", "Results file.")

# (index, dimensions, candidates that are scored again for each hit): "SQ8" has a byte for each
# dimension, "LSH" a bit.
_INDEXES: tuple[tuple[str, int | None, int], ...] = (
    *(("Flat", dim, 1) for dim in (None, 256, 128, 64)),
    *(("SQ8", dim, 1) for dim in (None, 256, 128)),
    ("LSH", None, 1),
    *((f"LSH,Refine({refined})", None, times) for refined in ("SQ8", "Flat") for times in (4, 10)),
)


def measure() -> dict[str, Any]:
    """Compares FAISS indexes: their share of the ten nearest, and of translations found first."""
    from xling_tf.evaluators.embedders import open_embedder

    faiss = library("faiss", "FAISS", "mining")
    pairs = [pair for pair, _ in read_parallel(Path(_TEXTS.value))]
    np.random.default_rng(0).shuffle(pairs)
    row_of: dict[str, int] = {}
    translations: defaultdict[str, set[int]] = defaultdict(set)
    for pair in pairs:
        if pair.target in row_of or len(row_of) < _SENTENCES.value:
            translations[pair.source].add(row_of.setdefault(pair.target, len(row_of)))
    texts = list(translations)[: _QUERIES.value]
    with quiet_start():
        embedder = open_embedder(_MODEL.value)
    queries, corpus = embedder(texts), embedder(list(row_of))
    k = min(10, len(corpus))
    exact = nearest(
        unit_vectors(queries, "queries"), unit_vectors(corpus, "corpus"), k, kind="flat"
    ).indices
    results = []
    for name, dim, oversampling in _INDEXES:
        if (dim or 0) >= queries.shape[1]:
            continue
        short_queries, short_corpus = (truncated(v, dim or v.shape[1]) for v in (queries, corpus))
        index = faiss.index_factory(short_corpus.shape[1], name)
        index.train(short_corpus)
        index.add(short_corpus)
        if oversampling > 1:
            index.k_factor = oversampling
        start = time.perf_counter()
        _, rows = index.search(short_queries, k)
        seconds = time.perf_counter() - start
        recalls = [len({*h} & {*best}) / len(best) for h, best in zip(rows, exact, strict=True)]
        firsts = [hits[0] in translations[text] for hits, text in zip(rows, texts, strict=True)]
        results.append(
            {
                **{"index": name, "dim": short_corpus.shape[1], "oversampling": oversampling},
                "bytes_per_vector": index.sa_code_size(),
                "milliseconds_per_query": round(1000 * seconds / len(texts), 2),
                "recall_at_10": round(statistics.fmean(recalls), 4),
                "translation_at_1": round(statistics.fmean(firsts), 4),
            }
        )
    return {
        "texts": Path(_TEXTS.value).name,
        **{"sentences": len(row_of), "queries": len(texts), "models": {embedder.name: results}},
    }


if __name__ == "__main__":
    run_benchmark(measure, extra="tensorflow")
