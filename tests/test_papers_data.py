"""The papers' data and our collection, from a server to tables with the right checksums."""

import gzip
import hashlib
import io
import os
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import convert
import pytest
import sources
from collection_originals import ORIGINALS
from local_server import serving
from published import EVALUATION, DataSet, prepare, read_sets
from raw_files import read_files, squad, write_files

SETS = {data_set.name: data_set for data_set in read_sets()}
# Small tables in the layout of ours; the texts have quotes, commas, markup and other alphabets.
PAIR = ['He said "no", twice & <left>.', "Él dijo que no."]
SCORED = [["sentence1", "sentence2", "score"], [*PAIR, "5.0"], ["a", "b", "0.25"]]
LABELLED = [["label", "text"], ["0", "a , b"], ["1", "好"]]
TWEETS = [
    ["label", "text"],
    ["negative", "@user ay"],
    ["neutral", "🚶\u200d♀️"],
    ["positive", "oui"],
]
NLI = [["label", "premise", "hypothesis"], ["neutral", *PAIR], ["entailment", "c", "d"]]
ANSWERS = {
    "questions": [["question", "answer_sentence_id"], ["who ?", "s0"], ["when ?", "s1"]],
    "sentences": [["sentence_id", "sentence"], ["s0", "she did ."], ["s1", "in may ."]],
}


def numbered(table, *, columns=(), cells=()):
    header, *rows = table
    return [
        ["pair_id", *header, *columns],
        *([str(3 + number), *row, *cells] for number, row in enumerate(rows)),
    ]


def toy(path):
    """A small table in the place of one of our collection."""
    folder, name = path.removesuffix(".tsv.gz").rsplit("/", 1)
    task = name.split(".")[0]
    if task in ("MRPC", "pawsx", "quora"):
        sides = ("question1", "question2") if task == "quora" else ("sentence1", "sentence2")
        return [["label", *sides], ["1", *PAIR], ["0", "a", "b"]]
    if task == "SICK":
        columns = ["relatedness", "entailment", "sentence1", "sentence2"]
        return [columns, ["3.6", "contradiction", *PAIR], ["4", "neutral", "a", "b"]]
    if task == "SUBJ":
        return [["label", "text"], ["objective", "he goes ."], ["subjective", "he is fun ."]]
    if task in ("AM", "umsab_tweets"):
        return TWEETS if task == "umsab_tweets" else LABELLED
    if (task == "xnli" and ".de." not in name) or task == "esxnli":
        genre = {} if ".zh." in name else {"columns": ["genre"], "cells": ["travel"]}
        return numbered(NLI, **genre)
    if task == "rte3":
        second = "neutral" if ".fr." in name else "not_entailment"
        return numbered([NLI[0], ["entailment", *PAIR], [second, "c", "d"]])
    if folder == "eval/bitext":
        return [name.split(".")[-1].split("-"), PAIR, ["one", "un"]]
    if folder == "eval/reqa":
        return ANSWERS[name.split(".")[-1]]
    return {
        **{"eval/sts": SCORED, "eval/nli": NLI, "dictionaries": [["年", "year"], ["月", "moon"]]},
        **{"alignment": [["Eins ."], ["[0]:[]"]], "vectors": [["1 2"], ["año 0.5 -1.0 "]]},
    }.get(folder, LABELLED)


def text(table):
    return "".join("\t".join(row) + "\n" for row in table)


def marked(tables):
    return {path: hashlib.sha256(text(rows).encode()).hexdigest() for path, rows in tables.items()}


def unpacked(folder):
    return {
        name: (gzip.decompress(raw) if name.endswith(".gz") else raw).decode()
        for name, raw in read_files(folder).items()
    }


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def tarred(files, *links):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
        for name in links:
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, "/etc"
            archive.addfile(link)
    return buffer.getvalue()


