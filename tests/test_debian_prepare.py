"""From packages to a folder, with the fetching replaced by packages made here."""

import gzip
import json

import polib
import pytest

from xling_tf.corpora.debian import prepare, prepare_default_corpora
from xling_tf.corpora.debian.cleaned import CorpusCleaner
from xling_tf.corpora.debian.extraction import Extraction
from xling_tf.corpora.debian.packages import Fetched
from xling_tf.corpora.debian.registry import LANGUAGE_PAIRS, SOURCES
from xling_tf.corpora.debian.report import SourceReport, licences, table
from xling_tf.corpora.records import ResponsePair, TranslationPair
from xling_tf.errors import UserError

_MESSAGES = {
    "The city is large. It has a wall. It has two gates.": (
        "La ciudad es grande. Tiene una muralla. Tiene dos puertas."
    ),
    "Build a new city": "Construye una ciudad nueva",
    "%d new cities": "%d ciudades nuevas",
}


@pytest.fixture
def folders(tmp_path):
    return {"raw_dir": tmp_path / "raw", "prepared_dir": tmp_path / "prepared"}


@pytest.fixture
def archive(tmp_path, monkeypatch):
    """Stands in for apt: has one package, freeciv-data, and notes each call."""
    package = tmp_path / "packages/freeciv-data"
    path = package / "usr/share/locale/es/LC_MESSAGES/freeciv.mo"
    path.parent.mkdir(parents=True)
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend(polib.POEntry(msgid=m, msgstr=t) for m, t in _MESSAGES.items())
    catalogue.save_as_mofile(str(path))

    class Archive:
        calls = 0
        error = None
        failed: dict[str, str] = {}
        packages = {"freeciv-data": package}

        def fetch(self, patterns, raw_dir):
            self.calls += 1
            if self.error:
                raise self.error
            return Fetched(
                packages={name: {name: path} for name, path in self.packages.items()},
                versions=dict.fromkeys(self.packages, "3.0"),
                not_found=("gimp-help-en",),
                failed=self.failed,
            )

    archive = Archive()
    monkeypatch.setattr(prepare, "fetch", archive.fetch)
    return archive


def _lines(path):
    return gzip.decompress(path.read_bytes()).decode().splitlines()


def test_a_folder_in_the_data_layout(archive, folders):
    folder = prepare_default_corpora("en", "es", **folders)
    assert folder == folders["prepared_dir"] / "en-es"
    assert set(_lines(folder / "parallel/freeciv.en-es.tsv.gz")) == {
        "Build a new city\tConstruye una ciudad nueva",
        "The city is large.\tLa ciudad es grande.",
        "It has a wall.\tTiene una muralla.",
        "It has two gates.\tTiene dos puertas.",
    }
    assert _lines(folder / "documents/freeciv.es.txt.gz") == [
        "La ciudad es grande.",
        "Tiene una muralla.",
        "Tiene dos puertas.",
        "",
    ]
    assert not (folder / "conversations").exists()
    report = json.loads((folder / "preparation.json").read_text())
    assert report["packages"] == {"freeciv-data": "3.0"}
    assert report["not_found"] == ["gimp-help-en"]
    assert report["sources"][0]["counts"] == {"parallel": 4, "documents en": 3, "documents es": 3}
    assert "freeciv-data 3.0, licence GPL-2+" in (folder / "SOURCES.md").read_text()


def test_a_prepared_folder_is_returned_at_once(archive, folders):
    prepare_default_corpora("en", "es", **folders)
    prepare_default_corpora("en", "es", **folders)
    assert archive.calls == 1


def test_a_changed_preparation_is_made_anew(archive, folders, monkeypatch):
    folder = prepare_default_corpora("en", "es", **folders)
    (folder / "parallel/freeciv.en-es.tsv.gz").unlink()
    monkeypatch.setattr(prepare, "PREPARATION_VERSION", prepare.PREPARATION_VERSION + 1)
    prepare_default_corpora("en", "es", **folders)
    assert (folder / "parallel/freeciv.en-es.tsv.gz").exists()


def test_equal_packages_give_equal_bytes(archive, folders, tmp_path):
    folder = prepare_default_corpora("en", "es", **folders)
    again = prepare_default_corpora(
        "en", "es", raw_dir=folders["raw_dir"], prepared_dir=tmp_path / "again"
    )
    names = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(again) for p in again.rglob("*") if p.is_file())
    assert all((folder / n).read_bytes() == (again / n).read_bytes() for n in names)


