"""What a model offers to trainings that start from it."""

import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from xling_tf.conformance.outcome import Measured, NotApplicable, require
from xling_tf.conformance.subject import Subject
from xling_tf.conformance.texts import SENTENCES
from xling_tf.conformance.vector_checks import TOLERANCE, largest_difference
from xling_tf.hub.module import reexport
from xling_tf.hub.saved_models import load_saved_model

# Of the step that would bring the loss to nothing if it were a straight line; small enough for that.
_STEP = 0.05
# Trained upon: each sentence and the one after it are to come near each other.
_TEXTS = tf.constant(SENTENCES)


def it_is_a_reusable_saved_model(subject: Subject) -> Measured:
    """It has `variables`, `trainable_variables` and `regularization_losses`, and takes `training`.

    So have the objects within it that are called for questions and for responses.

    Source: tensorflow.org/hub/reusable_saved_models, "Attributes" and "Objects".
    """
    called = subject.called
    for name in ("", "question_encoder", "response_encoder"):
        part = getattr(subject.model, name, None) if name else subject.model
        if callable(part):
            _require_attributes(part, name or "the model")
    inference = np.asarray(called(_TEXTS, training=False))
    difference = largest_difference(inference, subject.encode(SENTENCES))
    require(
        difference <= TOLERANCE,
        f"training=False to change no vector by more than {TOLERANCE}",
        f"one differs by {difference:.2g}",
    )
    training = np.asarray(called(_TEXTS, training=True))
    require(
        training.shape == inference.shape and bool(np.isfinite(training).all()),
        "finite vectors with training=True",
        "they are not",
    )
    return {
        "variables": len(subject.model.variables),
        "trainable": len(subject.model.trainable_variables),
    }


def hub_keras_layer_fine_tunes_it(subject: Subject) -> Measured:
    """One step through `hub.KerasLayer(folder, trainable=True)` changes weights and lowers the loss.

    Source: tensorflow.org/hub/tf2_saved_model, "Fine-tuning".
    """
    if find_spec("tensorflow_hub") is None or find_spec("tf_keras") is None:
        raise NotApplicable("tensorflow-hub or tf-keras is not installed")
    import tensorflow_hub

    layer = tensorflow_hub.KerasLayer(str(subject.folder), trainable=True)
    weights = layer.trainable_weights
    require(bool(weights), "trainable weights in the layer", "it has none")
    return _one_step(lambda texts, training: layer(texts, training=training), weights)


def tfsm_layer_of_keras_calls_it(subject: Subject) -> Measured:
    """`keras.layers.TFSMLayer(folder, call_endpoint="serving_default")` of Keras 3 gives its vectors.

    What the layer can train is told: the weights that a step through it changes.

    Source: keras.io/api/layers/backend_specific_layers/tfsm_layer.
    """
    if keras.backend.backend() != "tensorflow":
        raise NotApplicable("Keras runs on another backend than TensorFlow")
    layer = keras.layers.TFSMLayer(str(subject.folder), call_endpoint="serving_default")
    (vectors,) = layer(_TEXTS).values()
    difference = largest_difference(np.asarray(vectors), subject.encode(SENTENCES))
    require(
        difference <= TOLERANCE,
        f"the model's vectors within {TOLERANCE}",
        f"one differs by {difference:.2g}",
    )
    measured = {"largest_difference": difference, "tolerance": TOLERANCE}
    weights = [weight.value for weight in layer.trainable_weights]
    if not weights:
        return {**measured, "trains": "nothing: the layer has no trainable weights"}
    step = _one_step(lambda texts, training: next(iter(layer(texts).values())), weights)
    return {**measured, **step}


def fine_tuned_it_is_saved_with_all_signatures(subject: Subject) -> Measured:
    """Loaded, tuned by one step and saved again, it has the same signatures and the tuned vectors.

    Source: `tf.saved_model.save` leaves out the signatures of a loaded object, so that they have to be
    passed again; `hub.reexport` does.
    """
    model = subject.fresh()
    require(
        bool(list(getattr(model, "trainable_variables", ()))),
        "trainable_variables",
        "the model has none",
    )
    before = np.asarray(model(_TEXTS))
    _one_step(lambda texts, training: model(texts, training=training), model.trainable_variables)
    tuned = np.asarray(model(_TEXTS))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuned"
        reexport(model, subject.folder, path)
        again = load_saved_model(path)
        difference = largest_difference(np.asarray(again(_TEXTS)), tuned)
        names = set(again.signatures)
    require(
        difference <= TOLERANCE,
        f"the tuned vectors within {TOLERANCE} after loading",
        f"one differs by {difference:.2g}",
    )
    require(
        names == set(subject.signatures),
        f"signatures {', '.join(sorted(subject.signatures))}",
        f"they are {', '.join(sorted(names))}",
    )
    moved = largest_difference(tuned, before)
    return {"tuned_by": moved, "largest_difference": difference, "tolerance": TOLERANCE}


def _require_attributes(part: Any, name: str) -> None:
    lacking = [
        attribute
        for attribute in ("variables", "trainable_variables", "regularization_losses")
        if not hasattr(part, attribute)
    ]
    require(not lacking, f"{name} to be a reusable SavedModel", f"it has no {', '.join(lacking)}")
    all_ids = {id(variable) for variable in part.variables}
    trainable = list(part.trainable_variables)
    require(bool(all_ids), f"variables in {name}", "the list is empty")
    require(
        all(isinstance(variable, tf.Variable) for variable in [*part.variables, *trainable]),
        f"variables of {name} to be tf.Variables",
        "some are not",
    )
    require(
        {id(variable) for variable in trainable} <= all_ids,
        f"trainable_variables of {name} to be among its variables",
        "some are not",
    )
    require(
        all(callable(loss) for loss in part.regularization_losses),
        f"regularization_losses of {name} to be functions without arguments",
        "some are not callable",
    )


def _one_step(
    encode: Callable[[tf.Tensor, bool], tf.Tensor], variables: Sequence[tf.Variable]
) -> Measured:
    """Takes one step of gradient descent; the weights must change, and the loss be lower after it."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        before = _loss(encode(_TEXTS, True))
    gradients = tape.gradient(before, variables)
    used = [
        (variable, tf.convert_to_tensor(gradient))
        for variable, gradient in zip(variables, gradients, strict=True)
        if gradient is not None
    ]
    require(bool(used), "gradients of the trainable weights", "there are none")
    square = tf.add_n([tf.reduce_sum(gradient**2) for _, gradient in used])
    before = _loss(encode(_TEXTS, False))
    for variable, gradient in used:
        variable.assign_sub(_STEP * before / square * gradient)
    after = _loss(encode(_TEXTS, False))
    require(
        bool(after < before), "a lower loss after one step", f"it went from {before} to {after}"
    )
    return {
        "weights": len(variables),
        "with_gradients": len(used),
        "loss_before": round(float(before), 6),
        "loss_after": round(float(after), 6),
    }


def _loss(vectors: tf.Tensor) -> tf.Tensor:
    """How far vectors are from the next ones, on average: 1 - cosine, for unit vectors."""
    return tf.reduce_mean(1 - tf.reduce_sum(vectors * tf.roll(vectors, 1, 0), axis=1))
