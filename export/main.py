"""Makes of an exported model what production runs.

    pip install -e '.[serving]'
    python export/main.py --model exported/en-es --serving serving

makes serving/en-es/1 for TensorFlow Serving, a copy with warm-up requests, and what starts a server on
serving/. The next time it is version 2; a rollback is one rename: mv serving/en-es/2 serving/en-es/2.bad

    pip install -e '.[runtimes]'
    python export/main.py --model exported/en-es --litert exported/en-es-litert --onnx exported/en-es-onnx

makes models for LiteRT and for ONNX Runtime.

    python export/main.py --model exported/en-es --compact exported/en-es-int8

makes the same model with tables of words of a quarter of the bytes; with --languages en,es --data DIR it has
only the words of the texts that a folder of corpora has in these languages.

    pip install -e '.[sharing]'
    python export/main.py --model exported/en-es --archive en-es.tar.gz --push hf://owner/en-es

makes an archive of it with a checksum, and uploads it to Hugging Face.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.errors import UserError, one_line_errors, parse_flags, quiet_start, set_up_logging
from xling_tf.hub.saved_models import model_name, resolve

_MODEL = flags.DEFINE_string("model", None, "The exported model, as xling_tf.load takes it.", required=True)
_SERVING = flags.DEFINE_string(
    "serving", None, "Folder of all served models, in which the copy is <name>/<version>."
)
_NAME = flags.DEFINE_string("name", None, "The served model's name; without it, the folder's.")
_VERSION = flags.DEFINE_integer(
    "version", None, "Number of the version; without it, the next free one.", lower_bound=1
)
_LITERT = flags.DEFINE_string("litert", None, "Folder of the model for LiteRT, which is replaced.")
_COMPACT = flags.DEFINE_string(
    "compact", None, "Folder of the model with tables in fewer bytes, which is replaced."
)
_TABLES = flags.DEFINE_enum("tables", "int8", ["float32", "float16", "int8"], "What --compact makes of them.")
_LANGUAGES = flags.DEFINE_list("languages", [], "Languages whose words --compact keeps; without it, all.")
_DATA = flags.DEFINE_string("data", None, "Folder of corpora that have the words of --languages.")
_ONNX = flags.DEFINE_string("onnx", None, "Folder of the model for ONNX Runtime, which is replaced.")
_ARCHIVE = flags.DEFINE_string("archive", None, "File, .tar.gz, that the model is packed into.")
_PUSH = flags.DEFINE_string("push", None, "Where to: hf://owner/name or kaggle:owner/model/tensorFlow2/name.")

_SERVED = """{folder}, {size:.0f} MB, {requests} warm-up requests. Serve it by one of

    python export/serve.py --model {name}={base} --port 8501
    {docker}
    docker compose --file {serving}/compose.yaml up

and ask it

    curl -d '{{"instances": ["Where is the station?"]}}' http://127.0.0.1:8501/v1/models/{name}:predict

A rollback is one rename: mv {folder} {folder}.bad
"""
_CONVERTED = """{folder}, {size:.0f} MB. Try it:

    from xling_tf.hub.runtimes import load
    load("{folder}").encode(["Where is the station?", "Good night."])
"""

_SHARED = """{where}. It is loaded by

    xling_tf.load("{name}")
"""

_COMPACTED = "{folder}, {size:.0f} MB, is loaded and served as any exported model.\n"


def main(argv: list[str]) -> None:
    """Makes what the flags name, and says how to use it."""
    del argv
    set_up_logging()
    with one_line_errors("the same command starts anew"):
        wanted = (_SERVING, _COMPACT, _LITERT, _ONNX, _ARCHIVE, _PUSH)
        if not any(flag.value for flag in wanted):
            names = ", ".join(f"--{flag.name}" for flag in wanted)
            raise UserError(f"at least one of {names} is expected, but there is none")
        if not _SERVING.value and (_NAME.value or _VERSION.value):
            raise UserError("--name and --version are of a served model, but there is no --serving")
        if _LANGUAGES.value and not (_COMPACT.value and _DATA.value):
            raise UserError(
                "--languages expects --compact FOLDER and --data DIR beside it; add what is missing"
            )
        for told in _make(resolve(_MODEL.value)):
            print(told)


def _make(model: Path) -> Iterator[str]:
    if _SERVING.value:
        yield _serve(model, Path(_SERVING.value))
    if _COMPACT.value:
        with quiet_start():
            from compact import compact

        data = Path(_DATA.value) if _DATA.value else None
        compact(model, Path(_COMPACT.value), _TABLES.value, _LANGUAGES.value, data)
        yield _COMPACTED.format(folder=_COMPACT.value, size=_megabytes(Path(_COMPACT.value)))
    if _LITERT.value or _ONNX.value:
        with quiet_start():
            from conversion import convert

        for runtime, value in (("litert", _LITERT.value), ("onnx", _ONNX.value)):
            if value:
                convert(model, Path(value), runtime)
                yield _CONVERTED.format(folder=value, size=_megabytes(Path(value)))
    if _ARCHIVE.value or _PUSH.value:
        from sharing import archive, push

        if _ARCHIVE.value:
            checksum = archive(model, Path(_ARCHIVE.value))
            yield _SHARED.format(where=f"{_ARCHIVE.value} and {checksum}", name=_ARCHIVE.value)
        if _PUSH.value:
            yield _SHARED.format(where=push(model, _PUSH.value), name=_PUSH.value)


def _serve(model: Path, serving: Path) -> str:
    with quiet_start():
        from publishing import docker_command, publish

    name = model_name(_MODEL.value) if _NAME.value is None else _NAME.value
    published = publish(model, serving, name, _VERSION.value)
    return _SERVED.format(
        folder=published.folder,
        size=_megabytes(published.folder),
        requests=sum(published.warmup.values()),
        name=name,
        base=published.folder.parent,
        docker=docker_command(serving),
        serving=serving,
    )


def _megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
