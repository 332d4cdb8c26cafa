"""The checks by name, and how one is run."""

import time
from collections.abc import Callable

from xling_tf.conformance.calling_checks import (
    a_pandas_series_is_taken,
    every_form_of_call_is_taken,
)
from xling_tf.conformance.load_checks import (
    calls_neither_retrace_nor_grow,
    one_large_call_has_bounded_memory,
    threads_get_the_same_vectors,
)
from xling_tf.conformance.loading_checks import it_loads_in_a_bare_process
from xling_tf.conformance.outcome import (
    FAILED,
    PASSED,
    SKIPPED,
    ContractBroken,
    Measured,
    NotApplicable,
    Outcome,
)
from xling_tf.conformance.signature_checks import (
    inference_gives_probabilities,
    signatures_give_what_calls_give,
    signatures_have_the_published_names_and_types,
)
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.training_checks import (
    fine_tuned_it_is_saved_with_all_signatures,
    hub_keras_layer_fine_tunes_it,
    it_is_a_reusable_saved_model,
    tfsm_layer_of_keras_calls_it,
)
from xling_tf.conformance.vector_checks import (
    a_batch_changes_no_vector,
    any_string_gives_a_finite_vector,
    vectors_have_unit_length,
    vectors_tell_texts_apart,
)

# Measures what a model keeps to, or raises `ContractBroken` or `NotApplicable`.
Check = Callable[[Subject], Measured]

# In this order: what a model without them cannot be used for comes first.
_QUICK: tuple[Check, ...] = (
    it_loads_in_a_bare_process,
    every_form_of_call_is_taken,
    a_pandas_series_is_taken,
    signatures_have_the_published_names_and_types,
    signatures_give_what_calls_give,
    inference_gives_probabilities,
    vectors_have_unit_length,
    vectors_tell_texts_apart,
    a_batch_changes_no_vector,
    any_string_gives_a_finite_vector,
    threads_get_the_same_vectors,
    it_is_a_reusable_saved_model,
    hub_keras_layer_fine_tunes_it,
    tfsm_layer_of_keras_calls_it,
    fine_tuned_it_is_saved_with_all_signatures,
)
# Each in a process of its own, in which nothing else has taken memory; minutes on large models.
_LONG: tuple[Check, ...] = (calls_neither_retrace_nor_grow, one_large_call_has_bounded_memory)

CHECKS: dict[str, Check] = {check.__name__: check for check in (*_QUICK, *_LONG)}
# Names of what one process can check, in groups.
GROUPS: tuple[tuple[str, ...], ...] = (
    tuple(check.__name__ for check in _QUICK),
    *((check.__name__,) for check in _LONG),
)


def run_check(name: str, subject: Subject) -> Outcome:
    """Runs a check in this process; whatever a model raises is a contract that it has broken."""
    start = time.perf_counter()

    def outcome(status: str, text: str = "", measured: Measured | None = None) -> Outcome:
        return Outcome(name, status, text, measured or {}, time.perf_counter() - start)

    try:
        return outcome(PASSED, measured=CHECKS[name](subject))
    except NotApplicable as reason:
        return outcome(SKIPPED, str(reason))
    except ContractBroken as broken:
        return outcome(FAILED, str(broken))
    except Exception as error:  # a model may raise anything
        text = " ".join(str(error).split())[:300]
        return outcome(FAILED, f"expected no error, but {type(error).__name__} came: {text}")
