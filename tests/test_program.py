"""The log lines of the parts of a program."""

import errno
import os
import shlex
import subprocess
import sys
import time
from logging import ERROR, NOTSET, WARNING, root

import pytest
import tensorflow as tf
from absl import flags, logging
from programs import ROOT

from xling_tf import program
from xling_tf.errors import UserError, as_user_error, library

NO_MEMORY = tf.errors.InternalError(
    None, None, "cudaSetDevice() on GPU:0 failed. Status: out of memory"
)


def test_a_part_logs_lines_at_its_begin_and_end_and_in_between(caplog, monkeypatch):
    monkeypatch.setattr(program, "_SECONDS_BETWEEN_LINES", 0.05)
    with caplog.at_level("INFO", logger="absl"), program.progress("reading") as report:
        report("half of it")
        while len(caplog.messages) < 3:
            time.sleep(0.01)
    begin, *between, end = caplog.messages
    assert (begin, end.startswith("reading: done in")) == ("reading", True)
    assert all("reading: half of it, after" in line for line in between)


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (UserError("give another `v` or `names`"), 2, "error: give another --v or `names`\n"),
        (KeyboardInterrupt(), 130, "interrupted; the same command continues\n"),
        # As pybind11 says it where Ctrl-C hits another exception on its way through C++.
        (
            RuntimeError("ORIGINAL InvalidArgumentError REPLACED BY KeyboardInterrupt"),
            130,
            "interrupted; the same command continues\n",
        ),
        (
            OSError(28, ""),
            2,
            "error: the disk is full; make room, and the same command continues\n",
        ),
        (
            tf.errors.ResourceExhaustedError(
                None, None, "m/x; No space left on device [Op:SaveV2]"
            ),
            2,
            "error: the disk is full; make room, and the same command continues\n",
        ),
        (
            NO_MEMORY,
            2,
            "error: no memory left (cudaSetDevice() on GPU:0 failed. Status: out of memory); end "
            "other programs that use the GPU, or set smaller batches, and the same command "
            "continues\n",
        ),
    ],
)
def test_mistakes_interruptions_and_a_full_disk_are_one_line(error, status, line, capsys):
    with pytest.raises(SystemExit) as end, program.one_line_errors("the same command continues"):
        raise error
    assert (end.value.code, capsys.readouterr().err) == (status, line)


@pytest.mark.parametrize("num_lines", [1, 100_000])
def test_a_reader_that_stops_ends_the_program_without_a_message(num_lines):
    code = f"from xling_tf import program\nprogram.run(lambda: print('line\\n' * {num_lines}), '')"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, cwd=ROOT
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_texts_and_paths_are_printed_in_any_encoding():
    code = "from xling_tf import program; program.run(lambda: print('a\\u00f1o \\udcf1'), '')"
    for encoding, output in {
        "ascii": b"a\\xf1o \\udcf1\n",
        "utf-8": "año \\udcf1\n".encode(),
    }.items():
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, cwd=ROOT, env=environment
        )
        assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_names_of_files_are_utf_8_in_any_locale():
    code = """from xling_tf import program
program.run(lambda name: print(ascii(name)), "", files="FILE")"""
    language = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code, "a\u00f1o"],
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, **language},
    )
    assert done.stdout.decode().strip() == ascii("a\u00f1o"), done.stderr.decode()


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), NO_MEMORY])
def test_a_full_disk_or_memory_is_no_damaged_file(error):
    with pytest.raises(type(error)), as_user_error("download again", OSError, tf.errors.OpError):
        raise error


def test_a_package_that_fails_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import missing_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        UserError, match=r"Broken, which cannot be imported \(No module named 'missing_dep"
    ):
        library("broken_package", "Broken", "x")
    with pytest.raises(UserError, match=r"needs None, which is not installed; .*xling_tf\[x\]"):
        library("missing_package.part", "None", "x")


