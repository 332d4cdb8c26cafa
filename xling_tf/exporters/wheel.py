"""An encoder for NumPy or ONNX Runtime alone: a folder with its licences, and a package of one."""

import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf import client, errors
from xling_tf.client import word_averages
from xling_tf.client.backends import RUNTIME_FORMAT, read_settings
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import MODEL_FILES, open_folder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.errors import UserError, library
from xling_tf.exporters import sentence_transformers
from xling_tf.exporters.base import OriginalModel, metadata, reject, sample_texts
from xling_tf.exporters.conformance import write_conformance
from xling_tf.exporters.sentence_transformers import vocabulary_rows
from xling_tf.exporters.vocabulary import word_shares
from xling_tf.files import write_json
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.savedmodel.saved_models import (
    card_section,
    licence_files,
    read_card,
    read_front_matter,
)
from xling_tf.tokenizers.treebank import are_pairs
from xling_tf.tokenizers.words import ngram_buckets
from xling_tf.weights import as_int4, as_int8, write_weights

_SENTENCES, _LENGTH = 20_000, 8  # words whose averages determine the components
_SPELLED_SHARE = 1e-6  # how much directions count that only spelled words may have
_NGRAM_SHARE = 0.2  # of the size
# How many principal components may be stored for each word, and the share of running words from
# which on more of them pay: before, more words do (docs/research/experiments.md, "How many words
# should an export store"). The numbers of a vector after the stored ones are zeros.
_COMPONENTS, _RUNNING_WORDS = (256, 192, 144), 0.995
# Pairs of characters say little more than the two characters, which are words as well.
_PAIR_WEIGHT = 0.25
_TIME = 1_577_836_800  # 2020-01-01

_PROJECT = """[project]
name = "{name}"
version = "{version}"
description = "{description}"
readme = "README.md"
requires-python = ">=3.11"
{license}dependencies = {dependencies}
"""
_INIT = '''"""{description}"""

from pathlib import Path

from .client.encoder import SentenceEncoder
from .client.runtimes import open_folder
from .errors import UserError

__version__ = "{version}"
__all__ = [{names}, "SentenceEncoder", "UserError", "model"]

model = SentenceEncoder(open_folder(Path(__file__).parent))
{functions}
'''
_LOADED = """    import xling_tf

    model = xling_tf.load(".")  # this folder
"""
_INSTALLED = """    pip install {module}-{version}-py3-none-any.whl

    import {module} as model
"""
_CARD = """# {name}

{description}.

{loaded}    model.encode(["Hola", "Hello"])  # float32 [2, {dim}], of unit length
    model.similarity("Where is the station?", "¿Dónde está la estación?")
    model.semantic_search("station", ["Der Bahnhof ist dort.", "J'aime le chocolat."])
    model.embed_documents(["Hola"]), model.embed_query("Hello")  # LangChain's interface

{how}The mean cosine to the vectors of the model that it was made from is {cosine:.4f}, and 5% of
{texts:,} texts are below {least:.3f}. Made by xling_tf.
"""
# The methods of the encoder that a wheel has as functions.
_METHODS = (
    "encode encode_query encode_document similarity similarity_pairwise probability "
    "semantic_search paraphrase_mining embed_documents embed_query aembed_documents aembed_query"
).split()
# The NOTICE of an export, before those of the model.
_NOTICE = """{name}

Code beside these weights is a part of xling_tf, under the Apache License 2.0, whose text is
LICENSE.

The weights are those of the model {name}. Base model: {base_model}. Licence of the weights:
{licence}.

{origin}

Changes: {changes}
"""
_AVERAGES_CHANGED = """xling_tf folded the projection of sentences into the vectors of words, kept
the principal components and the most frequent words and character n-grams of these, and rounded
all to {bits} bits."""
_PIECES_CHANGED = "xling_tf converted the model to ONNX, and rounded its weights to 8 bits."
# The sections of a model's card that say where its weights are from, the best first.
_ORIGINS = ("Where the weights are from", "Training")
# A wheel's licence as an SPDX expression, by the name of its weights' at Hugging Face.
_EXPRESSIONS = {"apache-2.0": "Apache-2.0", "mit": "Apache-2.0 AND MIT"}
_AVERAGES = (
    "A vector averages those of its words; {words:,} are stored, in {bits} bits a number. {spelled}"
    "It needs NumPy alone.\n"
)
_SPELLED = "Other words get theirs from their character n-grams. "
_PIECES = """It needs ONNX Runtime and `tokenizers`; its weights have 8 bits. A text has the same
vector in every batch.
"""
_NEEDED = {
    "numpy": '["numpy>=2"]',
    "onnx": '["numpy>=2", "onnxruntime>=1.22", "tokenizers>=0.21"]',
}


