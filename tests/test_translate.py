"""Translated inference pairs and questions: by functions, and continued."""

import sys

import pytest
import translate
from programs import ROOT, run_program, run_python
from raw_files import shards, write_files

from xling_tf.corpora.folder import load_folder
from xling_tf.corpora.store import transient_store
from xling_tf.errors import UserError

PROGRAM = "data/translate.py"
NLI = "nli/snli.en.train.tsv"
# With this file, the training part is used for training alone.
DEV = {"nli/snli.en.dev.tsv": "neutral\tno\tyes\n"}
# 300 pairs of 100 premises, and 400 questions, of which a tenth is held out.
FILES = {
    **DEV,
    NLI: "".join(f"entailment\ta man {n % 100}\ta person {n}\n" for n in range(300)),
    "questions/faq.en.tsv": "".join(
        f"where is {n}?\tit is {n}.\tHere it is {n}. Yes.\n" for n in range(400)
    ),
}


def upper(texts, source, target):
    """A "language" in which texts are in capitals, and that knows no 7."""
    return [text.upper().replace("7", "\t?") for text in texts]


def training_records(folder, kind):
    corpora = [
        c
        for c in load_folder(folder, source="en", targets=())
        if c.record_type in ("nli", "questions")
    ]
    (corpus,) = (c for c in transient_store(corpora).corpora if c.record_type == kind)
    return [record[:3] for record in corpus.train]


def test_training_records_are_translated_in_the_layout_of_the_folder(tmp_path):
    # What a killed call with another translator left is not used.
    write_files(
        tmp_path, {**FILES, ".translations.en-de.jsonl": '"other"\n["a man 1", "un homme"]\n'}
    )
    counts = translate.translate_folder(tmp_path, upper, source="en", targets=["de"])
    nli, questions = tmp_path / "nli/snli.de.train.tsv.gz", tmp_path / "questions/faq.de.tsv.gz"
    records = training_records(tmp_path, "questions")
    assert 340 < len(records) < 380
    assert counts == {nli: (300, 300), questions: (len(records), len(records))}
    lines = shards(nli.parent)["snli.de.train.tsv.gz"].splitlines()
    assert lines[1] == "entailment\tA MAN 1\tA PERSON 1"
    assert lines[7] == "entailment\tA MAN ?\tA PERSON ?"  # on one line, in its columns
    lines = shards(questions.parent)["faq.de.tsv.gz"].splitlines()
    capitals = [
        [" ".join(text.upper().replace("7", " ?").split()) for text in row] for row in records
    ]
    assert lines == ["\t".join(row) for row in capitals]
    assert not [*tmp_path.glob(".*")]
    # Training reads them.
    read = load_folder(tmp_path, source="de", targets=())
    assert [corpus.title for corpus in read] == ["nli/snli.de.train", "questions/faq.de"]
    assert len(list(read[0])) == 300
    # What exists stays, also where somebody translated it.
    assert translate.translate_folder(tmp_path, upper, source="en", targets=["de"]) == {}
    nli.rename(nli.with_name("snli.de.train-00000-of-00001.tsv.gz"))
    assert translate.translate_folder(tmp_path, upper, source="en", targets=["de"]) == {}


FUNCTION = """
import os, pathlib

def translate(texts, source, target):
    log = pathlib.Path("log")
    with log.open("a") as file:
        file.writelines(f"{text}\\n" for text in texts)
    if pathlib.Path("fail").exists() and len(log.read_text().splitlines()) > 300:
        os._exit(9)
    return [text.upper() for text in texts]
"""


def test_a_killed_program_continues(tmp_path):
    files = {f"data/{name}": FILES[name] for name in (NLI, *DEV)}
    write_files(tmp_path, {"mine.py": FUNCTION, "fail": "", **files})
    flags = ("--data=data", "--target=de", "--translator=python:mine:translate")
    assert run_python(tmp_path, str(ROOT / PROGRAM), *flags).status == 9
    saved = tmp_path / "data/.translations.en-de.jsonl"
    assert len(saved.read_text("utf-8").splitlines()) == 1 + 256
    assert not (tmp_path / "data/nli/snli.de.train.tsv.gz").exists()
    with saved.open("a") as file:
        file.write('["cut')
    (tmp_path / "fail").unlink()
    run = run_program(tmp_path, PROGRAM, *flags)
    assert run.output == "data/nli/snli.de.train.tsv.gz: 300 of 300 records\n"
    lines = shards(tmp_path / "data/nli")["snli.de.train.tsv.gz"].splitlines()
    assert (
        lines == FILES[NLI].replace("a man", "A MAN").replace("a person", "A PERSON").splitlines()
    )
    # 100 premises and 300 hypotheses; those of the batch that was lost are translated twice.
    log = (tmp_path / "log").read_text().splitlines()
    assert len(log) == 400 + 144
    assert len(set(log)) == 400
    assert not saved.exists()


def test_mistakes_say_what_to_do(tmp_path, monkeypatch):
    write_files(tmp_path, {**DEV, NLI: FILES[NLI]})
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("deepl", "python:nowhere:f"):
        with pytest.raises(UserError, match="python:module:function"):
            translate.open_translator(name)
    for answers in (["one"], [None] * 256):
        with pytest.raises(UserError, match=r"must return 256 texts, got list \["):
            translate.translate_folder(
                tmp_path, lambda *_, a=answers: a, source="en", targets=["de"]
            )
    with pytest.raises(UserError, match="did you mean snli"):
        translate.translate_folder(tmp_path, upper, source="en", targets=["de"], names=["sni"])
