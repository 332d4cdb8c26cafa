"""Answers questions from a LlamaIndex index, one and several at a time.

pip install llama-index-core
python examples/llama_index_search.py
"""

import asyncio
import sys
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import TextNode

import xling_tf


class XlingEmbedding(BaseEmbedding):
    """A model of `xling_tf.load` with LlamaIndex's names."""

    model: Any

    def _get_query_embedding(self, query):
        return self.model.embed_query(query)

    def _get_text_embedding(self, text):
        return self.model.embed_documents([text])[0]

    def _get_text_embeddings(self, texts):
        return self.model.embed_documents(texts)

    async def _aget_query_embedding(self, query):
        return await self.model.aembed_query(query)


texts = [
    "El museo abre a las nueve.",
    "Der nächste Zug nach Bonn fährt um acht.",
    "Le restaurant est fermé le lundi.",
]
index = VectorStoreIndex(
    [TextNode(text=text) for text in texts],
    embed_model=XlingEmbedding(model=xling_tf.load(*sys.argv[1:])),
)
retriever = index.as_retriever(similarity_top_k=1)
for hit in retriever.retrieve("When does the museum open?"):
    print(f"{hit.score:.2f}  {hit.text}")


async def answers(questions: list[str]) -> list[str]:
    """Searches for all questions at the same time."""
    found = await asyncio.gather(*map(retriever.aretrieve, questions))
    return [hits[0].text for hits in found]


questions = ["When is the next train?", "Is the restaurant open on Mondays?"]
for question, answer in zip(questions, asyncio.run(answers(questions)), strict=True):
    print(question, "-", answer)
