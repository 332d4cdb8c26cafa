"""Modified copies of an exported model: smaller tables, calibrated."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from xling_tf.client.batches import Encode
from xling_tf.corpora.trained_on import TRAINED_ON
from xling_tf.exporters.base import PROBES, OriginalModel, encode_by
from xling_tf.savedmodel.saved_models import load_saved_model
from xling_tf.search.same_meaning import fit_pairs

_CARD = """
## Tables in fewer bytes

The word tables are stored as {tables}{scales}: the vectors are near those of the original model,
but not equal. The tables cannot be fine-tuned, except by a training with `--init`, which has them
in float32 again.
"""
_CALIBRATED = """
## Calibrated

The signature `same_meaning` takes `sentence1` and `sentence2`, and gives the probability that both
mean the same, assuming that half of all pairs do:
`xling_tf.load(".").probability("Hola", "Hello")`.
"""


def export(
    source: OriginalModel, folder: Path, tables: str = "float32", same_meaning: Any = None
) -> tuple[Sequence[str], Encode] | None:
    """Writes a modified SavedModel, usually with tables in float16, or int8 with a scale a row.

    Args:
        source: The model.
        folder: Folder to write.
        tables: "float32", "float16" or "int8".
        same_meaning: Pairs, as `fit_pairs` takes them, on which the signature `same_meaning` is
            calibrated; None for the source's calibration, if it has one.
    """
    model = source.model
    card = source.folder / "README.md"
    text = card.read_text("utf-8") if card.is_file() else ""
    if tables != "float32":
        scales = ", with a scale for each row" if tables == "int8" else ""
        text += _CARD.format(tables=tables, scales=scales)
    if same_meaning is not None:
        line = fit_pairs(source.encode, same_meaning)
        model.info = dataclasses.replace(model.info, same_meaning=line)
        text += _CALIBRATED
    files: dict[str, str | bytes] = {"README.md": text}
    if (source.folder / TRAINED_ON).is_file():
        files[TRAINED_ON] = (source.folder / TRAINED_ON).read_bytes()
    model.export(folder, files, model.module(tables))
    if tables != "float32":
        return None
    return PROBES, encode_by(load_saved_model(folder))
