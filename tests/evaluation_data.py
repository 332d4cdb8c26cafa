"""Writes tables: a small data folder for every suite, in which a text's first word is its meaning."""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raw_files import write_files

LANGUAGES = ("en", "es")
NUM_KEYS = 60
# A word after the meaning, so that texts with the same meaning differ.
_FILLERS = ("old", "new", "blue", "quiet", "long")


def meaning(text: str) -> str:
    """The meaning of a text of this folder."""
    return text.split()[0] if text.split() else ""


def write_table(path: Path, header: str, *rows: Sequence[object]) -> Path:
    """Writes a table, compressed if its name ends in .gz; `header` separates columns by spaces."""
    lines = ("\t".join(map(str, row)) + "\n" for row in (header.split(), *rows))
    return write_files(path.parent, {path.name: "".join(lines)}) / path.name


def write_evaluation_data(folder: Path, *, seed: int = 0) -> None:
    """Writes the files; `seed` only changes the order of the lines."""
    shuffler = random.Random(seed)

    def table(name: str, header: str, rows: Iterable[Sequence[object]], *, aligned: bool = False) -> None:
        """Writes a table; rows that correspond to rows of other tables keep their order (`aligned`)."""
        lines = list(rows)
        if not aligned:
            shuffler.shuffle(lines)
        write_table(folder / f"{name}.tsv", header, *lines)

    _write_labelled(table)
    _write_pairs(table)
    rows = [[_say(f"key{n}", code, n) for code in LANGUAGES] for n in range(NUM_KEYS)]
    table("bitext/toy.en-es", " ".join(LANGUAGES), rows)
    _write_questions(table)


def _say(key: str, language: str, number: int) -> str:
    return f"{key} {language} {_FILLERS[number % len(_FILLERS)]} {number}"


def _labelled(labels: Sequence[object], words: Sequence[str], language: str, start: int, count: int):
    for number in range(start, start + count):
        place = number % len(labels)
        yield labels[place], _say(words[place], language, number)


def _write_labelled(table: Callable[..., None]) -> None:
    two, words = (0, 1), ("bad", "good")
    polarities = ("negative", "neutral", "positive")
    topics = ("trade", "sport")
    table("senteval/CR", "label text", _labelled(two, words, "en", 0, 40))
    for start, split, count in ((0, "train", 40), (100, "dev", 20), (200, "test", 20)):
        sets = [("senteval/SST2", two, words, "en")]
        for code in LANGUAGES:
            sets.append((f"sentiment/toy.{code}", polarities, polarities, code))
            sets.append((f"documents/toy.{code}", topics, topics, code))
        for name, labels, keys, code in sets:
            rows = _labelled(labels, keys, code, start, count)
            table(f"{name}.{split}", "label text", rows)
    for code in LANGUAGES:
        labels = ("O", "claim", "premise")
        rows = _labelled(labels, labels, code, 0, 60)
        table(f"argument/AM.{code}", "label text", rows, aligned=True)


def _pairs(count: int, language: str = "en", other: str | None = None, start: int = 0):
    """Pairs of which every second has one meaning."""
    for number in range(start, start + count):
        second = number if number % 2 else number + 500
        yield (
            number % 2,
            _say(f"key{number}", language, number),
            _say(f"key{second}", other or language, number + 1),
        )


def _write_pairs(table: Callable[..., None]) -> None:
    relations = ("neutral", "entailment")
    rows = [(1 + 4 * same, *texts) for same, *texts in _pairs(30, start=2000)]
    table("senteval/SICK.test", "relatedness sentence1 sentence2", rows)
    for language in LANGUAGES:
        pairs = list(_pairs(60, language))
        rows = [(*texts, 5.0 * same) for same, *texts in pairs]
        table(f"sts/stsb.{language}.dev", "sentence1 sentence2 score", rows, aligned=True)
        nli = [(n, relations[same], *texts) for n, (same, *texts) in enumerate(pairs)]
        header = "pair_id label premise hypothesis"
        table(f"nli/xnli.{language}.dev", header, nli)
    for split, start in (("dev", 5000), ("test", 3000)):
        rows = [(relations[same], *texts) for same, *texts in _pairs(60, start=start)]
        table(f"nli/snli.en.{split}", "label premise hypothesis", rows)
    for name, count in (("sts2012.en.toy.test", 30), ("stsb.en.train", 60)):
        rows = [(*texts, 5.0 * same) for same, *texts in _pairs(count, start=7000)]
        table(f"sts/{name}", "sentence1 sentence2 score", rows)
    header = "label question1 question2"
    table("paraphrase/quora.en.dev", header, list(_pairs(60)))


def _write_questions(table: Callable[..., None]) -> None:
    texts = [f"key{n} en answer {n}." for n in range(NUM_KEYS)]
    sentences = [(f"s{n}", f"p{n // 3}", text) for n, text in enumerate(texts)]
    header = "sentence_id paragraph_id sentence"
    table("reqa/toy.en.sentences", header, sentences, aligned=True)
    paragraphs = [(f"p{n // 3}", " ".join(texts[n : n + 3])) for n in range(0, NUM_KEYS, 3)]
    table("reqa/toy.en.paragraphs", "paragraph_id context", paragraphs, aligned=True)
    questions = [(f"q{n}", f"key{n} en question {n}?", f"s{n}") for n in range(NUM_KEYS)]
    table("reqa/toy.en.questions", "question_id question answer_sentence_id", questions)
