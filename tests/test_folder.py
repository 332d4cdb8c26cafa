"""Data folders: the corpora of some languages, their languages, and errors of missing files."""

from contextlib import nullcontext
from pathlib import Path

import pytest
from raw_files import snli_line, squad, write_files

from xling_tf.config import DataConfig
from xling_tf.corpora.folder import load_folder, resolve_languages
from xling_tf.corpora.record_types import RECORD_TYPES
from xling_tf.corpora.records import InferencePair, ResponsePair, SentenceTriplet, TranslationPair
from xling_tf.errors import UserError

PAIR = {"parallel/chat.en-es.tsv": "Hello\tHola\n"}
SQUAD = squad("It rains. We stay.", ("Why?", [3]))


def records(corpus):
    return [record for record, _ in corpus]


def test_every_kind_of_the_pair_is_read(tmp_path, caplog):
    files = {
        "parallel/v1.2.en-es.tsv.gz": "Hello\tHola\n",
        "parallel/other.en-fr.tsv": "Hello\tBonjour\n",
        "documents/d.es.txt": "d\ne\nf\n",
        "documents/d.fr.txt": "g\nh\ni\n",
        "conversations/c.es.tsv": "m\tr\n" * 10 + "c\n",
        "nli/n.en.train.tsv": "neutral\tp\th\n",
        "nli/n.es.train.tsv": "neutral\tp\th\n",
        "nli/n.en.dev.tsv.gz": "entailment\tp\th\n",
        "multinli_1.0/multinli_1.0_dev_matched.jsonl": snli_line("neutral"),
        "README.md": "notes",
        "parallel/README.md": "notes",
        "parallel/.hidden.tsv": "no",
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    found = [(c.record_type, c.name, c.languages, c.split, records(c)) for c in corpora]
    assert found == [
        ("parallel", "v1.2", "en-es", "", [TranslationPair("Hello", "Hola")]),
        ("documents", "d", "es", "", [SentenceTriplet("d", "e", "f")]),
        ("conversations", "c", "es", "", 10 * [ResponsePair("m", "r")]),
        ("nli", "n", "en", "dev", [InferencePair("p", "h", 0)]),
        ("nli", "n", "en", "train", [InferencePair("p", "h", 1)]),
        ("nli", "multinli_1.0", "en", "dev_matched", [InferencePair("p", "h", 1)]),
    ]
    (malformed,) = caplog.messages
    assert "not 2 columns: 1 (first: 11)" in malformed


def test_a_file_that_loses_a_tenth_of_its_lines_is_an_error(tmp_path):
    # One of eleven lines is left out; of ten, it is a tenth. Pairs without a label are no fault.
    for good, faults in ((10, nullcontext()), (9, pytest.raises(UserError, match="1 of 10 rows"))):
        files = {"parallel/x.en-es.tsv": "a\tb\n" * good + "c\n"}
        (corpus,) = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
        with faults:
            assert len([*corpus]) == good
    files = {"nli/n.en.train.tsv": "-\tp\th\nneutral\tp\th\n"}
    *_, corpus = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    assert len([*corpus]) == 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"parallel": ""}, "is not a folder"),
        ({"nli/n.en.train.tsv": "neutral\tp\th\n"}, "translations for en-es.*has pairs: none"),
        (
            {**PAIR, "parallel/chat.en-es.tsv.gz": ""},
            r"chat\.en-es\.tsv and .*chat\.en-es\.tsv\.gz",
        ),
        (
            dict.fromkeys((f"parallel/x.en-es-{n:05}-of-00012.tsv" for n in (0, 1, 3, 4)), ""),
            "must be 12 shards, but 8 of them .*first 00002",
        ),
        ({"parallel/x.en-es-00000-of-00001.tsv": ""}, r"00001\.tsv must hold rows of source"),
    ],
)
def test_what_a_folder_lacks_is_told(tmp_path, files, message):
    write_files(tmp_path, files)
    folder = tmp_path / "parallel" if "parallel" in files else tmp_path
    with pytest.raises(UserError, match=message):
        list(load_folder(folder, source="en", targets=["es"])[0])