def export_runtime(source: OriginalModel, folder: Path, **sizes: Any) -> None:
    """Writes the folder of a wheel: an average of words for NumPy, or pieces for ONNX Runtime.

    Args:
        source: The model, as `export_numpy` takes it, or an encoder of pieces.
        folder: Folder for the files.
        **sizes: Those of `export_numpy`, for an average of words.

    Raises:
        UserError: The model is of another kind, or a size is not possible.
    """
    if source.model.tokenizer.known_words:
        export_numpy(source, folder, **sizes)
    elif sizes:
        raise UserError(f"`{next(iter(sizes))}` is for averages of words, not for this model")
    else:
        _write_folder(source, folder, *_write_pieces(source, folder))


def export_numpy(
    source: OriginalModel,
    folder: Path,
    *,
    dim: int = 256,
    bits: int = 4,
    megabytes: float = 40.0,
) -> None:
    """Writes a folder that `xling_tf.load` opens with NumPy alone, with licences and a card.

    Args:
        source: An average of words with one row for all words outside the vocabulary.
        folder: Folder for the files.
        dim: Maximum length of a vector. At most 256 numbers are stored, which lose nothing
            (docs/research/experiments.md, "A model in the hand"). Those after the stored ones are
            zeros, for indexes of that width.
        bits: Bits of a number: 4 or 8.
        megabytes: Maximum size of words and n-grams; the rarest are left out.

    Raises:
        UserError: The model is of another kind, or a size is not possible.
    """
    if bits not in (4, 8):
        raise UserError(f"`bits` must be 4 or 8, got {bits}")
    if dim < 2:
        raise UserError(f"`dim` must be at least 2, got {dim}")
    model, tokenizer = source.model, source.model.tokenizer
    if source.prompt or model.encoder_settings["kind"] != "static" or not tokenizer.known_words:
        reject(source, "numpy", "an average of words without prompts")
    if tokenizer.config.num_oov_buckets != 1:
        raise UserError(
            "an average of words for NumPy must be trained with tokenizer.num_oov_buckets=1"
        )
    dim, width = min(dim, model.encoder.hidden_dim), model.encoder.input_projection.kernel.shape[0]
    if bits == 4 and width % 2:
        raise UserError(f"4 bits need an even encoder.embedding_dim, got {width}; export in 8 bits")
    importance = word_importance(tokenizer.known_words, model.info.languages)
    room = megabytes * 1e6 * (1 - _NGRAM_SHARE)
    stored = num_components(tokenizer.known_words, importance, room, bits)
    # Rows have as many directions as the table has columns, and the bias.
    stored = min(dim, stored, width + 1)
    stored -= stored % 2 if bits == 4 else 0
    rows = vocabulary_rows(model)
    components = principal_components(model, rows, importance, stored)
    words, weights = small_tables(model, rows, components, importance, megabytes * 1e6, bits)
    write_weights(folder / word_averages.WEIGHTS, weights)
    vocabulary = "".join(f"{word}\n" for word in words)
    (folder / word_averages.VOCABULARY).write_text(vocabulary, encoding="utf-8")
    spelled = _SPELLED if tokenizer.config.ngram_sizes else ""
    about = {
        "settings": {"runtime": "numpy", "dim": dim, "bits": bits, "text": tokenizer.rules()},
        "changes": _AVERAGES_CHANGED.format(bits=bits),
        "how": _AVERAGES.format(words=len(words), bits=bits, spelled=spelled),
    }
    _write_folder(source, folder, np.pad(components.T, ((0, dim - stored), (0, 0))), about)


