"""A data folder: its corpora of some languages, which languages it has, and what it lacks."""

import os
from pathlib import Path

import pytest
from raw_files import snli_line, write_files

from xling_tf.config import DataConfig
from xling_tf.corpora.folder import load_corpora, load_folder, resolve_languages
from xling_tf.corpora.records import InferencePair, ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.corpora.sample import SAMPLE_FOLDER
from xling_tf.errors import UserError
from xling_tf.presets import get_preset

PAIR = {"parallel/chat.en-es.tsv": "Hello\tHola\n"}


def records(corpus):
    return [record for record, _ in corpus]


def test_every_kind_of_the_pair_is_read(tmp_path, caplog):
    files = {
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
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
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
    assert not caplog.messages


def test_moses_pairs_and_tables_in_both_directions_and_what_is_warned_of(tmp_path, caplog):
    files = {
        "parallel/a.en-es.en": "Hello\n",
        "parallel/a.en-es.es.gz": "Hola\n",
        "parallel/b.es-en.es": "Uno\n",
        "parallel/b.es-en.en": "One\n",
        "parallel/c.es-en.tsv": "Dos\tTwo\nc\n",
        "parallel/strange.tsv": "a\tb\n",
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    expected = {"a": ("Hello", "Hola"), "b": ("One", "Uno"), "c": ("Two", "Dos")}
    assert {corpus.name: tuple(records(corpus)[0][:2]) for corpus in corpora} == expected
    assert {corpus.languages for corpus in corpora} == {"en-es"}
    strange, malformed = caplog.messages
    assert "strange.tsv" in strange
    assert "1 not 2 columns (first lines: 2)" in malformed


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"parallel": ""}, "must be a folder, but is a file"),
        ({"nli/n.en.train.tsv": "neutral\tp\th\n"}, "translations for en-es.*other texts in: en"),
        ({"parallel/a.en-fr.tsv": "a\tb\n"}, r"has pairs: en-fr; .* did you mean --pair en-fr\?"),
        ({**PAIR, "parallel/a.en-es.en": "x\n"}, r"a\.en-es\.es .* is missing"),
        ({**PAIR, "parallel/a.en-es.es": "x\n"}, r"a\.en-es\.en .* is missing"),
        (
            {"parallel/a.en-es.en": "x", "parallel/a.en-es.es": "x", "parallel/a.en-es.es.xz": "y"},
            r"is a\.en-es\.es and a\.en-es\.es\.xz",
        ),
        ({**PAIR, "parallel/chat.en-es.tsv.gz": ""}, r"chat\.en-es\.tsv and .*chat\.en-es\.tsv\.gz"),
        (
            dict.fromkeys((f"parallel/x.en-es-{n:05}-of-00012.tsv" for n in (0, 1, 3, 4)), ""),
            "must be 12 shards, but 8 of them .*first is 00002",
        ),
        ({"parallel/x.en-es-00000-of-00001.tsv": ""}, r"00001\.tsv must hold lines of source"),
        # A name may claim any number of shards.
        ({**PAIR, "parallel/y.en-es-00001-of-99999999999999.tsv": ""}, "99999999999998 of them are missing"),
    ],
)
def test_what_a_folder_lacks_is_told(tmp_path, files, message):
    write_files(tmp_path, files)
    folder = tmp_path / "parallel" if "parallel" in files else tmp_path
    with pytest.raises(UserError, match=message):
        list(load_folder(folder, source="en", targets=["es"])[0])


