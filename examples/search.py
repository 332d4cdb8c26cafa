"""Finds the answers to a question among sentences in several languages.

python examples/search.py
"""

import sys

import xling_tf

corpus = [
    "El gato duerme en la cocina.",
    "Morgen regnet es.",
    "Où est la gare ?",
    "The museum opens at nine.",
    "我喜欢吃巧克力。",
]
model = xling_tf.load(*sys.argv[1:])
(hits,) = xling_tf.semantic_search(
    model.encode("Where is the station?"), model.encode(corpus), top_k=2
)
for hit in hits:
    print(f"{hit['score']:.2f}  {corpus[hit['corpus_id']]}")
