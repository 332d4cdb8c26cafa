"""Modified copies of an exported model: smaller tables, fewer words, calibrated."""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from xling_tf.corpora.trained_on import TRAINED_ON
from xling_tf.encoders.base import build_encoder
from xling_tf.errors import UserError
from xling_tf.exporters.base import PROBES, Encode, Source, read_texts
from xling_tf.model import Model
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.search.same_meaning import fit_pairs
from xling_tf.weights import arrays, assign_weights

_CARD = """
## Tables in fewer bytes

The word tables are stored as {tables}{scales}: the vectors are near those of the original model, but not
equal. The tables cannot be fine-tuned, except by a training with `--init`, which has them in float32 again.
"""
_FEWER_WORDS = """
## Fewer languages

The model has only the words, or pieces of words, of these languages: {languages}.
"""
_CALIBRATED = """
## Calibrated

The signature `same_meaning` takes `sentence1` and `sentence2`, and gives the probability that both mean the
same, assuming that half of all pairs do: `xling_tf.load(".").probability("Hola", "Hello")`.
"""
_TEXTS_AT_ONCE = 8192
_WORDS, _NGRAMS = "encoder/embedding/words/table", "encoder/embedding/ngrams/table"


def export(
    source: Source,
    folder: Path,
    tables: str = "float32",
    languages: Sequence[str] = (),
    same_meaning: Any = None,
) -> tuple[Sequence[str], Encode] | None:
    """Writes a modified SavedModel, usually with smaller tables: float16, or int8 with a scale for each row.

    Args:
        source: The model.
        folder: Folder to write.
        tables: "float32", "float16" or "int8".
        languages: Languages in `source.data` whose words are kept; () to keep all words.
        same_meaning: Pairs, as `fit_pairs` takes them, on which the signature `same_meaning` is calibrated;
            None for the source's calibration, if it has one.
    """
    model = source.model
    card = source.folder / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    if languages:
        texts = chain(model.info.prompts.values(), _texts_in_all(source.data, languages))
        model = _keep_words(model, texts)
        model.info = dataclasses.replace(model.info, languages=tuple(languages))
        text = re.sub(r"(?m)^language: .*", f"language: {json.dumps([*languages])}", text, count=1)
        text += _FEWER_WORDS.format(languages=", ".join(languages))
    if tables != "float32":
        scales = ", with a scale for each row" if tables == "int8" else ""
        text += _CARD.format(tables=tables, scales=scales)
    if same_meaning is not None:
        line = fit_pairs(source.encode, same_meaning)
        model.info = dataclasses.replace(model.info, same_meaning=line)
        text += _CALIBRATED
    files: dict[str, str | bytes] = {"README.md": text}
    if (source.folder / TRAINED_ON).is_file():
        files[TRAINED_ON] = (source.folder / TRAINED_ON).read_bytes()
    model.export(folder, files, model.module(tables))
    if languages or tables != "float32":
        return None
    saved = load_saved_model(folder)
    return PROBES, lambda texts: saved(tf.constant(texts)).numpy()


def _texts_in_all(data: Path | None, languages: Sequence[str]) -> Iterator[str]:
    """Yields the texts of a folder of corpora in some languages; raises a `UserError` if one has no text."""
    seen = set()
    for language, text in read_texts(data, languages):
        seen.add(language)
        yield text
    if missing := [language for language in languages if language not in seen]:
        raise UserError(
            f"`data` must have texts in each of the `languages`, but {data} has none in "
            f"{', '.join(missing)}; remove the language, or add documents/NAME.{missing[0]}.txt"
        )


def _keep_words(model: Model, texts: Iterator[str]) -> Model:
    """Removes from a model the words that do not occur in texts; text is split into words as before."""
    tokenizer = model.tokenizer
    is_used = np.zeros(tokenizer.num_words, bool)
    while chunk := list(islice(texts, _TEXTS_AT_ONCE)):
        words, _ = tf.unique(tokenizer.tokenize(tf.constant(chunk)).values)
        is_used[tokenizer.word_ids(words).numpy()] = True
    smaller, is_left = tokenizer.keep(is_used)
    weights = arrays(model.weights)
    weights[_WORDS] = weights[_WORDS][is_left]
    settings = {**model.encoder_settings, "num_words": smaller.num_words}
    if tokenizer.ngram_rows is not None and smaller.ngram_rows is not None:
        buckets = np.flatnonzero(smaller.ngram_rows)
        weights[_NGRAMS] = weights[_NGRAMS][[0, *tokenizer.ngram_rows[buckets]]]
        settings["num_ngrams"] = smaller.num_ngrams
    model.tokenizer, model.encoder_settings = smaller, settings
    model.encoder = build_encoder(settings)
    assign_weights(model.weights, weights, "the model")
    return model
