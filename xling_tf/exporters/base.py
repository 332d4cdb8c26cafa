"""The formats that models are exported to, and what their exporters share."""

import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from os import PathLike
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple, NoReturn

import numpy as np
import tensorflow as tf

from xling_tf.client.batches import Encode
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.corpora.folder import SAMPLE_FOLDER, discover
from xling_tf.errors import UserError, missing_package
from xling_tf.exporters import FORMATS, require_format
from xling_tf.files import (
    read_json_dict,
    replacing,
    replacing_folder,
    require_writable_folder,
)
from xling_tf.model import CONFIG, Model
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.saved_models import (
    find_model,
    licence_files,
    load_saved_model,
    model_name,
    read_card,
)
from xling_tf.search.calibration import fit_sample


class OriginalModel(NamedTuple):
    """An exported model that is converted: loaded for Keras and as a SavedModel, with its files."""

    folder: Path
    model: Model
    encode: Encode  # by the SavedModel: `[texts, hidden_dim]`
    # Corpora of texts like those that the model will see; None for the built-in sample.
    data: Path | None
    changes: str = ""  # says what was changed before the conversion

    @property
    def prompt(self) -> str:
        """The prompt that the SavedModel puts before texts by default; often ""."""
        return self.model.info.role_prompts["default"]

    @property
    def prompts(self) -> dict[str, Any]:
        """What files of an export say of the model's prompts."""
        info = self.model.info
        return {"prompts": info.prompts, "default_prompt_name": info.default_prompt_name}

    @property
    def client_settings(self) -> dict[str, Any]:
        """What `runtime.json` says of the model's prompts and probabilities.

        Runtimes have the vectors of sentences alone: if queries and documents have heads, the
        probability of answers is fitted again without them.
        """
        info = self.model.info
        match = dict(info.match)
        if self.model.heads and "answer" in match:
            match |= fit_sample(SentenceEncoder(self.encode), info.languages, ["answer"])
        return {**self.prompts, "match": match}

    @property
    def about_changes(self) -> str:
        """The section of a card that describes `changes`; "" if there are none."""
        return self.changes and f"\n## Vocabulary\n\n{self.changes}\n"

    @property
    def about_prompts(self) -> str:
        """Says for a card which prompts the caller has to put before texts, if any."""
        prompts = self.model.info.prompts
        named = ", ".join(f"`{prompt}` ({name})" for name, prompt in prompts.items())
        return f"\nThe model expects a prompt before each text: {named}.\n" if named else ""


# What formats need beside TensorFlow and the tokenizer's package: modules, packages and extras.
_ONNX = [(name, name, "export") for name in ("tf2onnx", "onnx", "onnxruntime")]
_TOKENIZERS = ("tokenizers", "tokenizers", "export")
_WORDFREQ = ("wordfreq", "wordfreq", "data")
_NEEDED: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "litert": [("ai_edge_litert", "ai-edge-litert", "export")],
    "onnx": _ONNX,
    "sentence-transformers": [*_ONNX, _TOKENIZERS],
    "model2vec": [_TOKENIZERS],
    "numpy": [_WORDFREQ],
    "wheel": [("flit_core", "flit_core", "tensorflow")],
    "npm": [_WORDFREQ],
}
# Texts for which an export must have the vectors of the SavedModel: known and unknown words,
# contractions, numbers, scripts without spaces, combining marks, symbols, and a blank text.
PROBES = (
    "Don't go there, Ana: it's 10:30 already...",
    "¿Dónde está la biblioteca? «Allí», dijo.",
    "Grundstücksverkehrsgenehmigungszuständigkeit 1,234.5 U.S. 'quoted'",
    "我今天去公园散步。東京タワーへ行きました。",
    "สวัสดีครับ שלום مرحبا नमस्ते 😀👍🏽 x²≠½",
    " \t ",
)
_TOLERANCE = 1e-4
_TEXTS = 2000  # of a sample
_COST = """
## Unknown words

The model has vectors of the words in its vocabulary, and not of others: those that the SavedModel
computes from their characters are lost. Of the words in {texts} texts of {corpora}, {share:.1%} are
unknown, in {affected:.0%} of the texts. The mean cosine to the SavedModel's vectors is
{cosine:.4f}, and 5% of the texts are below {least:.3f}.
"""
_LENGTH = "\nTexts are cut at {max_tokens} tokens, without a warning.\n"
_SIGNATURES = """
The vectors are those of the signature `serving_default`. The SavedModel also has {others}.
"""


