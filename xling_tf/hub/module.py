"""The SavedModel: built from a trained encoder, exported, loaded."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from xling_tf.encoders.folded import FoldedEncoder
from xling_tf.errors import UserError
from xling_tf.files import SAVED_MODEL, replacing_folder, require_writable_folder
from xling_tf.layers.base import float32_copy
from xling_tf.layers.pooling import unit_entries, unit_length

# Beside the SavedModel: what a training that starts from it needs.
TRAINING = "training"

# At the end of the card.
_REEXPORTED = """
## Since then

The model was loaded, perhaps fine-tuned, and saved again; the scores above are from before.
"""
# An argument of a call that the Reusable SavedModel contract has.
_TRAINING = tf.TensorSpec([], tf.bool, name="training")


def _texts(*names: str) -> list[tf.TensorSpec]:
    """Arguments of a call: strings of any rank, which are flattened."""
    return [tf.TensorSpec(None, tf.string, name=name) for name in names]


def _as_many(texts: tf.Tensor, others: tf.Tensor, message: str) -> tf.Tensor:
    """Gives `texts` back where they are as many as others; else fails, before an operation on both does."""
    with tf.control_dependencies([tf.debugging.assert_equal(tf.size(texts), tf.size(others), message)]):
        return tf.identity(texts)


class HubPart(tf.train.Checkpoint):
    """What the Reusable SavedModel interface asks of a model and of the objects within it.

    A `tf.train.Checkpoint` and not a `tf.Module`, whose `variables` would be lost on saving. The heads are
    layers that tasks have put on the encoder's vectors, with numbers of about 1 if `normalize`; in float32.
    """

    def __init__(self, encoder: FoldedEncoder, *heads: keras.layers.Layer, normalize: bool = False) -> None:
        super().__init__()
        self.encoder = encoder
        # Out of TensorFlow's sight, which would add Keras' own functions to what is saved.
        self._heads = lambda: heads
        self._seen = unit_entries if normalize else tf.identity
        weights = [*encoder.weights, *(weight for head in heads for weight in _weights(head))]
        self.trainable_variables = weights
        self.variables = [*weights, *encoder.constants]
        self.regularization_losses: list[tf.Tensor] = []


class HubEncoder(HubPart):
    """Strings to unit vectors; a tower, if there is one, is applied before they are normalised."""

    @tf.function(input_signature=[*_texts("inputs"), _TRAINING], autograph=False)
    def __call__(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Encodes strings of any shape, flattened: `[sentences, dim]` float32 of unit length."""
        encodings = self.encoder(tf.reshape(inputs, [-1]))
        for tower in self._heads():
            encodings = tower(self._seen(encodings))
        return unit_length(encodings)


class HubAnswerEncoder(HubPart):
    """Answers and the contexts that they are from to unit vectors (Yang et al. 2019, sec. 3.1).

    Its heads are the layers over the average of the context's words, and the tower over the answer's
    encoding, followed by the context's.
    """

    @tf.function(input_signature=[*_texts("inputs", "context"), _TRAINING], autograph=False)
    def __call__(self, inputs: tf.Tensor, context: tf.Tensor = "", training: bool = False) -> tf.Tensor:
        """Encodes answers of any shape, flattened: `[answers, dim]` float32 of unit length.

        Contexts are as many texts, or a single one in which all answers are; an answer whose context is
        empty is its own context, as the published module's page advises.
        """
        answers = tf.reshape(inputs, [-1])
        contexts = tf.cond(
            tf.equal(tf.rank(context), 0),
            lambda: tf.fill(tf.shape(answers), tf.reshape(context, [])),
            lambda: tf.reshape(context, [-1]),
        )
        contexts = _as_many(contexts, answers, "as many contexts as answers are expected, or a single string")
        contexts = tf.where(tf.equal(tf.strings.strip(contexts), ""), answers, contexts)
        context_encoder, tower = self._heads()
        encoded = context_encoder(self._seen(self.encoder.average(contexts)))
        return unit_length(tower(tf.concat([self._seen(self.encoder(answers)), encoded], axis=1)))


