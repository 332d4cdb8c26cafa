"""What a runtime needs besides the model's numbers: the vocabulary, and how texts are split."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.runtimes.format import FORMAT, MODEL_FILES, SETTINGS
from xling_tf.runtimes.graph import ExportedModel
from xling_tf.text.preprocessor import TextPreprocessor
from xling_tf.text.sentencepiece import SentencePiecePreprocessor
from xling_tf.text.tokenization import BYTES_PER_TOKEN, EMPTY_TOKEN, rules
from xling_tf.text.words import MAX_WORD_CHARACTERS
from xling_tf.trainer.run_folder import vocabulary_file

# In the rules: names of classes of characters, as RE2 knows them.
_CLASSES = (r"\pL", r"\pM", r"\pN", r"\pZ", r"\pC", r"\p{Han}", r"\p{Hiragana}", r"\p{Katakana}")


def write_text_files(exported: ExportedModel, runtime: str, folder: Path) -> Mapping[str, Any]:
    """Writes the vocabulary and the settings, which are returned."""
    name, content = vocabulary_file(exported.preprocessor.vocabulary)
    (folder / name).write_bytes(content)
    settings = {
        "format": FORMAT,
        "runtime": runtime,
        "model": MODEL_FILES[runtime],
        "vocabulary": name,
        "dim": exported.config.encoder.hidden_dim,
        "text": text_settings(exported.preprocessor),
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    return settings


def text_settings(preprocessor: TextPreprocessor) -> Mapping[str, Any]:
    """What turns a text into the ids that a preprocessor gives it; `card` describes it."""
    config = preprocessor.config
    size = {"max_tokens": config.max_tokens, "max_bytes": BYTES_PER_TOKEN * config.max_tokens}
    if isinstance(preprocessor, SentencePiecePreprocessor):
        begin, end = preprocessor.marks[:1], preprocessor.marks[1:]
        return {"kind": "pieces", **size, "begin": begin, "end": end, "empty": preprocessor.empty}
    ngrams = {
        "sizes": config.ngram_sizes,
        "num_buckets": config.num_ngram_buckets,
        "max_characters": MAX_WORD_CHARACTERS,
    }
    return {
        "kind": "words",
        **size,
        "lowercase": config.lowercase,
        "empty": EMPTY_TOKEN,
        "num_buckets": config.num_oov_buckets,
        "ngrams": ngrams if config.ngram_sizes else None,
        "rules": rules(config),
        "classes": character_classes(),
    }


@cache
def character_classes() -> Mapping[str, Sequence[tuple[int, int]]]:
    """The code points of each class, first to last, in the version of Unicode that TensorFlow has."""
    points = np.array([*range(0xD800), *range(0xE000, 0x110000)], np.int32)
    characters = tf.strings.unicode_encode(points[:, None], "UTF-8")
    ranges = {}
    for name in _CLASSES:
        belongs = np.zeros(0x110001, np.int8)
        belongs[points] = tf.strings.regex_full_match(characters, f"(?s)[{name}]")
        # Where it begins and where it ends: 0 1 1 0 has the steps 1 0 -1.
        steps = np.diff(belongs, prepend=0)
        firsts, ends = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1)
        ranges[name] = list(zip(firsts.tolist(), (ends - 1).tolist(), strict=True))
    return ranges
