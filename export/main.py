"""Exports a model for servers and other libraries, or in less space.

    xling-tf export --model exported/en-es --serving serving
    xling-tf export --model exported/en-es --to sentence-transformers --output exported/en-es-st
    xling-tf export --model exported/en-es --to savedmodel --tables int8 --output exported/small
    xling-tf export --model exported/multilingual-static --to wheel --output dist

--serving writes serving/en-es/1 for TensorFlow Serving; the next version is 2. To roll back:
mv serving/en-es/2 serving/en-es/2.bad

--to writes the model for another library. With --tables int8, word tables of a savedmodel have a
quarter of the size. wheel makes a package for pip: an average of words needs only NumPy, an encoder
of pieces ONNX Runtime. npm makes one for JavaScript, of an average of words.
"""

import sys
from pathlib import Path
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.client.match import KINDS
from xling_tf.errors import UserError
from xling_tf.exporters import FORMATS, require_format
from xling_tf.files import folder_bytes
from xling_tf.program import define_import, progress, quiet_start, run
from xling_tf.savedmodel.saved_models import find_model, model_name

_MODEL = flags.DEFINE_string(
    "model", None, "The exported model, in any form that xling_tf.load opens.", required=True
)
_SERVING = flags.DEFINE_string(
    "serving", None, "Folder of all served models; the model is copied into it as <name>/<version>."
)
_NAME = flags.DEFINE_string(
    "name", None, "Name of the served model or the package; default: the name of --model."
)
_VERSION = flags.DEFINE_integer(
    "version",
    None,
    "Version of the served model (default: the next free one) or of the package.",
    lower_bound=1,
)
_TO = flags.DEFINE_enum("to", None, [*FORMATS], "Format to export to.")
_OUTPUT = flags.DEFINE_string("output", None, "Folder of the export.")
_TABLES = flags.DEFINE_enum(
    "tables",
    "float32",
    ["float32", "float16", "int8"],
    "Type of the word tables, with --to savedmodel.",
)
_MEGABYTES = flags.DEFINE_float(
    "megabytes",
    40.0,
    "Maximum size of an average of words, with --to numpy, wheel or npm.",
    lower_bound=0.1,
)
_DIM = flags.DEFINE_integer(
    "dim", 256, "Maximum width of vectors, with --to numpy, wheel or npm.", lower_bound=2
)
_BITS = flags.DEFINE_integer("bits", 4, "Of a number, 4 or 8, with --to numpy, wheel or npm.")
_MATCH = flags.DEFINE_string(
    "match",
    None,
    "KIND=TABLE of pairs on which to fit the probability of a match, with --to savedmodel. KIND is "
    "same_meaning or answer. Columns: two texts and, unless all rows match, a label or score.",
)
_LANGUAGES = flags.DEFINE_list(
    "languages",
    None,
    "Keeps the pieces of these languages alone, such as es,de.",
)
_DATA = flags.DEFINE_string(
    "data", None, "Folder of corpora, to measure the effect of unknown words."
)
_OPTIONS = (_TABLES, _MATCH, _DIM, _BITS, _MEGABYTES, _LANGUAGES, _DATA)
define_import()

# The version of the exporting TensorFlow: an older server may lack operations. The server also has
# those of tensorflow-text, such as SentencePiece's (tensorflow_serving/model_servers/BUILD).
_IMAGE = "tensorflow/serving:2.21.0"
_SERVED = """{folder}, {size:.0f} MB, {requests} warm-up requests. Serve it by one of

    xling-tf serve --model {name}={base} --port 8501
    docker run -p 127.0.0.1:8501:8501 -v {absolute}:/models/{name}:ro -e MODEL_NAME={name} {image}

and send a request:

    curl -d '{{"instances": ["Good morning"]}}' http://127.0.0.1:8501/v1/models/{name}:predict

To roll back: mv {folder} {folder}.bad
"""
_EXPORTED = "{folder}, {size:.0f} MB; {loader} it."
_PACKED = """{path}, {size:.0f} MB. In any environment with Python 3.11 or later:

    pip install {path}
    python -c 'import {module} as m; print(m.similarity("Good morning", "Guten Morgen"))'
"""
_NPM = """{path}, {size:.0f} MB. In any folder, with Node 18 or later:

    npm install {path}
    node -e 'require("{module}").similarity("Good morning", "Guten Morgen").then(console.log)'
"""


def main() -> None:
    """Exports the model as the flags say, and prints how to use the results."""
    if bool(_TO.value) != bool(_OUTPUT.value):
        given, missing = ("--to", "--output") if _TO.value else ("--output", "--to")
        raise UserError(f"{given} needs {missing}, which --help describes")
    if not (_SERVING.value or _TO.value):
        raise UserError("expected --serving, or --to and --output")
    options: dict[str, Any] = {flag.name: flag.value for flag in _OPTIONS}
    options = {name: value for name, value in options.items() if flags.FLAGS[name].present}
    if _MATCH.value is not None:
        kind, equals, table = _MATCH.value.partition("=")
        if not equals or kind not in KINDS:
            kinds = " or ".join(f"{name}=TABLE" for name in KINDS)
            raise UserError(f"--match must be {kinds}, got {_MATCH.value!r}")
        options["match"] = {kind: table}
    if options and not _TO.value:
        raise UserError(f"--{next(iter(options))} needs --to")
    if _TO.value in ("wheel", "npm") or not _SERVING.value:
        names = {"name": _NAME.value, "version": _VERSION.value}
        options |= {name: value for name, value in names.items() if value is not None}
    if _TO.value and _OUTPUT.value:
        require_format(_TO.value, options)
        find_model(_MODEL.value)  # before TensorFlow starts
        print(_export(_TO.value, _OUTPUT.value, options))
    if _SERVING.value:
        print(_serve(find_model(_MODEL.value), Path(_SERVING.value)))


def _export(to: str, output: str, options: dict[str, Any]) -> str:
    with progress(f"exporting {_MODEL.value} to {output}"):
        with quiet_start():
            from xling_tf.exporters.base import export
        path = export(_MODEL.value, to, output, **options)
    if path.is_file():
        packed, module = _PACKED, path.name.split("-")[0]
        if to == "npm":
            packed, module = _NPM, path.name.rpartition("-")[0]
        return packed.format(path=path, size=path.stat().st_size / 1e6, module=module)
    is_keras = to == "keras"  # whose folder has no README.md
    loader = (
        "xling_tf.Model.from_pretrained loads" if is_keras else "its README.md says how to load"
    )
    return _EXPORTED.format(folder=path, size=folder_bytes(path) / 1e6, loader=loader)


def _serve(model: Path, serving: Path) -> str:
    name = model_name(_MODEL.value) if _NAME.value is None else _NAME.value
    with progress(f"exporting {_MODEL.value} to {serving}"):
        with quiet_start():
            from serving_folder import publish
        folder, requests = publish(model, serving, name, _VERSION.value)
    return _SERVED.format(
        folder=folder,
        size=folder_bytes(folder) / 1e6,
        requests=sum(requests.values()),
        name=name,
        base=folder.parent,
        absolute=folder.parent.resolve(),
        image=_IMAGE,
    )


if __name__ == "__main__":
    run(main, "the same command starts again", extra="tensorflow")
