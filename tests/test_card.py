"""The card of an exported model, as Hugging Face's library and our importers read it."""

import huggingface_hub
import numpy as np

from xling_tf.exporters.base import metadata
from xling_tf.importers.base import read_base_model, read_licence
from xling_tf.savedmodel.card import (
    example_cosines,
    model_card,
    training_card,
    training_notice,
)
from xling_tf.savedmodel.saved_models import read_front_matter

RESULTS = {
    **{"steps": 5, "minutes": 0.1, "precision": "float32"},
    "config": {"optimizer": {"name": "adam", "learning_rate": 0.002}, "tasks": {}},
    "corpora": {
        "parallel/bible-web.en-es": 3,
        "documents/bible-web.en": 4,
        "nli/facebook_xnli.en": 1,
    },
    "scores": {
        "task/inference": {"loss": 1},
        "sts/stsb.en.dev": {"pearson": 0.81234567, "num_pairs": 1500},
    },
    "cosines": example_cosines(np.array, ["it"]),  # a language without an example
}


def test_a_card_has_metadata_for_the_search_of_hugging_face(hub_model, tmp_path):
    config = hub_model.config()
    config["info"]["languages"] = ["en", "es"]
    settings = {
        "licence": "other",
        "base_model": "intfloat/multilingual-e5-small",
        "results": RESULTS,
    }
    text = model_card("en-es", "Made here.", config, hub_model.module().signatures, **settings)
    card = huggingface_hub.ModelCard(text)
    assert card.text.lstrip().startswith("# en-es")
    assert (
        "for en, es: strings to 8-dimensional vectors of unit length, which\nare near" in card.text
    )
    assert (card.data.language, card.data.license_name) == (["en", "es"], "licences-of-the-corpora")
    assert card.data.base_model == "intfloat/multilingual-e5-small"
    assert (card.data.library_name, card.data.pipeline_tag) == ("tensorflow", "sentence-similarity")
    (score,) = card.data.eval_results
    assert (score.dataset_name, score.metric_type) == ("sts/stsb.en.dev", "pearson")
    assert (card.data.model_name, score.metric_value) == ("en-es", 0.8123)
    (tmp_path / "README.md").write_text(text)
    assert read_front_matter(tmp_path, "language") == ["en", "es"]
    assert (read_licence(tmp_path), read_base_model(tmp_path)) == (
        "other",
        "intfloat/multilingual-e5-small",
    )
    # An export to another library keeps it.
    expected = {"library_name": "onnx", "tags": ["onnx", "feature-extraction", "xling_tf"]}
    exported = huggingface_hub.ModelCard(metadata(tmp_path, "onnx"))
    assert exported.data.to_dict() == card.data.to_dict() | expected


def test_the_parts_that_a_run_has_are_in_its_card():
    # One direction for each script.
    cosines = example_cosines(
        lambda texts: np.array([[1, 0] if t.isascii() else [0.6, 0.8] for t in texts]), ["zh", "en"]
    )
    assert list(cosines.values()) == [1, 1, 1, 0.6]
    card = training_card(RESULTS | {"cosines": cosines})
    assert 'Cosines with "Where is the station?"' in card
    assert "\n     0.60  车站在哪里？\n" in card
    assert "\n## Scores" in card
    card = training_card(RESULTS | {"scores": {}})
    assert "Scores" not in card
    assert "Cosines" not in card


def test_a_notice_names_the_packages_and_the_teachers_that_have_a_card(tmp_path):
    teacher = tmp_path / "big-model"
    teacher.mkdir()
    card = "---\nlicense: apache-2.0\n---\n\n# Big\n\n## Where the weights are from\n\nFrom us.\n"
    (teacher / "README.md").write_text(card, encoding="utf-8")
    teachers = ["", str(teacher), str(tmp_path / "unknown"), str(teacher)]
    notice = training_notice({"parallel/gnome.en-es": "gnome-menus 3.3 (GPL-2)"}, teachers)
    assert notice.count("- parallel/gnome.en-es: gnome-menus 3.3 (GPL-2)") == 1
    assert notice.count("big-model (licence apache-2.0)") == 1
    assert notice.endswith("\n\nFrom us.\n")
    assert training_notice({}, ["", str(tmp_path / "unknown")]) == ""
