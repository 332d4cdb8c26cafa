"""Converts published evaluation data to the tables that evaluators read.

    xling-tf prepare evaluation                            # lists the formats and their files
    xling-tf prepare evaluation quora downloads/quora      # writes data/eval/paraphrase/...
    xling-tf evaluate --model exported/en-es --data data/eval

FILES is the published file, or a folder of the files. Tables are UTF-8 files with tabs between the
columns. The first line names the columns.
"""

import ast
import contextlib
import csv
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import flags

from xling_tf.compressed import PACKED, unpacked
from xling_tf.corpora.line_files import LANGUAGE, as_cell, read_every_line, write_lines
from xling_tf.corpora.questions import read_paragraphs
from xling_tf.corpora.readers import SCORED_COLUMNS, SNLI_COLUMNS
from xling_tf.corpora.tables import read_table
from xling_tf.errors import UserError, as_user_error
from xling_tf.program import run


class Table(NamedTuple):
    """A table of evaluation data."""

    name: str  # the path in the evaluation folder, without the ending: "sts/stsb.en.dev"
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]  # each with as many fields as there are columns


Reader = Callable[[Path], Iterator[Table]]
Lines = Callable[[Path], Iterable[tuple[int, str]]]  # yields numbers and lines
# By the name of a published format: the names of its files, and the reader of a file or folder.
FORMATS: dict[str, tuple[str, Reader]] = {}


def published(files: str) -> Callable[[Reader], Reader]:
    """Registers a reader under its name; its docstring says which data have the format."""

    def register(read: Reader) -> Reader:
        FORMATS[read.__name__] = (files, read)
        return read

    return register


def convert(format_name: str, source: Path, output: Path) -> dict[str, int]:
    """Writes the tables of a published file or folder; returns the rows of each table."""
    if format_name not in FORMATS:
        raise UserError(
            f"the format must be one of {', '.join(FORMATS)}, got {format_name!r}; correct it"
        )
    files, read = FORMATS[format_name]
    counts: dict[str, int] = {}
    for name, columns, rows in read(source):
        if name in counts:
            raise UserError(
                f"expected a single file for each table, but {source} has several for {name}; give "
                "one of their folders"
            )
        number = itertools.count(-1)  # of rows that were written, without the header
        numbered = zip(itertools.chain([columns], rows), number, strict=False)
        lines = ("\t".join(map(as_cell, row)) for row, _ in numbered)
        write_lines(output / f"{name}.tsv.gz", lines)
        counts[name] = next(number)
    if not counts:
        raise UserError(f"expected {files}, but {source} has no such file; correct the path")
    return counts


def files_in(source: Path, pattern: str) -> list[tuple[re.Match[str], Path]]:
    """Finds files by a pattern of their names: the file itself, or those in a folder."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    matches = [(re.fullmatch(pattern, _plain_name(path)), path) for path in paths]
    return [(match, path) for match, path in matches if match and path.is_file()]


def beside(path: Path, name: str) -> Path:
    """Returns the path of another file of the same folder, plain or compressed."""
    files = sorted(other for other in path.parent.iterdir() if _plain_name(other) == name)
    return files[0] if files else path.with_name(name)


def _plain_name(path: Path) -> str:
    return re.sub(f"{PACKED}$", "", path.name)


def fields(
    path: Path,
    count: int,
    *,
    separator: str = "\t",
    max_splits: int = -1,
    read: Lines = read_every_line,
) -> Iterator[list[str]]:
    """Yields the stripped fields of each line, at least `count`, by at most `max_splits` splits."""
    for number, line in read(path):
        parts = [part.strip() for part in line.split(separator, max_splits)]
        if len(parts) < count:
            raise UserError(
                f"{path} must have {count} fields in every line, separated by {separator!r}, but "
                f"line {number} is {line[:80]!r}; download it again"
            )
        yield parts


@published("<name>.<aa>-<bb>.<aa> and .<bb>, one sentence per line, such as tatoeba.deu-eng.deu")
def moses(source: Path) -> Iterator[Table]:
    """Sentences and their translations: Moses, the UN Parallel Corpus, LASER's Tatoeba sets."""
    for match, path in files_in(source, rf"(.+\.({LANGUAGE})-({LANGUAGE}))\.\2"):
        name, first, second = match.groups()
        sides = path, beside(path, f"{name}.{second}")
        yield Table(f"bitext/{name}", (first, second), read_table(sides, (first, second)))


