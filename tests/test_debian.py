"""The default corpora: apt replaced by executables that behave like it in each kind of weather."""

import gzip
import json
import stat
import subprocess
import sys

import polib
import pytest

from xling_tf.corpora import debian
from xling_tf.corpora.debian import (
    LANGUAGE_PAIRS,
    SOURCES,
    CorpusCleaner,
    Fetched,
    fetch,
    licences,
    prepare_default_corpora,
    resolve,
    unpacked_version,
)
from xling_tf.corpora.package_text import Extraction
from xling_tf.corpora.records import ResponsePair, TranslationPair
from xling_tf.errors import UserError

# What the fake tools do is told by files in $WEATHER: `names` is the archive's list of names,
# `broken` the packages whose download fails; every call is noted in `calls`.
_FAKES = {
    "apt-get": """
        if "update" in arguments:
            if not names:
                sys.exit("E: Could not resolve 'archive.example'")
        else:
            package = arguments[-1]
            if package in broken:
                print("E: Failed to fetch " + package, file=sys.stderr)
                sys.exit(100)
            open(package + "_1.2_all.deb", "w").write(package)
    """,
    "apt-cache": """
        print("\\n".join(names))
    """,
    "dpkg-deb": """
        package = open(arguments[1]).read()
        if arguments[0] == "-f":
            print("1.2-3")
        else:
            folder = os.path.join(arguments[2], "usr/share/doc", package)
            os.makedirs(folder)
            for name in ("copyright", "picture.png", "messages.mo"):
                open(os.path.join(folder, name), "w").write(name)
    """,
}
_PROLOGUE = """
import os, sys
weather = os.environ["WEATHER"]
read = lambda name: open(os.path.join(weather, name)).read().split()
names, broken, arguments = read("names"), read("broken"), sys.argv[1:]
call = " ".join([os.path.basename(sys.argv[0]), *arguments[-2:]])
open(os.path.join(weather, "calls"), "a").write(call + "\\n")
"""


@pytest.fixture
def weather(tmp_path, monkeypatch):
    """A folder that steers fake package tools, the only ones on PATH."""
    folder = tmp_path / "weather"
    tools = folder / "bin"
    tools.mkdir(parents=True)
    for name, body in _FAKES.items():
        lines = [line[8:] for line in body.splitlines()]
        path = tools / name
        path.write_text(f"#!{sys.executable}\n{_PROLOGUE}" + "\n".join(lines))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    for name in ("names", "broken", "calls"):
        (folder / name).touch()
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("WEATHER", str(folder))
    return folder


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def _calls(weather):
    return (weather / "calls").read_text().splitlines()


def test_newest_version_wins_by_number():
    # 1.9 < 1.16 though "1.9" > "1.16" as text.
    names = ["game-1.9-data", "game-1.16-data", "game-1.16-dm", "game-1.16-music", "other"]
    pattern = r"game-(?P<version>[\d.]+)-(?!music)\w+"
    assert resolve([pattern, "absent"], names) == {
        pattern: ["game-1.16-data", "game-1.16-dm"],
        "absent": [],
    }


def test_packages_are_unpacked_without_pictures(weather, raw):
    (weather / "names").write_text("alpha beta")
    fetched = fetch(["alpha"], raw)
    assert fetched.packages == {"alpha": {"alpha": raw / "alpha"}}
    assert fetched.versions == {"alpha": "1.2-3"}
    kept = {path.name for path in (raw / "alpha/usr/share/doc/alpha").iterdir()}
    assert kept == {"copyright", "messages.mo"}
    assert not list(raw.rglob("*.deb"))


def test_what_is_there_is_not_fetched_again(weather, raw):
    (weather / "names").write_text("alpha")
    first = fetch(["alpha"], raw)
    calls = _calls(weather)
    (weather / "names").write_text("")  # offline from here
    assert fetch(["alpha"], raw) == first
    assert _calls(weather) == calls


def test_unknown_and_failing_packages_are_told(weather, raw):
    (weather / "names").write_text("alpha beta")
    (weather / "broken").write_text("beta")
    fetched = fetch(["alpha", "beta", "gamma"], raw)
    assert set(fetched.versions) == {"alpha"}
    assert fetched.not_found == ("gamma",)
    assert fetched.failed == {"beta": "E: Failed to fetch beta"}


def test_half_unpacked_package_is_fetched_again(weather, raw):
    (weather / "names").write_text("alpha beta")
    fetch(["alpha", "beta"], raw)
    (raw / "beta/.package.json").unlink()  # as a kill would leave it
    (raw / ".apt/download").mkdir()
    (raw / ".apt/download/alpha_0_all.deb").write_text("half")
    assert unpacked_version(raw / "beta") is None
    assert set(fetch(["alpha", "beta"], raw).versions) == {"alpha", "beta"}
    downloads = [call for call in _calls(weather) if " download " in f" {call} "]
    assert downloads == ["apt-get download " + name for name in ("alpha", "beta", "beta")]


def test_the_systems_own_state_is_not_used(weather, raw):
    (weather / "names").write_text("alpha")
    fetch(["alpha"], raw)
    config = (raw / ".apt/apt.conf").read_text()
    assert f'Dir::State::status "{raw}/.apt/status";' in config
    assert f'Dir::State::Lists "{raw}/.apt/lists";' in config


def test_no_network_is_one_line_with_a_way_out(weather, raw):
    with pytest.raises(
        UserError, match=r"Could not resolve 'archive.example'.*--data DIR"
    ) as error:
        fetch(["alpha"], raw)
    assert "\n" not in str(error.value)


def test_no_apt_is_one_line_with_a_way_out(raw, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match=r"no apt-get, apt-cache, dpkg-deb.*--data DIR"):
        fetch(["alpha"], raw)


def test_fakes_are_executable(weather):
    # A test of the tests: with fakes that do not start, the failures above would prove nothing.
    (weather / "names").write_text("alpha beta")
    listed = subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=True)
    assert listed.stdout.split() == ["alpha", "beta"]


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
    monkeypatch.setattr(debian, "fetch", archive.fetch)
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
    monkeypatch.setattr(debian, "PREPARATION_VERSION", debian.PREPARATION_VERSION + 1)
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
    with pytest.raises(UserError, match="--data DIR"):
        prepare_default_corpora("en", "es", **folders)
    assert not (folders["prepared_dir"] / "en-es").exists()


@pytest.mark.parametrize("pair", [("en", "it"), ("es", "en")])
def test_an_error_for_an_unknown_pair_names_the_known_ones(pair, folders):
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


def test_each_pair_has_sources_and_names_are_unique():
    for pair in LANGUAGE_PAIRS:
        assert len([source for source in SOURCES if source.patterns(*pair)]) >= 5
    assert len({source.name for source in SOURCES}) == len(SOURCES)


@pytest.mark.parametrize("content", [b"", b"[", b"[]", b'"x"', b"{}", b"null", b"\xff"])
def test_damaged_notes_beside_packages_count_as_absent(content, tmp_path):
    for name in ("preparation.json", ".package.json", "packages.json"):
        (tmp_path / name).write_bytes(content)
    assert debian._read_preparation(tmp_path) is None
    assert unpacked_version(tmp_path) is None
    assert debian._remembered(tmp_path) == {}
