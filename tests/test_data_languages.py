"""Which languages a data folder has, and its corpora between any two of them."""

from pathlib import Path

import pytest

from xling_tf.config import DataConfig
from xling_tf.corpora.folder import load_corpora, load_folder, resolve_languages
from xling_tf.corpora.records import TranslationPair
from xling_tf.errors import UserError
from xling_tf.presets import get_preset

ALL = DataConfig(targets=("all",))


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
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def titles(folder: Path, **wanted: object) -> list[str]:
    return [corpus.title for corpus in load_folder(folder, source="en", **wanted)]


def test_pairs_with_the_source_and_what_else_is_wanted(folder):
    pairs = ["parallel/a.en-es", "parallel/a.en-fr"]
    assert titles(folder, targets=["fr", "es"]) == [*pairs, "nli/n.en.train", "questions/q.fr"]
    found = titles(folder, targets=["es", "fr"], target_inference=True)
    assert found == [*pairs, "nli/n.en.train", "nli/n.fr.train", "questions/q.fr"]
    assert "parallel/b.es-it" in titles(folder, targets=["es", "it"], all_pairs=True)
    # A language that no list has is used where files do.
    (folder / "parallel" / "x.en-tlh.tsv").write_text("Hello\tnuqneH\n")
    assert titles(folder, targets=["tlh"])[0] == "parallel/x.en-tlh"


@pytest.mark.parametrize(
    ("targets", "pair", "record"),
    [
        (["fr", "es"], "parallel/a.fr-es", TranslationPair("Bonjour", "Hola")),
        (["es", "fr"], "parallel/a.es-fr", TranslationPair("Hola", "Bonjour")),
    ],
)
def test_pairs_of_targets_are_in_the_order_of_the_targets(folder, targets, pair, record):
    corpora = load_folder(folder, source="en", targets=targets, all_pairs=True)
    assert {corpus.title for corpus in corpora if corpus.kind == "parallel"} == {
        *("parallel/a.en-es", "parallel/a.en-fr", pair),
    }
    (between,) = (corpus for corpus in corpora if corpus.title == pair)
    assert [found for found, _ in between] == [record]


@pytest.mark.parametrize(
    ("source", "targets", "message"),
    [
        ("eng", ["es"], "got 'eng'; did you mean en?"),
        ("en", ["es", "esp"], "got 'esp'; did you mean es?"),
        ("en", ["xx"], "got 'xx'$"),
        ("en", ["es", "it"], "translations for en-it"),
        ("en", ["es_MX"], "must have translations for en-es_MX, but has pairs"),
    ],
)
def test_unknown_languages_are_told(folder, source, targets, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        load_folder(folder, source=source, targets=targets)


def test_all_is_resolved_by_what_the_corpora_will_be(folder):
    for source, all_pairs, targets in (
        *(("en", False, ("es", "fr")), ("en", True, ("es", "fr", "it")), ("it", False, ("es",))),
    ):
        wanted = DataConfig(source=source, targets=("all",), all_pairs=all_pairs)
        assert resolve_languages(folder, wanted).targets == targets
    assert resolve_languages(None, DataConfig(targets=("all",), sample=True)).targets == (
        *("de", "es", "fr", "zh"),
    )
    assert set(resolve_languages(None, ALL).targets) == set(get_preset("many").data.targets)
    named = DataConfig(targets=("fr", "es"))
    assert resolve_languages(folder, named) is named


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        (".", "eng", "got 'eng'; did you mean en"),
        # Texts of German are not enough.
        (".", "de", "translations for de-LANGUAGE, but has pairs: en-en, en-es"),
        ("none", "en", r"is missing; make it with parallel/NAME\.en-LANGUAGE"),
    ],
)
def test_all_languages_of_a_folder_that_has_none(folder, name, source, message):
    with pytest.raises(UserError, match=message):
        resolve_languages(folder / name, DataConfig(source=source, targets=("all",)))


def test_default_corpora_that_are_not_prepared_yet_are_named(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"python data/default\.py --target fr"):
        load_corpora(None, DataConfig(targets=("fr",)))
