"""Imports a model as an exported model, with a card that says where its weights are from."""

from pathlib import Path

from use_weights import LICENCE, is_published, read_published

from xling_tf import __version__
from xling_tf.importers.base import read_base_model
from xling_tf.importers.e5_file import find_e5
from xling_tf.model import Model
from xling_tf.savedmodel.card import model_card
from xling_tf.savedmodel.module import require_replaceable
from xling_tf.savedmodel.saved_models import LICENCE_FILES, model_name, read_front_matter, resolve

# Beginnings of the texts of licences, with their names at Hugging Face.
_LICENCES = {"Apache License": "apache-2.0", "MIT License": "mit"}
_ORIGIN = "Imported by xling_tf {version}; nothing was trained here."
_WEIGHTS = """
## Where the weights are from

{origin}

{licence}

`config.json` describes the model; `--init` starts a training from it.
"""
_LICENCE = "The licence of these weights is that of the original: {}."


def import_model(source: str | None, output: Path) -> str:
    """Exports a model that another library has saved.

    Args:
        source: The model, as `xling_tf.savedmodel.saved_models.resolve` takes it; None for the published
            universal-sentence-encoder-multilingual in a Python package.
        output: Folder of the exported model.

    Returns:
        A description of the model in one line.

    Raises:
        UserError: The model is of a kind that cannot be read, or `output` cannot be written.
    """
    require_replaceable(output)
    files: dict[str, str | bytes] = {}
    if source is None or is_published(resolve(source)):
        (model, origin), licence = read_published(resolve(source) if source else None), LICENCE
    else:
        folder = resolve(source)
        model, licence = Model.from_pretrained(source), read_licence(folder)
        what = "4-bit weights of multilingual-e5-small (Wang et al. 2024)" if find_e5(folder) else "files"
        origin = f"The {what} of `{model_name(source)}`, in float32 here."
        notices = (path for pattern in LICENCE_FILES for path in folder.glob(pattern))
        files |= {path.name: path.read_bytes() for path in notices}
    module = model.module()
    card = model_card(
        output.name,
        _ORIGIN.format(version=__version__),
        model.config(),
        module.signatures,
        licence=licence,
        base_model=read_base_model(source) if source else "",
    )
    licence_name = licence or "not stated in its files"
    section = _WEIGHTS.format(origin=origin, licence=_LICENCE.format(licence_name))
    model.export(output, {**files, "README.md": card + section}, module)
    return f"{_describe(model)}, licence {licence_name}"


def read_licence(folder: Path) -> str:
    """Returns the licence of a model of another library, such as "apache-2.0"; "" if it is unknown."""
    if find_e5(folder):
        return "mit"
    if names := read_front_matter(folder, "license"):
        return names[0]
    for path in sorted(folder.glob("LICEN[CS]E*")):
        text = path.read_text("utf-8", errors="replace")
        for beginning, name in _LICENCES.items():
            if text.lstrip().startswith(beginning):
                return name
    return ""


def _describe(model: Model) -> str:
    settings, info = model.encoder_settings, model.info
    parts = [
        settings["kind"],
        f"{settings['num_layers']} layers" if "num_layers" in settings else "",
        f"vectors of {model.encoder.hidden_dim} numbers",
        f"{model.tokenizer.num_words} words or pieces of words",
        f"{settings['pooling']} pooling" if "pooling" in settings else "",
        f"up to {model.tokenizer.config.max_tokens} tokens",
        *(f"{name} prompt {text!r}" for name, text in info.prompts.items()),
        f"{info.default_prompt_name} by default" if info.default_prompt_name else "",
    ]
    return ", ".join(filter(None, parts))
