"""Held-out translations as files that evaluation reads, so that any system can be scored on them."""

import math
from collections.abc import Sequence
from pathlib import Path

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError

# Fewer are no evaluation of their own; among a thousand the papers look for the right one.
_FEWEST = 1000


def write_held_out(
    data: Path, output: Path, *, source: str, targets: Sequence[str], max_pairs: int
) -> dict[Path, int]:
    """Writes the translations that a training on `data` never sees.

    Args:
        data: A data folder.
        output: Folder of `bitext/<corpus>_held_out.<source>-<target>.tsv.gz`, one for each corpus that
            holds out a thousand pairs, and `all_held_out` of them all.
        source: The source language.
        targets: The target languages.
        max_pairs: In one file: every n-th of them all.

    Returns:
        Pairs in each file.

    Raises:
        UserError: A corpus cannot be read, or no pair of languages has a thousand held-out pairs.
    """
    corpora = load_folder(data, source=source, targets=targets)
    store = transient_store([corpus for corpus in corpora if corpus.kind == "parallel"])
    written = {}
    for target in targets:
        languages = f"{source}-{target}"
        parts = {c.name: c.held_out for c in store.corpora if c.languages == languages}
        pairs = {name: [tuple(pair[:2]) for pair in part] for name, part in parts.items()}
        pairs["all"] = [pair for part in pairs.values() for pair in part]
        for name, rows in pairs.items():
            if len(rows) >= _FEWEST:
                path = output / "bitext" / f"{name}_held_out.{languages}.tsv.gz"
                written[path] = _write(path, (source, target), rows, max_pairs)
    if not written:
        raise UserError(
            f"at least {_FEWEST} held-out pairs of a pair of languages are expected, but {data} has fewer; "
            "give more translations: a tenth of them is held out"
        )
    return written


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[str]], max_pairs: int) -> int:
    rows = rows[:: math.ceil(len(rows) / max_pairs)]
    # A Moses pair's line may hold a tab.
    lines = ["\t".join(text.replace("\t", " ") for text in row) for row in (header, *rows)]
    write_lines(path, lines)
    return len(rows)
