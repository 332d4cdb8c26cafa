"""Fetches over HTTP go on after an interruption, and keep nothing that is wrong."""

import hashlib
import urllib.request

import pytest
from download import fetch
from local_server import serving

from xling_tf.errors import UserError

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server():
    with serving({"data.zip": CONTENT}) as server:
        yield server


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("sha256", [SHA256, ""])
def test_a_file_is_fetched_once(server, sha256, tmp_path):
    path = tmp_path / "new" / "data.zip"
    for _ in range(2):
        fetch(f"{server.address}data.zip", path, sha256=sha256)
        assert path.read_bytes() == CONTENT
    assert server.asked == [("data.zip", "")]
    assert names(tmp_path) == ["data.zip"]


def test_a_wrong_file_is_fetched_again(server, tmp_path):
    path = tmp_path / "data.zip"
    path.write_bytes(b"an error page")
    fetch(f"{server.address}data.zip", path, sha256=SHA256)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_cut_connection_goes_on(server, has_ranges, tmp_path):
    server.has_ranges = has_ranges
    server.cuts = [100_000, 130_000]
    fetch(f"{server.address}data.zip", tmp_path / "data.zip", sha256=SHA256)
    # With ranges, each part comes once: 100,000 and 130,000 bytes, and the other 26,000. Without
    # them, the second and third answers begin again.
    ranges = ["", "bytes=100000-", "bytes=230000-" if has_ranges else "bytes=130000-"]
    assert server.asked == [("data.zip", wanted) for wanted in ranges]
    assert names(tmp_path) == ["data.zip"]


def test_another_call_goes_on_where_a_killed_one_stopped(server, tmp_path):
    path = tmp_path / "data.zip"
    (tmp_path / "data.zip.part").write_bytes(CONTENT[:1000])
    fetch(f"{server.address}data.zip", path, sha256=SHA256)
    assert server.asked == [("data.zip", "bytes=1000-")]
    assert path.read_bytes() == CONTENT


def test_a_fetch_killed_before_it_renamed_its_file_is_done(server, tmp_path):
    path = tmp_path / "data.zip"
    (tmp_path / "data.zip.part").write_bytes(CONTENT)
    fetch(f"{server.address}data.zip", path)
    assert (path.read_bytes(), names(tmp_path)) == (CONTENT, ["data.zip"])


@pytest.mark.parametrize("begun", [CONTENT + b"longer", b"X" * 1000], ids=["longer", "other"])
def test_what_was_begun_of_another_file_is_replaced(server, begun, tmp_path):
    path = tmp_path / "data.zip"
    (tmp_path / "data.zip.part").write_bytes(begun)
    fetch(f"{server.address}data.zip", path, sha256=SHA256)
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_keeps_nothing(server, tmp_path):
    wrong = SHA256[::-1]
    with pytest.raises(UserError, match=f"SHA-256 {wrong}, but has {SHA256}.*nothing of it"):
        fetch(f"{server.address}data.zip", tmp_path / "data.zip", sha256=wrong)
    assert names(tmp_path) == []


def test_a_missing_file_is_told(server, tmp_path):
    with pytest.raises(UserError, match=r"answers 404 .*put it at .*/lost\.zip$"):
        fetch(f"{server.address}lost.zip", tmp_path / "lost.zip")
    assert names(tmp_path) == []


def test_a_server_that_is_down_is_told_and_what_came_stays(server, tmp_path):
    server.cuts = [1000, 0]
    with pytest.raises(UserError, match=r"must be served .*; the same command continues"):
        fetch(f"{server.address}data.zip", tmp_path / "data.zip")
    assert (tmp_path / "data.zip.part").read_bytes() == CONTENT[:1000]


def test_a_full_disk_is_not_called_a_fault_of_the_server(server, tmp_path, monkeypatch):
    def open_full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(urllib.request, "urlopen", open_full)
    with pytest.raises(OSError, match="No space left"):
        fetch(f"{server.address}data.zip", tmp_path / "data.zip")