def test_packed_files_are_read_whatever_the_case_of_their_ending(tmp_path, caplog):
    files = {
        "parallel/a.en-es.tsv.xz": "Hello\tHola\n",
        "parallel/b.en-es.TSV": "Hello\tHola\n",
        "parallel/c.en-es-00000-of-00001.Tsv.Zst": "Hello\tHola\n",
        "parallel/d.en-es.en.bz2": "Hello\n",
        "parallel/d.en-es.es.xz": "Hola\n",
        "documents/e.en.txt.bz2": "a\nb\nc\n",
        "questions/train-v1.1.json": '{"data": []}',
        "questions/f.en.json.gz": '{"data": []}',
        "nli/snli_1.0_train.jsonl.xz": snli_line("neutral"),
        "eval/sts/g.en.train.tsv.zst": "score\tsentence1\tsentence2\n5\ta\tb\n",
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    names = [corpus.name for corpus in corpora]
    assert names == [*"abcdef", "snli_1.0", "g", "squad_train"]
    assert [len(list(corpus)) for corpus in corpora if corpus.kind != "questions"] == [1] * 7
    assert not caplog.messages


def test_nothing_in_a_data_folder_is_passed_over_in_silence(tmp_path, caplog):
    strange = {
        ".": [
            *("pairs.en-es.tsv", "x.csv", "snli_1.0_train.jsonl.zip", "paralel/x.en-es.tsv", "conversations"),
            "translations/x.en-es.tsv",
        ],
        "parallel": [
            *("x.en-es.csv", "x.en-es.parquet", "x.en-es.tsv.part", "x.en-es.tsv~", "x.tmp", "y.EN-ES.tsv"),
            *("y.en_es.tsv", "y.en-zh-CN.tsv", "en-es.txt.zip", "deep/x.en-es.tsv", "x.en-es.jsonl"),
        ],
        "documents": ["a.txt", "b.en.docx"],
        "nli": ["n.en.tsv", "n.en.valid.tsv", "multinli_1.0_train.jsonl.zip"],
        "questions": ["q.tsv", "dev-v1.1.json"],
        "similarity": ["stsb.csv"],
        "eval/sts": ["stsb.en.train.csv"],
        "snli_1.0": ["snli_1.0_train.json"],
        "hard_negatives": ["chat.en-es.tsv", "chat2.en-es.tsv.gz"],
    }
    silent = [
        *("README.md", "LICENSE", "parallel/README", "parallel/licence.txt", "parallel/.DS_Store"),
        *("snli_1.0/README.txt", "snli_1.0/snli_1.0_train.txt", "preparation.json", "SOURCES.md"),
        *("eval/sts/stsb.en.dev.tsv", "hard_negatives/chat.en-es.json"),
    ]
    files = {f"{place}/{name}": "a\tb\n" for place, names in strange.items() for name in names}
    mined = {"hard_negatives/chat.en-es.tsv.gz": "Hello\tHola\tAdiós\n"}
    write_files(tmp_path, {**files, **PAIR, **mined, **dict.fromkeys(silent, "x")})
    load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    text = "".join(caplog.messages)
    for name in (name.split("/")[0] for names in strange.values() for name in names):
        assert name in text
    assert text.count("did you mean parallel?") == text.count("did you mean") == 1
    for name in silent:
        assert Path(name).name not in text
    # Of very many names the first are told.
    write_files(tmp_path, {f"documents/{n}.txt": "a\n" for n in range(500)})
    caplog.clear()
    load_folder(tmp_path, source="en", targets=["es"])
    assert "and 482 more" in caplog.text
    assert len(caplog.text) < 5000


def test_nothing_of_the_sample_is_warned_of(caplog):
    load_folder(SAMPLE_FOLDER, source="en", targets=["es", "fr", "de", "zh"])
    assert not caplog.messages


def test_what_is_in_other_languages_is_told_and_unknown_languages_are_warned_of(tmp_path, caplog):
    files = {**PAIR, "parallel/x.en-fr.tsv": "a\tb\n", "parallel/y.en-sp.tsv": "a\tb\n"}
    with caplog.at_level("INFO", logger="absl"):
        load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    assert {r.levelname for r in caplog.records if "x.en-fr.tsv" in r.getMessage()} == {"INFO"}
    assert [r.levelname for r in caplog.records if "y.en-sp.tsv" in r.getMessage()] == ["WARNING"]


LINES = [f"word {number}\tpalabra {number}\n" for number in range(10)]
DOCUMENTS = [f"{number} a\n{number} b\n{number} c\n{number} d\n\n" for number in range(10)]


def test_shards_are_one_corpus(tmp_path, caplog):
    contents = {
        ("parallel/x.es-en", ".tsv"): LINES,
        ("documents/v1.2.es", ".txt.gz"): DOCUMENTS,
        ("nli/x.en.dev_matched", ".tsv.gz"): ["neutral\tp\th\n", "entailment\tp\tq\n"] * 5,
    }
    for (stem, ending), parts in contents.items():
        # The third is empty, as of so many shards some are.
        cuts = ["".join(parts[:4]), "".join(parts[4:9]), "", "".join(parts[9:])]
        shards = {f"{stem}-0000{n}-of-00004{ending}": cut for n, cut in enumerate(cuts)}
        write_files(tmp_path / "one", {f"{stem}{ending}": "".join(parts)})
        write_files(tmp_path / "four", shards)
    one, four = (
        [
            (corpus.title, corpus.kind, corpus.name, corpus.languages, corpus.split, list(corpus))
            for corpus in load_folder(tmp_path / name, source="en", targets=["es"])
        ]
        for name in ("one", "four")
    )
    assert one == four
    assert len(one) == 3
    assert not caplog.messages


def test_the_version_tells_changed_files(tmp_path):
    path = tmp_path / "parallel/x.en-es.tsv"
    write_files(tmp_path, {"parallel/x.en-es.tsv": "a\tb\n"})

    def version():
        return load_folder(tmp_path, source="en", targets=["es"])[0].version()

    before = version()
    assert version() == before
    os.utime(path, ns=(0, 0))
    touched = version()
    path.write_text("a\tbc\n")
    os.utime(path, ns=(0, 0))
    assert len({before, touched, version()}) == 3


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Translations of en-es, fr-en, es-fr, it-es and es-es; other corpora in these and in German."""
    files = {
        "parallel/a.en-es.tsv": "Hello\tHola\n",
        "parallel/a.fr-en.tsv": "Bonjour\tHello\n",
        "parallel/a.es-fr.tsv": "Hola\tBonjour\n",
        "parallel/b.it-es.tsv": "Ciao\tHola\n",
        "parallel/same.en-en.tsv": "Hello\tHi\n",
        "documents/d.de.txt": "a\nb\nc\n",
        "nli/n.en.train.tsv": "neutral\tp\th\n",
        "nli/n.fr.train.tsv": "neutral\tp\th\n",
        "nli/n.de.train.tsv": "neutral\tp\th\n",
        "questions/q.fr.tsv": "Qui?\tAda.\n",
    }
    return write_files(tmp_path, files)


def test_pairs_with_the_source_and_what_else_is_wanted(folder):
    def titles(*targets: str, **wanted: bool) -> list[str]:
        return [corpus.title for corpus in load_folder(folder, source="en", targets=targets, **wanted)]

    pairs = ["parallel/a.en-es", "parallel/a.en-fr"]
    assert titles("fr", "es") == [*pairs, "nli/n.en.train", "questions/q.fr"]
    found = titles("es", "fr", target_inference=True)
    assert found == [*pairs, "nli/n.en.train", "nli/n.fr.train", "questions/q.fr"]
    assert "parallel/b.es-it" in titles("es", "it", all_pairs=True)
    # A language that no list has is used where files do.
    write_files(folder, {"parallel/x.en-tlh.tsv": "Hello\tnuqneH\n"})
    assert titles("tlh")[0] == "parallel/x.en-tlh"


def test_questions_among_conversations_and_graded_sets_have_names_of_their_own(folder):
    files = {
        "conversations/squad_question_sentence.en.tsv": "Who?\tAda.\nWhy?\tIt rains.\nAnd?\tAda.\n",
        "conversations/qam_question_passage.es.tsv": "Who?\tAda came.\n",
        "eval/sts/stsb.es.train.tsv": "score\tsentence1\tsentence2\n5\ta\tb\n",
        "eval/sts/stsb.es.dev.tsv": "score\tsentence1\tsentence2\n5\ta\tb\n",
        "eval/sts/sts2012.en.MSRpar.train.tsv": "score\tsentence1\tsentence2\n5\ta\tb\n",
        "eval/senteval/SICK.train.tsv": "relatedness\tsentence1\tsentence2\n5\tc\td\n",
    }
    corpora = load_folder(write_files(folder, files), source="en", targets=["es"])
    found = {corpus.title: corpus for corpus in corpora}
    assert {title for title in found if title.startswith(("conversations", "questions", "similarity"))} == {
        "conversations/squad_question_sentence.en",
        "questions/squad_question_sentence.en",
        "conversations/qam_question_passage.es",
        "questions/qam_question_passage.es",
        "similarity/stsb.es",
        "similarity/SICK.en",
    }
    asked = {"Who?": "Ada.", "Why?": "It rains.", "And?": "Ada."}
    expected = [(question, answer, "Ada. It rains.") for question, answer in asked.items()]
    assert records(found["questions/squad_question_sentence.en"]) == expected
    assert records(found["questions/qam_question_passage.es"]) == [("Who?", "Ada came.", "Ada came.")]


def test_pairs_of_targets_are_in_the_order_of_the_targets(folder):
    for targets, record in (
        (("fr", "es"), TranslationPair("Bonjour", "Hola")),
        (("es", "fr"), TranslationPair("Hola", "Bonjour")),
    ):
        corpora = load_folder(folder, source="en", targets=targets, all_pairs=True)
        parallel = {c.languages: records(c) for c in corpora if c.kind == "parallel"}
        assert set(parallel) == {"en-es", "en-fr", "-".join(targets)}
        assert parallel["-".join(targets)] == [record]


def test_all_is_resolved_by_what_the_corpora_will_be(folder):
    for source, all_pairs, targets in (
        *(("en", False, ("es", "fr")), ("en", True, ("es", "fr", "it")), ("it", False, ("es",))),
    ):
        wanted = DataConfig(source=source, targets=("all",), all_pairs=all_pairs)
        assert resolve_languages(folder, wanted).targets == targets
    sample = resolve_languages(None, DataConfig(targets=("all",), sample=True))
    assert sample.targets == ("de", "es", "fr", "zh")
    default = resolve_languages(None, DataConfig(targets=("all",)))
    assert set(default.targets) == set(get_preset("many").data.targets)
    named = DataConfig(targets=("fr", "es"))
    assert resolve_languages(folder, named) is named


@pytest.mark.parametrize(
    ("source", "targets", "message"),
    [
        ("en", ("es", "xx"), "got 'xx'$"),
        ("en", ("es", "it"), "translations for en-it"),
        # Texts of German are not enough.
        ("de", ("all",), "translations for de-LANGUAGE, but has pairs: en-en, en-es"),
    ],
)
def test_languages_that_a_folder_has_not(folder, source, targets, message):
    with pytest.raises(UserError, match=message):
        load_corpora(folder, resolve_languages(folder, DataConfig(source=source, targets=targets)))
