"""An exported model once more, with tables of words in fewer bytes."""

from pathlib import Path

import keras

from xling_tf.config import to_json
from xling_tf.errors import UserError
from xling_tf.files import require_writable_folder
from xling_tf.hub.module import export, require_replaceable
from xling_tf.model import Model
from xling_tf.trainer.warm_start import StartingPoint

_CARD = """
## In fewer bytes

The tables of words are kept as {tables}{scales}: vectors are near those of the model that this one was made
of, and not equal. It can be fine-tuned but for its tables, and no training can start from it.
"""


def compact(model: Path, output: Path, tables: str) -> None:
    """Exports a model with its tables as float16, or as int8 with a scale for each row.

    Args:
        model: Folder of an exported model of ours, as it was exported.
        output: Folder of the new one.
        tables: "float16" or "int8".

    Raises:
        UserError: `model` is none that a training could start from, or `output` cannot be written.
    """
    require_replaceable(output)
    require_writable_folder(output.parent, "give another with --compact")
    if output.resolve() == model.resolve():
        raise UserError(f"--compact must be another folder than --model, got {output} for both")
    start = StartingPoint.open(model)
    keras.config.set_dtype_policy("float32")
    whole = Model.build(start.config, start.vocabulary)
    given = {*start.give(whole)}
    whole = whole._replace(
        tasks=[task for task in whole.tasks if {head.name for head in task.heads} <= given]
    )
    card = model / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    scales = ", with a scale for each row" if tables == "int8" else ""
    files = {
        "README.md": text + _CARD.format(tables=tables, scales=scales),
        "config.json": to_json(start.config),
    }
    export(whole.hub_module(tables), output, files)
