"""The signatures that servers call."""

from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.conformance.outcome import Measured, NotApplicable, require
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.texts import SENTENCES
from xling_tf.conformance.vector_checks import TOLERANCE, largest_difference

# By name: the inputs, and which may be left out of the signature.
_INPUTS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "serving_default": (("inputs",), frozenset()),
    "default": (("inputs",), frozenset()),
    "question_encoder": (("input",), frozenset()),
    "response_encoder": (("input", "context"), frozenset({"context"})),
    "inference": (("premise", "hypothesis"), frozenset()),
}
_CLASSES = 3  # of inference
_OUTPUT = "outputs"


def signatures_have_the_published_names_and_types(subject: Subject) -> Measured:
    """Signatures take strings `[-1]` and give `outputs`, float32 `[-1, dim]`, by the published names.

    There is `serving_default`, which servers call when no signature is named. It and `default` take
    `inputs`; `question_encoder` takes `input`, `response_encoder` `input` and perhaps `context`, and one
    does not come without the other; `inference` takes `premise` and `hypothesis`. Shapes have a rank,
    so that servers can batch, and vectors a known dimension.

    Source: the pages of universal-sentence-encoder-multilingual/3 and -multilingual-qa/3; `inference` is
    ours. TensorFlow Serving, g3doc/api_rest.md: "signature_name ... defaults to serving default".
    """
    names = set(subject.signatures)
    broken = [name for name in ("serving_default",) if name not in names]
    broken += [] if len(names & {"question_encoder", "response_encoder"}) != 1 else ["one encoder"]
    require(
        not broken,
        "serving_default, and question_encoder and response_encoder both or neither",
        f"the signatures are {', '.join(sorted(names)) or 'none'}",
    )
    known = [name for name in _INPUTS if name in names]
    dim = subject.encode(SENTENCES[:1]).shape[1]
    for name in known:
        _require_inputs(name, subject.signatures[name])
        _require_output(name, subject.signatures[name], _CLASSES if name == "inference" else dim)
    return {"signatures": ", ".join(known), "dim": dim}


def signatures_give_what_calls_give(subject: Subject) -> Measured:
    """A signature gives the vectors of the call that it stands for.

    `serving_default` and `default` are the model's own call; the others those of the objects with
    their names within the model, where it has them.

    Source: the Reusable SavedModel interface and the signatures are two ways to one model
    (tensorflow.org/hub/reusable_saved_models).
    """
    compared, largest = [], 0.0
    texts = tf.constant(SENTENCES)
    for name, (inputs, _) in _INPUTS.items():
        of_sentences = inputs == ("inputs",)
        part = subject.model if of_sentences else getattr(subject.model, name, None)
        if name not in subject.signatures or not callable(part):
            continue
        taken = _input_names(subject.signatures[name])
        columns = [tf.roll(texts, shift, 0) for shift in range(len(taken))]
        # `[2]` beside `[1]`: signatures take any number of rows.
        for count in (len(SENTENCES), 1):
            rows = {key: column[:count] for key, column in zip(taken, columns, strict=True)}
            (served,) = subject.signatures[name](**rows).values()
            called = part(*(rows[key] for key in inputs if key in rows))
            difference = largest_difference(np.asarray(served), np.asarray(called))
            largest = max(largest, difference)
            require(
                difference <= TOLERANCE,
                f"what {name} gives within {TOLERANCE} of what the call gives",
                f"they differ by {difference:.2g}",
            )
        compared.append(name)
    if not compared:
        raise NotApplicable("neither the model nor a part with a signature's name can be called")
    return {
        "compared": ", ".join(compared),
        "largest_difference": largest,
        "tolerance": TOLERANCE,
    }


def inference_gives_probabilities(subject: Subject) -> Measured:
    """`inference` gives three probabilities for each pair of texts.

    Source: ours (hub.HubInference).
    """
    if "inference" not in subject.signatures:
        raise NotApplicable("the model has no signature inference")
    premise, hypothesis = tf.constant(SENTENCES), tf.constant(SENTENCES[::-1])
    signature = subject.signatures["inference"]
    (output,) = signature(premise=premise, hypothesis=hypothesis).values()
    probabilities = np.asarray(output)
    error = float(np.max(np.abs(probabilities.sum(axis=1) - 1)))
    require(
        bool(np.all(probabilities >= 0)) and error <= TOLERANCE,
        f"probabilities that sum to 1 within {TOLERANCE}",
        f"a sum is off by {error:.2g}, the least of them is {probabilities.min():.2g}",
    )
    return {"largest_error": error, "tolerance": TOLERANCE}


def _input_names(signature: Any) -> list[str]:
    given = signature.structured_input_signature[1]
    return [
        name for name in ("inputs", "input", "context", "premise", "hypothesis") if name in given
    ]


def _require_inputs(name: str, signature: Any) -> None:
    specs = signature.structured_input_signature[1]
    wanted, optional = _INPUTS[name]
    require(
        set(wanted) - optional <= set(specs) <= set(wanted),
        f"inputs {', '.join(wanted)} of {name}",
        f"they are {', '.join(specs) or 'none'}",
    )
    for key, spec in specs.items():
        require(
            spec.dtype == tf.string and spec.shape.rank == 1 and spec.shape[0] is None,
            f"input {key} of {name} to be string [-1]",
            f"it is {spec.dtype.name} {_shown(spec.shape)}",
        )


def _require_output(name: str, signature: Any, dim: int) -> None:
    outputs = signature.structured_outputs
    require(
        list(outputs) == [_OUTPUT],
        f"one output {_OUTPUT!r} of {name}",
        f"the outputs are {', '.join(outputs)}",
    )
    spec = outputs[_OUTPUT]
    require(
        spec.dtype == tf.float32 and _shown(spec.shape) == [-1, dim],
        f"output of {name} to be float32 [-1, {dim}]",
        f"it is {spec.dtype.name} {_shown(spec.shape)}",
    )


def _shown(shape: tf.TensorShape) -> list[int] | str:
    """A shape as `saved_model_cli` shows it."""
    if shape.rank is None:
        return "of unknown rank"
    return [-1 if size is None else size for size in shape.as_list()]
