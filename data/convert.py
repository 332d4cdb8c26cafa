"""Converts evaluation data as published into the tables that the evaluators read.

    python data/convert.py --list
    python data/convert.py --format bucc --input downloads/bucc2018 --output data/eval
    python evaluation/main.py --model exported/en-es --data data/eval

A table is lines of fields between tabs, UTF-8, below a line that names the columns.
"""

import ast
import contextlib
import csv
import itertools
import math
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

# A bare checkout is enough: the package need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from absl import app, flags

from xling_tf.corpora.line_files import read_every_line, write_lines
from xling_tf.corpora.questions import read_paragraphs
from xling_tf.corpora.readers import MalformedLineError
from xling_tf.corpora.snli import snli_columns
from xling_tf.errors import UserError, one_line_errors, parse_flags, set_up_logging
from xling_tf.evaluators.data import LANGUAGE, read_table
from xling_tf.files import PACKED, unpacked


class Table(NamedTuple):
    """A table of evaluation data."""

    name: str  # its path in the evaluation folder, without the ending: "sts/stsb.en.dev"
    columns: Sequence[str]
    rows: Iterable[Sequence[str]]  # as many fields each as there are columns


Reader = Callable[[Path], Iterator[Table]]
Lines = Callable[[Path], Iterable[tuple[int, str]]]  # with their numbers


class Format(NamedTuple):
    """A published format: the names of its files, and what reads a file or folder into tables."""

    files: str
    read: Reader


FORMATS: dict[str, Format] = {}


def published(files: str) -> Callable[[Reader], Reader]:
    """Registers a reader under its name; its docstring says what is published in the format."""

    def register(read: Reader) -> Reader:
        FORMATS[read.__name__] = Format(files, read)
        return read

    return register


def convert(format_name: str, source: Path, output: Path) -> dict[str, int]:
    """Writes the tables of published data; each replaces its predecessor when it is complete.

    Args:
        format_name: A key of `FORMATS`.
        source: The published file, or a folder that has the files anywhere below it.
        output: The evaluation folder.

    Returns:
        The number of rows by the table's name.

    Raises:
        UserError: The format is unknown, or the files are missing or damaged.
    """
    if format_name not in FORMATS:
        raise UserError(f"--format must be one of {', '.join(FORMATS)}, got {format_name!r}")
    counts: dict[str, int] = {}
    for name, columns, rows in FORMATS[format_name].read(source):
        number = itertools.count(-1)  # of the rows that were written, without the header
        numbered = zip(itertools.chain([columns], rows), number, strict=False)
        lines = ("\t".join(map(_one_line, row)) for row, _ in numbered)
        write_lines(output / f"{name}.tsv.gz", lines)
        counts[name] = next(number)
    if not counts:
        files = FORMATS[format_name].files
        raise UserError(f"--input must hold {files}, but {source} does not; correct the path")
    return counts


def files_in(source: Path, pattern: str) -> list[tuple[re.Match[str], Path]]:
    """The file, or the files below a folder, whose name matches the pattern, plain or compressed."""
    paths = [source] if source.is_file() else sorted(source.rglob("*"))
    matches = [(re.fullmatch(pattern, _plain_name(path)), path) for path in paths]
    return [(match, path) for match, path in matches if match and path.is_file()]


def beside(path: Path, name: str) -> Path:
    """Finds a file of the same folder, plain or compressed."""
    files = sorted(other for other in path.parent.iterdir() if _plain_name(other) == name)
    return files[0] if files else path.with_name(name)


def _plain_name(path: Path) -> str:
    return re.sub(f"{PACKED}$", "", path.name)


def aligned(*paths: Path) -> Iterator[tuple[str, ...]]:
    """The lines of files whose lines with the same number belong together."""
    texts = [(line.strip() for _, line in read_every_line(path)) for path in paths]
    for number, lines in enumerate(itertools.zip_longest(*texts), start=1):
        if None in lines:
            short = paths[lines.index(None)]
            names = ", ".join(path.name for path in paths)
            raise UserError(
                f"{short} must have as many lines as each of {names}, but ends before line {number}; "
                "fetch them again together"
            )
        yield lines


