"""Writes cleaned corpora in the layout of a `--data` folder, the same bytes every time."""

import gzip
from collections.abc import Iterable
from pathlib import Path

from xling_tf.corpora.debian.cleaned import Cleaned


def write_cleaned(
    cleaned: Cleaned, name: str, languages: tuple[str, str], folder: Path
) -> dict[str, int]:
    """Writes one source's files; nothing for a kind it has no text of.

    Args:
        cleaned: The text.
        name: Of the source.
        languages: Source and target.
        folder: The `--data` folder.

    Returns:
        Number of pairs or sentences by kind: "parallel", "documents en", "conversations en", ...
    """
    counts = {"parallel": len(cleaned.parallel)}
    pair = "-".join(languages)
    lines = (f"{source}\t{target}" for source, target, _ in cleaned.parallel)
    _write(folder / f"parallel/{name}.{pair}.tsv.gz", lines)
    for language, documents in cleaned.documents.items():
        counts[f"documents {language}"] = sum(map(len, documents))
        lines = (line for document in documents for line in (*document, ""))
        _write(folder / f"documents/{name}.{language}.txt.gz", lines)
    for language, pairs in cleaned.conversations.items():
        counts[f"conversations {language}"] = len(pairs)
        _write(folder / f"conversations/{name}.{language}.tsv.gz", map("\t".join, pairs))
    return {kind: count for kind, count in counts.items() if count}


def _write(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if text:
        path.parent.mkdir(exist_ok=True)
        # Neither the time nor the name goes into the file, so that equal text gives equal bytes.
        path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))
