"""Found bitext to the pairs that translate each other (appendix A.1)."""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from apache_beam.options.pipeline_options import PipelineOptions

from xling_tf.corpora.cleaning import bitext_fault, normalise, repeat_key, without_repeats
from xling_tf.corpora.line_files import MAX_LINE
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.pipelines import storage
from xling_tf.pipelines.command import Command, language_code
from xling_tf.pipelines.common import Account, Keyed, Preparation
from xling_tf.pipelines.jobs import prepare
from xling_tf.pipelines.scoring import model_identity, well_scored
from xling_tf.pipelines.storage import Input
from xling_tf.pipelines.streams import DamagedFileError, decompressed, split

_DEFAULT_MIN_COSINE = 0.5


def twin(path: str, source: str, target: str) -> str | None:
    """The target side of a Moses pair, given its source side; None for any other file.

    Example:
        >>> twin("news.en-es.en.gz", "en", "es")
        'news.en-es.es.gz'
    """
    if match := re.fullmatch(rf"(.*\.){source}(\.gz)?", path):
        return f"{match[1]}{target}{match[2] or ''}"
    return None


def extract(path: str, account: Account, *, source: str, target: str) -> Iterator[Keyed]:
    """Yields the pairs of a bitext that are sound by themselves, and counts the others.

    Args:
        path: Lines of source TAB target, or the source side of a Moses pair.
        account: Gets the counts, and the file's name if it is damaged.
        source: The first language.
        target: The second language.
    """
    other = twin(path, source, target)
    try:
        for columns in _moses_columns(path, other) if other else _tsv_columns(path):
            account.counts["pairs"] += 1
            if len(columns) != 2:
                account.counts["pairs dropped: not 2 columns of UTF-8"] += 1
                continue
            pair = TranslationPair(normalise(columns[0]), normalise(columns[1]))
            if fault := bitext_fault(pair, source, target):
                account.counts[f"pairs dropped: {fault}"] += 1
            else:
                yield Keyed(repeat_key(pair), (pair.source, pair.target))
    except DamagedFileError as error:
        account.damaged[path] = f"{error} after {account.counts['pairs']} pairs"


def clean_lines(
    records: Iterable[Keyed], account: Account, *, model: str | None, min_cosine: float
) -> Iterator[str]:
    """Yields source TAB target of the pairs of a partition that are new and score well enough."""
    dropped: Counter[str] = Counter()
    pairs = without_repeats((TranslationPair(*value) for _, value in records), dropped)
    if model:
        pairs = well_scored(pairs, model, min_cosine, dropped)
    yield from (f"{pair.source}\t{pair.target}" for pair in pairs)
    account.counts.update({f"pairs dropped: {reason}": n for reason, n in dropped.items()})


def _lines(path: str) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long."""
    with storage.open_raw(path) as file:
        yield from split(decompressed(file, path), b"\n", MAX_LINE)


def _tsv_columns(path: str) -> Iterator[list[str]]:
    for line in _lines(path):
        text = _decoded(line)
        yield [] if text is None else text.split("\t")


def _moses_columns(path: str, other: str) -> Iterator[list[str]]:
    if not storage.exists(other):
        raise DamagedFileError(f"its translation {other} is missing")
    counts = [_num_lines(side) for side in (path, other)]
    if counts[0] != counts[1]:
        # Nobody knows from where on the lines are no translations of each other.
        raise DamagedFileError(f"it has {counts[0]} lines, but {other} has {counts[1]}")
    for line, translation in zip(_lines(path), _lines(other), strict=True):
        texts = _decoded(line), _decoded(translation)
        yield [text for text in texts if text is not None]


def _num_lines(path: str) -> int:
    try:
        return sum(1 for _ in _lines(path))
    except DamagedFileError as error:
        raise DamagedFileError(f"{path} is {error}") from error


def _decoded(line: bytes | None) -> str | None:
    try:
        return None if line is None else line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _without_twins(inputs: Sequence[Input], source: str, target: str) -> list[Input]:
    """The inputs but for target sides of Moses pairs, which are read with their source sides."""
    sides = {twin(file.path, source, target) for file in inputs}
    return [file for file in inputs if file.path not in sides]


def _corpus_name(inputs: Sequence[Input], pair: str) -> str:
    """The files' common name: what stands before the languages, or before the first dot."""
    files = (re.split(r"[/\\]", file.path)[-1] for file in inputs)
    names = {name.partition(f".{pair}." if f".{pair}." in name else ".")[0] for name in files}
    if len(names) > 1:
        raise UserError(
            f"a name is expected for the corpus made of {', '.join(sorted(names))}, got none; "
            "give one with --name"
        )
    return names.pop()


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=language_code, required=True, help="language of column 1")
    parser.add_argument("--target", type=language_code, required=True, help="language of column 2")
    parser.add_argument("--name", help="the corpus' name; default: that of the input")
    parser.add_argument("--model", metavar="DIR", help="an exported model that scores the pairs")
    parser.add_argument(
        "--min_cosine",
        type=float,
        help=f"with --model: the lowest score that is kept (default: {_DEFAULT_MIN_COSINE})",
    )


def _run(arguments: argparse.Namespace, options: PipelineOptions) -> Account:
    source, target, model = arguments.source, arguments.target, arguments.model
    if arguments.min_cosine is not None and not model:
        raise UserError("--min_cosine needs a model that scores, got none; give one with --model")
    min_cosine = _DEFAULT_MIN_COSINE if arguments.min_cosine is None else arguments.min_cosine
    inputs = _without_twins(storage.find_inputs(arguments.input), source, target)
    scoring = {"model": model_identity(model), "min_cosine": min_cosine} if model else {}
    pair = f"{source}-{target}"
    preparation = Preparation(
        corpus=f"parallel/{arguments.name or _corpus_name(inputs, pair)}.{pair}",
        suffix=".tsv.gz",
        settings=scoring,
        extract=partial(extract, source=source, target=target),
        combine=partial(clean_lines, model=model, min_cosine=min_cosine),
    )
    return prepare(
        preparation,
        inputs=inputs,
        output=arguments.output,
        num_shards=arguments.num_shards,
        options=options,
    )


COMMAND = Command(
    description="Bitext (lines of source TAB target, or Moses pairs) to the pairs that are fit.",
    add_arguments=_add_arguments,
    run=_run,
)