def fields(
    path: Path, count: int, *, separator: str = "\t", most: int = -1, read: Lines = read_every_line
) -> Iterator[list[str]]:
    """The stripped fields of each line, `count` at least, split `most` times at most."""
    for number, line in read(path):
        parts = [part.strip() for part in line.split(separator, most)]
        if len(parts) < count:
            raise UserError(
                f"{path} must have {count} fields in every line, separated by {separator!r}, but line "
                f"{number} is {line[:80]!r}; fetch it again or correct that line"
            )
        yield parts


def _one_line(field: str) -> str:
    return re.sub(r"[\t\r\n]+", " ", field)


@published("<name>.<aa>-<bb>.<aa> and .<bb>, a sentence a line, as tatoeba.deu-eng.deu")
def moses(source: Path) -> Iterator[Table]:
    """Sentences and their translations: Moses, the UN Parallel Corpus, LASER's Tatoeba sets."""
    for match, path in files_in(source, rf"(.+\.({LANGUAGE})-({LANGUAGE}))\.\2"):
        name, first, second = match.groups()
        rows = aligned(path, beside(path, f"{name}.{second}"))
        yield Table(f"bitext/{name}", (first, second), rows)


@published("<name>.<language> of two languages or more, a sentence a line, as europarl.en")
def parallel_lines(source: Path) -> Iterator[Table]:
    """Sentences in several languages: Europarl (Yu et al. 2018), newstest2012."""
    sets: defaultdict[str, dict[str, Path]] = defaultdict(dict)
    for match, path in files_in(source, rf"(.+)\.({LANGUAGE})"):
        sets[match[1]][match[2]] = path
    for name, paths in sets.items():
        if len(paths) > 1:
            yield Table(f"similarity_search/{name}", tuple(paths), aligned(*paths.values()))


_SCORED = ("sentence1", "sentence2", "score")


@published("sts-dev.csv, sts-test.csv, sts-train.csv")
def stsbenchmark(source: Path) -> Iterator[Table]:
    """The STS Benchmark (Cer et al. 2017)."""
    # Genre, file, year, number, score, two sentences and perhaps their sources; quotes are text.
    for match, path in files_in(source, r"sts-(train|dev|test)\.csv"):
        rows = ((row[5], row[6], row[4]) for row in fields(path, 7))
        yield Table(f"sts/stsb.en.{match[1]}", _SCORED, rows)