def test_failed_downloads_are_tried_again(archive, folders):
    archive.failed = {"gimp-help-es": "E: Failed to fetch"}
    folder = prepare_default_corpora("en", "es", **folders)
    assert json.loads((folder / "preparation.json").read_text())["failed"] == archive.failed
    prepare_default_corpora("en", "es", **folders)
    assert archive.calls == 2
    archive.error = UserError("offline")
    assert prepare_default_corpora("en", "es", **folders) == folder


def test_no_archive_and_nothing_prepared_is_an_error(archive, folders):
    archive.error = UserError("offline")
    with pytest.raises(UserError, match="offline"):
        prepare_default_corpora("en", "es", **folders)


def test_not_one_usable_package_is_an_error(archive, folders):
    archive.packages = {}
    with pytest.raises(UserError, match=r"none of the packages.*--data DIR"):
        prepare_default_corpora("en", "es", **folders)
    assert not (folders["prepared_dir"] / "en-es").exists()


@pytest.mark.parametrize("pair", [("en", "it"), ("es", "en")])
def test_unknown_pairs_are_told_the_known_ones(pair, folders):
    with pytest.raises(UserError, match=r"en-es, en-fr, en-de, en-zh, not for .* --data DIR"):
        prepare_default_corpora(*pair, **folders)


def test_a_dropped_sentence_parts_a_document():
    cleaner = CorpusCleaner("en", "es")
    good = ["One two three.", "Four five six.", "Seven eight nine."]
    extraction = Extraction(documents={"en": [[*good, "<x y>", "Ten eleven twelve."], good]})
    # The fourth is markup, the fifth alone, and the second document repeats the first.
    assert cleaner.clean(extraction).documents == {"en": [good]}
    assert cleaner.dropped["documents en"] == {
        "markup or placeholder": 1,
        "fewer than three sentences in a row": 1,
        "repeated paragraph": 3,
    }


def test_conversations_lose_repetitions_and_line_ends():
    cleaner = CorpusCleaner("en", "es")
    pair = ResponsePair("Who are\nyou?", "A humble guard.")
    cleaned = cleaner.clean(Extraction(conversations={"en": [pair, pair, ResponsePair("No", "x")]}))
    assert cleaned.conversations == {"en": [("Who are you?", "A humble guard.")]}
    assert cleaner.dropped["conversations en"] == {"duplicate": 1, "too short": 1}


def test_a_stock_phrase_is_kept_ten_times():
    cleaner = CorpusCleaner("en", "es")
    pairs = [ResponsePair(f"Question number {i}?", "I have to go.") for i in range(12)]
    assert len(cleaner.clean(Extraction(conversations={"en": pairs})).conversations["en"]) == 10
    assert cleaner.dropped["conversations en"] == {"frequent response": 2}


def test_a_pair_is_kept_from_the_first_source_only():
    cleaner = CorpusCleaner("en", "es")
    extraction = Extraction(parallel=[TranslationPair("Build a new city", "Construye otra ciudad")])
    assert len(cleaner.clean(extraction).parallel) == 1
    assert cleaner.clean(extraction).parallel == []


def test_licences_come_from_the_copyright_file(tmp_path):
    path = tmp_path / "alpha/usr/share/doc/alpha/copyright"
    path.parent.mkdir(parents=True)
    path.write_text("Files: debian/*\nLicense: GPL-3\n\nFiles: *\nCopyright: x\nLicense: MPL-2.0\n")
    packages = {"alpha": tmp_path / "alpha", "beta": tmp_path / "beta"}
    assert licences(packages, "as stated") == {"alpha": "MPL-2.0", "beta": "as stated"}


def test_the_table_has_totals():
    rows = [
        SourceReport(name=name, description="", packages={}, licences={}, counts={"parallel": n})
        for name, n in (("a", 1000), ("bb", 1))
    ]
    assert table(rows).splitlines() == [
        "source  parallel",
        "a          1,000",
        "bb             1",
        "total      1,001",
    ]


def test_each_pair_has_sources_and_names_are_unique():
    for pair in LANGUAGE_PAIRS:
        assert len([source for source in SOURCES if source.patterns(*pair)]) >= 5
    assert len({source.name for source in SOURCES}) == len(SOURCES)
