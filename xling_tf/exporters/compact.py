"""Smaller copies of an exported model, with quantized tables or fewer words."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import tensorflow as tf

from xling_tf.corpora.folder import discover
from xling_tf.corpora.trained_on import TRAINED_ON
from xling_tf.encoders.base import build_encoder
from xling_tf.errors import UserError
from xling_tf.model import Model
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.tokenizers.words import WordTokenizer, ngram_buckets
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
_TEXTS_AT_ONCE = 8192
_WORDS, _NGRAMS = "encoder/embedding/words/table", "encoder/embedding/ngrams/table"


def compact(
    model: Path, output: Path, tables: str, languages: Sequence[str] = (), data: Path | None = None
) -> None:
    """Exports a model with smaller tables: fewer rows, float16, or int8 with a scale for each row.

    Args:
        model: Folder of an exported model of xling_tf.
        output: Folder of the new model.
        tables: "float32", "float16" or "int8".
        languages: Languages whose words are kept; () to keep all words.
        data: Folder of corpora with the words of `languages`.

    Raises:
        UserError: `model` is not such a model, `output` cannot be written, or `data` has no texts in a
            language.
    """
    require_replaceable(output, "--compact")
    if output.resolve() == model.resolve():
        raise UserError(f"--compact must be another folder than --model, got {output} for both")
    whole = Model.from_pretrained(model)
    card = model / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    if languages:
        assert data is not None
        whole = _keep_words(whole, _texts(data, languages))
        text += _FEWER_WORDS.format(languages=", ".join(languages))
    if tables != "float32":
        scales = ", with a scale for each row" if tables == "int8" else ""
        text += _CARD.format(tables=tables, scales=scales)
    files: dict[str, str | bytes] = {"README.md": text}
    if (model / TRAINED_ON).is_file():
        files[TRAINED_ON] = (model / TRAINED_ON).read_bytes()
    whole.export(output, files, whole.module(tables))


def _texts(data: Path, languages: Sequence[str]) -> Iterator[str]:
    """Yields the texts in some languages of the corpora in a folder."""
    files = [file for file in discover(data) if {*file.languages} & {*languages}]
    known = {language for file in files for language in file.languages}
    if missing := [language for language in languages if language not in known]:
        raise UserError(
            f"--data {data} must have texts in every language of --languages, but has none in "
            f"{', '.join(missing)}; remove the language, or add documents/NAME.{missing[0]}.txt"
        )
    for file in files:
        for record, _ in file.read(*file.paths):
            texts = [field for field in record if isinstance(field, str)]
            # Each side of a translation has its language; other records are in one language.
            codes = file.languages if len(file.languages) > 1 else file.languages * len(texts)
            yield from (text for text, code in zip(texts, codes, strict=True) if code in languages)


def _keep_words(model: Model, texts: Iterator[str]) -> Model:
    """Removes the words from a model that do not occur in texts; text is split into words as before."""
    tokenizer = model.tokenizer
    is_used = np.zeros(tokenizer.num_words, bool)
    while chunk := list(islice(texts, _TEXTS_AT_ONCE)):
        words, _ = tf.unique(tokenizer.tokenize(tf.constant(chunk)).values)
        is_used[tokenizer.word_ids(words).numpy()] = True
    smaller, is_left = tokenizer.keep(is_used)
    weights = arrays(model.weights)
    weights[_WORDS] = weights[_WORDS][is_left]
    settings = {**model.encoder_settings, "num_words": smaller.num_words}
    if isinstance(tokenizer, WordTokenizer) and tokenizer.ngram_rows is not None:
        assert isinstance(smaller, WordTokenizer)
        buckets = np.unique(ngram_buckets(tf.constant(smaller.vocabulary), smaller.config).values)
        weights[_NGRAMS] = weights[_NGRAMS][[0, *tokenizer.ngram_rows[buckets]]]
        settings["num_ngrams"] = smaller.num_ngrams
    model.tokenizer, model.encoder_settings = smaller, settings
    model.encoder = build_encoder(settings)
    assign_weights(model.weights, weights, "the model")
    return model
