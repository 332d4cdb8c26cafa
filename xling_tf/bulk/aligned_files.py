"""Aligns files of text with their translations, and writes pairs as tables, TMX or a page."""

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from absl import logging

from xling_tf import __version__
from xling_tf.client.batches import available_cpus, in_threads
from xling_tf.client.texts import as_texts, is_blank
from xling_tf.corpora.document_files import (
    Document,
    name_of_text,
    read_document,
    stem_and_ending,
    warn_of_languages,
)
from xling_tf.corpora.line_files import as_cell, write_lines
from xling_tf.errors import UserError, library
from xling_tf.files import replacing, require_writable_file
from xling_tf.search.alignment import AlignedGroup, align

_FORMATS = re.compile(r"\.(tsv|jsonl|tmx|parquet)((?:\.(?:gz|bz2|xz|zst))?)$", re.IGNORECASE)
# Largest share of sentences without a translation, and smallest mean score, of two texts that seem
# to belong together; otherwise, a warning follows.
_MAX_OMITTED = 0.5
_MIN_MEAN_SCORE = 0.3
# The page begins with the most doubtful of the groups that are less likely right than this.
_DOUBTFUL, _MAX_DOUBTFUL = 0.9, 50
_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def align_files(
    load_model: Callable[[], Any],
    source: Path,
    target: Path,
    output: Path,
    *,
    review: Path | None = None,
    min_probability: float = 0.0,
    report: Callable[[str], None] = lambda state: None,
) -> dict[str, int]:
    """Aligns two files, or the files of two folders that share their names without the language.

    Of folders, as many pairs of texts are aligned at once as there are processors, with one model.
    Pairs whose output exists are skipped, so the same call continues after a kill.

    Args:
        load_model: Returns a model of `load`; called once there are texts to align.
        source: A text, as `read_document` takes it, or a folder of them.
        target: Its translation, or a folder.
        output: File to write, .tsv, .jsonl, .tmx or .parquet; for folders with a `*` in its name,
            which stands for the name of each pair.
        review: A page to write that shows both texts side by side, .html; for folders with a `*`.
        min_probability: Groups that are less likely right are left out of the output, but not of
            the page.
        report: Called with the state, for logs.

    Returns:
        The numbers of pairs of texts that were aligned ("texts"), of groups that were written
        ("groups"), and of sentences without a translation ("omitted sentences").

    Raises:
        UserError: A file cannot be read or written, or folders have no pair of texts.
    """
    pairs, are_folders = _pairs(source, target), source.is_dir()
    for place, name in ((output, "output"), (review, "review")):
        if place and ("*" in place.name) != are_folders:
            expected = "no *, because two files are aligned"
            if are_folders:
                expected = "a * in its name, for those of the files, as in 'aligned/*.tsv'"
            raise UserError(f"`{name}` must have {expected}, but is {place}; rename it")
    if review and review.suffix != ".html":
        raise UserError(f"`review` must end in .html, but is {review}; rename it")
    if are_folders:
        pairs = [
            pair
            for pair in pairs
            if not all(path.exists() for path in pair.results(output, review) if path)
        ]
    write, guard, models = _writer(output), Lock(), list[Any]()
    counts = Counter({"texts": 0, "groups": 0, "omitted sentences": 0})

    def align_pair(pair: _Pair) -> None:
        result, page = pair.results(output, review)
        for path in filter(None, (result, page)):
            require_writable_file(path, "choose another file")
        documents = read_document(pair.source), read_document(pair.target)
        _warn_of_languages(*documents)
        with guard:
            models[:] = models or [load_model()]
        groups = align(documents[0].texts, documents[1].texts, models[0])
        _warn_of_scores(documents, groups)
        if page:
            write_lines(page, _page(documents, groups))
        sure = [group for group in groups if group.probability >= min_probability]
        write(result, documents, sure)
        with guard:
            counts["texts"] += 1
            counts["groups"] += sum(map(_is_translated, sure))
            counts["omitted sentences"] += sum(not _is_translated(group) for group in groups)
            report(f"{counts['texts']} of {len(pairs)} texts")

    report(f"0 of {len(pairs)} texts")
    with in_threads(align_pair, pairs, available_cpus()) as results:
        for _ in results:  # an error of a text is raised here
            pass
    return dict(counts)


