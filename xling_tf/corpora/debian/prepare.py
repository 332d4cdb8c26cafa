"""Makes the default corpora of a language pair: packages in, a `--data` folder out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import logging

from xling_tf.corpora.debian.cleaned import CorpusCleaner
from xling_tf.corpora.debian.packages import Fetched, fetch
from xling_tf.corpora.debian.registry import LANGUAGE_PAIRS, SOURCES, Source
from xling_tf.corpora.debian.report import SourceReport, licences, log_report, write_reports
from xling_tf.corpora.debian.writing import write_cleaned
from xling_tf.corpora.languages import require_known
from xling_tf.errors import UserError
from xling_tf.files import read_json, recover_folder, replacing_folder

# Raised whenever extraction or cleaning changes, so that folders made before are made anew.
PREPARATION_VERSION = 1


def prepare_default_corpora(source: str, target: str, *, raw_dir: Path, prepared_dir: Path) -> Path:
    """Fetches and prepares the default corpora of a language pair, unless that is done already.

    A killed run goes on where it stopped: packages are kept one by one in `raw_dir`.

    Args:
        source: ISO code of the source language.
        target: ISO code of the target language.
        raw_dir: Gets one folder a package.
        prepared_dir: Gets the folder "<source>-<target>".

    Returns:
        That folder: corpora, preparation.json (counts) and SOURCES.md (packages and licences).

    Raises:
        UserError: The pair has no sources, or packages cannot be had on this machine.
    """
    if (source, target) not in LANGUAGE_PAIRS:
        require_known(target)
        raise _no_sources(source, f"{source}-{target}")
    folder = prepared_dir / f"{source}-{target}"
    recover_folder(folder)
    earlier = _preparation(folder)
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
        raise UserError(
            "none of the packages with the default corpora could be had: "
            f"{_first_problem(fetched)}; train on your own corpora with --data DIR instead"
        )
    if not earlier or earlier["packages"] != fetched.versions:
        _prepare(offered, fetched, (source, target), folder)
    return folder


def default_targets(source: str) -> tuple[str, ...]:
    """The languages that there are default corpora in, beside a source language.

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


def _no_sources(source: str, asked: str) -> UserError:
    require_known(source)
    known = ", ".join("-".join(pair) for pair in LANGUAGE_PAIRS)
    return UserError(
        f"there are default corpora for the pairs {known}, not for {asked}; "
        "train on your own corpora with --data DIR instead"
    )


def _preparation(folder: Path) -> dict[str, Any] | None:
    try:
        content = read_json(folder / "preparation.json")
        _ = content["packages"], content["failed"]
        return content if content["preparation_version"] == PREPARATION_VERSION else None
    except (LookupError, OSError, TypeError, ValueError):
        return None


def _first_problem(fetched: Fetched) -> str:
    failures = [f"{name}: {reason}" for name, reason in fetched.failed.items()]
    return next(iter(failures), "the archive has no package of these names")


def _prepare(
    offered: Sequence[tuple[Source, Sequence[str]]],
    fetched: Fetched,
    languages: tuple[str, str],
    folder: Path,
) -> None:
    cleaner = CorpusCleaner(*languages)
    reports = []
    with replacing_folder(folder) as temporary:
        for source, patterns in offered:
            folders = {
                name: path
                for pattern in patterns
                for name, path in fetched.packages.get(pattern, {}).items()
            }
            if not folders:
                continue
            logging.info("Reading %s (%d packages)", source.name, len(folders))
            cleaned = cleaner.clean(source.extract(list(folders.values()), *languages))
            reports.append(
                SourceReport(
                    name=source.name,
                    description=source.description,
                    packages={name: fetched.versions[name] for name in folders},
                    licences=licences(folders, source.licence),
                    counts=write_cleaned(cleaned, source.name, languages, temporary),
                )
            )
        summary = {
            "preparation_version": PREPARATION_VERSION,
            "languages": "-".join(languages),
            "packages": dict(fetched.versions),
            "not_found": list(fetched.not_found),
            "failed": dict(fetched.failed),
            "dropped": {kind: dict(counts) for kind, counts in cleaner.dropped.items()},
        }
        write_reports(temporary, summary, reports)
    log_report(summary, reports)