def export(
    model: str | PathLike[str],
    to: str,
    output: str | PathLike[str],
    *,
    data: str | PathLike[str] | None = None,
    tables: str | None = None,
    match: Mapping[str, Any] | None = None,
    languages: str | Sequence[str] | None = None,
    name: str | None = None,
    version: int | None = None,
    dim: int | None = None,
    bits: int | None = None,
    megabytes: float | None = None,
) -> Path:
    """Exports a model for another library or runtime, or as a smaller SavedModel.

    The vectors of the result are compared with the model's before it is moved into place.

    Args:
        model: An exported model, in any form that `xling_tf.load` takes. A folder in the format
            "numpy" can be packed as a "wheel".
        to: The format: "savedmodel", "litert", "onnx", "sentence-transformers", "model2vec",
            "numpy", "keras", "wheel" or "npm".
        output: A new folder, or that of an earlier export to this format. A package ("wheel",
            "npm") and its card join what is in the folder.
        data: Folder of corpora, to measure the effect of unknown words; None for the built-in
            sample.
        tables: Type of the word tables of "savedmodel": "float32", "float16" or "int8".
        match: Pairs on which the probabilities of "savedmodel" are fitted, as `calibrate` takes
            them, by the kind of match.
        languages: Codes, such as "es,de" or ["es", "de"]: a model of pieces keeps only those
            that these languages use.
        name: Name of the package of "wheel" or "npm"; default the model's.
        version: Version of the package; default 1.
        dim: Maximum length of the vectors of "numpy", "wheel" and "npm"; default 256.
        bits: Bits of a number in these: 4 (the default) or 8.
        megabytes: Maximum size of the words in these, default 40; the rarest are left out.

    Returns:
        The folder, or the file of a package.

    Raises:
        UserError: The format cannot express the model, an option is not for this format, or the
            folder holds something else.

    Examples:
        >>> export("exported/en-es", "onnx", "exported/en-es-onnx")  # doctest: +SKIP
    """
    options: dict[str, Any] = {
        "tables": tables,
        "match": match,
        "languages": languages,
        "name": name,
        "version": version,
        "dim": dim,
        "bits": bits,
        "megabytes": megabytes,
    }
    options = {option: value for option, value in options.items() if value is not None}
    require_format(to, options)
    exporter, mark = FORMATS[to]
    folder, path = find_model(model), Path(output)
    corpora = None if data is None else Path(data)
    _require_destination(folder, to, path, corpora)
    package: dict[str, Any] = {}
    if not mark:
        package["name"] = distribution_name(options.pop("name", "") or model_name(model))
        package["version"] = options.pop("version", 1)
    if (folder / RUNTIME_SETTINGS).is_file():
        if mark or options or not (folder / "NOTICE").is_file():
            raise UserError(
                f"{folder} is an export itself: `to` wheel or npm packs one to numpy, with `name` "
                "and `version`; for other formats and options, export the model that it was made "
                "from"
            )
        return _packed(folder, to, path, package)
    _require_packages(folder, to, options)
    saved = load_saved_model(folder)
    source = OriginalModel(folder, Model.from_folder(folder), encode_by(saved), corpora)
    if (codes := options.pop("languages", None)) is not None:
        source = resolve_name("xling_tf.exporters.vocabulary:reduced")(source, codes)
    if expected := source.model.encoder.unsupported.get(to):
        reject(source, to, expected)
    write = resolve_name(f"xling_tf.exporters.{exporter}")
    with replacing_folder(path) if mark else tempfile.TemporaryDirectory() as temporary:
        written = Path(temporary)
        texts, encode = write(source, written, **options) or ((), source.encode)
        if texts:
            require_equal(encode(texts), source.encode(texts), folder)
        _complete_card(source, saved, to, written)
        return path if mark else _packed(written, to, path, package)


