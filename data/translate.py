"""Translates inference pairs and questions into other languages.

    xling-tf translate --data DIR --target de,fr,es --translator python:my_module:translate

calls your function `translate(texts, source, target)`, which returns one translation per text.

Yang et al. 2019 (sec. 4.1) and Rücklé et al. 2018 (sec. 5.1) train on such translations. Existing
files are kept, so after an interruption, the same command continues.
"""

import json
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags, logging

from xling_tf.client.texts import describe
from xling_tf.corpora.cleaning import normalise
from xling_tf.corpora.folder import discover, load_folder
from xling_tf.corpora.line_files import write_lines
from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.store import StoredCorpus, transient_store
from xling_tf.errors import UserError, as_user_error, require_known
from xling_tf.program import progress, run

# Translates texts from the first language to the second, each to one text.
Translator = Callable[[Sequence[str], str, str], Sequence[str]]
_Row = tuple[str, str]  # a text and its translation

_TEXTS_AT_ONCE = 256


def main() -> None:
    """Translates what the flags name, and prints the counts."""
    values = flags.FLAGS
    counts = translate_folder(
        Path(values.data),
        open_translator(values.translator),
        source=values.source,
        targets=values.target,
        names=values.corpus,
        recipe=values.translator,
    )
    for path, (written, translated) in counts.items():
        print(f"{path}: {written} of {translated} records")


def open_translator(name: str) -> Translator:
    """Finds the function of `--translator`, in a module of this folder or an installed one.

    Raises:
        UserError: There is no such function.
    """
    kind, _, target = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    message = f"--translator must be python:module:function, got {name!r} ({{error}}); correct it"
    with as_user_error(message, AttributeError, ImportError, ValueError):
        function: Translator = pkgutil.resolve_name(target if kind == "python" else "")
    return function


def translate_folder(
    data: Path,
    translator: Translator,
    *,
    source: str,
    targets: Sequence[str],
    names: Sequence[str] = (),
    recipe: str = "",
) -> dict[Path, tuple[int, int]]:
    """Writes `nli/NAME.TARGET.train.tsv.gz` or `questions/NAME.TARGET.tsv.gz` for each corpus.

    Only training records are translated, so that no language learns from what another holds out. A
    record is dropped if a translation is empty. `recipe` names the translator: rows of an
    interrupted call with another recipe are discarded. Returns the numbers of written and of
    translated records, by file.
    """
    corpora = [
        c
        for c in load_folder(data, source=source, targets=())
        if c.record_type in ("nli", "questions")
    ]
    for name in names:
        require_known("--corpus", name, {corpus.name for corpus in corpora})
    parts = [
        c
        for c in transient_store(corpora).corpora
        if len(c.train) and (not names or c.name in names)
    ]
    counts = {}
    for target in targets:
        paths: dict[Path, StoredCorpus] = {}
        existing = {
            (file.record_type, file.name, file.languages, file.split) for file in discover(data)
        }
        for corpus in parts:
            split = "train" if corpus.record_type == "nli" else ""
            name = ".".join(filter(None, (corpus.name, target, split)))
            path = data / corpus.record_type / f"{name}.tsv.gz"
            if (corpus.record_type, corpus.name, (target,), split) in existing:
                logging.info("%s exists, and is kept", path)
            else:
                paths[path] = corpus

        def rows_of(batch: Sequence[str], target: str = target) -> list[_Row]:
            answers = [*translator(batch, source, target)]
            if len(answers) != len(batch) or not all(isinstance(answer, str) for answer in answers):
                raise UserError(
                    f"the translator must return {len(batch)} texts, got {describe(answers)}; "
                    "correct it"
                )
            return [*zip(batch, map(normalise, answers), strict=True)]

        saved = data / f".translations.{source}-{target}.jsonl"
        records = [record for corpus in paths.values() for record in corpus.train]
        with progress(f"translating {len(records)} records to {target}") as report:
            texts = dict.fromkeys(text for r in records for text in r if isinstance(text, str))
            rows = _read_or_make([*texts], rows_of, saved, recipe, report)
        for path, corpus in paths.items():
            lines = [line for record in corpus.train if (line := _line(record, rows))]
            write_lines(path, lines)
            counts[path] = len(lines), len(corpus.train)
        saved.unlink()
    return counts


def _read_or_make(
    texts: Sequence[str],
    make: Callable[[Sequence[str]], list[_Row]],
    saved: Path,
    recipe: str,
    report: Callable[[str], None],
) -> dict[str, str]:
    """Returns each text's translation; a file keeps the recipe and the rows for the next start."""
    rows: dict[str, str] = {}
    header = json.dumps(recipe).encode() + b"\n"
    with saved.open("a+b") as file:
        file.seek(0)
        if (first := file.readline()) != header:
            if first:
                logging.warning("%s is of another translator, so it is begun again", saved)
            file.truncate(0)
            file.seek(0)
            file.write(header)
        for line in file:
            if line.endswith(b"\n"):
                text, translation = json.loads(line)
                rows[text] = translation
            else:  # a killed program has written a part of it
                file.truncate(file.tell() - len(line))
        missing = [text for text in texts if text not in rows]
        for begin in range(0, len(missing), _TEXTS_AT_ONCE):
            report(f"{begin} of {len(missing)} texts")
            for text, translation in make(missing[begin : begin + _TEXTS_AT_ONCE]):
                rows[text] = translation
                file.write(json.dumps([text, translation]).encode() + b"\n")
            file.flush()
    return rows


def _line(record: Any, rows: Mapping[str, str]) -> str:
    """Returns the line of a translated record; "" if a translation is empty."""
    texts = [rows[text] for text in record if isinstance(text, str)]
    label = [NLI_LABELS[record.label]] if hasattr(record, "label") else []
    return "\t".join([*label, *texts]) if all(texts) else ""


if __name__ == "__main__":
    flags.DEFINE_string("data", None, "Folder of corpora.", required=True)
    flags.DEFINE_string(
        "translator", None, "The function, as python:module:function.", required=True
    )
    flags.DEFINE_string("source", "en", "Source language.")
    flags.DEFINE_list("target", None, "Target languages, such as de,fr,es.", required=True)
    flags.DEFINE_multi_string("corpus", [], "A corpus to translate; default: all. Repeatable.")
    run(main, "the same command continues")