class HubInference(HubPart):
    """Pairs of strings to the probabilities that one entails the other, contradicts it, or neither."""

    @tf.function(input_signature=_texts("premise", "hypothesis"), autograph=False)
    def __call__(self, premise: tf.Tensor, hypothesis: tf.Tensor) -> tf.Tensor:
        """Classifies pairs of any shape, flattened: `[pairs, 3]` float32 in `NLI_LABELS`' order."""
        premise, hypothesis = tf.reshape(premise, [-1]), tf.reshape(hypothesis, [-1])
        hypothesis = _as_many(hypothesis, premise, "as many hypotheses as premises are expected")
        texts = tf.concat([premise, hypothesis], axis=0)
        (head,) = self._heads()
        return tf.nn.softmax(head(*tf.split(self._seen(self.encoder(texts)), 2)))


class HubTranslator(HubPart):
    """Strings to what a decoder says of their vectors in another language (Yu et al. 2018, sec. 2.2)."""

    def __init__(self, encoder: FoldedEncoder, decoder: keras.layers.Layer, languages: Sequence[str]) -> None:
        super().__init__(encoder, decoder)
        self._languages = tuple(languages)

    @tf.function(input_signature=_texts("inputs", "language"), autograph=False)
    def __call__(self, inputs: tf.Tensor, language: tf.Tensor) -> tf.Tensor:
        """Translates strings of any shape, flattened, to languages, one for each: `[sentences]` strings."""
        wanted = tf.equal(tf.reshape(language, [-1])[:, None], tf.constant(self._languages)[None, :])
        message = f"one of {', '.join(self._languages)} is expected for every text"
        with tf.control_dependencies(
            [tf.debugging.assert_equal(tf.reduce_any(wanted, axis=1), True, message)]
        ):
            places = tf.argmax(wanted, axis=1, output_type=tf.int32)
        (decoder,) = self._heads()
        return self.encoder.translate(tf.reshape(inputs, [-1]), places, decoder)