def require_equal(vectors: Any, expected: Any, folder: Path) -> None:
    """Raises a `UserError` if vectors are not nearly those of the model in a folder."""
    difference = float(np.abs(vectors - expected).max(initial=0))
    if not difference <= _TOLERANCE:
        raise UserError(
            f"the vectors differ from those of {folder} by {difference:.2g}: other rules "
            "for tokens, or other layers, made it; train or import it again"
        )


def _packed(folder: Path, to: str, output: Path, about: Mapping[str, Any]) -> Path:
    """Packs an export for NumPy or ONNX Runtime, with a card beside it; returns the package."""
    with tempfile.TemporaryDirectory() as temporary:
        pack = resolve_name(f"xling_tf.exporters.{to}:pack")
        package = pack(folder, Path(temporary), **about)
        for path in Path(temporary).iterdir():
            with replacing(output / path.name) as file:
                shutil.copy(path, file)
    return output / package.name


def distribution_name(name: str) -> str:
    """Returns a package's name in its normal form, or raises a `UserError` if it has none."""
    name = re.sub("[-_.]+", "-", name).lower()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise UserError(f"`name` must be that of a package, as multilingual-static, got {name!r}")
    return name


def _require_destination(folder: Path, to: str, output: Path, data: Path | None) -> None:
    """Raises a `UserError` unless an export can be written to `output`, before minutes of work."""
    mark = FORMATS[to][1]
    if mark:
        require_replaceable(output, mark=mark)
    else:
        require_writable_folder(output, "choose another `output`")
    earlier = next((name for name, (_, file) in FORMATS.items() if (output / file).is_file()), to)
    if FORMATS[earlier][1] != mark:
        raise UserError(
            f"`output` must be a new folder, or an earlier export to {to}, but {output} is in "
            f"the format {earlier}; choose another"
        )
    if output.resolve() == folder.resolve():
        raise UserError(f"`output` must be another folder than the model's, got {output} for both")
    if data and not data.is_dir():
        raise UserError(f"`data` must be a folder of corpora, but there is no such folder: {data}")


def _complete_card(source: OriginalModel, saved: Any, to: str, folder: Path) -> None:
    """Adds to an export the licences, and to its card metadata, limits and missing signatures."""
    card = folder / "README.md"
    if to not in ("savedmodel", "keras"):
        text = _LENGTH.format(max_tokens=source.model.tokenizer.config.max_tokens)
        text += source.about_changes
        if source.model.heads:
            others = sorted(
                saved.signatures.keys() - {"serving_default", "default", "raw", "unprompted"}
            )
            text += _SIGNATURES.format(others=", ".join(f"`{name}`" for name in others))
        with card.open("a", encoding="utf-8") as file:
            file.write(text)
    if to in ("numpy", "wheel", "npm"):  # which have written both
        return
    for path in licence_files(source.folder):
        shutil.copy(path, folder)
    if card.is_file() and to != "savedmodel":
        header = metadata(source.folder, to)
        card.write_text(header + card.read_text("utf-8"), "utf-8")


def _require_packages(folder: Path, form: str, options: Collection[str]) -> None:
    """Raises the `UserError` of a missing package that a format needs, before minutes of work."""
    tokenizer = read_json_dict(folder / CONFIG).get("tokenizer")
    is_words = isinstance(tokenizer, dict) and tokenizer.get("kind") == "words"
    needed = [*_NEEDED.get(form, ()), *([_WORDFREQ] if "languages" in options else [])]
    if form in ("litert", "onnx") and not is_words:
        needed.append(_TOKENIZERS)
    elif not FORMATS[form][1]:
        needed += [_WORDFREQ] if is_words else [*_ONNX, _TOKENIZERS]
    for module, package, extra in needed:
        if find_spec(module) is None:
            raise missing_package(package, extra)


def encode_by(saved: Any) -> Encode:
    """Returns the function from texts to vectors of a loaded SavedModel."""
    return lambda texts: saved(tf.constant(list(texts), tf.string)).numpy()


