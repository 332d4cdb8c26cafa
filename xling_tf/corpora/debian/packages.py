"""Fetches packages with the system's own apt, beside the system: no root, nothing is installed."""

import fcntl
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from absl import logging

from xling_tf.corpora.debian.unpacking import unpack, unpacked_version
from xling_tf.errors import UserError
from xling_tf.files import read_json, replacing

_TOOLS = ("apt-get", "apt-cache", "dpkg-deb")
_OWN_DATA_HINT = "; train on your own corpora with --data DIR instead"
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


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """What became of the wanted packages.

    Attributes:
        packages: Unpacked folders, by pattern and then by package name.
        versions: The version of every usable package.
        not_found: Patterns that no package of the archive answers to.
        failed: Why a package could not be had, by name; worth another try later.
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

    Returns:
        The unpacked folders, and what was not to be had.

    Raises:
        UserError: There is no apt here, or it cannot reach a package archive.
    """
    with _one_at_a_time(raw_dir):
        return _fetch(patterns, raw_dir)


@contextmanager
def _one_at_a_time(raw_dir: Path) -> Iterator[None]:
    # Two trainings started together share the downloads.
    with (raw_dir / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(patterns: Sequence[str], raw_dir: Path) -> Fetched:
    resolved = {key: names for key, names in _remembered(raw_dir).items() if key in patterns}
    wanted = {name for names in resolved.values() for name in names}
    failed: dict[str, str] = {}
    if len(resolved) < len(patterns) or any(not unpacked_version(raw_dir / n) for n in wanted):
        apt = Apt(raw_dir)
        resolved |= resolve([p for p in patterns if p not in resolved], apt.package_names())
        resolved = {key: names for key, names in resolved.items() if names}
        _remember(raw_dir, resolved)
        wanted = {name for names in resolved.values() for name in names}
        failed = _download_missing(apt, sorted(wanted), raw_dir)
    versions = {name: unpacked_version(raw_dir / name) for name in sorted(wanted)}
    return Fetched(
        packages={
            pattern: {name: raw_dir / name for name in names if versions[name]}
            for pattern, names in resolved.items()
        },
        versions={name: version for name, version in versions.items() if version},
        not_found=tuple(pattern for pattern in patterns if pattern not in resolved),
        failed=failed,
    )


def resolve(patterns: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """The package names that match each pattern, of the newest `version` group only.

    Args:
        patterns: Regular expressions of whole names.
        names: All names of the archive.

    Returns:
        Sorted names by pattern.

    Example:
        >>> resolve([r"game-(?P<version>[0-9.]+)-data"], ["game-1.9-data", "game-1.16-data"])
        {'game-(?P<version>[0-9.]+)-data': ['game-1.16-data']}
    """
    return {pattern: _newest(re.compile(pattern), names) for pattern in patterns}


def _newest(pattern: re.Pattern[str], names: Sequence[str]) -> list[str]:
    by_version: dict[tuple[int, ...], list[str]] = {}
    for match in filter(None, map(pattern.fullmatch, names)):
        digits = re.findall(r"\d+", match.groupdict().get("version") or "")
        by_version.setdefault(tuple(map(int, digits)), []).append(match.string)
    return sorted(by_version[max(by_version)]) if by_version else []


class Apt:
    """The apt client with lists, cache and state in a folder of its own.

    Args:
        raw_dir: apt's files go to the hidden folder `.apt` in here.

    Raises:
        UserError: apt or dpkg is not installed.
    """

    def __init__(self, raw_dir: Path) -> None:
        missing = [tool for tool in _TOOLS if not shutil.which(tool)]
        if missing:
            raise UserError(
                "the default corpora come from Debian packages, but this machine has no "
                + ", ".join(missing)
                + _OWN_DATA_HINT
            )
        self._private = (raw_dir / ".apt").resolve()
        for folder in ("state", "lists/partial", "cache/archives/partial"):
            (self._private / folder).mkdir(parents=True, exist_ok=True)
        (self._private / "status").touch()
        self._config = self._private / "apt.conf"
        self._config.write_text(_APT_CONFIG.format(private=self._private), encoding="utf-8")

    def package_names(self) -> list[str]:
        """Updates the package lists and returns every package name in them.

        Raises:
            UserError: No list could be had.
        """
        logging.info(
            "Updating package lists (in %s; the system's own are untouched)", self._private
        )
        update = self._run("apt-get", "update")
        names = self._run("apt-cache", "pkgnames").stdout.split()
        if not names:
            raise UserError(
                "the default corpora come from Debian packages, but apt-get update got no package "
                f"list: {_complaint(update)}{_OWN_DATA_HINT}"
            )
        return names

    def download(self, package: str, raw_dir: Path) -> str | None:
        """Downloads a package and unpacks it to a folder of its name.

        Returns:
            None, or why it did not work.
        """
        # Always the same place, so that what a kill leaves behind goes with the next try.
        folder = self._private / "download"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        download = self._run("apt-get", "download", package, folder=folder)
        archives = sorted(folder.glob("*.deb"))
        if download.returncode or not archives:
            return _complaint(download)
        problem = unpack(archives[0], folder / "unpacked", raw_dir / package)
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


def _download_missing(apt: Apt, names: Sequence[str], raw_dir: Path) -> dict[str, str]:
    failed = {}
    missing = [name for name in names if not unpacked_version(raw_dir / name)]
    for index, name in enumerate(missing, 1):
        logging.info("Fetching package %d of %d: %s", index, len(missing), name)
        problem = apt.download(name, raw_dir)
        if problem:
            logging.warning("Package %s could not be had: %s", name, problem)
            failed[name] = problem
    return failed


def _complaint(process: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in process.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E:")]
    return (errors or lines or [f"exit status {process.returncode}, no message"])[0]


def _remembered(raw_dir: Path) -> dict[str, list[str]]:
    # Which packages a pattern stands for is kept, so that all of it can be used again offline.
    try:
        content = read_json(raw_dir / "packages.json")
        return {str(pattern): [str(name) for name in names] for pattern, names in content.items()}
    except (AttributeError, OSError, TypeError, ValueError):
        return {}


def _remember(raw_dir: Path, resolved: Mapping[str, list[str]]) -> None:
    with replacing(raw_dir / "packages.json") as temporary:
        text = json.dumps(_remembered(raw_dir) | dict(resolved), indent=1, sort_keys=True)
        temporary.write_text(text + "\n", encoding="utf-8")
