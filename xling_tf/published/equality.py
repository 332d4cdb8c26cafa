"""How near an encoder's vectors are to those of the published module, and to the package's own."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.encoders.cnn import CnnEncoder
from xling_tf.evaluators.encoding import Encode
from xling_tf.layers.pooling import unit_length
from xling_tf.published.package import read_package
from xling_tf.published.weights import make_model, published_config
from xling_tf.sentence_encoder import SentenceEncoder

# What the published module gives for a sentence, as a public demonstration of it shows: the first 20 of
# 512 numbers.
REFERENCE_TEXT = "I enjoy taking long walks along the beach with my dog."
_REFERENCE = (
    *(-0.00552387, 0.00599531, -0.0148055, 0.01098951, -0.09355522, -0.08445048, -0.02802679),
    *(-0.05219323, -0.06759984, 0.03127313, -0.03223493, -0.01282088, 0.06131843, 0.02626882),
    *(-0.00983502, 0.00298053, 0.00141208, 0.03229369, 0.06957125, 0.01543701),
)
_PERCENTILES = (1, 5, 25, 50, 75)


def joint_encode() -> Encode:
    """Encodes with the package's weights in the package's architecture, apart from the package.

    There, what enters the three branches of convolutions is normalised together.
    """
    model = make_model(published_config(), read_package())

    def embed(texts: tf.Tensor) -> tf.Tensor:
        features = model.preprocessor(texts)
        words = tf.gather(_embed_jointly(model.encoder, features.words.ids), features.tokens)
        return unit_length(model.encoder.encode_tokens(words, features.lengths))

    encoder = SentenceEncoder(embed)
    return lambda texts: encoder.encode(texts, batch_size=32)


def _embed_jointly(encoder: CnnEncoder, word_ids: tf.Tensor) -> tf.Tensor:
    words = encoder.embedding(word_ids)
    inputs = tf.concat([part.projection(words) for part in encoder.projections], axis=1)
    mean, variance = tf.nn.moments(inputs, axes=[1], keepdims=True)
    scale = tf.concat([part.norm.gamma.value for part in encoder.projections], axis=0)
    offset = tf.concat([part.norm.beta.value for part in encoder.projections], axis=0)
    return tf.concat(
        [words, (inputs - mean) * tf.math.rsqrt(variance + 1e-12) * scale + offset], axis=1
    )


def reference_cosine(encode: Encode) -> float:
    """The cosine to what is known of the published module's vector for one sentence."""
    vector, reference = encode([REFERENCE_TEXT])[0][: len(_REFERENCE)], np.array(_REFERENCE)
    return float(vector @ reference / np.linalg.norm(vector) / np.linalg.norm(reference))


def compare(
    encode: Encode, published: Encode, texts: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Compares the unit vectors of two encoders.

    Args:
        encode: The one.
        published: The other.
        texts: By language.

    Returns:
        Mean, least and percentiles of the cosines, of all texts and of each language.

    Example:
        >>> import numpy as np
        >>> east, north = lambda _: np.array([[1.0, 0.0]]), lambda _: np.array([[0.6, 0.8]])
        >>> compare(east, north, {"en": ["a"]})["mean"]
        0.6
    """
    cosines = {
        language: np.einsum("nd,nd->n", encode(list(some)), published(list(some)), dtype=np.float64)
        for language, some in texts.items()
    }
    languages = {language: _summary(some) for language, some in cosines.items()}
    return {**_summary(np.concatenate(list(cosines.values()))), "languages": languages}


def _summary(cosines: np.ndarray) -> dict[str, Any]:
    percentiles = zip(_PERCENTILES, np.percentile(cosines, _PERCENTILES), strict=True)
    return {
        "texts": len(cosines),
        "mean": float(cosines.mean()),
        "least": float(cosines.min()),
        **{f"percentile_{percent}": float(value) for percent, value in percentiles},
    }
