"""The checks of export/check.py, functions of a `Subject`; an `AssertionError` says what was expected."""

import os
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.savedmodel.saved_models import load_saved_model

Measured = Mapping[str, float | int | str]

SENTENCES = [
    "Where is the station?",
    "¿Dónde está la estación?",
    "Der Fluss ist hier breit und langsam.",
    "Il pleut depuis ce matin.",
    "我们明天去公园。",
    "I lost my keys, again, and my patience with them.",
]
HOSTILE: Mapping[str, bytes] = {
    "empty": b"",
    "blanks": " \t\r\n\u00a0\u3000".encode(),
    "emoji": "👩‍👩‍👧‍👦🏽🇪🇸".encode(),
    "right to left": "مرحبا بالعالم שלום \u202eabc".encode(),
    "combining marks": b"e" + "\u0301".encode() * 500,
    "control characters": "a\0\x07b\x1b[0m\ufeff\uffff".encode(),
    "invalid UTF-8": b"\xff\xfe hola \xc3",
    "one long word": b"x" * 100_000,
    "a megabyte": b"the cat is sleeping. " * 49_933,
}
# Allowed error of a component of a unit vector. Other paddings and batch sizes sum float32 in another order,
# which changes about 1e-7; 1e-5 turns a vector by less than a hundredth of a degree.
_TOLERANCE = 1e-5
# MiB. A model that is traced in every call grows by 700 KiB a call, 1.4 GiB in 2,000 calls (measured).
_GROWTH_BOUND = 64
# MiB in one large call. Padded to 300 words of 512 float32 each, a text would take 600 KiB.
_LARGE_BOUND, _TEXTS_PER_MIB = 1024, 64
_LONGEST = 300  # words of a text in the large call
# The signatures that give vectors, and their inputs; "context" only if the model was trained with contexts.
_ENCODERS = {
    "serving_default": ("inputs",),
    "default": ("inputs",),
    "raw": ("inputs",),
    "question_encoder": ("input",),
    "response_encoder": ("input", "context"),
}

# tensorflow-text imports Keras; the model itself must need neither Keras nor the other blocked packages.
_BARE = """
import sys
import tensorflow as tf
needs = "tensorflow"
try:
    tf.saved_model.load(sys.argv[1])
except (tf.errors.OpError, RuntimeError, OSError, LookupError):
    import tensorflow_text
    needs = "tensorflow_text"
blocked = {"keras", "tf_keras", "tensorflow_hub", "xling_tf", "sentencepiece"}
for name in [*blocked, *(name for name in sys.modules if name.partition(".")[0] in blocked)]:
    sys.modules[name] = None
model = tf.saved_model.load(sys.argv[1])
print(needs, len(model(["Hola", "", "What?"])))
"""


