"""Many calls, one large call, and calls at the same time."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.conformance.memory import MIB, is_measurable, peak_bytes, settled_bytes
from xling_tf.conformance.outcome import Measured, NotApplicable, require
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.texts import SENTENCES, call_lists, mixed_texts
from xling_tf.conformance.vector_checks import TOLERANCE, largest_difference

# A model that traces at every call grows by 700 KiB a call, 1.4 GiB in 2,000 (measured).
_CALLS_BOUND = 64 * MIB
_WARM_UP_SHARE = 10  # a tenth as many calls come first
# Of one large call: the texts as a tensor, their tokens, the vectors and what encodes them.
_LARGE_BOUND = 1024 * MIB
_LARGE_BOUND_PER_SENTENCE = 16 * 2**10
_SAMPLE = 64
_THREADS = 8
_CALLS_PER_THREAD = 4


def calls_neither_retrace_nor_grow(subject: Subject) -> Measured:
    """Thousands of calls with Python lists trace nothing anew and keep no memory.

    Source: the Reusable SavedModel interface asks for a `tf.function` as `__call__`; one whose Python
    arguments are not fixed by an `input_signature` is traced for each new list
    (tensorflow.org/guide/function, "Rules of tracing").
    """
    call = subject.called
    warm_up = subject.calls // _WARM_UP_SHARE
    lists = call_lists(warm_up + subject.calls)
    for texts in lists[:warm_up]:
        call(texts)
    traces, memory = _traces(call), settled_bytes() if is_measurable() else 0
    for texts in lists[warm_up:]:
        call(texts)
    require(
        _traces(call) == traces,
        f"no new trace in {subject.calls} calls with lists",
        f"the number of traces went from {traces} to {_traces(call)}",
    )
    if not is_measurable():
        return {"calls": subject.calls, "memory": "not measured: this system does not tell"}
    growth = settled_bytes() - memory
    require(
        growth <= _CALLS_BOUND,
        f"memory to grow by at most {_CALLS_BOUND / MIB:.0f} MiB in {subject.calls} calls",
        f"it grew by {growth / MIB:.0f} MiB",
    )
    return {
        "calls": subject.calls,
        "growth_mib": round(growth / MIB, 1),
        "bound_mib": _CALLS_BOUND // MIB,
    }


def one_large_call_has_bounded_memory(subject: Subject) -> Measured:
    """Texts of 1 to 300 words, 100,000 of them, are encoded in one call, rightly and in bounded memory.

    The bound is 1 GiB and 16 KiB a text above what was in use before the call: 2.5 GiB for 100,000
    texts. Padded together, 512 numbers a word would be 57 GiB.

    Source: ours. The published modules pad a batch to its longest text; their pages tell users to
    divide it themselves.
    """
    if not is_measurable():
        raise NotApplicable("this system does not tell how much memory a process has in use")
    texts = mixed_texts(subject.sentences)
    subject.encode(texts[:1])
    bound = _LARGE_BOUND + subject.sentences * _LARGE_BOUND_PER_SENTENCE
    vectors = np.zeros([0, 0], np.float32)

    def encode_all() -> None:
        nonlocal vectors
        vectors = subject.encode(texts)

    peak = peak_bytes(encode_all, bound)
    sample = np.random.default_rng(1).choice(len(texts), min(_SAMPLE, len(texts)), replace=False)
    alone = np.concatenate([subject.encode([texts[place]]) for place in sample])
    require(
        vectors.shape == (len(texts), alone.shape[1]),
        f"vectors of shape {[len(texts), alone.shape[1]]}",
        f"their shape is {list(vectors.shape)}",
    )
    difference = largest_difference(vectors[sample], alone)
    require(
        difference <= TOLERANCE,
        f"the vectors of single calls within {TOLERANCE}",
        f"one of {len(sample)} differs by {difference:.2g}",
    )
    require(
        peak <= bound,
        f"at most {bound / MIB:.0f} MiB above what was in use before",
        f"the peak was {peak / MIB:.0f} MiB above it",
    )
    return {
        "sentences": len(texts),
        "peak_mib": round(peak / MIB),
        "bound_mib": bound // MIB,
        "largest_difference": difference,
        "tolerance": TOLERANCE,
    }


def threads_get_the_same_vectors(subject: Subject) -> Measured:
    """Eight threads that call the model at the same time get what one gets.

    Source: servers call a model from many threads; a `tf.function` may be called so
    (tensorflow.org/guide/function).
    """
    texts = [*SENTENCES, *mixed_texts(8)]
    expected = subject.encode(texts)

    def call(shift: int) -> float:
        turned = subject.encode(texts[shift:] + texts[:shift])
        return largest_difference(np.roll(turned, shift, axis=0), expected)

    with ThreadPoolExecutor(_THREADS) as pool:
        shifts = [call_index % len(texts) for call_index in range(_THREADS * _CALLS_PER_THREAD)]
        difference = max(pool.map(call, shifts))
    require(
        difference <= TOLERANCE,
        f"the vectors of one thread within {TOLERANCE}",
        f"one of {_THREADS} threads got another by {difference:.2g}",
    )
    return {"threads": _THREADS, "largest_difference": difference, "tolerance": TOLERANCE}


def _traces(call: Callable[..., tf.Tensor]) -> int:
    function: Any = call
    return int(function.__call__.experimental_get_tracing_count())  # of the tf.function
