"""The conformance suite on what this package exports: an encoder of each family, and every preset."""

import dataclasses
from pathlib import Path

import keras
import pytest
from published_model import pieces, small_config
from test_presets_train import NARROW
from testing import CARD_FILES, SENTENCES, TINY, tiny_model

from xling_tf.conformance import texts
from xling_tf.conformance.outcome import PASSED
from xling_tf.conformance.running import run_suite
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.suite import CHECKS, run_check
from xling_tf.hub import module as hub
from xling_tf.model import Model, fit_text
from xling_tf.overrides import apply_overrides
from xling_tf.presets import PRESETS, get_preset


def exported_alike(name: str) -> str:
    """Equal where two presets are exported as the same graph, but for sizes of vocabularies."""
    config = get_preset(name)
    tasks = config.tasks
    heads = (tasks.response_prediction, tasks.inference, tasks.question_answering)
    return repr((config.text, config.encoder, [task.weight > 0 for task in heads]))


# The first preset of each graph. Trainings of `-best` start from a model of `multilingual`.
GRAPHS = {exported_alike(name): name for name in reversed(PRESETS) if not name.endswith("-best")}


def transformer() -> Model:
    """Words and n-grams, answers in their contexts, and inference."""
    on = ["tasks.question_answering.weight=1", "text.max_context_tokens=16"]
    return tiny_model(apply_overrides(TINY, on))


def convolution() -> Model:
    """SentencePiece's pieces."""
    return Model.build(small_config(), pieces())


FAMILIES = {"transformer": transformer, "convolution": convolution}


@pytest.fixture(
    scope="module",
    params=["transformer", pytest.param("convolution", marks=pytest.mark.slow)],
)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("exported") / request.param
    card = {"README.md": "Needs tensorflow-text.", "config.json": CARD_FILES["config.json"]}
    hub.export(FAMILIES[request.param]().hub_module(), folder, card)
    return Subject(folder, sentences=100, calls=20)


# They load it again; the other tests of hub.py do much the same.
LOADING = ["it_loads_in_a_bare_process", "hub_keras_layer_fine_tunes_it"]
LOADING += ["tfsm_layer_of_keras_calls_it", "fine_tuned_it_is_saved_with_all_signatures"]


# In the order of the suite, so that one load of each family serves all.
@pytest.mark.parametrize("name", [name for name in CHECKS if name not in LOADING])
def test_a_family_passes(name: str, family: Subject) -> None:
    outcome = run_check(name, family)
    without_head = "the model has no signature inference"
    assert outcome.status == PASSED or outcome.text == without_head, outcome.text


@pytest.mark.slow
@pytest.mark.parametrize("name", LOADING)
def test_a_family_passes_loaded_elsewhere(name: str, family: Subject) -> None:
    outcome = run_check(name, family)
    assert outcome.status == PASSED, outcome.text
    if name == "it_loads_in_a_bare_process":
        needs = {"transformer": "tensorflow", "convolution": "tensorflow_text"}
        assert outcome.measured == {"needs": needs[family.folder.name]}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS.values())
def test_every_exported_preset_passes_the_whole_suite(name: str, tmp_path: Path) -> None:
    config = apply_overrides(get_preset(name), NARROW)
    text = dataclasses.replace(config.text, sentencepiece_size=400)
    # The suite's own sentences too: two of unknown pieces alone would have one vector.
    languages = {config.data.source: [*SENTENCES, *texts.SENTENCES, *texts.mixed_texts(50)] * 20}
    text, vocabulary = fit_text(text, languages)
    keras.utils.set_random_seed(1)
    model = Model.build(dataclasses.replace(config, text=text), vocabulary)
    hub.export(model.hub_module(), tmp_path / name, {"README.md": "Needs tensorflow-text."})
    outcomes = list(run_suite(tmp_path / name, sentences=1000, calls=200))
    assert [outcome.check for outcome in outcomes] == list(CHECKS)
    assert [outcome for outcome in outcomes if outcome.status == "failed"] == []
