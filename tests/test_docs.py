"""The pages promise only what exists: flags, settings, presets, files and make targets."""

import re
from pathlib import Path

from programs import run_python

from xling_tf.cli import COMMANDS, WORDS
from xling_tf.files import read_json
from xling_tf.presets import PRESETS, get_preset
from xling_tf.settings import apply_overrides

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}


def test_commands_have_programs_and_their_flags():
    programs = r"(?:training|evaluation|export|data)/[\w/]+\.py"
    paths = {**COMMANDS, **WORDS}
    words = "|".join(WORDS)
    pattern = rf"(?:python ({programs})|xling-tf ({words}|[a-z][a-z-]*))([^\n`]*)"
    for page, text in TEXT.items():
        for program, command, rest in re.findall(pattern, text):
            program = program or paths[command]
            source = (ROOT / program).read_text(encoding="utf-8")
            names = {*re.findall(r'flags\.DEFINE_\w+\(\s*"(\w+)"', source), "help"}
            names |= {"import"} if "define_import()" in source else set()
            names |= {"source", "target"} if "define_languages()" in source else set()
            unknown = set(re.findall(r"--(\w+)", rest)) - names
            # prepare_raw.py takes those of Apache Beam, too.
            assert program == "data/prepare_raw.py" or not unknown, (
                f"{page}: {program} has no --{unknown}"
            )


def test_settings_shown_are_settings():
    for line in "\n".join(TEXT.values()).splitlines():
        settings = re.findall(r"--set (?!a\.b=)([\w.]+=[\w.,-]+)", line)
        if settings and "--import" not in line:  # of kinds that tests of that page have
            # Some settings are valid only together, or only for the preset of their line.
            (preset,) = re.findall(r"--preset ([\w-]+)", line)[:1] or ["multi-task"]
            apply_overrides(get_preset(preset), settings)


def test_the_page_of_the_api_is_that_of_the_docstrings():
    done = run_python(ROOT / "docs", "-c", "import api_page; print(api_page.page(), end='')")
    assert done.output == TEXT["docs/api.md"], "make api writes docs/api.md"


def test_links_lead_somewhere():
    for page, text in TEXT.items():
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path, _, heading = target.partition("#")
            linked = (ROOT / page).parent / path if path else ROOT / page
            assert linked.exists(), f"{page} links {target}"
            if heading and linked.suffix == ".json":  # a member of the results of a topic
                assert heading in read_json(linked), f"{page} links {target}"
            elif heading:
                titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w -]", "", t).lower().replace(" ", "-") for t in titles]
                assert heading in anchors, f"{page} links {target}"


def test_files_named_exist():
    folders = "xling_tf|training|evaluation|export|data|tests|docs"
    for page, text in TEXT.items():
        files = set(re.findall(rf"(?<![\w/])(?:\.\./)*((?:{folders})/[\w./-]+\.\w+)", text))
        assert not (missing := {file for file in files if not (ROOT / file).exists()}), (
            f"{page}: {missing}"
        )


def test_the_table_of_presets_and_the_make_targets_are_complete():
    rows = re.findall(r"^\| (`[^|]+`) \|", TEXT["docs/training.md"], flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert set(PRESETS) <= named
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    shown = re.findall(
        r"(?:^    |`)make ((?:[a-z]+ ?)+)", "\n".join(TEXT.values()), flags=re.MULTILINE
    )
    assert {name for names in shown for name in names.split()} <= targets