class HubModule(HubEncoder):
    """What is exported: the encoder itself, and what tasks were trained to do with its vectors.

    `question_encoder` and `response_encoder` are those of question answering; where that was not
    trained, of response prediction, which has no tower for questions. Where both were trained, the
    tower of response prediction is not exported. Layers are copied, with the weights as they are now.
    Without a tower, texts are encoded as sentences are; without a head for it, there is no `inference`, and
    without a decoder no `translate` to `languages`.
    """

    def __init__(
        self,
        encoder: FoldedEncoder,
        *,
        question_tower: keras.layers.Layer | None = None,
        response_tower: keras.layers.Layer | None = None,
        context_encoder: keras.layers.Layer | None = None,
        inference_head: keras.layers.Layer | None = None,
        decoder: keras.layers.Layer | None = None,
        languages: Sequence[str] = (),
        normalize: bool = False,
    ) -> None:
        super().__init__(encoder)
        question, response, context, inference, decoders = (
            [float32_copy(layer)] if layer else []
            for layer in (question_tower, response_tower, context_encoder, inference_head, decoder)
        )
        kind = HubAnswerEncoder if context else HubEncoder
        self.question_encoder = HubEncoder(encoder, *question, normalize=normalize)
        self.response_encoder = kind(encoder, *context, *response, normalize=normalize)
        self.inference = HubInference(encoder, *inference, normalize=normalize) if inference else None
        self.translate = HubTranslator(encoder, decoders[0], languages) if decoders else None
        # By the layers' names, for trainings that start from the exported model.
        self.heads = {
            layer.name: tf.train.Checkpoint(weights=_weights(layer))
            for layer in (*question, *context, *response, *inference, *decoders)
        }

    def make_signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Traces `serving_default`, `default` and what the module has besides."""
        with_context = isinstance(self.response_encoder, HubAnswerEncoder)
        response_inputs = ("input", "context") if with_context else ("input",)
        signatures = {
            "serving_default": _signature(self, "inputs"),
            "default": _signature(self, "inputs"),
            "question_encoder": _signature(self.question_encoder, "input"),
            "response_encoder": _signature(self.response_encoder, *response_inputs),
        }
        if self.inference:
            signatures["inference"] = _signature(self.inference, "premise", "hypothesis")
        if self.translate:
            signatures["translate"] = _signature(self.translate, "input", "language")
        return signatures


def _weights(layer: keras.layers.Layer) -> list[tf.Variable]:
    return [variable.value for variable in layer.variables]


def _signature(module: Callable[..., tf.Tensor], *names: str) -> tf.types.experimental.ConcreteFunction:
    # A known rank lets TensorFlow Serving batch requests together.
    specs = {name: tf.TensorSpec([None], tf.string, name=name) for name in names}
    function = tf.function(lambda **inputs: {"outputs": module(*(inputs[name] for name in names))})
    return function.get_concrete_function(**specs)


def export(module: HubModule, path: Path, files: Mapping[str, str | bytes]) -> None:
    """Writes a SavedModel that needs TensorFlow alone; the old one stays until it is whole.

    `files` are put beside the model, contents by name. In its folder `training` is what a training that
    starts from it needs besides the variables. A model with SentencePiece needs tensorflow-text as well.
    """
    with replacing_folder(path) as temporary:
        tf.saved_model.save(module, str(temporary), signatures=module.make_signatures())
        for name, content in files.items():
            (temporary / name).write_bytes(content.encode() if isinstance(content, str) else content)
        (temporary / TRAINING).mkdir()
        module.encoder.save_for_training(temporary / TRAINING)


def reexport(model: Any, source: Path, path: Path) -> None:
    """Writes an exported model that was loaded and perhaps fine-tuned, with all its signatures.

    `tf.saved_model.save` leaves those of a loaded model out. What lies beside the model comes along:
    its settings, its card, which then says that it may have changed, and the folder `training`. A
    training can start from the new model, but for one whose words are folded with their n-grams (the
    default tokenizer's) and were fine-tuned: that one has to be trained on from its run.

    Args:
        model: What `tf.saved_model.load` or `hub.load` has made of `source`.
        source: The folder of the export.
        path: Folder, which may be the same one.

    Raises:
        UserError: Something else than a model is at `path`, or `source` is none.
    """
    require_replaceable(path, "path")
    if not (source / SAVED_MODEL).is_file():
        raise UserError(
            f"source must be the exported model that was loaded, but {source} has no saved_model.pb; "
            "give its folder"
        )
    with replacing_folder(path) as temporary:
        tf.saved_model.save(model, str(temporary), signatures=dict(model.signatures))
        for beside in source.iterdir():
            if not (temporary / beside.name).exists():
                copy = shutil.copytree if beside.is_dir() else shutil.copy
                copy(beside, temporary / beside.name)
        card = temporary / "README.md"
        if card.is_file() and not (text := card.read_text("utf-8")).endswith(_REEXPORTED):
            card.write_text(text + _REEXPORTED, encoding="utf-8")


def require_replaceable(path: Path, flag: str = "--output", mark: str = SAVED_MODEL) -> None:
    """Makes sure that an export to the folder that `flag` names can be written and replaces nothing else.

    An export, which it may replace, has the file `mark`.
    """
    is_empty = path.is_dir() and not any(path.iterdir())
    if path.exists() and not is_empty and not (path / mark).is_file():
        raise UserError(
            f"{flag} must be a new folder or an exported model, which it replaces, but {path} is something "
            f"else; give another with {flag}"
        )
    require_writable_folder(path.parent, f"give another with {flag}")