def align_row(
    row: Mapping[str, Any],
    model: Any,
    *,
    source_column: str = "source",
    target_column: str = "target",
) -> Iterator[dict[str, Any]]:
    """Aligns the two texts in a row of a table, for engines that map rows (docs/scale.md).

    Args:
        row: Two texts by the names of their columns: each a list of sentences, or a string with one
            sentence per line. Other columns are kept.
        model: A model as `align` takes it; or its name, as `load` takes it, or the URL of an
            archive that fsspec opens, which is loaded once in each process.
        source_column: Name of the column of the text.
        target_column: Name of the column of its translation.

    Yields:
        A row for each group, and for each sentence without a translation, with the other columns,
        "source" and "target", "source_rows" and "target_rows", "score" and "probability".

    Raises:
        UserError: There is no such column, or it holds no texts.

    Examples:
        >>> encode = lambda texts: [[len(text), 9.0] for text in texts]
        >>> row = {"id": 7, "source": "Uno.", "target": ["One."]}
        >>> [group["id"] for group in align_row(row, encode)]
        [7]
    """
    from xling_tf.bulk.record_batches import load_once  # here, because it needs Arrow

    documents = (
        Document(Path(source_column), "und", _sentences(row, source_column), [], None),
        Document(Path(target_column), "und", _sentences(row, target_column), [], None),
    )
    encoder = load_once(fspath(model)) if isinstance(model, str | PathLike) else model
    others = {k: value for k, value in row.items() if k not in (source_column, target_column)}
    for group in _rows(documents, align(documents[0].texts, documents[1].texts, encoder)):
        yield {**others, **group}


def _sentences(row: Mapping[str, Any], column: str) -> list[str]:
    if column not in row:
        raise UserError(
            f"expected the column {column}, but there is only {', '.join(row)}; name one of these"
        )
    value = row[column]
    texts = as_texts(value.split("\n") if isinstance(value, str) else value, column)
    return [text for text in texts if not is_blank(text)]


class _Pair(NamedTuple):
    """A text and its translation."""

    name: str
    source: Path
    target: Path

    def results(self, output: Path, review: Path | None) -> tuple[Path, Path | None]:
        """Returns the files to write, in which the name replaces a `*`."""

        def named(path: Path) -> Path:
            return path.with_name(path.name.replace("*", self.name))

        return named(output), named(review) if review else None


def _is_translated(group: AlignedGroup) -> bool:
    return bool(group.source and group.target)


def _pairs(source: Path, target: Path) -> list[_Pair]:
    for path in (source, target):
        if not path.exists():
            raise UserError(
                f"expected a file or a folder, but {path} does not exist; correct the path"
            )
    if source.is_dir() != target.is_dir():
        raise UserError(
            f"{source} and {target} must be two files or two folders, but only one is a folder; "
            "give two of a kind"
        )
    if not source.is_dir():
        return [_Pair("", source, target)]
    sides = [_files(source, target), _files(target, source)]
    for name in sorted(sides[0].keys() ^ sides[1].keys()):
        path = (sides[0].get(name) or sides[1].get(name) or [source])[0]
        logging.warning("%s is left out: the other folder has no file of the same name", path)
    shared = sorted(sides[0].keys() & sides[1].keys())
    for side in sides:
        for name in shared:
            if len(side[name]) > 1:
                both = " and ".join(map(str, side[name]))
                raise UserError(f"{both} have the same name; rename or remove one")
    if not shared:
        raise UserError(
            f"{source} and {target} must have files of the same name, such as novel.de.txt and "
            "novel.fr.txt, but have none"
        )
    return [_Pair(name, sides[0][name][0], sides[1][name][0]) for name in shared]


def _files(folder: Path, other: Path) -> dict[str, list[Path]]:
    """Returns a folder's texts by their names, without the language unless the other has it."""
    others = {stem_and_ending(path)[0] for path in other.iterdir()}
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            stem, _ = stem_and_ending(path)
            files.setdefault(stem if stem in others else name_of_text(path), []).append(path)
    return files


def _warn_of_languages(source: Document, target: Document) -> None:
    """Warns if both texts are the same, or as `warn_of_languages` does."""
    if source.texts == target.texts:
        logging.warning("%s and %s are the same text", source.path, target.path)
    else:
        warn_of_languages((source.path, target.path), (source.recognised, target.recognised))


def _warn_of_scores(documents: Sequence[Document], groups: Sequence[AlignedGroup]) -> None:
    translated = [group for group in groups if _is_translated(group)]
    omitted = len(groups) - len(translated)
    total = sum(len(document.texts) for document in documents)
    mean = sum(group.score for group in translated) / max(len(translated), 1)
    if omitted > _MAX_OMITTED * total or mean < _MIN_MEAN_SCORE:
        logging.warning(
            "%s and %s may not be translations of each other: %d of %d sentences are left out, and "
            "the mean score is %.2f",
            *(documents[0].path, documents[1].path, omitted, total, mean),
        )


_Documents = tuple[Document, Document]


def _writer(output: Path) -> Callable[[Path, _Documents, Sequence[AlignedGroup]], None]:
    match = _FORMATS.search(output.name)
    if not match or (match[1].lower() == "parquet" and match[2]):
        raise UserError(
            "`output` must end in .tsv, .jsonl or .tmx (also compressed, as .tsv.gz), or in "
            f".parquet, got {output.name}; rename it"
        )
    if match[1].lower() == "parquet":
        return _write_parquet
    lines = {"tsv": _tsv, "jsonl": _json_lines, "tmx": _tmx}[match[1].lower()]
    return lambda path, documents, groups: write_lines(path, lines(documents, groups))


