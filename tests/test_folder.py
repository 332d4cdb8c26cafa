import gzip
import os
from pathlib import Path

import pytest
from absl import logging

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.records import (
    InferencePair,
    ResponsePair,
    SentenceTriplet,
    TranslationPair,
)
from xling_tf.errors import UserError


def fill(folder: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return folder


def records(corpus):
    return [record for record, _ in corpus]


@pytest.fixture
def warnings(monkeypatch):
    caught = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: caught.append(text % args))
    return caught


PAIR = {"parallel/chat.en-es.tsv": "Hello\tHola\n"}


def test_every_kind_of_the_pair_is_read(tmp_path, warnings):
    fill(
        tmp_path,
        {
            "parallel/v1.2.en-es.tsv.gz": "Hello\tHola\n",
            "parallel/other.en-fr.tsv": "Hello\tBonjour\n",
            "documents/d.en.txt": "a\nb\nc\n",
            "documents/d.es.txt": "d\ne\nf\n",
            "documents/d.fr.txt": "g\nh\ni\n",
            "conversations/c.es.tsv": "m\tr\n",
            "nli/n.en.train.tsv": "neutral\tp\th\n",
            "nli/n.es.train.tsv": "neutral\tp\th\n",
            "nli/n.en.dev.tsv.gz": "entailment\tp\th\n",
            "README.md": "notes",
            "parallel/README.md": "notes",
            "parallel/.hidden.tsv": "no",
        },
    )
    corpora = load_folder(tmp_path, source="en", targets=["es"])
    found = [(c.kind, c.name, c.languages, c.split, records(c)) for c in corpora]
    assert found == [
        ("parallel", "v1.2", "en-es", "", [TranslationPair("Hello", "Hola")]),
        ("documents", "d", "en", "", [SentenceTriplet("a", "b", "c")]),
        ("documents", "d", "es", "", [SentenceTriplet("d", "e", "f")]),
        ("conversations", "c", "es", "", [ResponsePair("m", "r")]),
        ("nli", "n", "en", "dev", [InferencePair("p", "h", 0)]),
        ("nli", "n", "en", "train", [InferencePair("p", "h", 1)]),
    ]
    has_groups = [[group is not None for _, group in c] for c in corpora]
    assert has_groups == [[False], [True], [True], [False], [False], [False]]
    assert warnings == []


def test_the_reverse_direction_is_turned(tmp_path):
    fill(tmp_path, {"parallel/a.es-en.tsv": "Hola\tHello\n"})
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    assert records(corpus) == [TranslationPair("Hello", "Hola")]
    assert corpus.languages == "en-es"


def test_moses_pairs_in_both_directions(tmp_path):
    fill(
        tmp_path,
        {
            "parallel/a.en-es.en": "Hello\n",
            "parallel/a.en-es.es.gz": "Hola\n",
            "parallel/b.es-en.es": "Uno\n",
            "parallel/b.es-en.en": "One\n",
        },
    )
    first, second = load_folder(tmp_path, source="en", targets=["es"])
    assert records(first) == [TranslationPair("Hello", "Hola")]
    assert records(second) == [TranslationPair("One", "Uno")]


@pytest.mark.parametrize("side", ["en", "es"])
def test_half_a_moses_pair(tmp_path, side):
    fill(tmp_path, {**PAIR, f"parallel/a.en-es.{side}": "x\n"})
    missing = {"en": "es", "es": "en"}[side]
    with pytest.raises(UserError, match=rf"a\.en-es\.{missing}\[\.gz\], but that file is missing"):
        load_folder(tmp_path, source="en", targets=["es"])


@pytest.mark.parametrize("place", [".", "nli", "snli_1.0"])
def test_snli_is_found_in_its_places(tmp_path, place, warnings):
    row = '{"gold_label": "neutral", "sentence1": "p", "sentence2": "h"}\n'
    fill(tmp_path, {**PAIR, f"{place}/snli_1.0_dev.jsonl": row})
    _, corpus = load_folder(tmp_path, source="en", targets=["es"])
    assert (corpus.kind, corpus.name, corpus.split) == ("nli", "snli_1.0", "dev")
    assert records(corpus) == [InferencePair("p", "h", 1)]
    assert len(load_folder(tmp_path, source="es", targets=["en"])) == 1
    assert warnings == []


def test_missing_folder_and_file_for_folder(tmp_path):
    with pytest.raises(UserError, match=r"is missing; make it with parallel/NAME\.en-es\.tsv"):
        load_folder(tmp_path / "none", source="en", targets=["es"])
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="but is a file"):
        load_folder(tmp_path / "file", source="en", targets=["es"])


