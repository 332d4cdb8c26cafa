"""A model by mteb's protocol: alone, and in mteb's tasks on local data."""

import json

import numpy as np
import pytest
from evaluation_data import write_table
from programs import PEERS, ROOT, run_python
from raw_files import write_files
from scipy.stats import spearmanr
from serving_servers import server_in_thread
from testing import TEXTS

from xling_tf.evaluators.embedders import open_embedder
from xling_tf.integrations.mteb import MtebEncoder

# A served model on local data, by mteb.
EVALUATION = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
import mteb
from xling_tf.integrations.mteb import MtebEncoder, local_tasks

model = MtebEncoder(sys.argv[1], folder=sys.argv[2])
assert "tensorflow" not in sys.modules
mteb.evaluate(model, local_tasks("eval"), cache=mteb.ResultCache("results"), show_progress_bar=False)
assert MtebEncoder(sys.argv[1], folder="theirs").mteb_model_meta.max_tokens is None
print(mteb.models.ModelMeta.model_validate(model.mteb_model_meta.model_dump()).name)
"""
TABLES = {
    "sts/stsb.en.dev": ["sentence1 sentence2 score", "a cat|the cat|4", "a cat|hello|1", "hello|is|2"],
    "bitext/mine.en-es": ["en es", "hello|hola", "the cat is sleeping|el gato duerme", "the cat|el gato"],
    "reqa/mine.en.sentences": ["sentence_id sentence", "1|the cat is sleeping", "2|hola", "3|hola"],
    "reqa/mine.en.questions": ["question answer_sentence_id", "is the cat sleeping ?|1", "hola ?|3"],
}
STS = [("a cat", "the cat"), ("a cat", "hello"), ("hello", "is")]


def test_batches_are_encoded_as_what_they_are(hub_folder):
    model, system = MtebEncoder(str(hub_folder)), open_embedder(str(hub_folder))
    batches = [{"text": list(TEXTS[:2])}, {"text": list(TEXTS[2:3])}]
    texts = list(TEXTS[:3])
    description = {"task_metadata": None, "hf_split": "test", "hf_subset": "default"}
    for kind, expected in (
        (None, system(texts)),
        ("query", system.encode_questions(texts)),
        ("document", system.encode_responses(texts, texts)),
    ):
        vectors = model.encode(batches, prompt_type=kind, batch_size=2, **description)
        assert vectors == pytest.approx(expected, abs=1e-6)
    assert model.similarity(vectors, vectors).diagonal() == pytest.approx(np.ones(3))
    assert model.similarity_pairwise(vectors, vectors) == pytest.approx(np.ones(3))


@pytest.mark.slow
@pytest.mark.skipif(not PEERS.exists(), reason="mteb is not there; make .peers/.installed")
def test_mteb_measures_a_served_model_on_local_data(hub_folder, tmp_path):
    for name, (columns, *rows) in TABLES.items():
        write_table(tmp_path / "eval" / f"{name}.tsv", columns, *(row.split("|") for row in rows))
    with server_in_thread({"en-es": hub_folder}) as server:
        (tmp_path / "run.py").write_text(EVALUATION)
        write_files(tmp_path / "theirs", {"saved_model.pb": ""})  # without our config.json
        url = f"rest:{server.url}/v1/models/en-es"
        run = run_python(tmp_path, "run.py", url, str(hub_folder), python=PEERS)
    assert run.status == 0, run.errors
    assert run.output.strip() == "xling_tf/tiny"
    results = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "results").rglob("*.json")}
    meta = results.pop("model_meta")
    config = json.loads((hub_folder / "config.json").read_text())
    assert (meta["languages"], meta["max_tokens"], meta["embed_dim"]) == (["eng-Latn", "spa-Latn"], 12, 8)
    assert meta["n_parameters"] == config["num_parameters"]
    scores = {}
    for name, result in results.items():
        (of_subset,) = result["scores"]["test"]
        scores[name, of_subset["hf_subset"], *of_subset["languages"]] = of_subset["main_score"]
    assert scores.keys() == {
        ("LocalSTS", "stsb.en.dev", "eng-Latn"),
        ("LocalBitextMining", "mine.en-es", "eng-Latn", "spa-Latn"),
        ("LocalRetrieval", "mine.en", "eng-Latn"),
    }
    encode = open_embedder(str(hub_folder))
    first, second = (encode(list(column)) for column in zip(*STS, strict=True))
    assert scores["LocalSTS", "stsb.en.dev", "eng-Latn"] == pytest.approx(
        spearmanr(np.sum(first * second, axis=1), [4, 1, 2]).statistic
    )
