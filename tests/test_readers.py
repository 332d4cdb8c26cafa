from pathlib import Path

import pytest
from raw_files import write_files

from xling_tf.corpora.readers import read_documents, read_moses, read_nli, read_parallel
from xling_tf.corpora.records import InferencePair, SentenceTriplet, TranslationPair
from xling_tf.errors import UserError


def read(reading):
    """Goes through a reading, which is an error where it has no record."""
    rows = list(reading)
    if not rows:
        raise reading.nothing_usable()
    return [record for record, _ in rows]


def write(path: Path, content: str | bytes) -> Path:
    return write_files(path.parent, {path.name: content}) / path.name


def test_text_is_stripped_nfc_and_without_bom(tmp_path):
    # "e" and a combining acute become one character; CRLF and outer spaces go.
    path = write(tmp_path / "x.tsv", b"\xef\xbb\xbf Cafe\xcc\x81 \t uno\r\na\xe2\x80\xa8b\tz")
    pairs = [TranslationPair("Caf\u00e9", "uno"), TranslationPair("a\u2028b", "z")]
    assert read(read_parallel(path)) == pairs


def test_malformed_lines_are_counted_with_their_first_numbers(tmp_path):
    lines = [b"a\tb", b"only one", b"a\t ", b"\xff\tb", b"a\tb\tc", b"", b"q\tr"]
    lines += [b"one"] * 4
    report = read_parallel(write(tmp_path / "x.tsv", b"\n".join(lines)))
    assert len(read(report)) == report.num_records == 2
    # Lines 2, 5, 6 and the last four (8 to 11) have another number of columns: 7 in all.
    assert report.malformed == {"not 2 columns": 7, "empty column": 1, "not UTF-8": 1}
    assert report.first_lines["not 2 columns"] == (2, 5, 6, 8, 9)
    assert "7 not 2 columns (first lines: 2, 5, 6, 8, 9); 1 empty" in report.summary()


def test_another_encoding_is_named_as_the_cause(tmp_path):
    for encoding in ("utf-16", "latin-1"):
        path = write(tmp_path / "x.tsv", "añado\tmañana\nseñor\taño\n".encode(encoding))
        with pytest.raises(UserError, match=r"not UTF-8.*iconv -f .* -t UTF-8"):
            read(read_parallel(path))


def test_nli_labels_are_indices(tmp_path):
    labels = ("contradiction", "entailment", "neutral", "maybe", "not_entailment")
    reading = read_nli(write(tmp_path / "x.tsv", "".join(f"{label}\tp\th\n" for label in labels)))
    assert read(reading) == [InferencePair("p", "h", label) for label in (2, 0, 1)]
    assert reading.malformed == {"unknown label": 1, "two-way label not_entailment": 1}


def test_documents_give_their_contiguous_triplets(tmp_path):
    # Documents of 4, 2 and 3 sentences have 2, 0 and 1 triplets.
    # None of the fourth spans the line that is not UTF-8.
    path = write(tmp_path / "x.txt", b"a\nb\nc\nd\n\ne\nf\n\n\ng\nh\ni\n\nj\nk\n\xff\nl\nm\n")
    reading = read_documents(path)
    assert read(reading) == [
        SentenceTriplet("a", "b", "c"),
        SentenceTriplet("b", "c", "d"),
        SentenceTriplet("g", "h", "i"),
    ]
    first, second, third = (key for _, key in read_documents(path))
    assert first == second != third
    assert reading.malformed == {"not UTF-8": 1}


def test_moses(tmp_path):
    source = write(tmp_path / "x.en-es.en", b"one\n\ntwo\n\xff\nfive")
    target = write(tmp_path / "x.en-es.es.gz", "uno\nvacío\ndos\ncuatro\ncinco\n")
    reading = read_moses(source, target)
    assert read(reading) == [
        TranslationPair("one", "uno"),
        TranslationPair("two", "dos"),
        TranslationPair("five", "cinco"),
    ]
    assert reading.first_lines == {"empty side": (2,), "not UTF-8": (4,)}

    for lines in (2, 3):
        source = write(tmp_path / "x.en", "a\n" * lines)
        target = write(tmp_path / "x.es", "b\n" * (5 - lines))
        with pytest.raises(UserError, match=f"x.en has {lines} lines and .*x.es has {5 - lines}"):
            read(read_moses(source, target))
