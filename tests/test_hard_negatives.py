import gzip

import pytest

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.readers import (
    mined_path,
    read_mined,
    with_negatives,
    write_mined,
)
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError

PAIRS = [
    TranslationPair("one", "uno", ("dos", "tres")),
    TranslationPair("two", "dos", ("tres",)),
    TranslationPair("two", "dos", ("uno",)),
]
ROWS = [pair[:2] for pair in PAIRS]


def write_corpus(folder, rows=ROWS, name="x.en-es"):
    (folder / "parallel").mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{source}\t{target}\n" for source, target in rows)
    (folder / f"parallel/{name}.tsv").write_text(lines, encoding="utf-8")
    return folder


# --- the file


def test_a_mined_file_is_read_as_it_was_written(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    assert list(read_mined(path)) == PAIRS
    with gzip.open(path, "rt", encoding="utf-8") as file:
        assert next(file) == "one\tuno\tdos\ttres\n"
    # A tab, which a Moses file may have, becomes a space.
    write_mined(path, [TranslationPair("\ta\tb", "c\t", ("d\te",))])
    (joined,) = with_negatives([TranslationPair("\ta\tb", "c\t")], path)
    assert joined == TranslationPair("\ta\tb", "c\t", ("d e",))
    path.write_bytes(gzip.compress(b"one\tuno\tdos\none\tuno\n"))
    with pytest.raises(UserError, match=r"x.en-es.tsv.gz must hold .* line 2 is 'one\\tuno'"):
        list(read_mined(path))


# --- the join


def test_pairs_get_their_negatives_and_the_others_none(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    # In the corpus' order, with pairs between that were not mined.
    bare = [pair._replace(negatives=()) for pair in PAIRS]
    other = TranslationPair("three", "tres")
    corpus = [other, bare[0], other, bare[1], bare[2], other]
    joined = list(with_negatives(corpus, path))
    assert joined == [other, PAIRS[0], other, PAIRS[1], PAIRS[2], other]


def test_a_file_of_another_corpus_is_an_error_that_says_what_to_do(tmp_path):
    path = mined_path(tmp_path, "x", "en-es")
    write_mined(path, PAIRS)
    message = r"'two' is not in the corpus, .*data/mine.py .* --source en --target es"
    with pytest.raises(UserError, match=message):
        list(with_negatives([TranslationPair("one", "uno")], path))


def test_a_folder_gives_negatives_where_they_are_asked_for(tmp_path):
    # The corpus is es-en; the mined file is named as the pair is used.
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel/x.es-en.tsv").write_text("uno\tone\ndos\ttwo\n", encoding="utf-8")
    write_mined(mined_path(tmp_path, "x", "en-es"), PAIRS[:1])
    (plain,) = load_folder(tmp_path, source="en", targets=["es"])
    pairs = [TranslationPair("one", "uno"), TranslationPair("two", "dos")]
    assert list(plain) == [(pair, None) for pair in pairs]
    (mined,) = load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    assert list(mined) == [(PAIRS[0], None), (pairs[1], None)]


def test_without_any_mined_file_the_command_is_named(tmp_path, caplog):
    write_corpus(tmp_path)
    message = rf"hard_negatives needs mined files .*data/mine.py .* --data {tmp_path}"
    with pytest.raises(UserError, match=message):
        load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    write_mined(mined_path(tmp_path, "x", "en-es"), PAIRS)
    # A corpus that has none beside one that has some is told.
    write_corpus(tmp_path, name="y.en-es")
    write_corpus(tmp_path, [pair[:2] for pair in PAIRS])
    with caplog.at_level("WARNING"):
        load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    assert ["y.en-es.tsv has no hard negatives" in line for line in caplog.messages] == [True]
    write_corpus(tmp_path, name="z.en-fr")
    with pytest.raises(UserError, match="none for en-fr"):
        load_folder(tmp_path, source="en", targets=["es", "fr"], with_mined=True)
