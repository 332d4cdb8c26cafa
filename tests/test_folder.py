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


def test_moses_pairs_and_tables_in_both_directions(tmp_path):
    fill(
        tmp_path,
        {
            "parallel/a.en-es.en": "Hello\n",
            "parallel/a.en-es.es.gz": "Hola\n",
            "parallel/b.es-en.es": "Uno\n",
            "parallel/b.es-en.en": "One\n",
            "parallel/c.es-en.tsv": "Dos\tTwo\n",
        },
    )
    corpora = load_folder(tmp_path, source="en", targets=["es"])
    pairs = [("Hello", "Hola"), ("One", "Uno"), ("Two", "Dos")]
    assert [records(corpus) for corpus in corpora] == [[TranslationPair(*pair)] for pair in pairs]
    assert {corpus.languages for corpus in corpora} == {"en-es"}


def test_warnings_name_files_with_malformed_lines_and_names_outside_the_layout(tmp_path, warnings):
    fill(tmp_path, {"parallel/a.en-es.tsv": "a\tb\nc\n", "parallel/strange.tsv": "a\tb\n"})
    (corpus,) = load_folder(tmp_path, source="en", targets=["es"])
    records(corpus)
    strange, malformed = warnings
    assert "strange.tsv is not read" in strange
    assert "1 not 2 columns (first lines: 2)" in malformed


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"parallel": ""}, "must be a folder, but is a file"),
        ({"nli/n.en.train.tsv": "neutral\tp\th\n"}, "translations for en-es.*other texts in: en"),
        (
            {"parallel/a.en-fr.tsv": "a\tb\n", "documents/d.de.txt": "a\nb\nc\n"},
            r"has pairs: en-fr; other texts in: de; did you mean --pair en-fr\?",
        ),
        ({**PAIR, "parallel/a.en-es.en": "x\n"}, r"a\.en-es\.es\[\.gz\], but that file is missing"),
        ({**PAIR, "parallel/a.en-es.es": "x\n"}, r"a\.en-es\.en\[\.gz\], but that file is missing"),
        (
            {**PAIR, "parallel/chat.en-es.tsv.gz": ""},
            r"chat\.en-es\.tsv and .*chat\.en-es\.tsv\.gz",
        ),
        (
            {**PAIR, "parallel/chat.en-es-00000-of-00001.tsv": ""},
            r"chat\.en-es-\*-of-00001\.tsv and .*chat\.en-es\.tsv",
        ),
        (
            dict.fromkeys((f"parallel/x.en-es-{n:05}-of-00012.tsv" for n in (0, 1, 3, 4)), ""),
            "must be 12 shards, but 8 of them .*first is 00002",
        ),
        ({"parallel/x.en-es-00000-of-00001.tsv": ""}, r"00001\.tsv must hold lines of source"),
    ],
)
def test_what_a_folder_lacks_is_told(tmp_path, files, message):
    fill(tmp_path, files)
    folder = tmp_path / "parallel" if "parallel" in files else tmp_path
    with pytest.raises(UserError, match=message):
        list(load_folder(folder, source="en", targets=["es"])[0])


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