def test_a_warning_names_what_is_not_read(tmp_path, caplog):
    strange = {
        ".": ["x.csv", "paralel/x.en-es.tsv"],
        "parallel": [
            "x.en-es.xlsx",
            "m.en-es.en",
            "x.en-es.tsv.1",
            "deep/x.en-es.tsv",
            "y.en-sp.tsv",
        ],
        "documents": ["a.txt", *(f"{number}.txt" for number in range(20))],
        **{"nli": ["multinli_1.0_train.jsonl.zip"], "hard_negatives": ["chat2.en-es.tsv.gz"]},
    }
    silent = [
        "README.md",
        "parallel/licence.txt",
        "parallel/.DS_Store",
        "snli_1.0/snli_1.0_train.txt",
        "eval/sts/stsb.en.dev.tsv",
        "hard_negatives/chat.en-es.json",
        "parallel/x.en-fr.tsv",
    ]
    files = {f"{place}/{name}": "a\tb\n" for place, names in strange.items() for name in names}
    mined = {"hard_negatives/chat.en-es.tsv.gz": "Hello\tHola\tAdiós\n"}
    write_files(tmp_path, {**files, **PAIR, **mined, **dict.fromkeys(silent, "x")})
    load_folder(tmp_path, source="en", targets=["es"], with_mined=True)
    text = "".join(caplog.messages)
    assert "and 1 more" in text  # of very many names the first are told
    for name in (
        name.split("/")[0] for names in strange.values() for name in names if name != "a.txt"
    ):
        assert name in text
    for name in silent:
        assert Path(name).name not in text


def test_a_code_with_a_hyphen_is_told_how_it_is_written(tmp_path, caplog):
    names = {
        "parallel/x.zh-Hant-pt-BR-00000-of-00001.tsv.gz": "x.zh_Hant-pt_BR-00000-of-00001.tsv.gz",
        "documents/news.es-MX.txt": "news.es_MX.txt",
    }
    write_files(tmp_path, {**PAIR, **dict.fromkeys(names, "a\tb\n")})
    load_folder(tmp_path, source="en", targets=["es"])
    for name, right in names.items():
        assert f"{Path(name).name} (call it {right})" in "".join(caplog.messages)
        assert any(
            layout.pattern.fullmatch(right) for layout in RECORD_TYPES[name.split("/")[0]].layouts
        )


def test_shards_are_one_corpus(tmp_path, caplog):
    # The third is empty, as of so many shards some are.
    cuts = ["a\tb\nc\td\n", "e\tf\n", "", "g\th\n"]
    shards = {f"parallel/x.es-en-0000{n}-of-00004.tsv.gz": cut for n, cut in enumerate(cuts)}
    write_files(tmp_path / "four", shards)
    write_files(tmp_path / "one", {"parallel/x.es-en.tsv": "".join(cuts)})
    one, four = (
        load_folder(tmp_path / name, source="en", targets=["es"]) for name in ("one", "four")
    )
    assert [(c.title, list(c)) for c in one] == [(c.title, list(c)) for c in four]
    assert records(four[0])[0] == TranslationPair("b", "a")
    assert not caplog.messages


@pytest.fixture
def folder(tmp_path):
    """Translations of en-es, fr-en, es-fr, it-es and es-es; other corpora in these and German."""
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
        return [
            corpus.title for corpus in load_folder(folder, source="en", targets=targets, **wanted)
        ]

    pairs = ["parallel/a.en-es", "parallel/a.en-fr"]
    assert titles("fr", "es") == [*pairs, "nli/n.en.train", "questions/q.fr"]
    found = titles("es", "fr", target_inference=True)
    assert found == [*pairs, "nli/n.en.train", "nli/n.fr.train", "questions/q.fr"]
    # Pairs of targets are in the order of the targets.
    assert "parallel/b.es-it" in titles("es", "it", all_pairs=True)
    assert "parallel/a.fr-es" in titles("fr", "es", all_pairs=True)
    with pytest.raises(UserError, match="got 'xx'"):
        titles("xx")
    # A language that no list has is used where files do.
    write_files(folder, {"parallel/x.en-tlh.tsv": "Hello\tnuqneH\n"})
    assert titles("tlh")[0] == "parallel/x.en-tlh"