@published("<name>.<language> of two languages or more, a sentence a line, as europarl.en")
def parallel_lines(source: Path) -> Iterator[Table]:
    """Sentences in several languages: Europarl (Yu et al. 2018), newstest2012."""
    sets: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for match, path in files_in(source, rf"(.+)\.({LANGUAGE})"):
        sets[match[1]][match[2]] = path
    for name, paths in sets.items():
        if len(paths) > 1:
            rows = read_table((*paths.values(),), [*paths])
            yield Table(f"similarity_search/{name}", [*paths], rows)


@published("sts-dev.csv, sts-test.csv, sts-train.csv")
def stsbenchmark(source: Path) -> Iterator[Table]:
    """The STS Benchmark (Cer et al. 2017)."""
    # Columns: genre, file, year, number, score, two sentences, perhaps sources; quotes are text.
    for match, path in files_in(source, r"sts-(train|dev|test)\.csv"):
        rows = ((row[5], row[6], row[4]) for row in fields(path, 7))
        yield Table(f"sts/stsb.en.{match[1]}", SCORED_COLUMNS, rows)


@published(
    "STS12-en-test/STS.input.<name>.txt and STS.gs.<name>.txt; "
    "STS2017.eval.v1.1/STS.input.track<n>.<aa>-<bb>.txt and "
    "STS2017.gs/STS.gs.track<n>.<aa>-<bb>.txt",
)
def semeval_sts(source: Path) -> Iterator[Table]:
    """SemEval's STS tasks of 2012 to 2016, as SentEval has them, and the tracks of 2017."""
    for match, path in files_in(source, r"STS\.input\.(?:surprise\.)?((track\w+\.)?.+)\.txt"):
        year = re.fullmatch(r"STS(\d\d)-en-test", path.parent.name)
        if year or match[2]:
            name = f"sts20{year[1]}.en.{match[1]}.test" if year else f"sts2017.{match[1]}"
            apart = path.parent.parent / "STS2017.gs"
            gold = path.name.replace("STS.input.", "STS.gs.")
            gold_path = apart / gold if match[2] and apart.is_dir() else path.with_name(gold)
            yield Table(f"sts/{name}", SCORED_COLUMNS, _judged(path, gold_path))


