"""The model that is checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.conformance.outcome import NotApplicable
from xling_tf.hub.saved_models import load_saved_model

# Signatures of sentences, by what they are preferred for a model that is not called itself.
_SENTENCES = ("serving_default", "default", "question_encoder")


@dataclass(frozen=True)
class Subject:
    """A SavedModel, loaded when a check first asks for it.

    Args:
        folder: With `saved_model.pb`.
        sentences: How many the check of one large call encodes.
        calls: How many the check of many calls makes.
    """

    folder: Path
    sentences: int = 100_000
    calls: int = 2_000

    @cached_property
    def model(self) -> Any:
        """What `tf.saved_model.load` makes of the folder."""
        return load_saved_model(self.folder)

    def fresh(self) -> Any:
        """Loads the model once more, to be changed."""
        return load_saved_model(self.folder)

    @cached_property
    def signatures(self) -> dict[str, Callable[..., dict[str, tf.Tensor]]]:
        """The functions that servers call, by name; held as long as the model is."""
        return dict(self.model.signatures)

    @property
    def called(self) -> Callable[..., tf.Tensor]:
        """The model as a function.

        Raises:
            NotApplicable: It is none, as modules that have signatures alone.
        """
        if not callable(self.model):
            raise NotApplicable("the model itself cannot be called; it has signatures alone")
        model: Callable[..., tf.Tensor] = self.model
        return model

    def encode(self, texts: Sequence[str | bytes]) -> np.ndarray:
        """Encodes texts by the model's call, or by a signature where it cannot be called.

        Args:
            texts: Any number.

        Returns:
            `[texts, dim]`.
        """
        tensor = tf.constant(as_bytes(texts), tf.string)
        if callable(self.model):
            return np.asarray(self.model(tensor))
        for name in _SENTENCES:
            if name in self.signatures:
                signature: Any = self.signatures[name]
                (argument,) = signature.structured_input_signature[1]
                (vectors,) = signature(**{argument: tensor}).values()
                return np.asarray(vectors)
        raise NotApplicable(f"the model cannot be called and has none of {', '.join(_SENTENCES)}")


def as_bytes(texts: Sequence[str | bytes]) -> list[bytes]:
    """Encodes those that are no bytes yet, so that both can be in one tensor.

    Example:
        >>> as_bytes(["a", b"b"])
        [b'a', b'b']
    """
    return [text.encode() if isinstance(text, str) else text for text in texts]
