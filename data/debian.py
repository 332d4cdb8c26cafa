"""Translated text that packages of Debian, Ubuntu and Python carry, fetched and prepared.

The system's own apt and pip download packages into a folder (without root, nothing is installed),
which are unpacked into folders of text. The readers of their formats return paragraphs with
translations, documents and conversations; these are split into sentences, cleaned, and written as a
`--data` folder, with the same bytes for the same packages. A killed preparation continues where it
stopped.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from absl import logging
from package_text import (
    LOCALES,
    Document,
    Extraction,
    extract_cataclysm,
    extract_gettext,
    extract_json,
    extract_manual,
    extract_wesnoth,
    remembered_in_english,
)

from xling_tf.corpora import cleaning
from xling_tf.corpora.cleaning import normalise, num_letters, require_known
from xling_tf.corpora.line_files import UNSPACED, is_unspaced, without_country, write_lines
from xling_tf.corpora.records import ResponsePair, TranslationPair
from xling_tf.corpora.sentences import paragraphs
from xling_tf.corpora.sentences import sentences as split_sentences
from xling_tf.errors import UserError
from xling_tf.files import one_at_a_time, read_json_dict, recover_folder, replacing_folder
from xling_tf.program import progress

# Increase it when extraction or cleaning changes, so that older folders are prepared again.
PREPARATION_VERSION = 3
# The messages of gettext are English, so English is one side.
_PAIRS = [f"en-{language}" for language in LOCALES if language != "en"]
_OWN_DATA = "train on your own corpora with --data DIR instead"
_MIN_SENTENCES = 3  # quick thought needs a sentence with both of its neighbours
# Stock phrases answer any message; more of them would be false negatives of each other in a batch.
_MAX_SAME_RESPONSES = 10
_MAX_NEAR_DUPLICATES = 3
_UNSPACED = re.compile(f"[{UNSPACED}]")
_MIN_UNSPACED = 0.3
# Frequent English words, and those that are also words of another language.
_ENGLISH_WORD = re.compile("the|of|to|and|is|you|that|it|for|with|are|be|this|by|from|when")
_SHARED_WITH_ENGLISH = {"nl": {"of", "is"}, "pl": {"to", "by"}, "tr": {"it", "be"}}
_MAX_ENGLISH_WORDS = 0.15


@dataclass(frozen=True)
class PackageCorpus:
    """One corpus made from packages."""

    name: str  # of the files
    description: str
    licence: str  # of packages whose copyright file states none
    # Regular expressions of package names, with "{}" for the code of a language. If there is a
    # group `version`, only the newest version is used. "name==version" is a package of Python.
    packages: tuple[str, ...]
    # Maps unpacked packages, source language and target language to text.
    extract: Callable[[Sequence[Path], str, str], Extraction]

    def patterns(self, *languages: str) -> tuple[str, ...]:
        """Returns the regular expressions of the packages for some languages."""
        names = {"pt": "pt-br", "zh": "zh-cn", "zh_TW": "zh-tw"}  # of languages in packages' names
        codes = [names.get(language, language) for language in languages]
        return tuple(dict.fromkeys(p.replace("{}", code) for p in self.packages for code in codes))


def prepare_default_corpora(source: str, target: str, *, raw_dir: Path, prepared_dir: Path) -> Path:
    """Downloads and prepares the default corpora of a language pair, unless that is done already.

    Returns the folder "<source>-<target>": corpora, preparation.json (counts) and SOURCES.md
    (licences).
    """
    pair = f"{source}-{target}"
    if pair not in _PAIRS:
        for language in (source, target):
            require_known(language)
        raise UserError(
            f"expected a pair with default corpora, {', '.join(_PAIRS)}, got {pair}; {_OWN_DATA}"
        )
    folder = prepared_dir / pair
    recover_folder(folder)
    earlier = _failed_before(folder)
    if earlier == []:
        return folder
    raw_dir.mkdir(parents=True, exist_ok=True)
    patterns = [pattern for corpus in CORPORA for pattern in corpus.patterns(source, target)]
    try:
        packages, failed = fetch(patterns, raw_dir)
    except UserError as error:
        if earlier is None:
            raise
        logging.warning("the corpora in %s are used as they are: %s", folder, error)
        return folder
    if not any(packages.values()):
        raise UserError(f"no package with default corpora could be downloaded; {_OWN_DATA}")
    if failed != earlier:
        with replacing_folder(folder) as temporary:
            _prepare(packages, failed, (source, target), temporary)
    return folder


def _failed_before(folder: Path) -> list[str] | None:
    """Returns the packages that a folder's download lacks; None if it is not prepared."""
    content = read_json_dict(folder / "preparation.json")
    return (
        content.get("failed") if content.get("preparation_version") == PREPARATION_VERSION else None
    )


