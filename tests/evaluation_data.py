"""Writes a small data folder for every suite, in which a text's first word is its meaning."""

import random
from collections.abc import Iterable, Iterator, Sequence
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
    """Writes the files; `seed` changes the order of lines where no other table shares it."""
    shuffler = random.Random(seed)
    for name, header, rows in (*_labelled(), *_pairs(), *_questions()):
        lines = [*rows]
        if not name.startswith(_ALIGNED):
            shuffler.shuffle(lines)
        write_table(folder / f"{name}.tsv", header, *lines)


# Tables whose rows correspond to those of another one, and keep their order.
_ALIGNED = ("argument/", "sts/stsb.", "reqa/toy.en.sentences", "reqa/toy.en.paragraphs")
# The name, the header and the rows of a table.
Tables = Iterator[tuple[str, str, Iterable[Sequence[object]]]]


def _say(key: str, language: str, number: int) -> str:
    return f"{key} {language} {_FILLERS[number % len(_FILLERS)]} {number}"


def _labelled() -> Tables:
    def rows(labels: Sequence[object], words: Sequence[str], language: str, start: int, count: int):
        for number in range(start, start + count):
            place = number % len(labels)
            yield labels[place], _say(words[place], language, number)

    two, words = (0, 1), ("bad", "good")
    polarities, topics = ("negative", "neutral", "positive"), ("trade", "sport")
    yield "senteval/CR", "label text", rows(two, words, "en", 0, 40)
    for start, split, count in ((0, "train", 40), (100, "dev", 20), (200, "test", 20)):
        yield f"senteval/SST2.{split}", "label text", rows(two, words, "en", start, count)
        for code in LANGUAGES:
            for name, keys in (("sentiment", polarities), ("documents", topics)):
                yield (
                    f"{name}/toy.{code}.{split}",
                    "label text",
                    rows(keys, keys, code, start, count),
                )
    for code in LANGUAGES:
        labels = ("O", "claim", "premise")
        yield f"argument/AM.{code}", "label text", rows(labels, labels, code, 0, 60)


def _pairs() -> Tables:
    def pairs(count: int, language: str = "en", start: int = 0):
        """Pairs of which every second has one meaning."""
        for number in range(start, start + count):
            second = number if number % 2 else number + 500
            texts = (
                _say(f"key{key}", language, n)
                for key, n in ((number, number), (second, number + 1))
            )
            yield number % 2, *texts

    relations = ("neutral", "entailment")
    rows = [(1 + 4 * same, *texts) for same, *texts in pairs(30, start=2000)]
    yield "senteval/SICK.test", "relatedness sentence1 sentence2", rows
    for code in LANGUAGES:
        rows = [(*texts, 5.0 * same) for same, *texts in pairs(60, code)]
        yield f"sts/stsb.{code}.dev", "sentence1 sentence2 score", rows
        rows = [(n, relations[same], *texts) for n, (same, *texts) in enumerate(pairs(60, code))]
        yield f"nli/xnli.{code}.dev", "pair_id label premise hypothesis", rows
    for split, start in (("dev", 5000), ("test", 3000)):
        rows = [(relations[same], *texts) for same, *texts in pairs(60, start=start)]
        yield f"nli/snli.en.{split}", "label premise hypothesis", rows
    for name, count in (("sts2012.en.toy.test", 30), ("stsb.en.train", 60)):
        rows = [(*texts, 5.0 * same) for same, *texts in pairs(count, start=7000)]
        yield f"sts/{name}", "sentence1 sentence2 score", rows
    yield "paraphrase/quora.en.dev", "label question1 question2", pairs(60)
    rows = [[_say(f"key{n}", code, n) for code in LANGUAGES] for n in range(NUM_KEYS)]
    yield "bitext/toy.en-es", " ".join(LANGUAGES), rows
    keys = [(f"key{n}", f"key{n}", f"key{n + 1}") for n in range(NUM_KEYS)]
    rows = [[_say(key, "en", n) for n, key in enumerate(triplet)] for triplet in keys]
    yield "triplets/toy.en", "text right wrong", rows


def _questions() -> Tables:
    texts = [f"key{n} en answer {n}." for n in range(NUM_KEYS)]
    rows = [(f"s{n}", f"p{n // 3}", text) for n, text in enumerate(texts)]
    yield "reqa/toy.en.sentences", "sentence_id paragraph_id sentence", rows
    rows = [(f"p{n // 3}", " ".join(texts[n : n + 3])) for n in range(0, NUM_KEYS, 3)]
    yield "reqa/toy.en.paragraphs", "paragraph_id context", rows
    rows = [(f"q{n}", f"key{n} en question {n}?", f"s{n}") for n in range(NUM_KEYS)]
    yield "reqa/toy.en.questions", "question_id question answer_sentence_id", rows
