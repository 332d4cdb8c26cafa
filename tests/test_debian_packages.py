"""The apt client, against executables that behave like apt's in each kind of weather."""

import stat
import subprocess
import sys

import pytest

from xling_tf.corpora.debian.packages import fetch, resolve
from xling_tf.corpora.debian.unpacking import unpacked_version
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