def _prepare(
    packages: Mapping[str, Sequence[Path]],
    failed: Sequence[str],
    languages: tuple[str, str],
    folder: Path,
) -> None:
    pair, cleaner = "-".join(languages), Cleaner(*languages)
    reports, sections = [], ["# Sources"]
    for corpus in CORPORA:
        folders = [path for p in corpus.patterns(*languages) for path in packages[p]]
        if not folders:
            continue
        with progress(f"{pair}: reading {corpus.name} ({len(folders)} packages)"):
            text = cleaner.clean(corpus.extract(folders, *languages))
            counts = _write(text, corpus.name, pair, folder)
        logging.info("%s: %s", corpus.name, ", ".join(f"{n:,} {k}" for k, n in counts.items()))
        described = {p.name: [_version(p), _licence(p, corpus.licence)] for p in folders}
        reports.append({"name": corpus.name, "packages": described, "counts": counts})
        lines = [f"- package {n} {v}, licence {licence}" for n, (v, licence) in described.items()]
        lines += [f"- {kind}: {count:,}" for kind, count in counts.items()]
        sections.append("\n".join((f"## {corpus.name}", "", corpus.description, "", *lines)))
    for kind, dropped in cleaner.dropped.items():
        listed = ", ".join(f"{count:,} {reason}" for reason, count in dropped.most_common())
        logging.info("%s: dropped from %s: %s", pair, kind, listed)
    account = {
        "preparation_version": PREPARATION_VERSION,
        "languages": pair,
        "sources": reports,
        "failed": failed,
        "not_found": [pattern for pattern, folders in packages.items() if not folders],
        "dropped": cleaner.dropped,
    }
    write_lines(folder / "preparation.json", [json.dumps(account, indent=1, ensure_ascii=False)])
    write_lines(folder / "SOURCES.md", ["\n\n".join(sections)])


def _licence(folder: Path, otherwise: str) -> str:
    """Returns the main licence of a package, from its machine-readable copyright file."""
    path = folder / "usr/share/doc" / folder.name / "copyright"
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    stated = re.search(r"^Files:\s*\*\s*$.*?^License:[ \t]*(\S[^\n]*)", text, re.M | re.S)
    return stated[1].strip() if stated else otherwise


def _write(text: Extraction, name: str, pair: str, folder: Path) -> dict[str, int]:
    """Writes the files of a source, those with text, and counts pairs or sentences."""
    files = {("parallel", pair, "tsv"): ["\t".join(sides[:2]) for sides in text.parallel]}
    for language, documents in text.documents.items():
        files["documents", language, "txt"] = [line for d in documents for line in (*d, "")]
    for language, pairs in text.conversations.items():
        files["conversations", language, "tsv"] = list(map("\t".join, pairs))
    counts = {}
    for (kind, languages, ending), lines in files.items():
        if lines:
            write_lines(folder / kind / f"{name}.{languages}.{ending}.gz", lines)
            counts[f"{kind} {languages}"] = sum(map(bool, lines))
    return counts


