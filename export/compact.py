"""An exported model once more, with tables of fewer words or fewer bytes."""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from xling_tf.config import to_json
from xling_tf.corpora.folder import discover
from xling_tf.corpora.trained_on import TRAINED_ON
from xling_tf.errors import UserError
from xling_tf.hub.module import export, require_replaceable
from xling_tf.model import Model
from xling_tf.text.preprocessor import Vocabulary, build_preprocessor
from xling_tf.text.words import WordNgramPreprocessor, ngram_buckets
from xling_tf.trainer.warm_start import StartingPoint

_CARD = """
## In fewer bytes

The tables of words are kept as {tables}{scales}: vectors are near those of the model that this one was made
of, and not equal. It can be fine-tuned but for its tables, and no training can start from it.
"""
_FEWER_WORDS = """
## For fewer languages

It has the words, or pieces of words, of these languages alone: {languages}.
"""
_PIECES = """
name: "pieces.proto" package: "pieces" syntax: "proto2"
message_type { name: "Piece" field { name: "type" number: 3 type: TYPE_INT32 label: LABEL_OPTIONAL } }
message_type {
  name: "Model"
  field { name: "pieces" number: 1 type: TYPE_MESSAGE type_name: ".pieces.Piece" label: LABEL_REPEATED }
}
"""
_TEXTS_AT_ONCE = 8192
_NORMAL = 1  # SentencePiece's type of ordinary pieces, which is left out where it is the default


def compact(
    model: Path, output: Path, tables: str, languages: Sequence[str] = (), data: Path | None = None
) -> None:
    """Exports a model with smaller tables: fewer rows, float16, or int8 with a scale for each row.

    Args:
        model: Folder of an exported model of ours, as it was exported.
        output: Folder of the new one.
        tables: "float32", "float16" or "int8".
        languages: Those whose words stay; none: all words stay.
        data: Folder of corpora that show the words of `languages`.

    Raises:
        UserError: `model` is none that a training could start from, `output` cannot be written, or `data`
            has no texts in one of the languages.
    """
    require_replaceable(output, "--compact")
    if output.resolve() == model.resolve():
        raise UserError(f"--compact must be another folder than --model, got {output} for both")
    start = StartingPoint.open(model)
    if languages:
        assert data is not None
        start = _keep_words(start, _texts(data, languages))
    whole = Model.build(start.config, start.vocabulary)
    given = {*start.give(whole)}
    whole = whole._replace(
        tasks=[task for task in whole.tasks if {head.name for head in task.heads} <= given]
    )
    card = model / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    if languages:
        text += _FEWER_WORDS.format(languages=", ".join(languages))
    if tables != "float32":
        scales = ", with a scale for each row" if tables == "int8" else ""
        text += _CARD.format(tables=tables, scales=scales)
    files: dict[str, str | bytes] = {"README.md": text, "config.json": to_json(start.config)}
    if (model / TRAINED_ON).is_file():
        files[TRAINED_ON] = (model / TRAINED_ON).read_bytes()
    export(whole.hub_module(tables), output, files)


def _texts(data: Path, languages: Sequence[str]) -> Iterator[str]:
    """Yields what a folder's corpora have in some languages."""
    files = [file for file in discover(data) if {*file.languages} & {*languages}]
    known = {language for file in files for language in file.languages}
    if missing := [language for language in languages if language not in known]:
        raise UserError(
            f"--data {data} must have texts in every language of --languages, but has none in "
            f"{', '.join(missing)}; leave it out, or add documents/NAME.{missing[0]}.txt"
        )
    for file in files:
        for record, _ in file.read(*file.paths):
            texts = [field for field in record if isinstance(field, str)]
            # The sides of a translation are in languages of their own.
            of_each = file.languages if len(file.languages) > 1 else file.languages * len(texts)
            yield from (text for text, language in zip(texts, of_each, strict=True) if language in languages)


def _keep_words(start: StartingPoint, texts: Iterator[str]) -> StartingPoint:
    """Leaves out the words that no text has; what the texts are split into stays the same."""
    preprocessor = build_preprocessor(start.config.text, start.vocabulary)
    is_used = np.zeros(preprocessor.num_words, bool)
    while chunk := list(islice(texts, _TEXTS_AT_ONCE)):
        words, _ = tf.unique(preprocessor.tokenize(tf.constant(chunk)).values)
        is_used[preprocessor.word_ids(words).numpy()] = True
    vocabulary: Vocabulary
    if isinstance(start.vocabulary, bytes):
        model = _pieces_message().FromString(start.vocabulary)
        # Others stand for what is unknown, for marks and for bytes.
        is_used |= [piece.type not in (0, _NORMAL) for piece in model.pieces]
        kept = [piece for piece, used in zip(model.pieces, is_used, strict=True) if used]
        del model.pieces[:]
        model.pieces.extend(kept)
        vocabulary = model.SerializeToString()
    else:
        is_used[[0, *range(len(start.vocabulary), len(is_used))]] = True  # "no word", unknown words' buckets
        vocabulary = [word for word, used in zip(start.vocabulary, is_used, strict=False) if used]
    config, (table, *others) = start.config, start.weights
    if isinstance(preprocessor, WordNgramPreprocessor) and preprocessor.ngram_rows is not None:
        buckets = np.unique(ngram_buckets(tf.constant(vocabulary), config.text).values)
        rows = [0, *preprocessor.ngram_rows[buckets]]
        others[0] = others[0][rows]
        text = dataclasses.replace(config.text, num_ngrams=len(rows))
        config = dataclasses.replace(config, text=text)
    return start._replace(config=config, vocabulary=vocabulary, weights=[table[is_used], *others])


def _pieces_message() -> Any:
    """What of sentencepiece_model.proto tells the pieces; a message keeps the fields that it does not know.

    The module that sentencepiece has for it needs a later protobuf than TensorFlow allows.
    """
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(_PIECES, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pieces.Model"))
