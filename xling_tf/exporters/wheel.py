"""An encoder's Python package: an average of words needs NumPy alone, pieces ONNX Runtime."""

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from xling_tf import client, errors
from xling_tf.client import word_averages
from xling_tf.client.backends import RUNTIME_FORMAT
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import MODEL_FILES, open_folder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.corpora.line_files import without_country
from xling_tf.errors import UserError, library
from xling_tf.exporters import sentence_transformers
from xling_tf.exporters.base import OriginalModel, reject, sample_texts
from xling_tf.exporters.sentence_transformers import vocabulary_rows
from xling_tf.files import write_json
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.savedmodel.saved_models import licence_files, read_front_matter
from xling_tf.tokenizers.words import ngram_buckets
from xling_tf.weights import as_int8, write_weights

# Measured (docs/research/experiments.md, "A model in the hand"): 256 numbers of the sentence
# vectors' principal components lose nothing.
_DIM = 256
_SENTENCES, _LENGTH = 20_000, 8  # words whose averages determine the components
_NGRAM_SHARE = 0.2  # of the size
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
_CARD = """# {name}

{description}.

    pip install {module}-{version}-py3-none-any.whl

    import {module} as model
    model.encode(["Hola", "Hello"])  # float32 [2, {dim}], of unit length
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
# The NOTICE of a wheel, before those of the model.
_NOTICE = """{name} {version}

The code in this package is a part of xling_tf, under the Apache License 2.0, whose text is LICENSE.

The weights are those of the model {model}. Base model: {base_model}. Licence of the weights:
{licence}.

{origin}

Changes: {changes}
"""
_AVERAGES_CHANGED = """xling_tf folded the projection of sentences into the vectors of words, kept
the principal components and the most frequent words and character n-grams of these, and rounded
all to 8 bits."""
_PIECES_CHANGED = "xling_tf converted the model to ONNX, and rounded its weights to 8 bits."
# The sections of a model's card that say where its weights are from, the best first.
_ORIGINS = ("Where the weights are from", "Training")
# A wheel's licence as an SPDX expression, by the name of its weights' at Hugging Face.
_EXPRESSIONS = {"apache-2.0": "Apache-2.0", "mit": "Apache-2.0 AND MIT"}
_AVERAGES = (
    "A vector averages those of its words; {words:,} are stored. {spelled}It needs NumPy alone.\n"
)
_SPELLED = "Other words get theirs from their character n-grams. "
_PIECES = """It needs ONNX Runtime and `tokenizers`; its weights have 8 bits. A text has the same
vector in every batch.
"""


def export(
    source: OriginalModel, folder: Path, *, name: str, version: int = 1, megabytes: float = 40.0
) -> None:
    """Writes a wheel with the client, the weights, licences and a card, and the card beside it.

    Args:
        source: The model: an average of words with one row for all words outside the vocabulary, or
            an encoder of pieces.
        folder: Folder for the wheel.
        name: Name of the distribution, such as "xling-multilingual-static".
        version: Version of the distribution.
        megabytes: Maximum size of words and n-grams; the rarest are left out.

    Raises:
        UserError: The model is of another kind, or the name is not one of a distribution.
    """
    name = re.sub("[-_.]+", "-", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UserError(f"`name` must be that of a package, as multilingual-static, got {name!r}")
    languages = source.model.info.languages
    with tempfile.TemporaryDirectory() as build:
        project, package = Path(build), Path(build, name.replace("-", "_"))
        package.mkdir()
        texts = sample_texts(source.data, languages)
        if source.model.tokenizer.known_words:
            components, about_model = _write_averages(source, package, megabytes)
        else:
            components, about_model = _write_pieces(source, package)
        settings = {
            "format": RUNTIME_FORMAT,
            "dim": about_model["dim"],
            **source.client_settings,
            **about_model.pop("settings"),
        }
        write_json(package / RUNTIME_SETTINGS, settings)
        vectors = SentenceEncoder(open_folder(package)).encode(texts) @ components
        cosines = np.sum(vectors * source.encode(texts), axis=1)
        about: dict[str, Any] = {
            "name": name,
            "module": package.name,
            "version": version,
            "description": (
                f"Sentence vectors for {', '.join(languages) or 'texts'} without TensorFlow"
            ),
            "texts": len(texts),
            "cosine": np.mean(cosines),
            "least": np.percentile(cosines, 5),
            "names": ", ".join(f'"{name}"' for name in _METHODS),
            "functions": "\n".join(f"{name} = model.{name}" for name in _METHODS),
            **about_model,
        }
        _write_licences(source, project, about)
        _build(project, package, about, folder)


def _write_averages(
    source: OriginalModel, package: Path, megabytes: float
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Writes a model for NumPy; returns a `[dim, width]` rotation back, and its description."""
    model, tokenizer = source.model, source.model.tokenizer
    if source.prompt or model.encoder_settings["kind"] != "static":
        reject(source, "wheel", "an average of words without prompts, or an encoder of pieces")
    if tokenizer.config.num_oov_buckets != 1:
        raise UserError("a wheel needs a model that was trained with tokenizer.num_oov_buckets=1")
    importance = word_importance(tokenizer.known_words, model.info.languages)
    components = principal_components(model, importance)
    words, weights = small_tables(model, components, importance, megabytes * 1e6)
    write_weights(package / word_averages.WEIGHTS, weights)
    vocabulary = "".join(f"{word}\n" for word in words)
    (package / word_averages.VOCABULARY).write_text(vocabulary, encoding="utf-8")
    spelled = _SPELLED if tokenizer.config.ngram_sizes else ""
    return components.T, {
        "settings": {"runtime": "numpy", "text": tokenizer.rules()},
        "changes": _AVERAGES_CHANGED,
        "dependencies": '["numpy>=2"]',
        "dim": components.shape[1],
        "how": _AVERAGES.format(words=len(words), spelled=spelled),
    }