LANGUAGES = ("de", "en", "es", "fr", "zh")
TRACKS = ("track1.ar-ar", "track3.es-es", "track4a.es-en", "track4b.es-en", "track5.en-en")
XNLI_LINES = "language\tgold_label\tsentence1\tsentence2\tpairID\n" + "".join(
    f"{language}\tneutral\ta\tb\t7\n" for language in ("ar", *LANGUAGES)
)
ONE_QUESTION = squad("She did. It was May.", ("Who did?", [0]))
REVIEW = "<items><item><rating>5.0</rating><text>Bon</text></item></items>"
# One file of each name of the papers' sets that we never had, as small as can be.
PUBLISHED = {
    "stsb-test": {f"stsb-{code}-test.csv": 'a,"b, c",2.5\n' for code in LANGUAGES},
    "sts2017": {
        "sts2017.eval.v1.1.zip": zipped(
            {f"STS2017.eval.v1.1/STS.input.{track}.txt": "a\tb\n" for track in TRACKS}
        ),
        "sts2017.gs.zip": zipped({f"STS2017.gs/STS.gs.{track}.txt": "4.0\n" for track in TRACKS}),
    },
    "mr-trec": {
        "rt-polarity.all": "0 dull .\n1 fine .\n",
        **{f"TREC.{split}.all": "3 who is she ?\n" for split in ("train", "test")},
    },
    "xnli-test": {
        "XNLI-1.0.zip": zipped(
            {f"XNLI-1.0/xnli.{split}.tsv": XNLI_LINES for split in ("dev", "test")}
        )
    },
    "quora": {
        "quora_duplicate_questions.tsv": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
        '0\t1\t2\t"Why?"\tHow?\t0\n'
    },
    "askubuntu": {
        "text_tokenized.txt.gz": gzip.compress(b"1\thow ?\tbody\n2\twhy ?\tbody\n"),
        **{f"{split}.txt": "1\t2\t2 3\t9.5\n" for split in ("dev", "test")},
    },
    "squad": {f"{split}-v1.1.json": ONE_QUESTION for split in ("dev", "train")},
    "xquad": {f"xquad.{code}.json": ONE_QUESTION for code in ("de", "en", "es", "zh")},
    "tatoeba": {
        f"tatoeba.{code}-eng.{side}": "one\n"
        for code in ("cmn", "deu", "fra", "spa")
        for side in (code, "eng")
    },
    # The archive has other years, and the same text in SGML.
    "newstest2012": {
        "dev.tgz": tarred(
            {
                **{f"dev/newstest2012.{code}": "one\ntwo\n" for code in ("de", "en", "fr")},
                **{"dev/newstest2011.de": "eins\n", "dev/newstest2011.en": "one\ntwo\n"},
                "dev/newstest2012-src.en.sgm": "<doc>",
            }
        )
    },
    "cls": {
        "cls-acl10-unprocessed.tar.gz": tarred(
            {
                f"cls-acl10-unprocessed/{code}/books/{split}.review": REVIEW
                for code in ("de", "en", "fr", "jp")
                for split in ("train", "test", "unlabeled")
            }
        )
    },
}


def served(files):
    return serving({n: c.encode() if isinstance(c, str) else c for n, c in files.items()})


def small(name, **changes):
    """A set of one file, a table of three pairs for Quora's reader."""
    values = {
        **{"about": "pairs", "licence": "CC0", "reader": "quora_lines"},
        **{"files": ["labels.dev", "s1.dev", "s2.dev"], "address": f"{name}/"},
        "tables": marked({"eval/paraphrase/quora.en.dev.tsv.gz": toy("x/quora.en.dev")}),
    }
    return DataSet(name=name, **values | changes)


QUORA = ORIGINALS["quora-dev"]({"eval/paraphrase/quora.en.dev.tsv.gz": toy("x/quora.en.dev")})


@pytest.fixture
def server():
    with served(QUORA) as server:
        yield server


