"""The formats that models are exported to, and what their exporters share."""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf.corpora.folder import SAMPLE_FOLDER, discover
from xling_tf.errors import UserError, require_known
from xling_tf.files import RUNTIME_SETTINGS, SAVED_MODEL, replacing_folder
from xling_tf.model import WEIGHTS, Model
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.saved_models import load_saved_model

Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class Source(NamedTuple):
    """An exported model that is converted.

    Attributes:
        folder: Its folder.
        model: The model itself.
        encode: Encodes texts by the SavedModel: `[texts, hidden_dim]`.
        data: Folder of corpora with texts like those that the model will see; None for the built-in sample.
    """

    folder: Path
    model: Model
    encode: Encode
    data: Path | None


class Format(NamedTuple):
    """A format of exports.

    Attributes:
        exporter: "module:function" of a function that takes a `Source`, a folder and options. It writes the
            folder, and returns texts and a function that encodes them with what was written; None if the
            vectors are meant to differ.
        mark: A file that every folder of this format has.
    """

    exporter: str
    mark: str


# A folder has the first of these formats whose mark it has.
FORMATS: Mapping[str, Format] = {
    "savedmodel": Format("compact:export", SAVED_MODEL),
    "litert": Format("runtimes:export_litert", RUNTIME_SETTINGS),
    "onnx": Format("runtimes:export_onnx", RUNTIME_SETTINGS),
    "sentence-transformers": Format("sentence_transformers:export", "onnx/model.onnx"),
    "model2vec": Format("model2vec:export", "modules.json"),
    "mediapipe": Format("mediapipe:export", "model.tflite"),
    "keras": Format("base:export_keras", WEIGHTS),
}
# Texts for which an export must have the vectors of the SavedModel: known and unknown words, contractions,
# numbers, scripts without spaces, combining marks, symbols, and a blank text.
PROBES = (
    "Don't go there, Ana: it's 10:30 already...",
    "¿Dónde está la biblioteca? «Allí», dijo.",
    "Grundstücksverkehrsgenehmigungszuständigkeit 1,234.5 U.S. 'quoted'",
    "我今天去公园散步。東京タワーへ行きました。",
    "สวัสดีครับ שלום مرحبا नमस्ते 😀👍🏽 x²≠½",
    " \t ",
)
_TOLERANCE = 1e-4


def export(folder: Path, form: str, output: Path, *, data: Path | None = None, **options: Any) -> None:
    """Exports a model to the format of another loader.

    The result is compared with the SavedModel's vectors before it is moved into place.

    Args:
        folder: Folder of an exported model.
        form: Name of a format in `FORMATS`.
        output: Folder to write, which must be new or an earlier export to this format.
        data: Folder of corpora; see `Source`.
        **options: Arguments of the exporter.

    Raises:
        UserError: `folder` is not a model of xling_tf, the format cannot express it, the vectors of the
            result differ, `output` holds something else, or a package is missing.
    """
    require_known("--to", form, FORMATS)
    exporter, mark = FORMATS[form]
    require_replaceable(output, "--output", mark)
    if output.resolve() == folder.resolve():
        raise UserError(f"--output must be another folder than --model, got {output} for both")
    saved = load_saved_model(folder)
    source = Source(
        folder, Model.from_pretrained(folder), lambda texts: saved(tf.constant(list(texts))).numpy(), data
    )
    module, _, function = exporter.partition(":")
    with replacing_folder(output) as temporary:
        write = getattr(import_module(f"xling_tf.exporters.{module}"), function)
        if comparable := write(source, temporary, **options):
            texts, encode = comparable
            difference = float(np.abs(encode(texts) - source.encode(texts)).max(initial=0))
            if not difference <= _TOLERANCE:
                raise UserError(
                    f"the vectors differ from those of {folder} by {difference:.2g}: it was exported with "
                    "other rules for tokens; export it again"
                )


def export_keras(source: Source, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes the folder of `Model.save_pretrained`, which `Model.from_pretrained` loads."""
    source.model.save_pretrained(folder)
    loaded = Model.from_pretrained(folder)
    return PROBES, lambda texts: loaded(texts).numpy()


def cannot_export(source: Source, form: str, reason: str) -> UserError:
    """Returns the error of a model that a format cannot express."""
    kind = source.model.encoder_settings["kind"]
    tokenizer = source.model.config()["tokenizer"]["kind"]
    others = "savedmodel, keras, litert, onnx and sentence-transformers"
    return UserError(
        f"--to {form} expects {reason}, but {source.folder} has the encoder {kind} and the tokenizer "
        f"{tokenizer}; it can be exported --to {others}"
    )


def read_texts(data: Path | None, languages: Sequence[str]) -> Iterator[str]:
    """Yields the texts of corpora.

    Args:
        data: Folder of corpora; None for the built-in sample.
        languages: Codes of the languages; () for all.

    Raises:
        UserError: There are no texts in a language.
    """
    folder = data or SAMPLE_FOLDER
    files = list(discover(folder))
    known = {language for file in files for language in file.languages}
    if missing := [language for language in languages if language not in known]:
        raise UserError(
            f"--data {folder} must have texts in every language of --languages, but has none in "
            f"{', '.join(missing)}; remove the language, or add documents/NAME.{missing[0]}.txt"
        )
    for file in files:
        if languages and not {*file.languages} & {*languages}:
            continue
        for record, _ in file.read(*file.paths):
            texts = [field for field in record if isinstance(field, str)]
            # Each side of a translation has its language; other records are in one language.
            codes = file.languages if len(file.languages) > 1 else file.languages * len(texts)
            for text, code in zip(texts, codes, strict=True):
                if not languages or code in languages:
                    yield text
