"""A model by mteb's protocol: alone, and in one of mteb's tasks."""

import numpy as np
import pytest
from programs import PEERS, ROOT, run_python
from serving_servers import server_in_thread
from starting_models import TEXTS

from xling_tf.evaluators.embedders import open_embedder
from xling_tf.integrations.mteb import MtebEncoder
from xling_tf.serving.models import ModelConfig

# mteb's own task of similarity, on sentences that are here.
TASK = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import mteb
from datasets import Dataset
from mteb.abstasks import AbsTaskSTS
from xling_tf.integrations.mteb import MtebEncoder

class Local(AbsTaskSTS):
    metadata = mteb.get_task("STS17").metadata.model_copy(
        update=dict(name="Local", eval_langs=["eng-Latn"], eval_splits=["test"])
    )
    min_score, max_score = 0, 5

    def load_data(self, **options):
        texts = {TEXTS!r}
        rows = dict(sentence1=texts, sentence2=[*texts[:3], *texts[:3]], score=[5.0] * 3 + [0, 1, 2])
        self.dataset, self.data_loaded = dict(test=Dataset.from_dict(rows)), True

result = mteb.evaluate(MtebEncoder(sys.argv[1]), Local(), cache=None)
print(result.model_name, result.task_results[0].scores["test"][0]["cosine_spearman"])
"""


def test_batches_are_encoded_as_what_they_are(hub_folder):
    model, system = MtebEncoder(str(hub_folder)), open_embedder(str(hub_folder))
    batches = [{"text": list(TEXTS[:2])}, {"text": list(TEXTS[2:3])}]
    texts = list(TEXTS[:3])
    told = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    for kind, expected in (
        (None, system(texts)),
        ("query", system.encode_questions(texts)),
        ("document", system.encode_responses(texts, texts)),
    ):
        vectors = model.encode(batches, prompt_type=kind, batch_size=2, **told)
        assert vectors == pytest.approx(expected, abs=1e-6)
    assert model.similarity(vectors, vectors).diagonal() == pytest.approx(np.ones(3))
    assert model.similarity_pairwise(vectors, vectors) == pytest.approx(np.ones(3))


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="mteb is not there; make .peers/.installed")
def test_a_task_of_mteb(hub_folder, tmp_path):
    with server_in_thread([ModelConfig("en-es", hub_folder)]) as server:
        (tmp_path / "task.py").write_text(TASK)
        run = run_python(tmp_path, "task.py", f"rest:{server.url}/v1/models/en-es", python=PEERS)
    assert run.status == 0, run.errors
    name, correlation = run.output.split()
    assert name == "xling_tf/en-es-rest"
    assert float(correlation) > 0.5
