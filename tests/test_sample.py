"""The sample: what short trainings and many tests rely on."""

import csv
import unicodedata
from collections import Counter

from xling_tf.corpora.records import NLI_LABELS
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.corpora.split import held_out

LANGUAGES = ("en", "es", "fr", "de", "zh")
FILES = {
    **{f"parallel/everyday.en-{language}.tsv": (320, 2) for language in LANGUAGES[1:]},
    **{f"conversations/small_talk.{language}.tsv": (80, 2) for language in LANGUAGES},
    "nli/everyday.en.train.tsv": (120, 3),
    "nli/everyday.en.dev.tsv": (30, 3),
    "questions/small_town.en.tsv": (48, 3),
    "questions/small_town.es.tsv": (48, 3),
}
STORIES = [f"documents/short_stories.{language}.txt" for language in LANGUAGES]


def rows(name):
    with (SAMPLE_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_text_is_clean_nfc_utf8_and_tables_hold_distinct_rows():
    for name in (*FILES, *STORIES):
        text = (SAMPLE_FOLDER / name).read_bytes().decode("utf-8")
        assert unicodedata.is_normalized("NFC", text), name
        assert not {"\r", "\ufeff"} & {*text}, name
        fields = [field for line in text.split("\n") for field in line.split("\t")]
        assert all(field == field.strip() for field in fields), name
    for name, (num_rows, num_columns) in FILES.items():
        table = rows(name)
        assert len({*map(tuple, table)}) == len(table) == num_rows, name
        assert all(len(row) == num_columns and all(row) for row in table), name


def test_documents_are_twelve_stories_of_distinct_sentences():
    lengths = []
    for name in STORIES:
        text = (SAMPLE_FOLDER / name).read_text("utf-8")
        stories = [document.splitlines() for document in text.split("\n\n")]
        sentences = [sentence for story in stories for sentence in story]
        assert len(set(sentences)) == len(sentences)
        lengths.append([len(story) for story in stories])
    assert all(each == lengths[0] for each in lengths)
    assert len(lengths[0]) == 12


def test_inference_is_balanced_and_its_parts_share_no_premise():
    train, dev = (rows(f"nli/everyday.en.{split}.tsv") for split in ("train", "dev"))
    for part in (train, dev):
        labels = Counter(row[0] for row in part)
        assert labels == dict.fromkeys(NLI_LABELS, len(part) // 3)
    assert {row[1] for row in train}.isdisjoint(row[1] for row in dev)


def test_questions_are_answered_in_their_paragraphs():
    for language in ("en", "es"):
        triples = rows(f"questions/small_town.{language}.tsv")
        assert all(answer in context for _, answer, context in triples)
        # Three questions to each of 16 paragraphs, which have no sentence in common.
        assert set(Counter(context for _, _, context in triples).values()) == {3}
        assert len({answer for _, answer, _ in triples}) == 48
        # Enough of either part to rank an answer among others.
        assert 3 <= sum(held_out(context) for _, _, context in triples) <= 9