def _rows(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[dict[str, Any]]:
    """Yields each group as a row of a table, with the times of subtitles."""
    for group in groups:
        row: dict[str, Any] = {}
        for side, document, rows in zip(("source", "target"), documents, group[:2], strict=True):
            row[side] = " ".join(document.texts[rows.start : rows.stop])
            row[f"{side}_rows"] = [*rows]
            if document.times:
                times = document.times[rows.start : rows.stop]
                row[f"{side}_times"] = [times[0][0], times[-1][1]] if times else []
        yield {**row, "score": round(group.score, 4), "probability": round(group.probability, 4)}


def _translated(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[dict[str, Any]]:
    return (row for row in _rows(documents, groups) if row["source"] and row["target"])


def _tsv(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[str]:
    yield "source\ttarget\tscore\tprobability"
    for row in _translated(documents, groups):
        cells = as_cell(row["source"]), as_cell(row["target"])
        yield "\t".join((*cells, f"{row['score']:.4f}", f"{row['probability']:.4f}"))


def _json_lines(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[str]:
    return (json.dumps(row, ensure_ascii=False) for row in _rows(documents, groups))


def _tmx(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[str]:
    """Yields the lines of Translation Memory eXchange 1.4b."""
    codes = [quoteattr(document.language.replace("_", "-")) for document in documents]
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield '<tmx version="1.4">'
    yield (
        f'<header creationtool="xling_tf" creationtoolversion="{__version__}" segtype="block" '
        f'o-tmf="plain" adminlang="en" srclang={codes[0]} datatype="plaintext"/>'
    )
    yield "<body>"
    for row in _translated(documents, groups):
        yield "<tu>"
        for name in ("score", "probability"):
            yield f'<prop type="{name}">{row[name]:.4f}</prop>'
        for side, code in zip(("source", "target"), codes, strict=True):
            text = escape(_CONTROLS.sub(" ", row[side]))
            yield f"<tuv xml:lang={code}><seg>{text}</seg></tuv>"
        yield "</tu>"
    yield "</body>"
    yield "</tmx>"


def _write_parquet(output: Path, documents: _Documents, groups: Sequence[AlignedGroup]) -> None:
    arrow = library("pyarrow", "pyarrow, for .parquet files,", "bulk")
    parquet = library("pyarrow.parquet", "pyarrow, for .parquet files,", "bulk")
    with replacing(output) as temporary:
        parquet.write_table(arrow.Table.from_pylist([*_rows(documents, groups)]), temporary)


_STYLE = """
:root { color-scheme: light dark; font: 16px/1.45 system-ui, sans-serif }
body { margin: 0 auto; max-width: 72rem; padding: 0.5rem }
h1 { font-size: 1.4rem; overflow-wrap: anywhere }
h2 { font-size: 1.15rem }
ol { list-style: none; padding: 0 }
li { border-left: 0.5rem solid hsl(var(--hue) 65% 48%); display: grid; gap: 0 1rem;
  grid-template-columns: 3rem 1fr 1fr; margin: 0.25rem 0; padding: 0.25rem 0.5rem;
  background: hsl(var(--hue) 65% 48% / 0.12); overflow-wrap: anywhere }
li.omitted { border-left-style: dotted; background: none }
li p { margin: 0 }
li:target { outline: 2px solid }
a { color: inherit }
@media (max-width: 40rem) {
  li { grid-template-columns: 1fr }
  li p + p { margin-top: 0.25rem; opacity: 0.85 }
}
"""


def _page(documents: _Documents, groups: Sequence[AlignedGroup]) -> Iterator[str]:
    """Yields the lines of a page with both texts side by side, the doubtful groups first."""
    names = [html.escape(document.path.name) for document in documents]
    codes = [html.escape(document.language.replace("_", "-"), quote=True) for document in documents]
    translated = [n for n, group in enumerate(groups) if _is_translated(group)]
    doubtful = [n for n in translated if groups[n].probability < _DOUBTFUL]
    doubtful = sorted(doubtful, key=lambda n: groups[n].probability)[:_MAX_DOUBTFUL]

    def item(number: int, name: str) -> str:
        group = groups[number]
        hue = round(120 * group.probability)
        cells = [
            f'<p lang="{code}">' + "<br>".join(map(html.escape, document.texts[r.start : r.stop]))
            for document, code, r in zip(documents, codes, group[:2], strict=True)
        ]
        kind = "" if _is_translated(group) else ' class="omitted"'
        link = f'<a href="#g{number}">{group.probability:.0%}</a>'
        return f'<li{kind} {name} style="--hue: {hue}">{link}{"</p>".join(cells)}</p></li>'

    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    title = " &ndash; ".join(f"{name} ({code})" for name, code in zip(names, codes, strict=True))
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    omitted = len(groups) - len(translated)
    yield f"<p>{len(translated)} groups of translations, {omitted} sentences without one. "
    yield "The figure beside a group is the probability that it is right.</p>"
    yield f"<h2>Most doubtful ({len(doubtful)})</h2><ol>"
    yield from (item(number, "") for number in doubtful)
    yield "</ol><h2>The whole text</h2><ol>"
    yield from (item(number, f'id="g{number}"') for number in range(len(groups)))
    yield "</ol></body></html>"