class Cleaner:
    """Cleans sentences of one source after another, and drops repetitions, also of earlier sources.

    Attributes:
        dropped: The number of dropped items by reason, by type ("parallel", "documents en", ...).
    """

    def __init__(self, source: str, target: str) -> None:
        self._languages = (source, target)
        self._seen: set[Any] = set()
        self._counts: Counter[tuple[str, str]] = Counter()
        self.dropped: defaultdict[str, Counter[str]] = defaultdict(Counter, parallel=Counter())

    def clean(self, text: Extraction) -> Extraction:
        """Returns the sentences of a source that are fit for training and new."""
        return Extraction(
            parallel=[
                pair
                for whole in text.parallel
                for pair in aligned_sentences(whole, *self._languages)
                if self._keeps(
                    "parallel", pair_fault(pair, *self._languages) or self._repetition(pair)
                )
            ],
            documents={
                language: [run for document in documents for run in self._runs(document, language)]
                for language, documents in text.documents.items()
            },
            conversations={
                language: list(self._exchanges(pairs, language))
                for language, pairs in text.conversations.items()
            },
        )

    def _keeps(self, kind: str, reason: str | None) -> bool:
        if reason:
            self.dropped[kind][reason] += 1
        return reason is None

    def _is_new(self, item: Any) -> bool:
        is_new = item not in self._seen
        self._seen.add(item)
        return is_new

    def _repetition(self, pair: TranslationPair) -> str | None:
        if not self._is_new(pair):
            return "duplicate"
        template = ("", re.sub(r"\d+", "0", pair.source.lower()))
        self._counts[template] += 1
        return "near-duplicate" if self._counts[template] > _MAX_NEAR_DUPLICATES else None

    def _runs(self, document: Document, language: str) -> Iterator[list[str]]:
        # A dropped sentence splits the document: its neighbours are not contiguous.
        kind = f"documents {language}"
        runs: list[list[str]] = [[]]
        for paragraph in document:
            repeated = None if self._is_new((language, paragraph)) else "repeated paragraph"
            for sentence in sentences(paragraph, language):
                if self._keeps(kind, repeated or sentence_fault(sentence, language)):
                    runs[-1].append(sentence)
                else:
                    runs.append([])
        for run in runs:
            if len(run) >= _MIN_SENTENCES:
                yield run
            elif run:
                self.dropped[kind]["fewer than three sentences in a row"] += len(run)

    def _exchanges(self, pairs: Iterable[ResponsePair], language: str) -> Iterator[ResponsePair]:
        for raw in pairs:
            pair = ResponsePair(*map(normalise, raw))
            reason = sentence_fault(pair.message, language)
            reason = reason or sentence_fault(pair.response, language)
            same_response = (language, pair.response)
            if not reason and not self._is_new((language, pair)):
                reason = "duplicate"
            if not reason and self._counts[same_response] == _MAX_SAME_RESPONSES:
                reason = "frequent response"
            if self._keeps(f"conversations {language}", reason):
                self._counts[same_response] += 1
                yield pair


sentences = remembered_in_english(split_sentences)


# Packages. Lists, cache and an empty status file of our own leave the system untouched; the hooks
# that distributions run after an update need root. `#clear` works only in a file.
_APT_CONFIG = """\
Dir::State "{private}/state";
Dir::State::Lists "{private}/lists";
Dir::State::status "{private}/status";
Dir::Cache "{private}/cache";
Dir::Cache::Archives "{private}/cache/archives";
Debug::NoLocking "1";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
"""
# Home Assistant needs a newer Python than ours to be installed, and is only read.
_PIP_OPTIONS = "--no-deps --only-binary :all: --python-version 3.14.2 --retries 1"
_PIP_DOWNLOAD = (sys.executable, "-m", "pip", "download", *_PIP_OPTIONS.split())
_MARKER = ".package.json"
# The games are 95% pictures and sound. "" is the suffix of usr/share/doc/PACKAGE/copyright.
_KEPT_SUFFIXES = frozenset({"", ".mo", ".cfg", ".json", ".html", ".page"})