@published(
    "STS12-en-test/STS.input.<name>.txt and STS.gs.<name>.txt; "
    "STS2017.eval.v1.1/STS.input.track<n>.<aa>-<bb>.txt and STS2017.gs/STS.gs.track<n>.<aa>-<bb>.txt",
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
            yield Table(f"sts/{name}", _SCORED, _judged(path, gold_path))


def _judged(path: Path, gold_path: Path) -> Iterator[tuple[str, str, str]]:
    """Pairs whose line of scores is empty were not judged and are left out, as SentEval does."""
    scores = (gold for (gold,) in aligned(gold_path))
    for sentences, gold in itertools.zip_longest(fields(path, 2), scores):
        if sentences is None or gold is None:
            raise UserError(f"{path} and {gold_path} must have as many lines; fetch both again")
        if gold:
            yield sentences[0], sentences[1], gold


@published("<xx>-en.training.<xx>, .en and .gold, and those of test where the gold is known")
def bucc(source: Path) -> Iterator[Table]:
    """The BUCC shared task: sentences, and which of them translate each other."""
    for match, path in files_in(source, rf"(({LANGUAGE})-({LANGUAGE})\.(?:training|test))\.gold"):
        stem, *languages = match.groups()
        sides = [beside(path, f"{stem}.{language}") for language in languages]
        sentences = [dict(fields(side, 2, most=1)) for side in sides]
        ids = list(fields(path, 2))
        for pair in ids:
            if pair[0] not in sentences[0] or pair[1] not in sentences[1]:
                raise UserError(
                    f"{path} must name sentences of {sides[0].name} and {sides[1].name}, but "
                    f"{pair[0]!r} or {pair[1]!r} is not there; fetch the three again together"
                )
        paired = [{pair[side] for pair in ids} for side in (0, 1)]
        rows = [(sentences[0][pair[0]], sentences[1][pair[1]]) for pair in ids]
        rows += [(text, "") for key, text in sentences[0].items() if key not in paired[0]]
        rows += [("", text) for key, text in sentences[1].items() if key not in paired[1]]
        yield Table(f"mining/bucc.{stem}", languages, rows)


_PAIR = ("label", "question1", "question2")


@published("quora_duplicate_questions.tsv")
def quora(source: Path) -> Iterator[Table]:
    """Quora's question pairs."""
    for _, path in files_in(source, r"quora_duplicate_questions\.tsv"):
        yield Table("paraphrase/quora.en", _PAIR, _quora_rows(path))


def _quora_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """A question that lacks its partner is paired with itself: a candidate, no duplicate."""
    lines = csv.DictReader((f"{line}\n" for _, line in read_every_line(path)), delimiter="\t")
    try:
        for row in lines:
            first, second = row["question1"].strip(), row["question2"].strip()
            yield row["is_duplicate"].strip(), first or second, second or first
    except (AttributeError, KeyError, csv.Error) as error:
        raise UserError(
            f"{path} must have the columns id, qid1, qid2, question1, question2 and is_duplicate, but "
            f"line {lines.line_num} has not ({error!r}); give the file as published"
        ) from error


@published("text_tokenized.txt and dev.txt, test.txt (github.com/taolei87/askubuntu)")
def askubuntu(source: Path) -> Iterator[Table]:
    """AskUbuntu's similar questions (Lei et al. 2016), by their titles."""
    for match, path in files_in(source, r"(dev|test)\.txt"):
        corpus = beside(path, "text_tokenized.txt")
        titles = {row[0]: row[1] for row in fields(corpus, 2)}
        # Queries without a similar question give no pair.
        ids = [(row[0], other) for row in fields(path, 2) for other in row[1].split()]
        missing = next((key for pair in ids for key in pair if key not in titles), None)
        if missing is not None:
            raise UserError(
                f"{path} must hold ids of questions in {corpus}, but {missing[:80]!r} is not there; "
                "give both files of the same edition"
            )
        rows = [("1", titles[query], titles[other]) for query, other in ids]
        # All others are candidates.
        rows += [("0", title, title) for title in titles.values()]
        yield Table(f"paraphrase/askubuntu.en.{match[1]}", _PAIR, rows)


@published("<language>/dev_2k.tsv, test_2k.tsv, [translated_]train.tsv")
def pawsx(source: Path) -> Iterator[Table]:
    """PAWS-X (Yang et al. 2019): paraphrases in seven languages."""
    for match, path in files_in(source, r"(?:translated_)?(train|dev|test)(?:_2k)?\.tsv"):
        columns = ("label", "sentence1", "sentence2")
        name = f"paraphrase/pawsx.{path.parent.name}.{match[1]}"
        yield Table(name, columns, read_table(path, columns))


@published("dev-v1.1.json, train-v1.1.json or <name>.<language>.json")
def squad(source: Path) -> Iterator[Table]:
    """SQuAD v1.1 and what has its layout (XQuAD, MLQA, PIAF, CMRC 2018), as retrieval (ReQA)."""
    for match, path in files_in(source, r"(?:([^.]+\.([a-z-]+))|(dev|train)-v1\.1)\.json"):
        name = match[1] or f"squad_{match[3]}.en"
        paragraphs: list[tuple[str, str]] = []
        sentences: list[tuple[str, str, str]] = []
        questions: list[tuple[str, str, str]] = []
        for number, paragraph in enumerate(read_paragraphs(path, match[2] or "en")):
            paragraphs.append((f"p{number}", paragraph.context))
            ids = {}
            for place, sentence in enumerate(paragraph.sentences):
                ids[sentence] = f"p{number}.s{place}"
                sentences.append((ids[sentence], f"p{number}", sentence))
            for key, question, answers in paragraph.questions:
                questions += ((key, question, ids[answer]) for answer in answers)
        yield Table(f"reqa/{name}.paragraphs", ("paragraph_id", "context"), paragraphs)
        header = ("sentence_id", "paragraph_id", "sentence")
        yield Table(f"reqa/{name}.sentences", header, sentences)
        header = ("question_id", "question", "answer_sentence_id")
        yield Table(f"reqa/{name}.questions", header, questions)


_SENTEVAL_SIDES = {"MR": "rt-polarity", "CR": "custrev", "SUBJ": "subj", "MPQA": "mpqa"}
_SENTEVAL_SPLITS = {"train_5500": "train", "trial": "dev", "TREC_10": "test", "test_annotated": "test"}


@published("downstream/: MR, CR, SUBJ, MPQA, TREC, SST, MRPC and SICK (the STS Benchmark: stsbenchmark)")
def senteval(source: Path) -> Iterator[Table]:
    """SentEval's transfer tasks (Conneau and Kiela 2018)."""
    for name, stem in _SENTEVAL_SIDES.items():
        files = files_in(source, rf"{stem}\.(pos|neg|subjective|objective)")
        sides = [(match[1], line) for match, path in files for _, line in _latin_lines(path)]
        if sides:
            yield Table(f"senteval/{name}", ("label", "text"), sides)
    rows: Iterable[Sequence[str]]
    for match, path in files_in(source, r"(train_5500|TREC_10)\.label"):
        rows = ((label.partition(":")[0], text) for label, text in _places(path, (0, 1), " "))
        yield _senteval_table("TREC", match, ("label", "text"), rows)
    for match, path in files_in(source, r"sentiment-(train|dev|test)"):
        is_binary = path.parent.name == "binary"
        rows = _places(path, (1, 0)) if is_binary else _places(path, (0, 1), " ")
        yield _senteval_table("SST2" if is_binary else "SST5", match, ("label", "text"), rows)
    for match, path in files_in(source, r"msr_paraphrase_(train|test)\.txt"):
        rows = itertools.islice(_places(path, (0, 3, 4)), 1, None)
        yield _senteval_table("MRPC", match, ("label", "sentence1", "sentence2"), rows)
    for match, path in files_in(source, r"SICK_(train|trial|test_annotated)\.txt"):
        rows = itertools.islice(_places(path, (3, 4, 1, 2)), 1, None)
        columns = ("relatedness", "entailment", "sentence1", "sentence2")
        yield _senteval_table("SICK", match, columns, rows)


def _senteval_table(
    name: str, match: re.Match[str], columns: Sequence[str], rows: Iterable[Sequence[str]]
) -> Table:
    split = _SENTEVAL_SPLITS.get(match[1], match[1])
    return Table(f"senteval/{name}.{split}", columns, rows)


def _places(path: Path, places: Sequence[int], separator: str = "\t") -> Iterator[tuple[str, ...]]:
    """Some fields of each line; a space separates the first field from the rest."""
    most = -1 if separator == "\t" else 1
    for parts in fields(path, max(places) + 1, separator=separator, most=most, read=_latin_lines):
        yield tuple(parts[place] for place in places)


def _latin_lines(path: Path) -> list[tuple[int, str]]:
    """The lines that are not blank; SentEval has some files in UTF-8 and some in Latin-1."""
    with path.open("rb") as file:
        content = b"".join(unpacked(file, path))
    if b"\0" in content:
        raise UserError(f"{path} must be text in UTF-8 or Latin-1, but holds NUL; fetch it again")
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
        yield Table(f"nli/{match[1]}.en.{match[2]}", _NLI, _snli_rows(path))


def _snli_rows(path: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in read_every_line(path):
        try:
            label, premise, hypothesis = snli_columns(line)
        except MalformedLineError as error:
            raise UserError(
                f"{path} must be JSON with gold_label, sentence1 and sentence2 in every line, but line "
                f"{number} is {line[:80]!r}; fetch it again"
            ) from error
        if premise and hypothesis:
            yield label, premise, hypothesis


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
    """Amazon reviews of Webis-CLS-10: more than three stars are positive, fewer negative."""
    files = files_in(source, r"(train|test)\.review")
    for split, (folder, language) in itertools.product(("train", "test"), _REVIEW_LANGUAGES.items()):
        paths = [p for match, p in files if (match[1], p.parent.parent.name) == (split, folder)]
        if paths:
            rows = (row for path in paths for row in _reviews(path))
            yield Table(f"sentiment/cls.{language}.{split}", ("label", "text"), rows)


def _reviews(path: Path) -> Iterator[tuple[str, str]]:
    """The summary and the text of each review, of which the first 64 words are kept."""
    try:
        # The parser opens no other file that a document names, and refuses entities that grow.
        parser: ElementTree.XMLPullParser[Any] = ElementTree.XMLPullParser()
        with path.open("rb") as file:
            for piece in itertools.chain(unpacked(file, path), [None]):
                parser.close() if piece is None else parser.feed(piece)
                for event in parser.read_events():
                    element = event[-1]
                    if isinstance(element, ElementTree.Element) and element.tag == "item":
                        yield from _review(element)
                        element.clear()
    except UserError:
        raise
    # Of an encoding that it does not know, the parser raises a LookupError.
    except (ElementTree.ParseError, LookupError, OSError, ValueError) as error:
        raise UserError(
            f"{path} must be XML whose items have a rating, a summary and a text, but: {error}; fetch "
            "Webis-CLS-10 (unprocessed) again"
        ) from error


def _review(item: ElementTree.Element) -> Iterator[tuple[str, str]]:
    text = f"{item.findtext('summary') or ''} {item.findtext('text') or ''}"
    stars = float(item.findtext("rating", ""))
    if not math.isfinite(stars):
        raise ValueError(f"a rating is {stars}")
    if stars != _NEUTRAL_STARS:
        yield "positive" if stars > _NEUTRAL_STARS else "negative", " ".join(text.split()[:_REVIEW_WORDS])


# Schwenk and Li 2018; the smallest of four training sets, with which their results were made.
_MLDOC_LANGUAGES = {
    **{"german": "de", "english": "en", "spanish": "es", "french": "fr"},
    **{"italian": "it", "japanese": "ja", "russian": "ru", "chinese": "zh"},
}


@published("<language>.train.1000, <language>.dev, <language>.test, as MLDoc's scripts make them")
def mldoc(source: Path) -> Iterator[Table]:
    """MLDoc: Reuters' news in eight languages (Schwenk and Li 2018)."""
    languages = "|".join(_MLDOC_LANGUAGES)
    for match, path in files_in(source, rf"({languages})\.(train|dev|test)(?:(?<=train)\.1000)?"):
        rows = ((label, _without_quotes(text)) for label, text in fields(path, 2, most=1))
        name = f"documents/MLDoc.{_MLDOC_LANGUAGES[match[1]]}.{match[2]}"
        yield Table(name, ("label", "text"), rows)


def _without_quotes(text: str) -> str:
    """Under Python 3, MLDoc's scripts write texts as literals of bytes."""
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
        yield Table(name, ("label", "text"), aligned(labels, path))


def main(argv: list[str]) -> None:
    """Converts one format, or lists all of them."""
    del argv
    set_up_logging()
    if flags.FLAGS.list:
        for name, (files, read) in FORMATS.items():
            print(f"{name}: {(read.__doc__ or '').splitlines()[0]}\n    {files}")
        return
    with one_line_errors("the same command begins anew"):
        if not flags.FLAGS.format or not flags.FLAGS.input:
            raise UserError("--format and --input must be given; --list names the formats")
        output = Path(flags.FLAGS.output)
        for name, count in convert(flags.FLAGS.format, Path(flags.FLAGS.input), output).items():
            print(f"{output / name}.tsv.gz: {count} rows")


if __name__ == "__main__":
    # Not at the top: tests import this file beside other programs, which have flags of these names.
    flags.DEFINE_bool("list", False, "Name the formats, and the files expected of each.")
    flags.DEFINE_string("format", None, "What --input is.")
    flags.DEFINE_string("input", None, "The published file, or a folder that holds the files.")
    flags.DEFINE_string("output", "data/eval", "The evaluation folder.")
    app.run(main, flags_parser=parse_flags)
