"""Gets vectors from our server by OpenAI's client.

pip install openai
xling-tf serve --model exported/use-multilingual &
python examples/openai_client.py http://localhost:8501/v1 use-multilingual
"""

import sys

import numpy as np
from openai import OpenAI

url, model = sys.argv[1:]
client = OpenAI(base_url=url, api_key="none")
answer = client.embeddings.create(
    model=model, input=["Good morning", "Guten Morgen", "The train is late"]
)
vectors = np.array([row.embedding for row in answer.data])
print((vectors @ vectors.T).round(2))
