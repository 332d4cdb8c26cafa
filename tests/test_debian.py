"""The default corpora: from packages of a fake apt, and from SNLI's page, to a data folder."""

import io
import json
import subprocess
import zipfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import debian
import default
import pytest
from debian import Cleaner, prepare_default_corpora
from package_text import Extraction, extract_json
from raw_files import shards, snli_line, write_catalogue, write_files

from xling_tf.corpora.readers import read_snli
from xling_tf.corpora.records import InferencePair, ResponsePair, TranslationPair
from xling_tf.errors import UserError

_MESSAGES = {
    "The city is large. It has a wall. It has two gates.": (
        "La ciudad es grande. Tiene una muralla. Tiene dos puertas."
    ),
    "Build a new city": "Construye una ciudad nueva",
    "%d new cities": "%d ciudades nuevas",
}
_COPYRIGHT = "Files: debian/*\nLicense: GPL-3\n\nFiles: *\nCopyright: x\nLicense: MPL-2.0\n"


@pytest.fixture
def archive(monkeypatch):
    """Stands in for the package tools: names, the one with a broken download, and the downloads."""
    archive = SimpleNamespace(names="freeciv-data git vlc-data", broken="", calls=[])

    def run(command, cwd, **_):
        output, error = "1.2-3", ""
        if command[0] == "apt-cache":
            output = archive.names
        elif "update" in command and not archive.names:
            error = "E: Could not resolve 'archive.example'"
        elif "pip" in command:
            package, _, version = command[-1].partition("==")
            archive.calls.append(command[-1])
            error = "ERROR: No matching distribution" if package == archive.broken else ""
            with zipfile.ZipFile(cwd / f"{package}-{version}-py3-none-any.whl", "w") as wheel:
                for locale, text in (
                    ("en", "Keep the door open"),
                    ("es", "Deja la puerta abierta"),
                ):
                    wheel.writestr(f"a/translations/{locale}.json", json.dumps({"door": text}))
                wheel.writestr("a/code.py", "")
        elif "download" in command:
            package = command[-1]
            archive.calls.append(package)
            error = f"E: Failed to fetch {package}" if package == archive.broken else ""
            (cwd / f"{package}_1.2_all.deb").write_text(package)
        elif "-x" in command:
            package, content = Path(command[2]).read_text(), Path(command[3])
            write_catalogue(content / f"usr/share/locale/es/LC_MESSAGES/{package}.mo", _MESSAGES)
            write_files(content, {f"usr/share/doc/{package}/copyright": _COPYRIGHT})
        return subprocess.CompletedProcess(command, bool(error), output, error)

    monkeypatch.setattr(subprocess, "run", run)
    from_debian = [corpus for corpus in debian.CORPORA if "==" not in corpus.packages[0]]
    monkeypatch.setattr(debian, "CORPORA", from_debian)
    monkeypatch.setattr(debian.shutil, "which", lambda tool: tool)
    return archive


@pytest.fixture
def folders(tmp_path):
    return {"raw_dir": tmp_path / "raw", "prepared_dir": tmp_path / "prepared"}


def test_a_package_of_python_is_fetched_once_a_version(archive, tmp_path, monkeypatch):
    extract = partial(extract_json, "a/translations/{locale}.json")

    def prepare(version, prepared_dir):
        corpus = debian.PackageCorpus("home", "Messages", "MIT", (f"home=={version}",), extract)
        monkeypatch.setattr(debian, "CORPORA", [corpus])
        return prepare_default_corpora(
            "en", "es", raw_dir=tmp_path / "raw", prepared_dir=tmp_path / prepared_dir
        )

    archive.broken = "home"
    with pytest.raises(UserError, match="no package with default corpora"):
        prepare("1.0", "a")
    archive.broken = ""
    folder = prepare("1.0", "a")
    assert shards(folder) == {"home.en-es.tsv.gz": "Keep the door open\tDeja la puerta abierta\n"}
    assert "- package home 1.0, licence MIT" in (folder / "SOURCES.md").read_text()
    assert not [*(tmp_path / "raw").rglob("*.py")]  # text alone
    prepare("1.0", "b")
    prepare("2.0", "c")
    assert archive.calls == ["home==1.0", "home==1.0", "home==2.0"]


def test_a_folder_in_the_data_layout(archive, folders):
    folder = prepare_default_corpora("en", "es", **folders)
    assert folder == folders["prepared_dir"] / "en-es"
    texts = shards(folder)
    # The other package has the same text, of which nothing is left.
    assert list(texts) == ["freeciv.en.txt.gz", "freeciv.es.txt.gz", "freeciv.en-es.tsv.gz"]
    assert set(texts["freeciv.en-es.tsv.gz"].splitlines()) == {
        "Build a new city\tConstruye una ciudad nueva",
        "The city is large.\tLa ciudad es grande.",
        "It has a wall.\tTiene una muralla.",
        "It has two gates.\tTiene dos puertas.",
    }
    assert (
        texts["freeciv.es.txt.gz"]
        == "La ciudad es grande.\nTiene una muralla.\nTiene dos puertas.\n\n"
    )
    report = json.loads((folder / "preparation.json").read_text())
    assert report["sources"][0] == {
        "name": "freeciv",
        "packages": {"freeciv-data": ["1.2-3", "MPL-2.0"]},
        "counts": {"parallel en-es": 4, "documents en": 3, "documents es": 3},
    }
    assert report["dropped"]["parallel"] == {"duplicate": 4}
    assert "package freeciv-data 1.2-3, licence MPL-2.0" in (folder / "SOURCES.md").read_text()
    assert not list(folders["raw_dir"].rglob("*.deb"))