def test_the_home_folder_is_expanded_in_flags(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    values = flags.FlagValues()
    flags.DEFINE_string("output", None, "", flag_values=values)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    assert program.parse_flags(["x", "--output=~/exported", "a~/b"], files="FILE") == [
        "x",
        "a~/b",
    ]
    assert values.output == "/home/ana/exported"


def test_flags_are_spelled_as_gnu_programs_spell_them(monkeypatch, capsys):
    values = flags.FlagValues()
    flags.DEFINE_integer("rows_per_shard", 8, "Rows.", flag_values=values, lower_bound=1)
    flags.DEFINE_bool("header", True, "A header.", flag_values=values)
    flags.DEFINE_bool("no_op", False, "Nothing.", flag_values=values)
    flags.DEFINE_enum("to", "onnx", ["onnx", "wheel"], "The form.", flag_values=values)
    flags.DEFINE_multi_string("set", [], "Settings.", flag_values=values)
    flags.DEFINE_float("margin", 0.5, "M.", flag_values=values, lower_bound=0)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    words = [
        "a-b",
        "--rows-per-shard=3",
        "--no-header",
        "--no-op",
        "--set",
        "x-y=1",
        "--set=z",
        "c",
    ]
    assert program.parse_flags(["x", *words], files="FILE") == ["x", "a-b", "c"]
    assert (values.rows_per_shard, values.header, values.no_op) == (3, False, True)
    assert values.set == ["x-y=1", "z"]
    for word, message in {
        "--rows": "error: --rows is not a flag of this program; --help lists the flags\n",
        "--rows-per-shards=3": "did you mean --rows_per_shard?\n",
        "--rows_per_shard=0": "--rows_per_shard must be a whole number of 1 or more, got '0'\n",
        "--rows_per_shard=x": "--rows_per_shard must be a whole number of 1 or more, got 'x'\n",
        "--margin=x": "--margin must be a number of 0 or more, got 'x'\n",
        "--to=x": "--to must be one of onnx, wheel, got 'x'\n",
        "-header": "did you mean --header?\n",
    }.items():
        with pytest.raises(SystemExit) as ended:
            program.parse_flags(["x", word], files="")
        assert ended.value.code == 2
        assert message in capsys.readouterr().err
    for word in ("-h", "--help"):
        with pytest.raises(SystemExit) as ended:
            program.parse_flags(["x", word], files="")
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith("usage: x [options]\n")


def test_help_shows_defaults_and_the_spelling_that_changes_something(monkeypatch, capsys):
    values = flags.FlagValues()
    ours = {"flag_values": values, "module_name": sys.argv[0]}  # as if this were a program
    flags.DEFINE_integer("rows", 8, "Rows.", **ours)
    flags.DEFINE_multi_string("set", [], "Settings.", **ours)
    flags.DEFINE_list("names", [], "Names.", **ours)
    flags.DEFINE_multi_string("first_model", ["a"], "Models.", **ours)
    flags.DEFINE_float("seconds", 1, "Wait.", **ours)
    flags.DEFINE_bool("header", True, "No header.", **ours)
    flags.DEFINE_bool("list", False, "Lists.", **ours)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    with pytest.raises(SystemExit):
        program.parse_flags(["x", "--help"], files="")
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert sorted(line for line in shown if line[:2] == "--") == [
        "--first_model MODEL Models. Repeatable. Default: a.",
        "--list Lists.",
        "--names NAMES Names.",
        "--no-header No header.",
        "--rows N Rows. Default: 8.",
        "--seconds N Wait. Default: 1.",
        "--set SET Settings. Repeatable.",
    ]


def test_flags_that_are_missing_are_named(monkeypatch, capsys):
    values = flags.FlagValues()
    for name in ("data", "model"):
        flags.DEFINE_string(name, None, "", flag_values=values, required=True)
    monkeypatch.setattr(program.flags, "FLAGS", values)
    with pytest.raises(SystemExit):
        program.parse_flags(["x"], files="")
    assert capsys.readouterr().err == "error: expected --data and --model, which --help describes\n"


def test_what_programs_say_to_try_runs(hub_folder, tmp_path):
    (folder := tmp_path / "it's").symlink_to(hub_folder)
    lines = [
        line[4:] for line in program.ways_to_try(folder).splitlines() if line.startswith("    ")
    ]
    *code, last, serve = filter(None, lines)
    exec("\n".join([*code, f"vectors = {last}"]), variables := {})
    assert len(variables["vectors"]) == 2
    assert shlex.split(serve) == ["xling-tf", "serve", "--model", str(folder)]


def test_a_library_call_shows_its_log_unless_the_caller_has_set_up_logging(caplog):
    logger = logging.get_absl_logger()
    caplog.set_level(NOTSET, logger="absl")
    filters, handlers = [*logger.filters], [*logger.handlers]
    with program.visible_log(), program.progress("a part"):
        pass
    assert "a part: done" in caplog.text
    assert (logger.level, logger.filters, logger.handlers) == (NOTSET, filters, handlers)
    caplog.clear()
    caplog.set_level(ERROR, logger="absl")
    with program.visible_log(), program.progress("a part"):
        pass
    assert not caplog.text


def test_each_library_call_shows_its_log_alike(capsys, monkeypatch):
    # As in a process that has set up nothing: absl would add a handler to the root logger.
    logger = logging.get_absl_logger()
    for each in (logger, root):
        monkeypatch.setattr(each, "handlers", [])
        monkeypatch.setattr(each, "level", NOTSET if each is logger else WARNING)
    logger.manager._clear_cache()  # of levels
    for _ in range(2):
        with program.visible_log(), program.progress("a part"):
            logging.error("wrong")
        begin, wrong, end = capsys.readouterr().err.splitlines()
        assert begin.endswith(" INFO a part")
        assert wrong.endswith(" ERROR wrong")  # also warnings are called so
        assert " INFO a part: done" in end
        assert not root.handlers
