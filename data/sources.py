"""Reads the copies of published data from which our collection is made.

Each reader takes the folder that a set's files were fetched to, and yields the tables of
published.toml. Texts are in Unicode's form NFC, with one space between words and without characters
that cannot be seen.
"""

import csv
import io
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from convert import Reader, Table, beside, fields, files_in

from xling_tf.compressed import decompressed
from xling_tf.corpora.line_files import json_object
from xling_tf.errors import UserError, as_user_error

READERS: dict[str, Reader] = {}
_TEXT = ("label", "text")
_NLI = ("label", "premise", "hypothesis")
_WITH_GENRE = ("pair_id", *_NLI, "genre")
_SCORED = ("sentence1", "sentence2", "score")
_LABELS = {"0": "entailment", "1": "neutral", "2": "contradiction"}
_SAME = {label: label for label in _LABELS.values()}  # of sets that spell their labels as we do
_JOINERS = "\u200c\u200d\u2060"  # invisible, but words and emoji change without them
_SENTIMENT = {"0": "negative", "1": "neutral", "2": "positive"}


def _source(read: Reader) -> Reader:
    READERS[read.__name__] = read
    return read


def clean(text: str) -> str:
    r"""Returns a text without invisible characters, and with single spaces.

    Examples:
        >>> clean(" Cafe\u0301\u200b \t au  lait ")
        'Café au lait'
    """
    spaced = "".join(
        " " if unicodedata.category(letter) == "Cc" else letter
        for letter in unicodedata.normalize("NFC", text)
        if unicodedata.category(letter) != "Cf" or letter in _JOINERS
    )
    return " ".join(spaced.split())


