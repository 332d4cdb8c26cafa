"""The checks of the Hub contract: whole modules pass each, a module broken in one way fails that one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import conformance_models as models
import pytest
import tensorflow as tf

from xling_tf.conformance import load_checks, loading_checks
from xling_tf.conformance.outcome import FAILED, PASSED, SKIPPED, ContractBroken, Outcome
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.suite import CHECKS, run_check

# It takes the seconds in which a process imports TensorFlow: test_conformance_program.py.
IN_PROCESS = [name for name in CHECKS if name != "it_loads_in_a_bare_process"]
UNNAMED = tf.TensorSpec(None, tf.string, name="inputs")
FOUR = tf.TensorSpec([4], tf.string, name="inputs")
OTHER = tf.TensorSpec([None], tf.string, name="texts")


def check(name: str, make: Callable[[], Any], folder: Path) -> Outcome:
    return run_check(name, Subject(models.save(make, folder), sentences=100, calls=20))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = models.save(models.Whole, tmp_path_factory.mktemp("whole") / "model")
    return Subject(folder, sentences=100, calls=20)


@pytest.mark.parametrize("name", IN_PROCESS)
def test_a_whole_module_passes(name: str, whole: Subject) -> None:
    outcome = run_check(name, whole)
    expected = SKIPPED if name == "inference_gives_probabilities" else PASSED
    assert outcome.status == expected, outcome
    assert outcome.measured or outcome.text == "the model has no signature inference"


def also(name: str, function: Callable[..., tf.Tensor], *inputs: str) -> Callable[[], models.Whole]:
    """A whole module with one more signature."""

    def more(module: models.Whole) -> Any:
        specs = [tf.TensorSpec([None], tf.string, name=key) for key in inputs]
        return models.signature(lambda *texts: {"outputs": function(module, *texts)}, *specs)

    return models.with_signatures(lambda module: {**module.of_calls(), name: more(module)})


def default(
    function: Callable[[models.Whole, tf.Tensor], dict[str, tf.Tensor]], *specs: tf.TensorSpec
) -> Callable[[], models.Whole]:
    """A whole module whose `serving_default` gives this."""
    return models.with_signatures(
        lambda module: {
            "serving_default": models.signature(lambda inputs: function(module, inputs), *specs)
        }
    )


def no_probabilities(module: models.Whole, premise: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    return module(premise)[:, :3] ** 2 + 0 * module(other)[:, :3]


SIGNATURES = "signatures_have_the_published_names_and_types"
BROKEN: dict[str, tuple[str, Callable[[], Any], str]] = {
    "not of unit length": (
        *("vectors_have_unit_length", models.NotNormalized),
        "expected length 1 within 1e-05, but one is off by 1",
    ),
    "no number": (
        *("any_string_gives_a_finite_vector", models.NoNumber),
        "that of the text 'empty' is not",
    ),
    "depends on the batch": (
        *("a_batch_changes_no_vector", models.DependsOnBatch),
        "they differ by",
    ),
    "hostile neighbours change a vector": (
        *("any_string_gives_a_finite_vector", models.DependsOnBatch),
        "expected a text beside them to keep its vector",
    ),
    "depends on the calls": (
        *("threads_get_the_same_vectors", models.Counting),
        "one of 8 threads got another",
    ),
    "mixes large batches up": (
        *("one_large_call_has_bounded_memory", models.DependsOnNumber),
        "expected the vectors of single calls",
    ),
    "a constant": ("vectors_tell_texts_apart", models.Constant, "two have a cosine of 1.0"),
    "half precision": (
        *("every_form_of_call_is_taken", models.HalfPrecision),
        "list: float16 [8, 4]",
    ),
    "takes lists alone": ("every_form_of_call_is_taken", models.ListsAlone, "but str: "),
    "retraces": (
        *("calls_neither_retrace_nor_grow", models.Retracing),
        "expected no new trace in 20 calls",
    ),
    "variables are lost": (
        *("it_is_a_reusable_saved_model", models.LostVariables),
        "it has no variables, trainable_variables, regularization_losses",
    ),
    "no training argument": ("it_is_a_reusable_saved_model", models.WithoutTraining, "training"),
    "lost variables cannot be tuned": (
        *("hub_keras_layer_fine_tunes_it", models.LostVariables),
        "expected trainable weights in the layer, but it has none",
    ),
    "frozen variables are not saved tuned": (
        *("fine_tuned_it_is_saved_with_all_signatures", models.Frozen),
        "expected trainable_variables, but the model has none",
    ),
    "no gradient": ("hub_keras_layer_fine_tunes_it", models.Stuck, "expected gradients"),
    "no serving_default": (SIGNATURES, models.with_signatures(lambda _: {}), "are none"),
    "no endpoint for Keras": (
        *("tfsm_layer_of_keras_calls_it", models.with_signatures(lambda _: {})),
        "ValueError came: The endpoint 'serving_default'",
    ),
    "questions without responses": (
        *(SIGNATURES, also("question_encoder", lambda module, texts: module(texts), "input")),
        "question_encoder and response_encoder both or neither, but the signatures are",
    ),
    "another output": (
        *(SIGNATURES, default(lambda module, texts: {"vectors": module(texts)})),
        "expected one output 'outputs' of serving_default, but the outputs are vectors",
    ),
    "another input": (
        *(SIGNATURES, default(lambda module, texts: {"outputs": module(texts)}, OTHER)),
        "expected inputs inputs of serving_default, but they are texts",
    ),
    "no rank": (
        *(SIGNATURES, default(lambda module, texts: {"outputs": module(texts)}, UNNAMED)),
        "to be string [-1], but it is string of unknown rank",
    ),
    "a batch of four": (
        *(SIGNATURES, default(lambda module, texts: {"outputs": module(texts)}, FOUR)),
        "to be string [-1], but it is string [4]",
    ),
    "double precision": (
        SIGNATURES,
        default(lambda module, texts: {"outputs": tf.cast(module(texts), tf.float64)}),
        "expected output of serving_default to be float32 [-1, 4], but it is float64 [-1, 4]",
    ),
    "half a vector": (
        *(SIGNATURES, default(lambda module, texts: {"outputs": module(texts)[:, :2]})),
        "to be float32 [-1, 4], but it is float32 [-1, 2]",
    ),
    "other vectors": (
        "signatures_give_what_calls_give",
        default(lambda module, texts: {"outputs": -module(texts)}),
        "expected what serving_default gives within 1e-05 of what the call gives",
    ),
    "other vectors for Keras": (
        "tfsm_layer_of_keras_calls_it",
        default(lambda module, texts: {"outputs": -module(texts)}),
        "expected the model's vectors",
    ),
    "no probabilities": (
        "inference_gives_probabilities",
        also("inference", no_probabilities, "premise", "hypothesis"),
        "expected probabilities that sum to 1",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_module_that_breaks_a_contract_fails_its_check(how: str, tmp_path: Path) -> None:
    name, make, message = BROKEN[how]
    outcome = check(name, make, tmp_path / "model")
    assert outcome.status == FAILED
    assert message in outcome.text


def test_every_check_has_a_module_that_fails_it() -> None:
    elsewhere = {"it_loads_in_a_bare_process", "a_pandas_series_is_taken"}
    assert {name for name, *_ in BROKEN.values()} | elsewhere == set(CHECKS)


def test_every_check_says_what_the_contract_is_and_where_it_is_from() -> None:
    for function in CHECKS.values():
        assert "Source: " in str(function.__doc__)


def test_a_module_of_signatures_alone_is_checked_by_them(tmp_path: Path) -> None:
    class Signatures(tf.train.Checkpoint):
        def signatures(self) -> dict[str, Any]:
            self.whole = models.Whole()
            return self.whole.signatures()

    folder = models.save(Signatures, tmp_path / "model")
    outcomes = {
        name: run_check(name, Subject(folder, sentences=100, calls=20))
        for name in ("vectors_have_unit_length", "every_form_of_call_is_taken", SIGNATURES)
    }
    assert [outcome.status for outcome in outcomes.values()] == [PASSED, SKIPPED, PASSED]
    assert "has signatures alone" in outcomes["every_form_of_call_is_taken"].text


def test_too_much_memory_fails(whole: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    def much(call: Callable[[], object], bound: int) -> int:
        call()
        return bound + 2**20

    monkeypatch.setattr(load_checks, "peak_bytes", much)
    outcome = run_check("one_large_call_has_bounded_memory", whole)
    # 1,024 MiB, and 16 KiB for each of 100: 1.6 more.
    assert "expected at most 1026 MiB above what was in use before" in outcome.text
    assert "the peak was 1027 MiB above it" in outcome.text


def test_memory_that_grows_call_by_call_fails(
    whole: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter([0, 70 * 2**20])
    monkeypatch.setattr(load_checks, "settled_bytes", lambda: next(steps))
    outcome = run_check("calls_neither_retrace_nor_grow", whole)
    assert "at most 64 MiB in 20 calls, but it grew by 70 MiB" in outcome.text


def test_a_card_must_name_tensorflow_text_where_it_is_needed(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    loading_checks._require_told(card, "tensorflow_text")  # published modules have none
    card.write_text("Needs TensorFlow.")
    loading_checks._require_told(card, "tensorflow")
    with pytest.raises(ContractBroken, match=r"names tensorflow-text, .* README.md does not"):
        loading_checks._require_told(card, "tensorflow_text")
    card.write_text("Needs tensorflow-text.")
    loading_checks._require_told(card, "tensorflow_text")


def test_without_pandas_its_check_is_skipped(
    whole: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xling_tf.conformance.calling_checks.find_spec", lambda name: None)
    outcome = run_check("a_pandas_series_is_taken", whole)
    assert (outcome.status, outcome.text) == (SKIPPED, "pandas is not installed")