def test_questions_in_any_file_and_scored_sets_have_names_of_their_own(folder):
    files = {
        "conversations/squad_question_sentence.en.tsv": "Who?\tAda.\nWhy?\tIt rains.\nAnd?\tAda.\n",
        "conversations/qam_question_passage.es.tsv": "Who?\tAda came.\n",
        "questions/d.es.json": SQUAD,
        "train-v1.1.json": SQUAD,
        "eval/sts/stsb.es.train.tsv": "score\tsentence1\tsentence2\n5\ta\tb\n",
        "eval/sts/stsb.es.dev.tsv": "score\tsentence1\tsentence2\n5\ta\tb\n",
        "eval/senteval/SICK.train.tsv": "relatedness\tsentence1\tsentence2\n5\tc\td\n",
    }
    corpora = load_folder(write_files(folder, files), source="en", targets=["es"])
    found = {corpus.title: corpus for corpus in corpora}
    questions = {"squad_question_sentence.en", "qam_question_passage.es", "d.es", "train-v1.1.en"}
    assert {title for title in found if title.startswith(("questions", "similarity"))} == {
        *(f"questions/{name}" for name in questions),
        "similarity/stsb.es",
        "similarity/SICK.en",
    }
    assert records(found["questions/d.es"]) == [("Why?", "It rains.", "It rains. We stay.")]
    asked = {"Who?": "Ada.", "Why?": "It rains.", "And?": "Ada."}
    expected = [(question, answer, "Ada. It rains.") for question, answer in asked.items()]
    assert records(found["questions/squad_question_sentence.en"]) == expected
    assert records(found["questions/qam_question_passage.es"]) == [
        ("Who?", "Ada came.", "Ada came.")
    ]


def test_scored_pairs_are_also_read_across_languages_if_the_rows_are_translations(folder):
    header = "score\tsentence1\tsentence2\n"
    english = f"{header}5\tone\ttwo\n1\tsix\tten\n"
    spanish = f"{header}5\tuno\tdos\n1\tseis\tdiez\n"
    files = {
        **{"similarity/a.en.tsv": english, "similarity/a.es.tsv": spanish},
        # Other rows, and no source language.
        **{
            "similarity/b.en.tsv": english,
            "similarity/b.es.tsv": f"{header}1\tuno\tdos\n5\tseis\tdiez\n",
        },
        **{
            "similarity/c.es.tsv": spanish,
            "similarity/c.fr.tsv": f"{header}5\tun\tdeux\n1\tsix\tdix\n",
        },
    }
    corpora = load_folder(write_files(folder, files), source="en", targets=["es", "fr"])
    across = [c for c in corpora if c.record_type == "similarity" and "-" in c.languages]
    assert [corpus.title for corpus in across] == ["similarity/a.en-es"]
    assert records(across[0]) == [("one", "dos", 100), ("six", "diez", 0)]


def test_all_is_resolved_by_what_the_corpora_will_be(folder):
    for all_pairs, targets in ((False, ("es", "fr")), (True, ("es", "fr", "it"))):
        wanted = DataConfig(targets=("all",), all_pairs=all_pairs)
        assert resolve_languages(folder, wanted).targets == targets
    sample = resolve_languages(None, DataConfig(targets=("all",), sample=True))
    assert sample.targets == ("de", "es", "fr", "zh")


def test_shards_of_scored_pairs_have_one_scale(tmp_path):
    files = {
        "parallel/x.en-es.tsv": "Hello\tHola\n",
        "similarity/s.en-00000-of-00003.tsv": "a\tb\t0\nc\td\t5\ne\tf\t4\n",
        "similarity/s.en-00001-of-00003.tsv": "g\th\t4\ni\tj\t5\n",
        "similarity/s.en-00002-of-00003.tsv": "k\tl\t3\n",
    }
    corpora = load_folder(write_files(tmp_path, files), source="en", targets=["es"])
    (scored,) = (corpus for corpus in corpora if corpus.record_type == "similarity")
    assert [record.label for record in records(scored)] == [0, 100, 80, 80, 100, 60]