def _write_pieces(
    source: OriginalModel, folder: Path
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Writes a model for ONNX Runtime; returns a `[dim, width]` rotation back, and what it is."""
    with tempfile.TemporaryDirectory() as other:
        sentence_transformers.export(source, Path(other))
        shutil.copy(Path(other, "onnx", "model_quantized.onnx"), folder / MODEL_FILES["onnx"])
        shutil.copy(Path(other, "tokenizer.json"), folder)
    width = source.model.encoder.hidden_dim
    text = {"kind": "tokenizer", "max_bytes": source.model.tokenizer.rules()["max_bytes"]}
    return np.eye(width, dtype=np.float32), {
        "settings": {
            "runtime": "onnx",
            "dim": width,
            "vocabulary": "tokenizer.json",
            "text": text,
        },
        "changes": f"{_PIECES_CHANGED} {source.changes}".rstrip(),
        "how": _PIECES,
    }


def _write_folder(
    source: OriginalModel, folder: Path, rotation: NDArray[np.float32], about: dict[str, Any]
) -> None:
    """Adds settings, licences and a card to a model; `rotation` is from its vectors to those of
    the source.
    """
    languages = source.model.info.languages
    settings = {"format": RUNTIME_FORMAT, "languages": [*languages], **source.client_settings}
    write_json(folder / RUNTIME_SETTINGS, settings | about["settings"])
    if about["settings"]["runtime"] == "numpy":
        write_conformance(folder)
    texts = sample_texts(source.data, languages)
    vectors = SentenceEncoder(open_folder(folder)).encode(texts) @ rotation
    cosines = np.sum(vectors * source.encode(texts), axis=1)
    card = _CARD.format(
        name=_title(source.folder),
        description=_description(languages),
        loaded=_LOADED,
        dim=about["settings"]["dim"],
        how=about["how"],
        texts=len(texts),
        cosine=np.mean(cosines),
        least=np.percentile(cosines, 5),
    )
    # Its scores are those of the model that this was made from.
    header = metadata(source.folder, "numpy")
    header = re.sub("^model-index: .*\n", "", header, flags=re.M)
    (folder / "README.md").write_text(header + card, encoding="utf-8")
    _write_licences(source, folder, about["changes"])


def _title(folder: Path) -> str:
    """Returns the title of a model's card, or the folder's name."""
    title = re.search("^# (.*)", read_card(folder), re.M)
    return title[1] if title else folder.name


def _description(languages: Sequence[str]) -> str:
    return f"Sentence vectors for {', '.join(languages) or 'texts'} without TensorFlow"


def _write_licences(source: OriginalModel, folder: Path, changes: str) -> None:
    """Writes LICENSE, NOTICE and the model's own licences."""
    if (checkout := Path(__file__).parents[2] / "LICENSE").is_file():
        text: str | None = checkout.read_text("utf-8")
    else:
        text = distribution("xling_tf").read_text("licenses/LICENSE")
    if text is None:
        raise UserError(
            "expected the file LICENSE of xling_tf, but it is not installed; install it again"
        )
    (folder / "LICENSE").write_text(text, encoding="utf-8")
    theirs = licence_files(source.folder)
    has_notice = any(path.name.startswith("NOTICE") for path in theirs)
    origin = card_section(source.folder, *_ORIGINS[: 1 if has_notice else 2])
    licence, base_model = (
        next(iter(read_front_matter(source.folder, field)), "not stated")
        for field in ("license", "base_model")
    )
    unknown = "below." if has_notice else "not on the model's card."
    notice = _NOTICE.format(
        name=_title(source.folder),
        base_model=base_model,
        licence=licence,
        origin=origin or f"Where they are from is {unknown}",
        changes=changes,
    )
    for path in theirs:
        if path.name.startswith("NOTICE"):
            notice += f"\n{path.name} of the model:\n\n{path.read_text('utf-8', errors='replace')}"
        else:  # the licence of the weights
            shutil.copy(path, folder / f"LICENSE-of-the-weights{path.suffix}")
    (folder / "NOTICE").write_text(notice, encoding="utf-8")


def pack(model: Path, folder: Path, *, name: str, version: int = 1) -> Path:
    """Builds the wheel of a folder that `export_runtime` wrote.

    Args:
        model: The folder, with licences and a card.
        folder: Folder for the wheel, and its card beside it.
        name: Name of the distribution, such as "xling-multilingual-static".
        version: Version of the distribution.

    Returns:
        The wheel.
    """
    settings = read_settings(model)
    expression = _EXPRESSIONS.get(next(iter(read_front_matter(model, "license")), ""))
    about: dict[str, Any] = {
        "name": name,
        "module": name.replace("-", "_"),
        "version": version,
        "description": _description(settings["languages"]),
        "dependencies": _NEEDED[settings["runtime"]],
        "license": f'license = "{expression}"\n' if expression else "",
        "names": ", ".join(f'"{name}"' for name in _METHODS),
        "functions": "\n".join(f"{name} = model.{name}" for name in _METHODS),
    }
    card = re.sub(r"\A---\n.*?\n---\n\n", "", (model / "README.md").read_text("utf-8"), flags=re.S)
    card = card.replace(_LOADED, _INSTALLED.format(**about))
    with tempfile.TemporaryDirectory() as build:
        project, package = Path(build), Path(build, about["module"])
        package.mkdir()
        for path in model.iterdir():
            if path.name != "README.md":
                is_licence = path.name.startswith(("LICENSE", "NOTICE"))
                shutil.copy(path, project if is_licence else package)
        (package / "py.typed").touch()
        shutil.copy(errors.__file__, package)
        (package / "client").mkdir()
        for path in Path(client.__file__).parent.glob("*.py"):
            shutil.copy(path, package / "client")
        for file, text in {
            project / "pyproject.toml": _PROJECT.format(**about),
            project / "README.md": re.sub("^# .*", f"# {name}", card, count=1),
            package / "__init__.py": _INIT.format(**about),
        }.items():
            file.write_text(text, encoding="utf-8")
        # The times of files are in the wheel, which should have the same bytes each time.
        for path in project.rglob("*"):
            os.utime(path, (_TIME, _TIME))
        flit = library("flit_core.wheel", "flit_core", "tensorflow")
        shutil.copy(project / "README.md", folder / f"{name}.md")
        return Path(flit.make_wheel_in(project / "pyproject.toml", folder).file)


def word_importance(words: Sequence[str], languages: Sequence[str]) -> NDArray[np.float64]:
    """About how frequent words are: in training, whose most frequent are first, and elsewhere."""
    # Zipf's law: the second word is half as frequent as the first.
    ranks = np.arange(1.0, len(words) + 1)
    importance = 1 / ranks / np.sum(1 / ranks)
    for shares in word_shares(languages):
        importance += np.array([shares.get(word, 0) for word in words]) / len(languages)
    return np.where(are_pairs(words), _PAIR_WEIGHT, 1) * importance


def num_components(
    words: Sequence[str], importance: NDArray[np.float64], size: float, bits: int
) -> int:
    """Returns how many numbers of a word to store, if all words may take `size` bytes."""
    order = np.argsort(-importance, kind="stable")
    for stored in _COMPONENTS:
        fit = np.cumsum(_word_bytes(words, stored, bits)[order]) <= size
        if importance[order[fit]].sum() >= _RUNNING_WORDS * importance.sum():
            break
    return stored


def _word_bytes(words: Sequence[str], stored: int, bits: int) -> NDArray[np.int64]:
    """Returns the bytes that each word takes: numbers, a scale of four bytes, text, line break."""
    return np.array([len(word.encode()) for word in words]) + bits * stored // 8 + 5


def principal_components(
    model: Model, rows: NDArray[np.float32], importance: NDArray[np.float64], dim: int
) -> NDArray[np.float32]:
    """Returns `[width, dim]` directions, at right angles, in which sentence vectors are longest.

    `rows` are the vectors of the words, `[words, columns]`, before the model's projection.
    The sentences are words drawn by their importance; real ones are no better. The mean of their
    vectors is not subtracted, because that would change cosines.
    """
    random = np.random.default_rng(0)
    shares = importance / importance.sum()
    draws = random.choice(len(importance), size=(_SENTENCES, _LENGTH), p=shares)
    averages = rows[draws].mean(axis=1)
    vectors = unit_length(model.encoder.project(tf.constant(averages))).numpy().astype(np.float64)
    # Known words may span less than spelled ones: a little of all directions in which vectors can
    # be is before those in which none is.
    projection = model.encoder.input_projection
    rows = np.concatenate([projection.kernel, projection.bias[None]]).astype(np.float64)
    possible = rows.T @ rows * (_SPELLED_SHARE * len(vectors) / np.sum(rows**2))
    _, directions = np.linalg.eigh(vectors.T @ vectors + possible)
    directions = directions.astype(np.float32)
    return np.ascontiguousarray(directions[:, ::-1][:, :dim])


def small_tables(
    model: Model,
    rows: NDArray[np.float32],
    components: NDArray[np.float32],
    importance: NDArray[np.float64],
    size: float,
    bits: int,
) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Returns the most important words and `WordAverages`' weights in at most `size` bytes."""
    tokenizer, encoder = model.tokenizer, model.encoder
    # The projection of an average is the average of the projections, whose bias each word gets.
    kernel = encoder.input_projection.kernel.numpy() @ components
    bias = encoder.input_projection.bias.numpy() @ components
    weights: dict[str, NDArray[Any]] = {}
    sizes = _word_bytes(tokenizer.known_words, kernel.shape[1], bits)
    unknown = encoder.embedding.words.table.numpy()[-1]
    if tokenizer.ngram_rows is not None:
        unknown = unknown / 2  # the other half is from the n-grams
        ngrams = ngram_buckets(tf.constant(tokenizer.known_words), tokenizer.config)
        counts = np.bincount(ngrams.values.numpy(), minlength=1)
        table = encoder.embedding.ngrams.table.numpy()
        weights["unknown_kernel"] = kernel / 2
        weights["ngram_kernel"], weights["ngram_bias"] = (
            variable.numpy() for variable in encoder.embedding.combine_ngrams.variables
        )
        left_by_words = size - sizes.sum() - sum(array.nbytes for array in weights.values())
        room = max(size * _NGRAM_SHARE, left_by_words)
        count = max(1, int(room / (bits * table.shape[1] / 8 + 12)))  # with a scale and a bucket
        used = max(1, min(count, np.count_nonzero(counts)))
        buckets = np.sort(np.argsort(-counts, kind="stable")[:used])
        weights |= _quantized("ngrams", table[[0, *tokenizer.ngram_rows[buckets]]], bits)
        weights["ngram_buckets"] = buckets
    ngram_bytes = sum(array.nbytes for array in weights.values())
    weights["unknown_bias"] = unknown @ kernel + bias
    order = np.argsort(-importance[1:], kind="stable") + 1
    best = np.array([0, *order])  # the first is the token of empty texts
    kept = best[: np.searchsorted(np.cumsum(sizes[best]), size - ngram_bytes, side="right")]
    weights |= _quantized("words", rows[kept] @ kernel + bias, bits)
    return [tokenizer.known_words[row] for row in kept], weights


def _quantized(name: str, rows: NDArray[np.float32], bits: int) -> dict[str, NDArray[Any]]:
    """Stores rows as numbers of 8 or 4 bits with a scale for each row."""
    stored = as_int8(rows, 1) if bits == 8 else as_int4(rows)
    return dict(zip((name, f"{name}_scales"), stored, strict=True))