def calibrate(
    model: str | PathLike[str],
    pairs: Any,
    output: str | PathLike[str],
    kind: str = "same_meaning",
) -> Path:
    """Exports a model whose `SentenceEncoder.probability` is fitted on your own pairs.

    Args:
        model: An exported model, in any form that `xling_tf.load` takes.
        pairs: Pairs of texts with scores or labels, the highest of which stand for a match; or
            translations, or questions with answers, whose nearest wrong candidates serve as pairs
            that do not match. See `fine_tune` for their form.
        output: Folder of the exported model, which may not be `model` itself.
        kind: "same_meaning", or "answer" for pairs of a query and a document that answers it.

    Returns:
        The folder.

    Raises:
        UserError: The model or the pairs cannot be used.

    Examples:
        >>> pairs = [("Where is it?", "¿Dónde está?"), ...]
        >>> calibrate("exported/e5", pairs, output="exported/e5-calibrated")  # doctest: +SKIP
        >>> model = xling_tf.load("exported/e5-calibrated")  # doctest: +SKIP
        >>> model.probability("Where is it?", "¿Cuándo es?")  # doctest: +SKIP
    """
    return export(model, "savedmodel", output, match={kind: pairs})


def metadata(folder: Path, library: str) -> str:
    """Returns the metadata of a model's card, with another library; "" if there is none."""
    header = re.match(r"---\n.*?\n---\n\n", read_card(folder), re.DOTALL)
    return re.sub('"tensorflow"(?:, "tf-hub")?', f'"{library}"', header[0]) if header else ""


def export_keras(source: OriginalModel, folder: Path) -> tuple[Sequence[str], Encode]:
    """Writes the folder of `Model.save_pretrained`, which `Model.from_pretrained` loads."""
    source.model.save_pretrained(folder)
    loaded = Model.from_pretrained(folder)
    return PROBES, lambda texts: loaded(texts).numpy()


def reject(source: OriginalModel, form: str, expected: str) -> NoReturn:
    """Raises the `UserError` of a model that a format cannot express."""
    kind = source.model.encoder_settings["kind"]
    tokenizer = source.model.config()["tokenizer"]["kind"]
    others = "savedmodel, keras, litert, onnx and sentence-transformers"
    raise UserError(
        f"the format {form} needs {expected}, but {source.folder} has the encoder {kind} and "
        f"the tokenizer {tokenizer}; choose one of {others}"
    )


def sample_texts(data: Path | None, languages: Collection[str]) -> list[str]:
    """Returns up to 2,000 different texts of a folder of corpora; None is the built-in sample.

    They are in some languages, or in all if there are none in these. Raises a `UserError` if there
    are none.
    """
    for codes in (languages, ()):
        if texts := [*dict.fromkeys(_read_texts(data or SAMPLE_FOLDER, codes))]:
            return texts[:: -(-len(texts) // _TEXTS)]
    raise UserError(f"`data` must be a folder of corpora, but {data} has no texts; give another")


def _read_texts(data: Path, languages: Collection[str]) -> Iterator[str]:
    for file in discover(data):
        if languages and not {*file.languages} & {*languages}:
            continue
        for record, _ in islice(file.read(*file.paths), _TEXTS):
            texts = [field for field in record if isinstance(field, str)]
            # Each side of a translation has its language; other records are in one language.
            codes = file.languages if len(file.languages) > 1 else file.languages * len(texts)
            for text, code in zip(texts, codes, strict=True):
                if not languages or code in languages:
                    yield text


def compare_unknown_words(
    source: OriginalModel, tokenizer: Any, unknown: int, encode: Encode
) -> tuple[str, list[str]]:
    """Measures how much an export without vectors of words outside the vocabulary differs.

    Returns Markdown for a card, and the texts of a sample in which every word is known to the
    export's tokenizer, of the `tokenizers` library; `unknown` is its id of other words.
    """
    texts = sample_texts(source.data, source.model.info.languages)
    # A prompt may also have unknown words.
    encodings = tokenizer.encode_batch([source.prompt + text for text in (*texts, *PROBES)])
    ids = [np.array(encoding.ids) for encoding in encodings]
    known = [t for t, r in zip([*texts, *PROBES], ids, strict=True) if len(r) and unknown not in r]
    del ids[len(texts) :]
    cosines = np.sum(encode(texts) * source.encode(texts), axis=1)
    card = _COST.format(
        texts=len(texts),
        corpora=source.data.name if source.data else "the built-in sample",
        share=np.mean(np.concatenate(ids) == unknown),
        affected=np.mean([unknown in row for row in ids]),
        cosine=np.mean(cosines),
        least=np.percentile(cosines, 5),
    )
    return card, known
