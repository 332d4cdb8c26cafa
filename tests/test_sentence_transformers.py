"""One script with sentence-transformers and, its import aside, with us."""

import json
import sys

import numpy as np
import pytest
from programs import PEERS, ROOT, run_python

SENTENCES = ["a cat sleeps", "a dog runs", "the cat sleeps", "rain falls", "the rain is falling", "a dog"]
OURS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from xling_tf import SentenceEncoder as SentenceTransformer
import xling_tf as util
"""
THEIRS = "from sentence_transformers import SentenceTransformer, util\n"
# Vectors of a file tell what is computed of them, the model's what form they have.
SCRIPT = """
import json, sys
import numpy as np

folder, vectors = sys.argv[1], np.load("vectors.npy")
sentences = json.load(open("sentences.json"))
model = SentenceTransformer(folder)
options = {"show_progress_bar": False, "convert_to_numpy": True, "normalize_embeddings": True}
encoded = model.encode(sentences, batch_size=2, **options)
one, query = model.encode(sentences[0]), model.encode_query(sentences[0])
documents, cut = model.encode_document(sentences), model.encode(sentences, truncate_dim=4)
similar, pairwise = model.similarity(encoded[:2], encoded), model.similarity_pairwise(encoded, encoded)
mined = util.paraphrase_mining(model, sentences, show_progress_bar=False)
print(json.dumps({
    "forms": [
        *(list(np.shape(v)) for v in (encoded, one, query, documents, cut, similar, pairwise)),
        model.get_sentence_embedding_dimension(),
        str(encoded.dtype), str(model.encode(sentences, precision="int8").dtype),
        len(mined), [type(part).__name__ for part in mined[0]],
    ],
    "searched": [
        [[hit["corpus_id"], round(hit["score"], 4)] for hit in row]
        for row in util.semantic_search(vectors[:3], vectors, top_k=4)
    ],
    "mined": [[round(float(s), 4), i, j] for s, i, j in util.paraphrase_mining_embeddings(vectors)],
    "communities": [
        sorted(group) for group in util.community_detection(vectors, threshold=0.6, min_community_size=2)
    ],
    "similar": np.round(np.asarray(model.similarity(vectors, vectors)), 4).tolist(),
}))
"""
MODEL = """
import sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

words = {word: number for number, word in enumerate(["[UNK]", *sorted(set(sys.argv[2].split()))])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu").save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="sentence-transformers is not there; make .peers/.installed")
def test_a_script_gives_the_same_by_another_import(hub_folder, tmp_path):
    vectors = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.save(tmp_path / "vectors.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    (tmp_path / "sentences.json").write_text(json.dumps(SENTENCES))
    for name, text in (("model", MODEL), ("theirs", THEIRS + SCRIPT), ("ours", OURS + SCRIPT)):
        (tmp_path / f"{name}.py").write_text(text)
    runs = [
        run_python(tmp_path, *script, python=python)
        for python, *script in (
            (PEERS, "model.py", "peer", " ".join(SENTENCES)),
            (PEERS, "theirs.py", "peer"),
            (sys.executable, "ours.py", str(hub_folder)),
        )
    ]
    for run in runs:
        assert run.status == 0, run.errors
    theirs, ours = (json.loads(run.output.splitlines()[-1]) for run in runs[1:])
    assert ours.pop("similar") == pytest.approx(np.array(theirs.pop("similar")), abs=2e-4)
    assert ours == theirs
