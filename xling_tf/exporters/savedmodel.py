"""Modified copies of an exported model: smaller tables, probabilities of own pairs."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from xling_tf.client.batches import Encode
from xling_tf.client.encoder import SentenceEncoder
from xling_tf.corpora.trained_on import TRAINED_ON
from xling_tf.exporters.base import PROBES, OriginalModel, encode_by
from xling_tf.savedmodel.backends import as_backend
from xling_tf.savedmodel.saved_models import load_saved_model, read_card
from xling_tf.search.calibration import fit_pairs

_CARD = """
## Tables in fewer bytes

The word tables are stored as {tables}{scales}: the vectors are near those of the original model,
but not equal. The tables cannot be fine-tuned, except by a training with `--init`, which has them
in float32 again.
"""
_FITTED = """
## Probabilities of a match

Those of the kind {kinds} are fitted again, on own pairs.
"""


def export(
    source: OriginalModel,
    folder: Path,
    tables: str = "float32",
    match: Mapping[str, Any] | None = None,
) -> tuple[Sequence[str], Encode] | None:
    """Writes a modified SavedModel, usually with tables in float16, or int8 with a scale a row.

    Args:
        source: The model.
        folder: Folder to write.
        tables: "float32", "float16" or "int8".
        match: Pairs, as `fit_pairs` takes them, by the kind of match whose probability is fitted on
            them; the others are the source's.
    """
    model = source.model
    text = read_card(source.folder) + source.about_changes
    if tables != "float32":
        scales = ", with a scale for each row" if tables == "int8" else ""
        text += _CARD.format(tables=tables, scales=scales)
    if match:
        encoder = SentenceEncoder(as_backend(load_saved_model(source.folder), {}, "float32"))
        languages = model.info.languages
        lines = {kind: fit_pairs(encoder, kind, pairs, languages) for kind, pairs in match.items()}
        model.info = dataclasses.replace(model.info, match={**model.info.match, **lines})
        text += _FITTED.format(kinds=" and ".join(lines))
    files: dict[str, str | bytes] = {"README.md": text}
    if (source.folder / TRAINED_ON).is_file():
        files[TRAINED_ON] = (source.folder / TRAINED_ON).read_bytes()
    model.export(folder, files, model.module(tables))
    if tables != "float32":
        return None
    return PROBES, encode_by(load_saved_model(folder))
