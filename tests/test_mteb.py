"""A model by mteb's protocol: alone, and in a task of mteb."""

import json

import numpy as np
import pytest
from encode_functions import by_meaning, random_vectors
from programs import ROOT, run_peers
from scipy.stats import spearmanr
from serving_servers import server_in_thread
from testing import TEXTS

from xling_tf.evaluators.embedders import open_embedder
from xling_tf.evaluators.encoding import Embedder
from xling_tf.integrations import mteb
from xling_tf.integrations.mteb import MtebEncoder

STS = {
    "sentence1": ["a cat", "a cat", "hello"],
    "sentence2": ["the cat", "hello", "is"],
    "score": [4, 1, 2],
}
# A served model on a task of mteb, without a download.
EVALUATION = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import datasets, mteb
from mteb.abstasks import AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from xling_tf.integrations.mteb import MtebEncoder

class Pairs(AbsTaskSTS):
    metadata = TaskMetadata(
        name="Pairs",
        description="Pairs.",
        dataset=dict(path="none", revision="1"),
        type="STS",
        main_score="cosine_spearman",
        eval_langs=dict(en=["eng-Latn"]),
    )

    def load_data(self, **options):
        self.dataset = dict(en=dict(test=datasets.Dataset.from_dict({STS})))
        self.data_loaded = True

model = MtebEncoder(sys.argv[1])
assert "tensorflow" not in sys.modules
mteb.evaluate(model, [Pairs()], cache=mteb.ResultCache("results"), show_progress_bar=False)
print(mteb.models.ModelMeta.model_validate(model.mteb_model_meta.model_dump()).name)
"""


def test_batches_are_encoded_as_what_they_are(monkeypatch):
    functions = {
        name: by_meaning(lambda text, name=name: name + text) for name in ("sentences", "questions")
    }
    joined = "{}+{}".format
    embedder = Embedder(
        name="x", responses=lambda *sides: random_vectors()([*map(joined, *sides)]), **functions
    )
    monkeypatch.setattr(mteb, "open_embedder", {"x": embedder}.__getitem__)
    model, texts = MtebEncoder("x"), list(TEXTS[:3])
    batches = [{"text": texts[:2]}, {"text": texts[2:]}]
    description = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    for kind, expected in (
        (None, embedder(texts)),
        ("query", embedder.encode_questions(texts)),
        ("document", embedder.encode_responses(texts, texts)),
    ):
        vectors = model.encode(batches, prompt_type=kind, batch_size=2, **description)
        assert vectors == pytest.approx(expected, abs=1e-6)
    assert model.similarity(vectors, vectors).diagonal() == pytest.approx(np.ones(3))
    assert model.similarity_pairwise(vectors, vectors) == pytest.approx(np.ones(3))


@pytest.mark.slow
def test_mteb_measures_a_served_model(hub_folder, tmp_path):
    with server_in_thread({"en-es": hub_folder}) as server:
        url = f"rest:{server.url}/v1/models/en-es"
        assert run_peers(tmp_path, EVALUATION, url).strip() == "xling_tf/en-es-rest"
    results = {
        path.stem: json.loads(path.read_text()) for path in (tmp_path / "results").rglob("*.json")
    }
    assert results["model_meta"]["embed_dim"] == 8
    (scores,) = results["Pairs"]["scores"]["test"]
    encode = open_embedder(str(hub_folder))
    cosines = np.sum(encode(STS["sentence1"]) * encode(STS["sentence2"]), axis=1)
    assert scores["main_score"] == pytest.approx(spearmanr(cosines, STS["score"]).statistic)
