"""Mined hard negatives beside a corpus: the file, and its join with the corpus' pairs.

`hard_negatives/NAME.SRC-TGT.tsv.gz` belongs to the corpus NAME of `parallel/`. A line is `source TAB
target TAB negative TAB ...`, with one negative or more. Lines are in the order of the corpus, so
that neither has to be in memory for the join; pairs without negatives have no line.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from xling_tf.corpora.line_files import read_every_line, write_lines
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError

_FOLDER = "hard_negatives"


def mined_path(data: Path, name: str, languages: str) -> Path:
    """Names the mined file of a corpus of a data folder; languages are as in "en-es".

    Example:
        >>> mined_path(Path("corpora"), "tatoeba", "en-es").as_posix()
        'corpora/hard_negatives/tatoeba.en-es.tsv.gz'
    """
    return data / _FOLDER / f"{name}.{languages}.tsv.gz"


def require_mined(data: Path, source: str, targets: Sequence[str]) -> None:
    """Makes sure that negatives have been mined for every language pair.

    Raises:
        UserError: For one of them there is no mined file.
    """
    for target in targets:
        if not any((data / _FOLDER).glob(f"[!.]*.{source}-{target}.tsv.gz")):
            raise UserError(
                f"tasks.hard_negatives needs mined files in {data / _FOLDER}, but there is none for "
                f"{source}-{target}; {_command(data, source, target)}, or set it to 0"
            )


def write_mined(path: Path, pairs: Iterable[TranslationPair]) -> None:
    """Writes pairs with negatives, in the order of their corpus, whole or not at all."""
    rows = ((source, target, *negatives) for source, target, negatives in pairs)
    write_lines(path, ("\t".join(map(_cell, row)) for row in rows))


def read_mined(path: Path) -> Iterator[TranslationPair]:
    """Yields the pairs of a mined file.

    Raises:
        UserError: A line has no negative, or the file cannot be read to its end.
    """
    for number, line in read_every_line(path):
        cells = line.split("\t")
        if len(cells) < 3 or not all(cells):
            raise UserError(
                f"{path} must hold lines of source TAB target TAB negative ..., but line {number} is "
                f"{line[:80]!r}; delete the file and mine it again with data/mine.py"
            )
        yield TranslationPair(cells[0], cells[1], tuple(cells[2:]))


def with_negatives(pairs: Iterable[TranslationPair], path: Path) -> Iterator[TranslationPair]:
    """Gives the pairs of a corpus the negatives that were mined for them.

    Args:
        pairs: Of the whole corpus, in its order.
        path: Of its mined file.

    Yields:
        Every pair, with its negatives where it has some.

    Raises:
        UserError: The file has a pair that the corpus has not, or not there: it was mined from
            another one. This is raised after the last pair.
    """
    mined = read_mined(path)
    awaited = next(mined, None)
    for pair in pairs:
        if awaited and (_cell(pair.source), _cell(pair.target)) == awaited[:2]:
            yield pair._replace(negatives=awaited.negatives)
            awaited = next(mined, None)
        else:
            yield pair
    if awaited:
        languages = path.name.removesuffix(".tsv.gz").rpartition(".")[2].split("-")
        raise UserError(
            f"{path} must have pairs of its corpus in their order, but {awaited.source[:80]!r} is "
            "not in the corpus, or not after those before it: the corpus has changed; "
            + _command(path.parents[1], *languages)
        )


def _cell(text: str) -> str:
    # What a reader of lines gives back: a Moses file may have tabs in a line.
    return text.replace("\t", " ").strip(" ")


def _command(data: Path, source: str, target: str) -> str:
    return (
        f"mine with `python data/mine.py --model exported/translation-ranking-{source}-{target} "
        f"--data {data} --source {source} --target {target}`"
    )