def _lines(path: Path) -> Iterator[str]:
    """Yields the lines of a file that is UTF-8 or, as some old sets are, Latin-1."""
    content = b"".join(decompressed(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    yield from (line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))


def _cells(
    path: Path, columns: Sequence[int], labels: Mapping[str, str] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yields some cells of each line.

    With labels, the first cell is translated by them. Lines with another first cell are left out,
    such as the names of the columns and pairs without a label.
    """
    for row in fields(path, max(columns) + 1, read=lambda path: enumerate(_lines(path), 1)):
        first, *others = (clean(row[column]) for column in columns)
        if labels is None:
            yield first, *others
        elif first in labels:
            yield labels[first], *others


def _side_by_side(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    for lines in zip(_lines(first), _lines(second), strict=True):
        pair = clean(lines[0]), clean(lines[1])
        if all(pair):
            yield pair


@_source
def stsb_multi_mt(folder: Path) -> Iterator[Table]:
    """The STS Benchmark and machine translations of it: two sentences and the score in CSV."""
    for match, path in files_in(folder, r"stsb-(\w+)-(train|dev|test)\.csv"):
        text = io.StringIO(b"".join(decompressed(path)).decode("utf-8-sig"), newline="")
        rows = [tuple(map(clean, row)) for row in csv.reader(text)]
        yield Table(f"eval/sts/stsb.{match[1]}.{match[2]}", _SCORED, rows)


_SENTENCES = {
    **{"custrev.all": "CR", "mpqa.all": "MPQA", "rt-polarity.all": "MR", "subj.all": "SUBJ"},
    **{f"stsa.binary.{split}": f"SST2.{split}" for split in ("train", "dev", "test")},
    **{f"stsa.fine.{split}": f"SST5.{split}" for split in ("train", "dev", "test")},
    **{f"TREC.{split}.all": f"TREC.{split}" for split in ("train", "test")},
}


@_source
def sent_conv(folder: Path) -> Iterator[Table]:
    """SentEval's sentences, tokenized and in lower case: a label, a space and the text."""
    for match, path in files_in(folder, r"[\w-]+(?:\.\w+)+"):
        if (name := _SENTENCES.get(match[0])) is None:
            continue
        split = (line.partition(" ") for line in _lines(path))
        rows = [(label, clean(text)) for label, _, text in split if clean(text)]
        if name == "SUBJ":  # facts are plots of films; our table has them first
            names = {"0": "subjective", "1": "objective"}
            rows = [(names[label], text) for label, text in rows]
            rows.sort(key=lambda row: row[0])
        yield Table(f"eval/senteval/{name}", _TEXT, rows)


_SPLITS = {"train": "train", "val": "dev", "test": "test", "trial": "dev", "test_annotated": "test"}


@_source
def dataset_sts(folder: Path) -> Iterator[Table]:
    """SemEval's STS tasks of 2012 to 2016 (score, two sentences), MRPC and SICK."""
    for match, path in files_in(folder, r"([\w-]+)\.(train|test)\.tsv"):
        scored = (row for row in _cells(path, (0, 1, 2)) if row[0])
        rows: Iterator[tuple[str, ...]] = (
            (first, second, score) for score, first, second in scored
        )
        yield Table(f"eval/sts/sts{path.parent.name}.en.{match[1]}.{match[2]}", _SCORED, rows)
    for match, path in files_in(folder, r"msr-para-(train|val|test)\.tsv"):
        rows = _cells(path, (0, 3, 4), {"0": "0", "1": "1"})
        columns: tuple[str, ...] = ("label", "sentence1", "sentence2")
        yield Table(f"eval/senteval/MRPC.{_SPLITS[match[1]]}", columns, rows)
    for match, path in files_in(folder, r"SICK_(train|trial|test_annotated)\.txt"):
        labels = {name.upper(): name for name in _LABELS.values()}
        judged = _cells(path, (4, 3, 1, 2), labels)
        rows = ((score, label, *pair) for label, score, *pair in judged)
        columns = ("relatedness", "entailment", "sentence1", "sentence2")
        yield Table(f"eval/senteval/SICK.{_SPLITS[match[1]]}", columns, rows)


@_source
def multi30k(folder: Path) -> Iterator[Table]:
    """Captions of images in English, German and French, a file each."""
    for match, path in files_in(folder, r"((?:test_\d+_\w+|val))\.(de|fr)"):
        english = beside(path, f"{match[1]}.en")
        name = f"eval/bitext/multi30k.{match[1]}.en-{match[2]}"
        yield Table(name, ("en", match[2]), _side_by_side(english, path))


@_source
def wmt22(folder: Path) -> Iterator[Table]:
    """WMT's news test set of 2022: sources, and the translations called reference A."""
    for match, path in files_in(folder, r"generaltest2022\.((\w+)-(\w+))\.ref\.A\.\w+"):
        pair, first, second = match.groups()
        source = folder / "txt" / "sources" / f"generaltest2022.{pair}.src.{first}"
        yield Table(f"eval/bitext/wmt22.{pair}", (first, second), _side_by_side(source, path))


@_source
def becel(folder: Path) -> Iterator[Table]:
    """SNLI's pairs for development and test: premise, hypothesis and the label's number."""
    for match, path in files_in(folder, r"(validation|test)\.tsv"):
        split = "dev" if match[1] == "validation" else "test"
        yield Table(f"eval/nli/snli.en.{split}", _NLI, _cells(path, (2, 0, 1), _LABELS))


@_source
def xnli_copies(folder: Path) -> Iterator[Table]:
    """XNLI's pairs for development: English and Spanish in three parts, Chinese, and German.

    The English parts have the pairs' numbers, whose order is that of the Chinese file. The German
    file contains pairs of the test set, which are left out.
    """
    numbers: list[int] = []
    for language in ("en", "es"):
        rows = [
            (int(number.partition("_")[0]), label, premise, hypothesis, genre)
            for _, path in files_in(folder, r"xnli_dev_\w+\.tsv")
            for label, code, premise, hypothesis, number, genre in _cells(
                path, (1, 0, 2, 3, 5, 6), _SAME
            )
            if code == language
        ]
        rows.sort()
        numbers = [row[0] for row in rows]
        table = [(str(number), *cells) for number, *cells in rows]
        yield Table(f"eval/nli/xnli.{language}.dev", _WITH_GENRE, table)
    for _, path in files_in(folder / "zhang45258", r"dev\.tsv"):
        pairs = zip(numbers, _cells(path, (2, 0, 1), _SAME), strict=True)
        numbered = [(str(number), *cells) for number, cells in pairs]
        yield Table("eval/nli/xnli.zh.dev", _WITH_GENRE[:-1], numbered)
    german = {m[1]: list(_cells(p, (2, 0, 1), _SAME)) for m, p in files_in(folder, r"(\w+)\.txt")}
    if german:
        tested = {row[1:] for row in german["test"]}
        mixed = (row for split in ("train", "dev") for row in german[split])
        yield Table("eval/nli/xnli.de.dev", _NLI, (row for row in mixed if row[1:] not in tested))


@_source
def esxnli(folder: Path) -> Iterator[Table]:
    """Inference pairs written in Spanish and translated by people, in XNLI's layout."""
    for _, path in files_in(folder, r"esxnli\.tsv"):
        rows = list(_cells(path, (1, 0, 9, 6, 7, 10), _SAME))
        for language in ("en", "es"):
            table = (
                (number, label, *cells) for label, code, number, *cells in rows if code == language
            )
            yield Table(f"eval/nli/esxnli.{language}", _WITH_GENRE, table)


@_source
def rte3(folder: Path) -> Iterator[Table]:
    """The third RTE challenge: French with three labels in TSV, English with two in XML."""
    columns = ("pair_id", *_NLI)
    for match, path in files_in(folder, r"RTE3-FR-(dev|test)-\w+-3class\.tsv"):
        cells = _cells(path, (5, 0, 2, 3), _SAME)
        rows = ((number, label, *pair) for label, number, *pair in cells)
        yield Table(f"eval/nli/rte3.fr.{match[1]}", columns, rows)
    for match, path in files_in(folder, r"rte3_(dev|test)\.xml"):
        with as_user_error(f"{path} must be XML, but: {{error}}", ElementTree.ParseError):
            pairs = list(ElementTree.fromstring(b"".join(decompressed(path))).iter("pair"))
        labels = {"YES": "entailment", "NO": "not_entailment"}
        table = [
            (
                pair.get("id", ""),
                labels[pair.get("entailment", "")],
                *(clean(pair.findtext(side) or "") for side in ("t", "h")),
            )
            for pair in pairs
        ]
        yield Table(f"eval/nli/rte3.en.{match[1]}", columns, table)


@_source
def ocnli(folder: Path) -> Iterator[Table]:
    """Chinese inference pairs in JSON lines; those without a label are left out."""
    for _, path in files_in(folder, r"dev\.json"):
        objects = (json_object(line) for line in _lines(path))
        rows = (
            (row["label"], clean(row["sentence1"]), clean(row["sentence2"]))
            for row in objects
            if row["label"] in _LABELS.values()
        )
        yield Table("eval/nli/ocnli.zh.dev", _NLI, rows)


@_source
def counterfactual(folder: Path) -> Iterator[Table]:
    """SNLI's pairs and people's edits of them: premise, hypothesis, label."""
    for match, path in files_in(folder, r"(dev|test)\.tsv"):
        name = f"eval/nli/snli_counterfactual.en.{match[1]}"
        yield Table(name, _NLI, _cells(path, (2, 0, 1), _SAME))


_DUPLICATES = {"false": "0", "true": "1", "0": "0", "1": "1"}


@_source
def quora_lines(folder: Path) -> Iterator[Table]:
    """Quora's question pairs, tokenized: a file each of labels, first and second questions."""
    for match, path in files_in(folder, r"labels\.(dev)"):
        sides = [map(clean, _lines(beside(path, f"{name}.{match[1]}"))) for name in ("s1", "s2")]
        labels = (_DUPLICATES[clean(line)] for line in _lines(path))
        rows = zip(labels, *sides, strict=True)
        columns = ("label", "question1", "question2")
        yield Table(f"eval/paraphrase/quora.en.{match[1]}", columns, rows)


@_source
def paws_x(folder: Path) -> Iterator[Table]:
    """PAWS-X in German: number, two sentences and the label."""
    for match, path in files_in(folder, r"(dev|test)\.tsv"):
        rows = _cells(path, (3, 1, 2), {"0": "0", "1": "1"})
        columns = ("label", "sentence1", "sentence2")
        yield Table(f"eval/paraphrase/pawsx.de.{match[1]}", columns, rows)


_TWEETS = {"english": "en", "german": "de", "french": "fr", "spanish": "es"}


@_source
def umsab(folder: Path) -> Iterator[Table]:
    """Tweets with three classes of sentiment: a file of texts and one of labels."""
    for match, path in files_in(folder, r"(train|val|test)_text\.txt"):
        labels = (
            _SENTIMENT[clean(line)] for line in _lines(beside(path, f"{match[1]}_labels.txt"))
        )
        texts = map(clean, _lines(path))
        name = f"eval/sentiment/umsab_tweets.{_TWEETS[path.parent.name]}.{_SPLITS[match[1]]}"
        yield Table(name, _TEXT, zip(labels, texts, strict=True))


@_source
def chnsenticorp(folder: Path) -> Iterator[Table]:
    """Chinese reviews; the first line says which column is the text and which the label."""
    for match, path in files_in(folder, r"(train|dev|test)\.tsv"):
        names = next(_lines(path)).split("\t")
        if not {"label", "text_a"} <= set(names):
            raise UserError(
                f"{path} must name the columns label and text_a in its first line, but names "
                f"{', '.join(names)}; give the file as published"
            )
        columns = names.index("label"), names.index("text_a")
        yield Table(
            f"eval/sentiment/chnsenticorp.zh.{match[1]}",
            _TEXT,
            _cells(path, columns, {"0": "0", "1": "1"}),
        )


@_source
def nqg(folder: Path) -> Iterator[Table]:
    """SQuAD's questions and the sentences that answer them, line by line, in lower case."""
    for _, path in files_in(folder, r"src-dev\.txt"):
        answers = [clean(line) for line in _lines(path)]
        keys = {answer: f"s{number}" for number, answer in enumerate(dict.fromkeys(answers))}
        sentences = [(key, answer) for answer, key in keys.items()]
        yield Table("eval/reqa/squad11_dev.en.sentences", ("sentence_id", "sentence"), sentences)
        questions = map(clean, _lines(beside(path, "tgt-dev.txt")))
        rows = zip(questions, (keys[answer] for answer in answers), strict=True)
        yield Table("eval/reqa/squad11_dev.en.questions", ("question", "answer_sentence_id"), rows)


@_source
def muse(folder: Path) -> Iterator[Table]:
    """Dictionaries of MUSE: a word and its translation, between spaces."""
    for match, path in files_in(folder, r"(zh-en(?:\.\d+-\d+)?)\.txt"):
        rows = (tuple(clean(line).split(" ")) for line in _lines(path))
        yield Table(
            f"dictionaries/muse.{match[1]}", (), dict.fromkeys(r for r in rows if len(r) == 2)
        )


@_source
def as_lines(folder: Path) -> Iterator[Table]:
    """Texts that are taken as they are: Text+Berg's development part, with its alignment."""
    for match, path in files_in(folder, r"dev\.(?:de|fr|defr)"):
        yield Table(f"alignment/{match[0]}", (), ((line,) for line in _lines(path)))


@_source
def word_vectors(folder: Path) -> Iterator[Table]:
    """Vectors of two pairs of languages (Zhang et al. 2017), in a folder for each pair."""
    for match, path in files_in(folder, r"word2vec\.([a-z]{2})"):
        name = f"vectors/ubilexat_wikipedia50d.{path.parent.name}.{match[1]}.vec"
        yield Table(name, (), ((line,) for line in _lines(path)))


@_source
def newstest2012(folder: Path) -> Iterator[Table]:
    """WMT's news test of 2012, a file for each language, among others of the same archive."""
    paths = {match[1]: path for match, path in files_in(folder, r"newstest2012\.([a-z]{2})")}
    rows = zip(*(map(clean, _lines(path)) for path in paths.values()), strict=True)
    yield Table("eval/similarity_search/newstest2012", [*paths], rows)
