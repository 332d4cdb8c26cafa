"""The encoders by their kind."""

from collections.abc import Callable, Mapping

from xling_tf.config import EncoderConfig
from xling_tf.encoders.base import TokenEncoder
from xling_tf.encoders.cnn import CnnEncoder
from xling_tf.encoders.transformer import TransformerEncoder
from xling_tf.text.preprocessor import TextPreprocessor


def _transformer(config: EncoderConfig, preprocessor: TextPreprocessor) -> TokenEncoder:
    return TransformerEncoder(
        config,
        num_words=preprocessor.num_words,
        num_ngrams=preprocessor.num_ngrams,
        max_tokens=preprocessor.config.max_tokens,
    )


def _cnn(config: EncoderConfig, preprocessor: TextPreprocessor) -> TokenEncoder:
    return CnnEncoder(config, num_words=preprocessor.num_words)


_ENCODERS: Mapping[str, Callable[[EncoderConfig, TextPreprocessor], TokenEncoder]] = {
    "transformer": _transformer,
    "cnn": _cnn,
}


def build_encoder(config: EncoderConfig, preprocessor: TextPreprocessor) -> TokenEncoder:
    """Makes an encoder with random weights for what a preprocessor gives."""
    encoder = _ENCODERS[config.kind](config, preprocessor)
    encoder.build_variables()
    return encoder