def fetch(patterns: Sequence[str], raw_dir: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """Downloads and unpacks the packages whose names match patterns, unless they are there.

    Returns the unpacked folders of each pattern, and the names of packages whose download failed.
    """
    # Two trainings started together share the downloads.
    with one_at_a_time(raw_dir / ".lock"):
        apt = _Apt(raw_dir)
        names = apt.package_names()
        folders, failed = {}, []
        for pattern in patterns:
            wheel, _, version = pattern.partition("==")
            matches = [wheel] if version else newest(pattern, names)
            if not matches:
                logging.warning("no package is called %s", pattern)
            for name in matches:
                found = _version(raw_dir / name)
                if not found or version not in ("", found):
                    part = f"{patterns.index(pattern) + 1} of {len(patterns)}"
                    unpack = apt.unpack_wheel if version else apt.unpack
                    is_there = unpack(pattern if version else name, raw_dir / name, part)
                    failed += [] if is_there else [name]
            folders[pattern] = [raw_dir / name for name in matches if name not in failed]
        return folders, failed


def newest(pattern: str, names: Iterable[str]) -> list[str]:
    """Returns the package names that match a pattern, only those of the newest `version` group.

    Examples:
        >>> newest(r"game-(?P<version>[0-9.]+)-data", ["game-1.9-data", "game-1.16-data"])
        ['game-1.16-data']
    """
    by_version: dict[tuple[int, ...], list[str]] = {}
    for match in filter(None, map(re.compile(pattern).fullmatch, names)):
        digits = re.findall(r"\d+", match.groupdict().get("version") or "")
        by_version.setdefault(tuple(map(int, digits)), []).append(match.string)
    return sorted(by_version[max(by_version)]) if by_version else []


_Process = subprocess.CompletedProcess[str]


class _Apt:
    """The apt client with lists, cache and state in the hidden folder `.apt` of `raw_dir`."""

    def __init__(self, raw_dir: Path) -> None:
        tools = ("apt-get", "apt-cache", "dpkg-deb")
        if missing := [tool for tool in tools if not shutil.which(tool)]:
            raise UserError(
                f"{', '.join(missing)} must be installed to fetch the corpora, but are missing; "
                f"{_OWN_DATA}"
            )
        self._private = (raw_dir / ".apt").resolve()
        for folder in ("state", "lists/partial", "cache/archives/partial"):
            (self._private / folder).mkdir(parents=True, exist_ok=True)
        (self._private / "status").touch()
        config = _APT_CONFIG.format(private=self._private)
        (self._private / "apt.conf").write_text(config, encoding="utf-8")

    def package_names(self) -> list[str]:
        """Returns all names in the archive's lists; offline, in those of the last update."""
        with progress(f"updating package lists in {self._private}"):
            update = self._run("apt-get", "update")
        names = self._run("apt-cache", "pkgnames").stdout.split()
        if not names:
            raise UserError(f"apt-get update got no list ({_complaint(update)}); {_OWN_DATA}")
        return names

    def unpack(self, package: str, folder: Path, part: str) -> bool:
        """Downloads the text of a package into a folder; returns False if that failed."""
        download = self._empty_folder()
        content = download / "unpacked"
        with progress(f"fetching package {package} ({part})"):
            steps = [self._run("apt-get", "download", package, folder=download)]
        for archive in map(str, download.glob("*.deb")):
            steps.append(self._run("dpkg-deb", "-x", archive, str(content)))
            steps.append(self._run("dpkg-deb", "-f", archive, "Version"))
        return self._keep_text(package, steps, content, folder)

    def unpack_wheel(self, requirement: str, folder: Path, part: str) -> bool:
        """Does the same for "name==version", a package of Python."""
        download = self._empty_folder()
        content = download / "unpacked"
        with progress(f"fetching package {requirement} ({part})"):
            steps = [self._run(*_PIP_DOWNLOAD, requirement, folder=download)]
        for archive in download.glob("*.whl"):
            with ZipFile(archive) as wheel:
                texts = [name for name in wheel.namelist() if Path(name).suffix in _KEPT_SUFFIXES]
                wheel.extractall(content, texts)
        steps[-1].stdout = requirement.partition("==")[2]
        return self._keep_text(requirement, steps, content, folder)

    def _empty_folder(self) -> Path:
        # Always the same place, so that the next try removes what a kill leaves behind.
        download = self._private / "download"
        shutil.rmtree(download, ignore_errors=True)
        download.mkdir()
        return download

    def _keep_text(
        self, package: str, steps: Sequence[_Process], content: Path, folder: Path
    ) -> bool:
        """Moves the text of an unpacked package to its folder, with the version that was printed
        last; returns False if a step failed.
        """
        if problem := next((step for step in steps if step.returncode), None):
            message = "package %s is left out (the next run tries again): %s"
            logging.warning(message, package, _complaint(problem))
            return False
        for path in sorted(content.rglob("*"), reverse=True):
            if path.is_symlink() or (path.is_file() and path.suffix not in _KEPT_SUFFIXES):
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        write_lines(content / _MARKER, [json.dumps({"version": steps[-1].stdout.strip()})])
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(content, folder)
        shutil.rmtree(content.parent)
        return True

    def _run(self, tool: str, *arguments: str, folder: Path | None = None) -> _Process:
        options = ["-c", str(self._private / "apt.conf"), "-q"] if tool.startswith("apt") else []
        return subprocess.run(
            [tool, *options, *arguments],
            cwd=folder or self._private,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )


def _version(folder: Path) -> str | None:
    """Returns the version of the package in a folder, or None if the package is not complete."""
    return read_json_dict(folder / _MARKER).get("version")


def _complaint(process: _Process) -> str:
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines or [f"exit status {process.returncode}, no message"])[0]


