"""Learns topics from English sentences, and recognizes them in other languages.

pip install scikit-learn
python examples/classify.py
"""

import sys

from sklearn.linear_model import LogisticRegression

import xling_tf

labelled = {
    "weather": ["It rains.", "The sun is shining.", "Tomorrow it will snow.", "A storm is coming."],
    "food": [
        "This soup is too salty.",
        "I baked bread.",
        "We had fish for dinner.",
        "The apples are ripe.",
    ],
}
texts = [text for sentences in labelled.values() for text in sentences]
topics = [topic for topic, sentences in labelled.items() for _ in sentences]
model = xling_tf.load(*sys.argv[1:])
classifier = LogisticRegression(C=10).fit(model.encode(texts), topics)
others = ["Mañana va a llover.", "Das Brot schmeckt gut.", "Il neige."]
for text, topic in zip(others, classifier.predict(model.encode(others)), strict=True):
    print(f"{topic:8} {text}")