def test_the_table_is_consistent():
    assert len(SETS) == len(read_sets())
    paths = [path for data_set in SETS.values() for path in data_set.tables]
    assert len(paths) == len(set(paths))
    for data_set in SETS.values():
        assert bool(data_set.files) != bool(data_set.by_hand)
        assert bool(data_set.files) == bool(data_set.reader) == bool(data_set.address)
        assert data_set.reader in {"", *sources.READERS, *convert.FORMATS}
        assert data_set.checksums.keys() <= set(data_set.files)
        marks = [*data_set.tables.values(), *data_set.checksums.values()]
        assert all(len(mark) == 64 for mark in marks if isinstance(mark, str))
        # Whatever is ours and can be made is checked.
        assert not data_set.is_ours or all(isinstance(m, str) for m in data_set.tables.values())
    assert ORIGINALS.keys() == {s.name for s in SETS.values() if s.is_ours and s.files}


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_set_of_the_collection_is_made_from_files_in_its_format(name, tmp_path, capsys):
    tables = {path: toy(path) for path in SETS[name].tables}
    files = ORIGINALS[name](tables)
    assert files.keys() == set(SETS[name].files)
    with served(files) as server:
        data_set = replace(SETS[name], address=server.address, tables=marked(tables), checksums={})
        assert prepare([data_set], tmp_path) == {}
        assert unpacked(tmp_path) == {path: text(rows) for path, rows in tables.items()}
        assert f"{len(tables)} tables made" in capsys.readouterr().out
        server.asked.clear()
        assert prepare([data_set], tmp_path) == {}
        assert (server.asked, "was there" in capsys.readouterr().out) == ([], True)


@pytest.mark.skipif("XLING_TF_COLLECTION" not in os.environ, reason="it needs our collection")
def test_the_collection_is_made_again_byte_for_byte(tmp_path):
    folder, files = Path(os.environ["XLING_TF_COLLECTION"]), {}
    for name, originals in ORIGINALS.items():
        texts = unpacked_of(folder, SETS[name].tables)
        tables = {
            path: [line.split("\t") for line in content.removesuffix("\n").split("\n")]
            for path, content in texts.items()
        }
        files |= {f"{name}/{file}": content for file, content in originals(tables).items()}
    with served(files) as server:
        chosen = [
            replace(SETS[name], address=f"{server.address}{name}/", checksums={})
            for name in ORIGINALS
        ]
        assert prepare(chosen, tmp_path) == {}


def unpacked_of(folder, paths):
    contents = {path: (folder / path).read_bytes() for path in paths}
    return {
        path: (gzip.decompress(raw) if path.endswith(".gz") else raw).decode()
        for path, raw in contents.items()
    }


def test_texts_are_cleaned_and_rows_without_a_label_left_out(tmp_path):
    files = {
        "a/labels.dev": "1\r\n 0\r\n",
        "a/s1.dev": "Cafe\u0301\u00a0au  lait\r\nsoft\u00adhyphen\r\n",
        "a/s2.dev": "zero\u200bwidth\r\nbell\u0007\r\n",
        "b/dev.json": '{"label": "-", "sentence1": "x", "sentence2": "y"}\n',
    }
    write_files(tmp_path, files)
    ((_, _, rows),) = sources.quora_lines(tmp_path / "a")
    assert list(rows) == [("1", "Café au lait", "zerowidth"), ("0", "softhyphen", "bell")]
    ((_, _, rows),) = sources.ocnli(tmp_path / "b")
    assert list(rows) == []


def test_old_sentences_in_latin_1_are_read(tmp_path):
    (tmp_path / "custrev.all").write_bytes("1 d\u00e9j\u00e0 vu\n0 \n".encode("latin-1"))
    ((name, _, rows),) = sources.sent_conv(tmp_path)
    assert (name, list(rows)) == ("eval/senteval/CR", [("1", "déjà vu")])


def test_an_evaluation_folder_has_the_part_of_the_collection_that_evaluations_read(
    server, tmp_path
):
    assert prepare([small("quora", address=server.address)], tmp_path, EVALUATION) == {}
    assert [*unpacked(tmp_path)] == ["paraphrase/quora.en.dev.tsv.gz"]


def test_an_interrupted_set_goes_on(server, tmp_path):
    data_set = small("quora", address=server.address)
    server.cuts = [100, 3, 0]  # labels.dev arrives, s1.dev is cut twice
    assert "s1.dev must be served" in prepare([data_set], tmp_path)["quora"]
    assert unpacked(tmp_path).keys() == {
        ".downloads/quora/labels.dev",
        ".downloads/quora/s1.dev.part",
    }
    server.asked.clear()
    assert prepare([data_set], tmp_path) == {}
    assert server.asked == [("s1.dev", "bytes=3-"), ("s2.dev", "")]
    assert [*unpacked(tmp_path)] == ["eval/paraphrase/quora.en.dev.tsv.gz"]


