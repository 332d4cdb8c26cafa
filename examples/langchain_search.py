"""Answers questions from a LangChain vector store, one and several at a time.

pip install langchain-core
python examples/langchain_search.py
"""

import asyncio
import sys

from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import xling_tf

# A model has the methods of `Embeddings`; this tells the stores that ask for the class.
Embeddings.register(xling_tf.SentenceEncoder)

texts = [
    "El museo abre a las nueve.",
    "Der nächste Zug nach Bonn fährt um acht.",
    "Le restaurant est fermé le lundi.",
]
store = InMemoryVectorStore.from_texts(texts, xling_tf.load(*sys.argv[1:]))
for document, score in store.similarity_search_with_score("When does the museum open?", k=1):
    print(f"{score:.2f}  {document.page_content}")

retriever = store.as_retriever(search_kwargs={"k": 1})
questions = ["When is the next train?", "Is the restaurant open on Mondays?"]
for question, found in zip(questions, asyncio.run(retriever.abatch(questions)), strict=True):
    print(question, "-", found[0].page_content)