def test_a_folder_stays_until_a_package_comes_or_preparation_changes(
    archive, folders, caplog, monkeypatch
):
    archive.broken = "freeciv-data"
    folder = prepare_default_corpora("en", "es", **folders)
    assert any("freeciv-data is left out" in line for line in caplog.messages)
    assert json.loads((folder / "preparation.json").read_text())["failed"] == ["freeciv-data"]
    archive.names = ""  # without network the corpora stay as they are
    assert prepare_default_corpora("en", "es", **folders) == folder
    archive.names = "freeciv-data git"
    archive.broken = ""
    prepare_default_corpora("en", "es", **folders)
    removed = folder / "parallel/freeciv.en-es.tsv.gz"
    before = removed.read_bytes()
    removed.unlink()
    prepare_default_corpora("en", "es", **folders)
    assert not removed.exists()
    monkeypatch.setattr(debian, "PREPARATION_VERSION", debian.PREPARATION_VERSION + 1)
    # As a kill would leave it.
    (folders["raw_dir"] / "git/.package.json").unlink()
    write_files(folders["raw_dir"], {".apt/download/git_0_all.deb": "half"})
    prepare_default_corpora("en", "es", **folders)
    # The same bytes of packages, of which only the unfinished one was fetched again.
    assert removed.read_bytes() == before
    assert archive.calls == ["freeciv-data", "git", "freeciv-data", "git"]


def test_errors_are_one_line_with_a_way_out(archive, folders, monkeypatch):
    def require_told(message, target="es"):
        with pytest.raises(UserError, match=rf"^[^\n]*{message}[^\n]*--data DIR[^\n]*$"):
            prepare_default_corpora("en", target, **folders)
        assert not (folders["prepared_dir"] / f"en-{target}").exists()

    archive.names = ""
    require_told("Could not resolve 'archive.example'")
    require_told("en-zh_TW, got en-sv", "sv")
    monkeypatch.setattr(debian.shutil, "which", lambda tool: None)
    require_told("apt-get, apt-cache, dpkg-deb")


def test_what_is_cleaned_away():
    cleaner = Cleaner("en", "es")
    good = ["One two three.", "Four five six.", "Seven eight nine."]
    extraction = Extraction(documents={"en": [[*good, "<x y>", "Ten eleven twelve."], good]})
    # The fourth is markup, the fifth alone, and the second document repeats the first.
    assert cleaner.clean(extraction).documents == {"en": [good]}
    assert cleaner.dropped["documents en"] == {
        "markup or placeholder": 1,
        "fewer than three sentences in a row": 1,
        "repeated paragraph": 3,
    }
    pair = ResponsePair("Who are\nyou?", "A humble guard.")
    same = [ResponsePair(f"Question number {i}?", "I have to go.") for i in range(12)]
    pairs = [pair, pair, ResponsePair("No", "x"), *same]
    found = cleaner.clean(Extraction(conversations={"en": pairs})).conversations["en"]
    assert found == [("Who are you?", "A humble guard."), *same[:10]]
    dropped = {"duplicate": 1, "too short": 1, "frequent response": 2}
    assert cleaner.dropped["conversations en"] == dropped
    # Pairs are kept once, and templates three times.
    pairs = [
        TranslationPair(f"Gate {i} is now open", f"La puerta {i} está abierta") for i in range(5)
    ]
    # The sixth is an exact copy of the first.
    assert cleaner.clean(Extraction(parallel=[*pairs, pairs[0]])).parallel == pairs[:3]
    assert cleaner.dropped["parallel"] == {"near-duplicate": 2, "duplicate": 1}
    assert cleaner.clean(Extraction(parallel=pairs[:1])).parallel == []


SNLI = [f"snli_1.0_{split}.jsonl" for split in ("dev", "test", "train")]


def zipped(names=SNLI):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name in names:
            file.writestr(f"snli_1.0/{name}", snli_line("neutral"))
    return buffer.getvalue()


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A stand-in for the web page: what is written to it is what comes."""
    path = tmp_path / "snli_1.0.zip"
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(default, "SNLI_URL", path.as_uri())
    return path


def test_snli_is_fetched_once_beside_other_files(published, tmp_path):
    folder = tmp_path / "data"
    write_files(folder, {"nli/mine.en.train.tsv": "x"})
    published.write_bytes(zipped())
    default.fetch_snli(folder)
    files = sorted(path.name for path in folder.rglob("*"))
    assert files == ["mine.en.train.tsv", "nli", "snli_1.0", *SNLI]
    assert list(read_snli(folder / "snli_1.0" / SNLI[0])) == [(InferencePair("p", "h", 1), None)]
    for name in SNLI:  # with other names, they are known too
        (folder / "snli_1.0" / name).rename(folder / f"{name}.gz")
    default.fetch_snli(folder)
    assert not list((folder / "snli_1.0").iterdir())


@pytest.mark.parametrize(
    "content",
    [None, zipped()[:-30], zipped(SNLI[:2]), zipped().replace(b"gold", b"GOLD")],
    ids=["no network", "truncated", "a file missing", "damaged inside"],
)
def test_none_and_nothing_left_for_a_corrupt_archive(published, tmp_path, content):
    folder = tmp_path / "data"
    if content is not None:
        published.write_bytes(content)
    default.fetch_snli(folder)
    assert list(folder.iterdir()) == []