def _write_pieces(
    source: OriginalModel, package: Path
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Writes a model for ONNX Runtime; returns as `_write_averages` does."""
    with tempfile.TemporaryDirectory() as other:
        sentence_transformers.export(source, Path(other))
        shutil.copy(Path(other, "onnx", "model_quantized.onnx"), package / MODEL_FILES["onnx"])
        shutil.copy(Path(other, "tokenizer.json"), package)
    width = source.model.encoder.hidden_dim
    text = {"kind": "tokenizer", "max_bytes": source.model.tokenizer.rules()["max_bytes"]}
    return np.eye(width, dtype=np.float32), {
        "settings": {"runtime": "onnx", "vocabulary": "tokenizer.json", "text": text},
        "changes": _PIECES_CHANGED,
        "dependencies": '["numpy>=2", "onnxruntime>=1.22", "tokenizers>=0.21"]',
        "dim": width,
        "how": _PIECES,
    }


def _write_licences(source: OriginalModel, project: Path, about: dict[str, Any]) -> None:
    """Writes LICENSE, NOTICE, the model's own licences; adds pyproject.toml's line to `about`."""
    if (checkout := Path(__file__).parents[2] / "LICENSE").is_file():
        text: str | None = checkout.read_text("utf-8")
    else:
        text = distribution("xling_tf").read_text("licenses/LICENSE")
    if text is None:
        raise UserError(
            "expected the file LICENSE of xling_tf, but it is not installed; install it again"
        )
    (project / "LICENSE").write_text(text, encoding="utf-8")
    card = source.folder / "README.md"
    description = card.read_text("utf-8", errors="replace") if card.is_file() else ""
    section = r"^## {}\n\n(.*?)(?=^## |\Z)"
    sections = (re.search(section.format(title), description, re.M | re.S) for title in _ORIGINS)
    found, title = next(filter(None, sections), None), re.search("^# (.*)", description, re.M)
    licence, base_model = (
        next(iter(read_front_matter(source.folder, field)), "not stated")
        for field in ("license", "base_model")
    )
    origin = (
        found[1].strip() if found else "The model's card does not say where the weights are from."
    )
    model = title[1] if title else source.folder.name
    notice = _NOTICE.format(
        **about, model=model, base_model=base_model, licence=licence, origin=origin
    )
    for path in licence_files(source.folder):
        if path.name.startswith("NOTICE"):
            notice += f"\n{path.name} of the model:\n\n{path.read_text('utf-8', errors='replace')}"
        else:  # the licence of the weights
            shutil.copy(path, project / f"LICENSE-of-the-weights{path.suffix}")
    (project / "NOTICE").write_text(notice, encoding="utf-8")
    expression = _EXPRESSIONS.get(licence)
    about["license"] = f'license = "{expression}"\n' if expression else ""


def _build(project: Path, package: Path, about: Mapping[str, Any], folder: Path) -> None:
    """Builds the wheel of a project, which has all but `__init__.py`, and copies its card."""
    (package / "py.typed").touch()
    shutil.copy(errors.__file__, package)
    (package / "client").mkdir()
    for path in Path(client.__file__).parent.glob("*.py"):
        shutil.copy(path, package / "client")
    templates = {project / "pyproject.toml": _PROJECT, project / "README.md": _CARD}
    for file, template in (templates | {package / "__init__.py": _INIT}).items():
        file.write_text(template.format(**about), encoding="utf-8")
    # The times of files are in the wheel, which should have the same bytes each time.
    for path in project.rglob("*"):
        os.utime(path, (_TIME, _TIME))
    flit = library("flit_core.wheel", "flit_core", "tensorflow")
    flit.make_wheel_in(project / "pyproject.toml", folder)
    shutil.copy(project / "README.md", folder / f"{about['name']}.md")


def word_importance(words: Sequence[str], languages: Sequence[str]) -> NDArray[np.float64]:
    """About how frequent words are: in training, whose most frequent are first, and elsewhere."""
    # Zipf's law: the second word is half as frequent as the first.
    ranks = np.arange(1.0, len(words) + 1)
    importance = 1 / ranks / np.sum(1 / ranks)
    wordfreq = library("wordfreq", "wordfreq", "data")
    for code in {*map(without_country, languages)} & wordfreq.available_languages().keys():
        shares = wordfreq.get_frequency_dict(code)
        importance += np.array([shares.get(word, 0) for word in words]) / len(languages)
    return importance


def principal_components(model: Model, importance: NDArray[np.float64]) -> NDArray[np.float32]:
    """Returns `[width, dim]` directions, at right angles, in which sentence vectors are longest.

    The sentences are words drawn by their importance; real ones are no better. The mean of their
    vectors is not subtracted, because that would change cosines.
    """
    random = np.random.default_rng(0)
    shares = importance / importance.sum()
    draws = random.choice(len(importance), size=(_SENTENCES, _LENGTH), p=shares)
    averages = vocabulary_rows(model)[draws].mean(axis=1)
    vectors = unit_length(model.encoder.project(tf.constant(averages))).numpy()
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(directions[:, ::-1][:, :_DIM])


def small_tables(
    model: Model, components: NDArray[np.float32], importance: NDArray[np.float64], size: float
) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Returns the most important words and `WordAverages`' weights in at most `size` bytes."""
    tokenizer, encoder = model.tokenizer, model.encoder
    # The projection of an average is the average of the projections, whose bias each word gets.
    kernel = encoder.input_projection.kernel.numpy() @ components
    bias = encoder.input_projection.bias.numpy() @ components
    weights: dict[str, NDArray[Any]] = {}
    sizes = np.array([len(word.encode()) for word in tokenizer.known_words]) + kernel.shape[1] + 5
    unknown = encoder.embedding.words.table.numpy()[-1]
    if tokenizer.ngram_rows is not None:
        unknown = unknown / 2  # the other half is from the n-grams
        ngrams = ngram_buckets(tf.constant(tokenizer.known_words), tokenizer.config)
        counts = np.bincount(ngrams.values.numpy())
        table = encoder.embedding.ngrams.table.numpy()
        weights["unknown_kernel"] = kernel / 2
        weights["ngram_kernel"], weights["ngram_bias"] = (
            variable.numpy() for variable in encoder.embedding.combine_ngrams.variables
        )
        left_by_words = size - sizes.sum() - sum(array.nbytes for array in weights.values())
        room = max(size * _NGRAM_SHARE, left_by_words)
        count = max(1, int(room / (table.shape[1] + 12)))  # with a scale and a bucket
        used = min(count, np.count_nonzero(counts))
        buckets = np.sort(np.argsort(-counts, kind="stable")[:used])
        weights |= _quantized("ngrams", table[[0, *tokenizer.ngram_rows[buckets]]])
        weights["ngram_buckets"] = buckets
    ngram_bytes = sum(array.nbytes for array in weights.values())
    weights["unknown_bias"] = unknown @ kernel + bias
    order = np.argsort(-importance[1:], kind="stable") + 1
    best = np.array([0, *order])  # the first is the token of empty texts
    kept = best[: np.searchsorted(np.cumsum(sizes[best]), size - ngram_bytes, side="right")]
    weights |= _quantized("words", vocabulary_rows(model)[kept] @ kernel + bias)
    return [tokenizer.known_words[row] for row in kept], weights


def _quantized(name: str, rows: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """Stores rows as 8-bit numbers with a scale for each row."""
    return dict(zip((name, f"{name}_scales"), as_int8(rows, 1), strict=True))