def _judged(path: Path, gold_path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields pairs with scores; as in SentEval, an empty line of scores was not judged."""
    for (first, second, *_), (_, gold) in zip(
        fields(path, 2), read_table((path, gold_path), ("pair", "score")), strict=True
    ):
        if gold:
            yield first, second, gold


_PAIR = ("label", "question1", "question2")


@published("quora_duplicate_questions.tsv")
def quora(source: Path) -> Iterator[Table]:
    """Quora's question pairs."""
    for _, path in files_in(source, r"quora_duplicate_questions\.tsv"):
        yield Table("paraphrase/quora.en", _PAIR, _quora_rows(path))


def _quora_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yields pairs; a question without a partner is paired with itself, as a candidate."""
    lines = csv.DictReader((f"{line}\n" for _, line in read_every_line(path)), delimiter="\t")
    try:
        for row in lines:
            first, second = row["question1"].strip(), row["question2"].strip()
            yield row["is_duplicate"].strip(), first or second, second or first
    except (AttributeError, KeyError, csv.Error) as error:
        raise UserError(
            f"{path} must have the columns question1, question2 and is_duplicate, but line "
            f"{lines.line_num} does not ({error!r}); give the file as published"
        ) from error


@published("text_tokenized.txt and dev.txt, test.txt (github.com/taolei87/askubuntu)")
def askubuntu(source: Path) -> Iterator[Table]:
    """AskUbuntu's similar questions (Lei et al. 2016), by their titles."""
    for match, path in files_in(source, r"(dev|test)\.txt"):
        corpus = beside(path, "text_tokenized.txt")
        titles = {row[0]: row[1] for row in fields(corpus, 2)}
        # A query without similar questions gives no pair.
        ids = [(row[0], other) for row in fields(path, 2) for other in row[1].split()]
        missing = next((key for pair in ids for key in pair if key not in titles), None)
        if missing is not None:
            raise UserError(
                f"{missing[:80]!r} of {path} is missing in {corpus}; give files of one edition"
            )
        rows = [("1", titles[query], titles[other]) for query, other in ids]
        # All others are candidates.
        rows += [("0", title, title) for title in titles.values()]
        yield Table(f"paraphrase/askubuntu.en.{match[1]}", _PAIR, rows)


@published("dev-v1.1.json, train-v1.1.json or <name>.<language>.json")
def squad(source: Path) -> Iterator[Table]:
    """SQuAD v1.1 and data in its layout (XQuAD, MLQA, PIAF, CMRC 2018), as retrieval (ReQA)."""
    for match, path in files_in(source, rf"(?:([^.]+\.({LANGUAGE}))|(dev|train)-v1\.1)\.json"):
        name = match[1] or f"squad_{match[3]}.en"
        paragraphs: list[tuple[str, str]] = []
        sentences: list[tuple[str, str, str]] = []
        questions: list[tuple[str, str, str]] = []
        for number, paragraph in enumerate(read_paragraphs(path, match[2] or "en")):
            paragraphs.append((f"p{number}", paragraph.context))
            ids = {}
            for index, sentence in enumerate(paragraph.sentences):
                ids[sentence] = f"p{number}.s{index}"
                sentences.append((ids[sentence], f"p{number}", sentence))
            for key, question, answers in paragraph.questions:
                questions += ((key, question, ids[answer]) for answer in answers)
        yield Table(f"reqa/{name}.paragraphs", ("paragraph_id", "context"), paragraphs)
        header = ("sentence_id", "paragraph_id", "sentence")
        yield Table(f"reqa/{name}.sentences", header, sentences)
        header = ("question_id", "question", "answer_sentence_id")
        yield Table(f"reqa/{name}.questions", header, questions)


_SENTEVAL_SIDES = {"MR": "rt-polarity", "CR": "custrev", "SUBJ": "subj", "MPQA": "mpqa"}
_SENTEVAL_SPLITS = {
    **{"train_5500": "train", "TREC_10": "test"},
    **{"train": "train", "trial": "dev", "test_annotated": "test"},
}


@published("downstream/: MR, CR, SUBJ, MPQA, TREC, SST and SICK (the STS Benchmark: stsbenchmark)")
def senteval(source: Path) -> Iterator[Table]:
    """SentEval's transfer tasks (Conneau and Kiela 2018)."""
    for name, stem in _SENTEVAL_SIDES.items():
        files = files_in(source, rf"{stem}\.(pos|neg|subjective|objective)")
        sides = [(match[1], line) for match, path in files for _, line in _latin_lines(path)]
        if sides:
            yield Table(f"senteval/{name}", ("label", "text"), sides)
    rows: Iterable[Sequence[str]]
    for match, path in files_in(source, r"(train_5500|TREC_10)\.label"):
        rows = ((label.partition(":")[0], text) for label, text in _selected(path, (0, 1), " "))
        yield Table(f"senteval/TREC.{_SENTEVAL_SPLITS[match[1]]}", ("label", "text"), rows)
    for match, path in files_in(source, r"sentiment-(train|dev|test)"):
        if path.parent.name == "binary":
            yield Table(f"senteval/SST2.{match[1]}", ("label", "text"), _selected(path, (1, 0)))
    for match, path in files_in(source, r"SICK_(train|trial|test_annotated)\.txt"):
        rows = itertools.islice(_selected(path, (3, 1, 2)), 1, None)
        columns = ("relatedness", "sentence1", "sentence2")
        yield Table(f"senteval/SICK.{_SENTEVAL_SPLITS[match[1]]}", columns, rows)


def _selected(
    path: Path, columns: Sequence[int], separator: str = "\t"
) -> Iterator[tuple[str, ...]]:
    """Yields some fields of each line; a separating space ends the first field only."""
    splits = -1 if separator == "\t" else 1
    for parts in fields(
        path, max(columns) + 1, separator=separator, max_splits=splits, read=_latin_lines
    ):
        yield tuple(parts[index] for index in columns)


def _latin_lines(path: Path) -> list[tuple[int, str]]:
    """Returns the lines that are not blank; SentEval's files are UTF-8 or Latin-1."""
    with path.open("rb") as file:
        content = b"".join(unpacked(file, path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    lines = (line.strip("\r") for line in text.split("\n"))
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


_NLI = ("label", "premise", "hypothesis")


@published("snli_1.0_<split>.jsonl, multinli_1.0_<split>.jsonl")
def snli(source: Path) -> Iterator[Table]:
    """SNLI (Bowman et al. 2015) and MultiNLI (Williams et al. 2018)."""
    for match, path in files_in(source, r"(multinli|snli)_1\.0_(train|test|dev\w*)\.jsonl"):
        # A few pairs of MultiNLI lack a sentence.
        rows = [row for row in read_table(path, SNLI_COLUMNS) if all(row)]
        yield Table(f"nli/{match[1]}.en.{match[2]}", _NLI, rows)


@published("xnli.dev.tsv, xnli.test.tsv")
def xnli(source: Path) -> Iterator[Table]:
    """XNLI (Conneau et al. 2018): inference in fifteen languages."""
    for match, path in files_in(source, r"xnli\.(dev|test)\.tsv"):
        columns = ("language", "pairID", "gold_label", "sentence1", "sentence2")
        languages: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for language, *row in read_table(path, columns):
            languages[language].append(tuple(row))
        for language, rows in languages.items():
            yield Table(f"nli/xnli.{language}.{match[1]}", ("pair_id", *_NLI), rows)


_REVIEW_LANGUAGES = {"en": "en", "de": "de", "fr": "fr", "jp": "ja"}
_REVIEW_WORDS = 64  # Chidambaram et al. 2019, sec. 4.2
_NEUTRAL_STARS = 3.0


@published("<en, de, fr or jp>/<category>/train.review and test.review of cls-acl10-unprocessed")
def cls(source: Path) -> Iterator[Table]:
    """Amazon reviews (Webis-CLS-10): more than three stars are positive, fewer are negative."""
    files = files_in(source, r"(train|test)\.review")
    for split, (folder, language) in itertools.product(
        ("train", "test"), _REVIEW_LANGUAGES.items()
    ):
        paths = [p for match, p in files if (match[1], p.parent.parent.name) == (split, folder)]
        if paths:
            rows = (row for path in paths for row in _reviews(path))
            yield Table(f"sentiment/cls.{language}.{split}", ("label", "text"), rows)


def _reviews(path: Path) -> Iterator[tuple[str, str]]:
    """Yields the label and the first 64 words of summary and text of each review."""
    with path.open("rb") as file:
        content = b"".join(unpacked(file, path))
    message = (
        f"{path} must be XML whose items have rating, summary and text, but: {{error}}; download "
        "it again"
    )
    # For an unknown encoding, the parser raises a LookupError.
    with as_user_error(message, ElementTree.ParseError, LookupError, ValueError):
        # The parser opens no other files that a document names, and rejects exploding entities.
        for item in ElementTree.fromstring(content).iter("item"):
            text = f"{item.findtext('summary') or ''} {item.findtext('text') or ''}"
            stars = float(item.findtext("rating", ""))
            if stars != _NEUTRAL_STARS:
                label = "positive" if stars > _NEUTRAL_STARS else "negative"
                yield label, " ".join(text.split()[:_REVIEW_WORDS])


# Schwenk and Li 2018; their results are those of the smallest of four training sets.
_MLDOC_LANGUAGES = {
    **{"german": "de", "english": "en", "spanish": "es", "french": "fr"},
    **{"italian": "it", "japanese": "ja", "russian": "ru", "chinese": "zh"},
}


@published("<language>.train.1000, <language>.dev, <language>.test, as MLDoc's scripts make them")
def mldoc(source: Path) -> Iterator[Table]:
    """MLDoc: Reuters news in eight languages (Schwenk and Li 2018)."""
    languages = "|".join(_MLDOC_LANGUAGES)
    for match, path in files_in(source, rf"({languages})\.(train|dev|test)(?:(?<=train)\.1000)?"):
        rows = ((label, _without_quotes(text)) for label, text in fields(path, 2, max_splits=1))
        name = f"documents/MLDoc.{_MLDOC_LANGUAGES[match[1]]}.{match[2]}"
        yield Table(name, ("label", "text"), rows)


def _without_quotes(text: str) -> str:
    """Decodes texts that MLDoc's scripts, run by Python 3, wrote as literals of bytes."""
    if re.fullmatch(r"""b(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""", text):
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):
            return str(ast.literal_eval(text), "utf-8")
    return text


@published("AM/labels and AM/argMinPE.<language>; AC/amClaims.labels and AC/amClaims.<language>")
def argument_mining(source: Path) -> Iterator[Table]:
    """Argument mining in English and German (Rücklé et al. 2018)."""
    for match, path in files_in(source, rf"(?:(argMinPE)|amClaims)\.({LANGUAGE})"):
        labels = beside(path, "labels" if match[1] else "amClaims.labels")
        name = f"argument/{'AM' if match[1] else 'AC'}.{match[2]}"
        columns = ("label", "text")
        yield Table(name, columns, read_table((labels, path), columns))


def main(*words: str) -> None:
    """Converts one format, or lists all of them."""
    if not words:
        for name, (files, read) in FORMATS.items():
            print(f"{name}: {(read.__doc__ or '').splitlines()[0]}\n    {files}")
        return
    if len(words) != 2:
        raise UserError(
            f"expected a format and a file or folder, got {' '.join(words)}; without them, the "
            "command lists the formats"
        )
    output = Path(flags.FLAGS.output)
    for name, count in convert(words[0], Path(words[1]), output).items():
        print(f"{output / name}.tsv.gz: {count} rows")


if __name__ == "__main__":
    # Not at the top: tests import this file with other programs, whose flags have the same names.
    flags.DEFINE_string("output", "data/eval", "The evaluation folder.")
    run(main, "the same command starts again", files="[FORMAT FILES]")
