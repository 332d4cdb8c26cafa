import csv
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.split import held_out

LANGUAGES = ("en", "es", "fr", "de", "zh")
TARGETS = LANGUAGES[1:]
FILES = sorted(
    path.relative_to(SAMPLE_FOLDER).as_posix()
    for path in SAMPLE_FOLDER.glob("*/*")
    if path.suffix in {".tsv", ".txt"}
)


def rows(name: str) -> list[list[str]]:
    with (SAMPLE_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def documents(language: str) -> list[list[str]]:
    text = Path(SAMPLE_FOLDER, "documents", f"short_stories.{language}.txt").read_text("utf-8")
    return [document.splitlines() for document in text.split("\n\n")]


def has_chinese(text: str) -> bool:
    return re.search(r"[\u4e00-\u9fff]", text) is not None


def test_the_folder_holds_exactly_the_expected_files() -> None:
    expected = [f"parallel/everyday.en-{language}.tsv" for language in TARGETS]
    expected += [f"conversations/small_talk.{language}.tsv" for language in LANGUAGES]
    expected += [f"documents/short_stories.{language}.txt" for language in LANGUAGES]
    expected += ["nli/everyday.en.train.tsv", "nli/everyday.en.dev.tsv"]
    expected += [f"questions/small_town.{language}.tsv" for language in ("en", "es")]
    assert sorted(expected) == FILES


@pytest.mark.parametrize("name", FILES)
def test_text_is_clean_nfc_utf8(name: str) -> None:
    data = (SAMPLE_FOLDER / name).read_bytes()
    text = data.decode("utf-8")
    assert unicodedata.is_normalized("NFC", text)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert "\r" not in text
    assert "\ufeff" not in text
    fields = [field for line in text.split("\n") for field in line.split("\t")]
    assert all(field == field.strip() for field in fields)


@pytest.mark.parametrize("language", TARGETS)
def test_parallel_files_hold_320_distinct_pairs(language: str) -> None:
    pairs = rows(f"parallel/everyday.en-{language}.tsv")
    assert len(pairs) == 320
    assert all(len(pair) == 2 and all(pair) for pair in pairs)
    sources, targets = zip(*pairs, strict=True)
    assert len({source.casefold() for source in sources}) == 320
    assert len({target.casefold() for target in targets}) == 320
    assert all(3 <= len(source.split()) <= 14 for source in sources)


def test_parallel_files_share_the_english_side() -> None:
    sides = [[row[0] for row in rows(f"parallel/everyday.en-{lang}.tsv")] for lang in TARGETS]
    assert all(side == sides[0] for side in sides)


@pytest.mark.parametrize("language", TARGETS)
def test_questions_stay_questions(language: str) -> None:
    for source, target in rows(f"parallel/everyday.en-{language}.tsv"):
        assert source.endswith("?") == target.endswith(("?", "？")), (source, target)


@pytest.mark.parametrize("language", LANGUAGES)
def test_conversations_hold_80_distinct_pairs(language: str) -> None:
    pairs = rows(f"conversations/small_talk.{language}.tsv")
    assert len(pairs) == 80
    assert all(len(pair) == 2 and all(pair) for pair in pairs)
    messages, replies = zip(*pairs, strict=True)
    assert len(set(messages)) == 80
    assert len(set(replies)) == 80


@pytest.mark.parametrize("language", LANGUAGES)
def test_documents_are_twelve_stories_of_distinct_sentences(language: str) -> None:
    stories = documents(language)
    assert len(stories) == 12
    assert all(6 <= len(story) <= 8 for story in stories)
    assert [len(story) for story in stories] == [len(story) for story in documents("en")]
    sentences = [sentence for story in stories for sentence in story]
    assert all(sentences)
    assert len(set(sentences)) == len(sentences)


@pytest.mark.parametrize("name", FILES)
def test_only_chinese_sides_are_in_chinese_characters(name: str) -> None:
    lines = (SAMPLE_FOLDER / name).read_text("utf-8").splitlines()
    for fields in (line.split("\t") for line in lines if line):
        expected = [".zh." in name] * len(fields)
        if "en-zh" in name:
            expected = [False, True]
        assert [has_chinese(field) for field in fields] == expected


@pytest.mark.parametrize("language", LANGUAGES)
def test_sentences_end_in_their_language_s_punctuation(language: str) -> None:
    endings = ("。", "？", "！") if language == "zh" else (".", "?", "!")
    sentences = [sentence for story in documents(language) for sentence in story]
    sentences += [text for row in rows(f"conversations/small_talk.{language}.tsv") for text in row]
    if language != "en":
        sentences += [row[1] for row in rows(f"parallel/everyday.en-{language}.tsv")]
    assert all(sentence.endswith(endings) for sentence in sentences)


@pytest.mark.parametrize(("split", "count"), [("train", 120), ("dev", 30)])
def test_nli_labels_are_balanced(split: str, count: int) -> None:
    triples = rows(f"nli/everyday.en.{split}.tsv")
    assert len(triples) == count
    assert all(len(triple) == 3 and all(triple) for triple in triples)
    assert Counter(triple[0] for triple in triples) == dict.fromkeys(NLI_LABELS, count // 3)
    assert len({(premise, hypothesis) for _, premise, hypothesis in triples}) == count


def test_nli_splits_share_no_premise() -> None:
    train, dev = ({row[1] for row in rows(f"nli/everyday.en.{s}.tsv")} for s in ("train", "dev"))
    assert train.isdisjoint(dev)


@pytest.mark.parametrize("language", ["en", "es"])
def test_questions_are_answered_in_their_paragraphs(language: str) -> None:
    triples = rows(f"questions/small_town.{language}.tsv")
    assert len({question for question, _, _ in triples}) == len(triples) == 48
    for question, answer, context in triples:
        assert question.endswith("?")
        assert answer in context
    # Three questions to each of 16 paragraphs, which have no sentence in common.
    assert set(Counter(context for _, _, context in triples).values()) == {3}
    assert len({answer for _, answer, _ in triples}) == 48
    # Enough of either part to rank an answer among others.
    held = sum(held_out(context) for _, _, context in triples)
    assert 3 <= held <= 9
