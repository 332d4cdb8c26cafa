import errno
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from programs import ROOT

from xling_tf.corpora.line_files import read_lines
from xling_tf.errors import UserError
from xling_tf.files import (
    folder_of_this_process,
    locked,
    read_json,
    recover_folder,
    replacing,
    replacing_folder,
    require_writable_folder,
    write_json,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def make_folder(path, text):
    path.mkdir(parents=True)
    (path / "file").write_text(text)
    return path


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.txt"
    for text in ("old", "new"):
        with replacing(path) as temporary:
            assert temporary.parent == tmp_path  # a rename between file systems would copy
            temporary.write_text(text)
        assert path.read_text() == text
    with suppress(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("ha")
        raise KeyboardInterrupt
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x.txt"]


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "model"
    with replacing_folder(path) as temporary:
        (temporary / "file").write_text("old")
        (temporary / "only in the old").write_text("")
    with replacing_folder(path) as temporary:
        assert temporary.parent == path.parent
        (temporary / "file").write_text("new")
    with suppress(OSError), replacing_folder(path) as temporary:
        (temporary / "file").write_text("ha")
        raise OSError("no space left")
    assert (path / "file").read_text() == "new"
    assert names(path) == ["file"]
    assert names(path.parent) == ["model"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    disk = make_folder(tmp_path / "disk" / "model", "old")
    (tmp_path / "link").symlink_to(disk)
    for text in ("new", "newer"):
        with replacing_folder(tmp_path / "link") as temporary:
            assert temporary.parent == disk.parent
            (temporary / "file").write_text(text)
        assert (disk / "file").read_text() == text
    (tmp_path / "file").symlink_to(disk / "file")
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("newest")
    assert (disk / "file").read_text() == "newest"
    assert (names(tmp_path), names(disk.parent)) == (["disk", "file", "link"], ["model"])
    assert all((tmp_path / name).is_symlink() for name in ("link", "file"))


def test_a_kill_between_the_two_renames_is_undone(tmp_path, monkeypatch):
    path = make_folder(tmp_path / "model", "old")
    replace, killed = os.replace, []

    def replace_once(source, target):
        if killed:
            raise KeyboardInterrupt
        killed.append(source)
        replace(source, target)

    monkeypatch.setattr(os, "replace", replace_once)
    with pytest.raises(KeyboardInterrupt), replacing_folder(path) as temporary:
        (temporary / "file").write_text("new")
    monkeypatch.undo()
    assert not path.exists()
    # The next replacement recovers first, too.
    with suppress(OSError), replacing_folder(path):
        raise OSError
    assert (path / "file").read_text() == "old"
    path.rename(tmp_path / ".model.previous")
    recover_folder(path)
    assert (path / "file").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_old_temporary_files_are_removed_and_those_of_others_stay(tmp_path):
    """Of names that begin alike; of blocks inside of one another; and of other processes."""
    path = tmp_path / "x"
    middles = ("0" * 16, "1" * 16, f"{'0' * 8}-{'0' * 8}-7", "7")
    fresh, *old = (tmp_path / f".x.{middle}.tmp" for middle in middles)
    fresh.write_text("of another process")
    for temporary in old:
        make_folder(temporary, "of a process that was killed")
        os.utime(temporary, (0, time.time() - 2 * 86400))
    with (
        replacing(path.with_suffix(".json")) as sibling,
        replacing(path) as outer,
        replacing(path) as inner,
    ):
        for number, temporary in enumerate((sibling, outer, inner)):
            temporary.write_text(str(number))
        with replacing_folder(path.with_suffix(".folder")):
            require_writable_folder(tmp_path, "")
    assert (path.read_text(), path.with_suffix(".json").read_text()) == ("1", "0")
    assert names(tmp_path) == [fresh.name, "x", "x.folder", "x.json"]


def test_a_folder_is_found_writable_without_being_made(tmp_path):
    (file := tmp_path / "file").touch()
    require_writable_folder(tmp_path / "new" / "folder", "")
    with pytest.raises(UserError, match="writable folder, but is not: Not a directory; other"):
        require_writable_folder(file / "folder", "other")
    assert names(tmp_path) == ["file"]


def file_in_folder_of_process(_: int) -> Path:
    path = folder_of_this_process() / "file"
    path.write_text("")
    return path


def test_a_folder_lives_as_long_as_its_process():
    code = (
        "import os, sys; sys.path.insert(0, 'tests'); from test_files import "
        "file_in_folder_of_process as f\npath = f(0); child = os.fork()\nif child: "
        "os.waitpid(child, 0); print(path, path.exists())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    path, existed = done.stdout.split()
    assert (existed, Path(path).exists(), Path(path).parent.exists()) == ("True", False, False)
    for method in ("forkserver", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            [path] = pool.map(file_in_folder_of_process, [0])
            assert path.exists()
            pool.close()
            pool.join()
        assert not path.parent.exists()


def test_json_holds_paths_that_are_not_utf8(tmp_path):
    content = {"path": os.fsdecode(b"a\xf1o"), "text": "año \\"}
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json") == content


def test_a_locked_folder_is_refused_until_its_process_ends(tmp_path):
    code = (
        "import pathlib, sys, time; from xling_tf.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print(flush=True); time.sleep(100)"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"\n"
        with pytest.raises(UserError, match="run_dir"), locked(tmp_path):
            pass
        process.kill()
    for _ in range(2):
        with locked(tmp_path):
            pass


@pytest.mark.parametrize("replace", [replacing, replacing_folder])
def test_a_temporary_file_in_use_stays_however_old_it_looks(tmp_path, replace, monkeypatch):
    """The clock may jump by days, at a start without a battery, or differ between machines."""
    path = tmp_path / "x"
    with replace(path) as temporary:
        file = temporary / "file" if temporary.is_dir() else temporary
        file.write_text("slow")
        os.utime(temporary, (0, 0))
        with replace(path) as second:
            (second / "file" if second.is_dir() else second).write_text("quick")
        assert file.read_text() == "slow"
    assert (path / "file" if path.is_dir() else path).read_text() == "slow"
    # A file that nobody has locked, on a file system without locks, is judged by that system's
    # clock.
    other = tmp_path / f".x.{'0' * 16}.tmp"
    other.write_text("of another machine")
    monkeypatch.setattr("time.time", lambda: os.stat(other).st_mtime + 10 * 86400)
    with replace(path) as temporary:
        (temporary / "file" if temporary.is_dir() else temporary).write_text("new")
    assert names(tmp_path) == [other.name, "x"]


@pytest.mark.parametrize("replace", [replacing, replacing_folder])
def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path, replace, monkeypatch):
    path, synced, sync = tmp_path / "x", [], os.fsync

    def record(descriptor):
        synced.append((os.readlink(f"/proc/self/fd/{descriptor}"), path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    with replace(path) as temporary:
        files = (
            [temporary / "deep" / "file", temporary / "file"] if temporary.is_dir() else [temporary]
        )
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.write_text("content")
    before = {name for name, existed in synced if not existed}
    assert before >= {str(file) for file in files} | {str(file.parent) for file in files} - {
        str(tmp_path)
    }
    assert synced[-1] == (str(tmp_path), True)


def test_a_disk_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("old")

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"), replacing(path) as temporary:
        temporary.write_text("new")
    assert (path.read_text(), names(tmp_path)) == ("old", ["x"])


def test_a_file_that_changes_while_it_is_read_as_lines_is_an_error(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("hola\n" * 900_000)  # more than is read at once
    lines = read_lines(path)
    next(lines)
    with path.open("a") as file:
        file.write("adios\n")
    with pytest.raises(UserError, match=r"x.tsv must stay the same .* changed"):
        list(lines)
    assert len(list(read_lines(path))) == 900_001


def test_a_system_without_locks_and_forks_writes_files_and_averages_words(tmp_path):
    """As on Windows: no `fcntl`, no `os.register_at_fork`."""
    code = f"""
import concurrent.futures.thread, logging, os, random, sys  # which use it here themselves
from pathlib import Path
del os.register_at_fork
sys.modules["fcntl"] = None
from xling_tf.files import locked, replacing, replacing_folder
folder = Path({str(tmp_path)!r})
with replacing(folder / "a.txt") as temporary:
    temporary.write_text("a")
with replacing_folder(folder / "b") as temporary:
    (temporary / "c.txt").write_text("c")
with locked(folder):
    pass
import xling_tf, xling_tf.sentence_encoder, xling_tf.client.runtimes
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert (tmp_path / "a.txt").read_text("utf-8") == "a"
    assert (tmp_path / "b" / "c.txt").read_text("utf-8") == "c"


def test_a_system_without_locks_and_limits_serves_and_publishes(tmp_path):
    """As on Windows: no `fcntl`, no `resource`, no `os.register_at_fork`."""
    code = f"""
import concurrent.futures.thread, logging, os, random, sys  # which use it here themselves
from pathlib import Path
import tensorflow  # whose own modules are others there
del os.register_at_fork
sys.modules.pop("resource", None), sys.modules.pop("fcntl", None)
sys.modules["fcntl"] = sys.modules["resource"] = None
sys.path += [str(Path("export").resolve()), str(Path("data").resolve())]
import debian, serve, serving_folder
from xling_tf.files import one_at_a_time
from xling_tf.serving.app import make_server
from xling_tf.serving.connections import room_for
with one_at_a_time(Path({str(tmp_path)!r})):
    print(*room_for(1000))
"""
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert run.stdout.split()[0] == "1000"