def in_another_language(text: str, language: str) -> bool:
    """True if a sentence is clearly English, or not in the script of an unspaced language."""
    if is_unspaced(language):
        return len(_UNSPACED.findall(text)) < _MIN_UNSPACED * num_letters(text)
    words = cleaning.WORD.findall(text.lower())
    shared = _SHARED_WITH_ENGLISH.get(language, ())
    english = sum(bool(_ENGLISH_WORD.fullmatch(word)) and word not in shared for word in words)
    return without_country(language) != "en" and english > _MAX_ENGLISH_WORDS * len(words)


def sentence_fault(text: str, language: str, min_words: int = 2) -> str | None:
    """Returns the first reason why a normalised sentence is unfit for training, or None."""
    reason, num_words = _fault_and_words(text, language)
    return reason or ("too short" if num_words < min_words else None)


@remembered_in_english
def _fault_and_words(text: str, language: str) -> tuple[str | None, int]:
    if reason := cleaning.form_fault(text):
        return reason, 0
    if in_another_language(text, language):
        return "another language", 0
    # In a language without spaces, the letters minus one count as words.
    is_counted = is_unspaced(language)
    return None, num_letters(text) - 1 if is_counted else len(cleaning.WORD.findall(text))


def pair_fault(pair: TranslationPair, source: str, target: str) -> str | None:
    """Returns the first reason why a pair of normalised sentences cannot be trained on, or None."""
    reason = sentence_fault(pair.source, source, 3) or sentence_fault(pair.target, target, 3)
    return reason or cleaning.translation_fault(pair, source, target)


def aligned_sentences(pair: TranslationPair, source: str, target: str) -> Iterator[TranslationPair]:
    """Splits a text and its translation, in two languages, into pairs of sentences.

    If both texts have equally many paragraphs, these are paired; sentences are paired in the same
    way. A paragraph whose sentences do not match those of its translation stays whole.
    """
    sides = paragraphs(pair.source), paragraphs(pair.target)
    if len(sides[0]) != len(sides[1]):
        sides = [" ".join(sides[0])], [" ".join(sides[1])]
    for whole in map(TranslationPair, *sides):
        parts = sentences(whole.source, source), sentences(whole.target, target)
        pairs = list(map(TranslationPair, *parts))
        agree = (cleaning.lengths_agree(one.source, one.target, source, target) for one in pairs)
        yield from pairs if len(parts[0]) == len(parts[1]) and all(agree) else [whole]


CORPORA = (
    PackageCorpus(
        "wesnoth",
        "The Battle for Wesnoth: dialogues, stories, unit descriptions, help",
        "GPL-2+",
        (r"wesnoth-(?P<version>\d+\.\d+)-(?!(?:core|dbg|music|server|tools)$)[a-z]+",),
        extract_wesnoth,
    ),
    PackageCorpus(
        "cataclysm-dda",
        "Cataclysm: Dark Days Ahead: talk, lore, item and monster descriptions",
        "CC-BY-SA-3.0",
        ("cataclysm-dda-data",),
        extract_cataclysm,
    ),
    PackageCorpus(
        "libreoffice-help",
        "LibreOffice help",
        "MPL-2.0",
        ("libreoffice-help-{}(?:-us)?",),
        partial(extract_manual, "usr/share/libreoffice/help/{locale}/text"),
    ),
    PackageCorpus(
        "gimp-help",
        "GIMP user manual",
        "GFDL-1.2+, no invariant sections",
        ("gimp-help-{}",),
        partial(extract_manual, "usr/share/gimp/*/help/{locale}"),
    ),
    PackageCorpus(
        "freeciv", "Freeciv help and messages", "GPL-2+", ("freeciv-data",), extract_gettext
    ),
    PackageCorpus(
        "applications",
        "Messages, tooltips and help of applications",
        "GPL-2+",
        (
            *(
                "krita-l10n digikam-data gnucash-common vlc-l10n darktable gramps git "
                "libvirt-l10n wordpress-l10n evolution-common kmymoney-common"
            ).split(),
        ),
        extract_gettext,
    ),
    PackageCorpus(
        "home-assistant",
        "Home Assistant: messages, settings and explanations of its integrations",
        "Apache-2.0",
        ("homeassistant==2026.11.0",),
        partial(extract_json, "homeassistant/components/*/translations/{locale}.json"),
    ),
    PackageCorpus(
        "kolibri",
        "Kolibri: messages of a platform for learning",
        "MIT",
        ("kolibri==0.19.5",),
        partial(extract_json, "kolibri/locale/{locale}/LC_MESSAGES/*.json"),
    ),
)