def test_a_file_of_another_format_is_told(server, tmp_path):
    server.files["s2.dev"] = b"one line for two\n"
    failure = prepare([small("quora", address=server.address)], tmp_path)["quora"]
    assert "one cannot be read (zip() argument 3 is shorter" in failure
    assert unpacked(tmp_path) == {}


def test_another_text_than_ours_is_told_and_leaves_nothing(server, tmp_path):
    server.files["s2.dev"] = b"changed\nchanged\n"
    failures = prepare([small("quora", address=server.address)], tmp_path)
    assert "quora.en.dev.tsv.gz must have the SHA-256 " in failures["quora"]
    assert "was changed; nothing is written" in failures["quora"]
    assert unpacked(tmp_path) == {}
    server.files |= {name: content.encode() for name, content in QUORA.items()}
    assert prepare([small("quora", address=server.address)], tmp_path) == {}


@pytest.mark.parametrize(("rows", "is_right"), [(2, True), (0, True), (3, False)])
def test_a_table_that_we_never_had_is_checked_by_its_rows(rows, is_right, server, tmp_path):
    data_set = small(
        "quora", address=server.address, tables={"eval/paraphrase/quora.en.dev.tsv.gz": rows}
    )
    assert bool(prepare([data_set], tmp_path)) != is_right


def test_a_damaged_table_is_made_again(server, tmp_path):
    data_set = small("quora", address=server.address)
    prepare([data_set], tmp_path)
    path = tmp_path / "eval/paraphrase/quora.en.dev.tsv.gz"
    right = path.read_bytes()
    for wrong in (right[:-10], gzip.compress(b"label\n")):
        path.write_bytes(wrong)
        assert prepare([data_set], tmp_path) == {}
        assert gzip.decompress(path.read_bytes()) == gzip.decompress(right)


def test_a_missing_file_fails_its_set_alone(server, tmp_path, capsys):
    lost = small("lost", address=f"{server.address}lost/", tables={"eval/a.tsv.gz": 0})
    by_hand = small(
        "asked", address="", files=(), reader="", by_hand="ask them", tables={"eval/b.tsv.gz": 0}
    )
    failures = prepare([lost, by_hand, small("quora", address=server.address)], tmp_path)
    assert list(failures) == ["lost"]
    assert "lost/labels.dev must be served to be fetched" in failures["lost"]
    assert "answers 404" in failures["lost"]
    output = capsys.readouterr().out
    assert "lacks 1 of 1 tables: ask them" in output
    assert "1 tables made" in output


@pytest.mark.parametrize("name", [s.name for s in SETS.values() if s.files and not s.is_ours])
def test_a_set_of_the_papers_is_made_from_its_files(name, tmp_path):
    assert PUBLISHED[name].keys() == set(SETS[name].files)
    tables = dict.fromkeys(SETS[name].tables, 0)
    with served(PUBLISHED[name]) as server:
        data_set = replace(SETS[name], address=server.address, tables=tables, checksums={})
        assert prepare([data_set], tmp_path, EVALUATION) == {}
    made = unpacked(tmp_path)
    assert made.keys() == {path.removeprefix(EVALUATION) for path in tables}
    assert all(len(content.splitlines()) > 1 for content in made.values())


@pytest.mark.parametrize("kind", ["zip", "tgz", "tar.gz"])
def test_archives_are_unpacked_into_their_folder_alone(kind, tmp_path):
    files = {f"deep/{name}": content for name, content in QUORA.items()}
    files["../outside.txt"] = "x"
    content = zipped(files) if kind == "zip" else tarred(files, "link")
    with serving({f"a.{kind}": content}) as server:
        data_set = small("quora", address=server.address, files=[f"a.{kind}"])
        assert prepare([data_set], tmp_path / "out") == {}
        assert [*unpacked(tmp_path)] == ["out/eval/paraphrase/quora.en.dev.tsv.gz"]
        server.files[f"a.{kind}"] = content[:200]
        (tmp_path / "out/eval/paraphrase/quora.en.dev.tsv.gz").unlink()
        assert "is not a whole archive" in prepare([data_set], tmp_path / "out")["quora"]
    assert unpacked(tmp_path) == {}