@dataclass
class Subject:
    """An exported model, loaded when a check first needs it."""

    folder: Path
    num_texts: int  # in the large call
    num_calls: int = 2_000  # that must cause no new trace

    @cached_property
    def model(self) -> Any:
        """The loaded SavedModel."""
        return load_saved_model(self.folder)

    def encode(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Encodes texts: `[texts, dim]`."""
        return self.model(tf.constant([tf.compat.as_bytes(text) for text in texts])).numpy()


def loads_in_a_bare_process(subject: Subject) -> Measured:
    """TensorFlow alone loads and calls the model; tensorflow-text may be needed too if the card says so."""
    environment = {**os.environ, "PYTHONPATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", _BARE, str(subject.folder.resolve())]
    process = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True)
    last = (process.stderr.strip().splitlines() or ["no message"])[-1][:300]
    _require(not process.returncode, "a bare process to load and call it", last)
    needs, count = process.stdout.split()[-2:]
    _require(count == "3", "3 vectors of 3 texts", count)
    card = subject.folder / "README.md"
    if needs != "tensorflow" and card.is_file():
        is_named = needs in card.read_text(encoding="utf-8").replace("-", "_")
        _require(is_named, "a card that names tensorflow-text", "README.md does not")
    return {"needs": needs}


def takes_every_form_of_call(subject: Subject) -> Measured:
    """Strings, lists, arrays and tensors of any rank give the same vectors."""
    expected = subject.encode(SENTENCES)
    forms: dict[str, Any] = {
        "a string": SENTENCES[0],
        "an array of objects": np.array(SENTENCES, object),
        "an array of strings": np.array(SENTENCES),
        "a tensor of rank 0": tf.constant(SENTENCES[0]),
        "a tensor of rank 2": tf.reshape(tf.constant(SENTENCES), [-1, 2]),
        "an empty list": [],
        "an empty tensor": tf.constant([], tf.string),
    }
    for name, texts in forms.items():
        vectors = subject.model(texts)
        _require(vectors.dtype == tf.float32, f"float32 of {name}", vectors.dtype.name)
        _require_near(vectors, expected[: np.size(texts)], f"the vectors of a list for {name}")
    return {"forms": len(forms)}


def has_signatures_that_can_be_served(subject: Subject) -> Measured:
    """Signatures give a row for each text; those of encoders have the inputs and outputs of the interface."""
    model, signatures = subject.model, subject.model.signatures
    _require("serving_default" in signatures, "a signature serving_default", set(signatures))
    encoders = {"question_encoder", "response_encoder"} & set(signatures)
    _require(len(encoders) != 1, "encoders of questions and responses, or neither", encoders)
    dim = subject.encode(SENTENCES[:1]).shape[1]
    vectors = {"outputs": tf.TensorSpec([None, dim], tf.float32, name="outputs")}
    called = []
    for name, function in signatures.items():
        specs = function.structured_input_signature[1]
        texts = {key: tf.TensorSpec([None], tf.string, name=key) for key in specs}
        if name in _ENCODERS:
            expected = {key for key in _ENCODERS[name] if key in specs or key != "context"}
            _require(specs == texts and specs.keys() == expected, f"texts {expected} for {name}", specs)
            outputs = function.structured_outputs
            _require(outputs == vectors, f"the outputs {vectors} of {name}", outputs)
        rows = {key: tf.constant(np.roll(SENTENCES, index)) for index, key in enumerate(specs)}
        try:
            results = function(**rows)
        except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
            _require(name not in _ENCODERS, f"{name} to take any text", error)
            continue  # It takes numbers, or only certain texts, such as names of languages.
        called.append(name)
        for key, result in results.items():
            _require(len(result) == len(SENTENCES), f"a row of {key} for each text of {name}", result.shape)
        if name == "raw":
            units = tf.math.l2_normalize(results["outputs"], axis=1)
            _require_near(units, subject.encode(SENTENCES), "raw vectors of the same directions")
            continue
        part = model if _ENCODERS.get(name) == ("inputs",) else getattr(model, name, None)
        if callable(part):
            columns = {"inputs" if key == "input" else key: row for key, row in rows.items()}
            _require_near(results["outputs"], part(**columns), f"the results of calling {name}")
    return {"signatures": ", ".join(called), "dim": dim}


def encodes_any_string_to_a_unit_vector(subject: Subject) -> Measured:
    """Sentences and hostile strings get finite vectors of length 1; sentences get different ones."""
    texts: Mapping[str, str | bytes] = {**{text: text for text in SENTENCES}, **HOSTILE}
    vectors = subject.encode(list(texts.values()))
    errors = np.abs(np.linalg.norm(vectors, axis=1) - 1)
    off = [name for name, error in zip(texts, errors, strict=True) if not error <= _TOLERANCE]
    _require(not off, f"vectors of length 1 within {_TOLERANCE}", f"other lengths for {off}")
    cosines = vectors[: len(SENTENCES)] @ vectors[: len(SENTENCES)].T
    nearest = float(np.max(cosines - 2 * np.eye(len(SENTENCES))))
    _require(nearest < 1 - _TOLERANCE, "different vectors for sentences", f"a cosine of {nearest}")
    return {"texts": len(texts), "largest_cosine": nearest}


def gives_a_text_one_vector(subject: Subject) -> Measured:
    """A text gets the same vector alone, beside hostile strings, in any order and in any thread."""
    texts: list[str | bytes] = [*SENTENCES, *HOSTILE.values(), *mixed_texts(8)]
    together = subject.encode(texts)
    alone = np.concatenate([subject.encode([text]) for text in texts])
    _require_near(together, alone, "the vectors of a batch of single texts")

    def encode_turned(shift: int) -> np.ndarray:
        return np.roll(subject.encode(texts[shift:] + texts[:shift]), shift, axis=0)

    with ThreadPoolExecutor(8) as threads:
        for vectors in threads.map(encode_turned, range(len(texts))):
            _require_near(vectors, together, "the same vectors in another order and thread")
    return {"texts": len(texts)}


def neither_retraces_nor_grows(subject: Subject) -> Measured:
    """Thousands of calls with lists cause no new trace and leak no memory."""
    call: Any = subject.model

    def call_often(count: int) -> None:
        for number in range(count):
            call([f"{text} {number}" for text in SENTENCES[: 1 + number % len(SENTENCES)]])

    call_often(subject.num_calls // 10)
    traces, memory = call.__call__.experimental_get_tracing_count(), _peak_mib()
    call_often(subject.num_calls)
    traces = call.__call__.experimental_get_tracing_count() - traces
    growth = _peak_mib() - memory
    _require(traces == 0, f"no new trace in {subject.num_calls} calls", traces)
    _require(growth <= _GROWTH_BOUND, f"{_GROWTH_BOUND} MiB more at most", growth)
    return {"calls": subject.num_calls, "growth_mib": growth}


def encodes_many_texts_in_bounded_memory(subject: Subject) -> Measured:
    """One call encodes thousands of texts of 1 to 300 words, correctly and in bounded memory."""
    texts = mixed_texts(subject.num_texts)
    indices = range(0, len(texts), max(1, len(texts) // 64))
    alone = np.concatenate([subject.encode([texts[index]]) for index in indices])
    memory = _peak_mib()
    vectors = subject.encode(texts)
    growth, bound = _peak_mib() - memory, _LARGE_BOUND + len(texts) // _TEXTS_PER_MIB
    _require_near(vectors[indices], alone, "the vectors of single calls")
    _require(growth <= bound, f"{bound} MiB more at most", growth)
    return {"texts": len(texts), "growth_mib": growth, "bound_mib": bound}


def is_fine_tuned_by_a_keras_layer(subject: Subject) -> Measured:
    """A training step through hub.KerasLayer(trainable=True) reaches every weight and lowers the loss."""
    with warnings.catch_warnings(action="ignore"):  # it imports pkg_resources
        import tensorflow_hub

    encode = tensorflow_hub.KerasLayer(str(subject.folder), trainable=True)
    variables = encode.trainable_weights
    texts = tf.constant([*SENTENCES, "Zyxwvut qponmlk"])  # unknown words

    def loss(*, training: bool) -> tf.Tensor:
        """Smaller if each sentence is nearer to the next."""
        vectors = encode(texts, training=training)
        return tf.reduce_mean(1 - tf.reduce_sum(vectors * tf.roll(vectors, 1, 0), axis=1))

    with tf.GradientTape() as tape:
        tape.watch(variables)
        before = loss(training=True)
    gradients = tape.gradient(before, variables)
    reached = sum(gradient is not None for gradient in gradients)
    _require(reached == len(variables) > 0, f"gradients of all {len(variables)} weights", reached)
    dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
    square = tf.add_n([tf.reduce_sum(gradient**2) for gradient in dense])
    before = loss(training=False)
    for variable, gradient in zip(variables, dense, strict=True):
        # A twentieth of the step that would bring the loss to 0 if it were linear.
        variable.assign_sub(0.05 * before / square * gradient)
    after = loss(training=False)
    _require(bool(after < before), "a lower loss after one step", f"{before} and then {after}")
    return {"weights": len(dense), "loss_before": float(before), "loss_after": float(after)}


def mixed_texts(count: int) -> list[str]:
    """Makes texts of 1 to `_LONGEST` words, the same in every run; the logarithms of lengths are uniform."""
    random = np.random.default_rng(0)
    words = np.array([*" ".join(SENTENCES).split(), *map(str, range(99))])
    lengths = np.exp(random.uniform(0, np.log(_LONGEST + 1), count)).astype(int)
    return [" ".join(random.choice(words, length)) for length in lengths]


Check = Callable[[Subject], Measured]
CHECKS: tuple[Check, ...] = (
    loads_in_a_bare_process,
    takes_every_form_of_call,
    has_signatures_that_can_be_served,
    encodes_any_string_to_a_unit_vector,
    gives_a_text_one_vector,
    neither_retraces_nor_grows,
    encodes_many_texts_in_bounded_memory,
    is_fine_tuned_by_a_keras_layer,
)


def run_check(check: Check, subject: Subject) -> dict[str, Any]:
    """Runs a check; any exception that the model raises fails it."""
    start, text, measured = time.perf_counter(), "", dict[str, Any]()
    try:
        measured |= check(subject)
    except Exception as error:  # a model may raise anything
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    outcome = {"check": check.__name__, "status": "failed" if text else "passed", "text": text}
    return {**outcome, "measured": measured, "seconds": round(time.perf_counter() - start, 1)}


def _peak_mib() -> int:
    """The peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _require(holds: bool, expected: str, actual: object) -> None:
    if not holds:
        raise AssertionError(f"expected {expected}, but got {actual}")


def _require_near(vectors: Any, expected: Any, name: str) -> None:
    vectors, expected = np.asarray(vectors), np.asarray(expected)
    _require(vectors.shape == expected.shape, f"{name}, {expected.shape}", vectors.shape)
    error = np.max(np.abs(vectors - expected), initial=0)
    _require(error <= _TOLERANCE, f"{name} within {_TOLERANCE}", f"{error:.2g} off")
