"""Gets vectors from our server by OpenAI's client.

pip install openai
xling-tf serve &
python examples/openai_client.py http://localhost:8501/v1 multilingual-mini
"""

import sys

import numpy as np
from openai import OpenAI

url, model = sys.argv[1:]
client = OpenAI(base_url=url, api_key="none")
texts = ["Good morning", "Guten Morgen", "The train is late"]
answer = client.embeddings.create(model=model, input=texts)
vectors = np.array([row.embedding for row in answer.data])
for text, score in zip(texts, vectors @ vectors[0], strict=True):
    print(f"{score:.2f}  {text}")