def test_no_file_for_the_pair_says_what_there_is(tmp_path):
    fill(tmp_path, {"parallel/a.en-fr.tsv": "a\tb\n", "documents/d.de.txt": "a\nb\nc\n"})
    with pytest.raises(UserError) as caught:
        load_folder(tmp_path, source="en", targets=["es"])
    message = str(caught.value)
    for part in (
        "translations for en-es",
        "has pairs: en-fr",
        "other texts in: de",
        "did you mean --pair en-fr?",
        "parallel/NAME.en-es.tsv",
        "documents/NAME.en.txt",
        "conversations/NAME.en.tsv",
        "nli/NAME.en.train.tsv",
    ):
        assert part in message
    assert "\n" not in message


def test_two_files_of_one_name(tmp_path):
    fill(tmp_path, {**PAIR, "parallel/chat.en-es.tsv.gz": "Bye\tAdiós\n"})
    with pytest.raises(UserError, match=r"chat\.en-es\.tsv.* and .*chat\.en-es\.tsv\.gz"):
        load_folder(tmp_path, source="en", targets=["es"])


def test_warnings_name_files_with_malformed_lines_and_names_outside_the_layout(tmp_path, warnings):
    fill(tmp_path, {"parallel/a.en-es.tsv": "a\tb\nc\n", "parallel/strange.tsv": "a\tb\n"})
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    records(corpus)
    strange, malformed = warnings
    assert "strange.tsv is not read" in strange
    assert "1 not 2 columns (first lines: 2)" in malformed


LINES = [f"word {number}\tpalabra {number}\n" for number in range(10)]
DOCUMENTS = [f"{number} a\n{number} b\n{number} c\n{number} d\n\n" for number in range(10)]


@pytest.mark.parametrize(
    ("stem", "ending", "parts"),
    [
        ("parallel/x.en-es", ".tsv.gz", LINES),
        ("parallel/x.es-en", ".tsv", LINES),
        ("documents/v1.2.es", ".txt.gz", DOCUMENTS),
        ("conversations/x.es", ".tsv", LINES),
        ("nli/x.en.dev_matched", ".tsv.gz", ["neutral\tp\th\n", "entailment\tp\tq\n"] * 5),
    ],
)
def test_shards_are_one_corpus(tmp_path, stem, ending, parts, warnings):
    # The third is empty, as of so many shards some are.
    cuts = ["".join(parts[:4]), "".join(parts[4:9]), "", "".join(parts[9:])]
    shards = {f"{stem}-0000{n}-of-00004{ending}": cut for n, cut in enumerate(cuts)}
    fill(tmp_path / "one", {**PAIR, f"{stem}{ending}": "".join(parts)})
    fill(tmp_path / "four", {**PAIR, **shards})
    one, four = (
        [
            (corpus.title, corpus.kind, corpus.name, corpus.languages, corpus.split, list(corpus))
            for corpus in load_folder(tmp_path / name, source="en", targets=["es"])
        ]
        for name in ("one", "four")
    )
    assert one == four
    assert len(one) == 2
    assert warnings == []


def test_missing_shards_are_named(tmp_path):
    names = [f"parallel/x.en-es-{n:05}-of-00012.tsv" for n in (0, 1, 3, 4)]
    fill(tmp_path, dict.fromkeys(names, "a\tb\n"))
    message = (
        r"x\.en-es-\*-of-00012\.tsv must be 12 shards, but 8 of them are missing "
        r"\(00002, 00005, 00006, 00007, 00008, \.\.\.\); fetch or make them again"
    )
    with pytest.raises(UserError, match=message):
        load_folder(tmp_path, source="en", targets=["es"])
    # Those of other languages are no matter.
    fill(tmp_path, {"parallel/x.en-fr.tsv": "a\tb\n"})
    assert len(load_folder(tmp_path, source="en", targets=["fr"])) == 1


def test_a_corpus_and_its_shards_beside_it_are_two_of_one_name(tmp_path):
    fill(tmp_path, {**PAIR, "parallel/chat.en-es-00000-of-00001.tsv": "Hello\tHola\n"})
    with pytest.raises(UserError, match=r"chat\.en-es-\*-of-00001\.tsv and .*chat\.en-es\.tsv"):
        load_folder(tmp_path, source="en", targets=["es"])


def test_a_corpus_without_a_record_is_an_error_when_it_is_read(tmp_path):
    fill(tmp_path, {f"parallel/x.en-es-0000{n}-of-00002.tsv": "" for n in range(2)})
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    with pytest.raises(UserError, match=r"x\.en-es-00000-of-00002\.tsv must hold lines of source"):
        records(corpus)


def test_the_version_tells_changed_files(tmp_path):
    path = tmp_path / "parallel/x.en-es.tsv"
    fill(tmp_path, {"parallel/x.en-es.tsv": "a\tb\n"})

    def version():
        return load_folder(tmp_path, source="en", targets=["es"])[0].version()

    before = version()
    assert version() == before
    os.utime(path, ns=(0, 0))
    touched = version()
    path.write_text("a\tbc\n")
    os.utime(path, ns=(0, 0))
    assert len({before, touched, version()}) == 3
