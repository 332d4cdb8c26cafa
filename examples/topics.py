"""Finds the topics of a folder of texts, whatever their languages, by BERTopic.

pip install --no-deps bertopic
pip install packaging pandas pyyaml scikit-learn tqdm
python examples/topics.py            # stories in five languages, part of the package
python examples/topics.py FOLDER     # the paragraphs of its .txt and .md files

BERTopic itself would also install torch and numba; a model in NumPy needs neither.
"""

import sys
from collections import defaultdict
from pathlib import Path

from bertopic import BERTopic
from bertopic.backend import BaseEmbedder
from bertopic.representation import MaximalMarginalRelevance
from bertopic.vectorizers import ClassTfidfTransformer
from sklearn.cluster import HDBSCAN
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import CountVectorizer

import xling_tf


class Embedder(BaseEmbedder):
    """A model of `xling_tf.load` with BERTopic's names."""

    def embed(self, documents, verbose=False):
        """Returns the vectors of documents or words."""
        return self.embedding_model.encode(documents)


folder = Path(xling_tf.__file__).parent / "corpora" / "sample" / "documents"
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else folder
paragraphs = [
    " ".join(paragraph.split())
    for path in sorted([*folder.rglob("*.txt"), *folder.rglob("*.md")])
    for paragraph in path.read_text("utf-8").split("\n\n")
    if paragraph.strip()
]
model = BERTopic(
    embedding_model=Embedder(xling_tf.load()),
    umap_model=PCA(10),
    hdbscan_model=HDBSCAN(min_cluster_size=4, copy=True),
    # Words of at least four letters, in scripts that separate words.
    vectorizer_model=CountVectorizer(token_pattern=r"\b[^\W\d_\u3000-\u9fff]{4,}\b"),
    ctfidf_model=ClassTfidfTransformer(reduce_frequent_words=True),
    representation_model=MaximalMarginalRelevance(diversity=0.1, top_n_words=6),
)
topics = defaultdict(list)
for topic, paragraph in zip(model.fit_transform(paragraphs)[0], paragraphs, strict=True):
    topics[topic].append(paragraph)
for topic in sorted(topics.keys() - {-1}):  # -1 is for paragraphs in no topic
    print(", ".join(word for word, _ in model.get_topic(topic)))
    for paragraph in topics[topic]:
        print("   ", paragraph[:80])
