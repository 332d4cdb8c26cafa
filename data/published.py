"""Published data sets, from their addresses in published.toml to tables whose text is checked."""

import csv
import hashlib
import itertools
import shutil
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import convert
import sources
from absl import flags
from download import fetch
from tabulate import tabulate

from xling_tf.compressed import decompressed
from xling_tf.corpora.line_files import as_cell, write_lines
from xling_tf.errors import UserError, as_user_error, require_known
from xling_tf.files import one_at_a_time, require_writable_folder
from xling_tf.program import progress

_TABLE = Path(__file__).with_name("published.toml")
_DOWNLOADS = ".downloads"
EVALUATION = "eval/"  # the part of the collection that `xling-tf evaluate` reads


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A published data set, or a part of one.

    Attributes:
        name: Its name on the command line.
        about: What it is.
        licence: Its licence.
        tables: The SHA-256 of each table's text, uncompressed, by its path in the collection. For
            tables that we never had, the number of rows instead, or 0 if that is unknown.
        address: The beginning of the files' addresses, before their names.
        files: Names of the files to fetch; none for a set that is made by hand.
        checksums: The SHA-256 of those files that have a known one.
        megabytes: The size of the files.
        reader: The name of their reader, in sources.py or convert.py.
        by_hand: What users must do themselves for a set that cannot be fetched or made.
        is_ours: False for a set of the papers that is not in our collection.
    """

    name: str
    about: str
    licence: str
    tables: Mapping[str, str | int]
    address: str = ""
    files: Sequence[str] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)
    megabytes: float = 0.0
    reader: str = ""
    by_hand: str = ""
    is_ours: bool = True


def read_sets() -> list[DataSet]:
    """Reads published.toml."""
    with _TABLE.open("rb") as file:
        return [DataSet(**row) for row in tomllib.load(file)["sets"]]


def run(sets: Sequence[DataSet], words: Sequence[str], part: str = "") -> None:
    """Prepares the sets that the words name, or all of them; with `--list`, only lists them.

    Args:
        sets: The sets to choose from.
        words: The names of some.
        part: The part of the collection that `--output` stands for, such as "eval/".
    """
    known = {data_set.name: data_set for data_set in sets}
    for word in words:
        require_known("a set", word, known)
    chosen = [known[word] for word in dict.fromkeys(words)] or list(sets)
    if flags.FLAGS.list:
        print(_listed(chosen))
        return
    output = Path(flags.FLAGS.output)
    require_writable_folder(output, "name another folder with --output")
    failures = prepare(chosen, output, part)
    if failures:
        raise UserError(
            f"{len(failures)} of {len(chosen)} sets could not be prepared, which the same command "
            f"tries again: {'; '.join(failures.values())}"
        )


def _listed(sets: Sequence[DataSet]) -> str:
    blocks = []
    for data_set in sets:
        size = f"; {data_set.megabytes:g} MB" if data_set.megabytes else ""
        first, *others = data_set.tables
        block = f"{data_set.name}: {data_set.about} ({data_set.licence}{size})"
        if data_set.files:
            block += f"\n    from {data_set.address}: {', '.join(data_set.files)}"
        if data_set.by_hand:
            block += f"\n    by hand: {data_set.by_hand}"
        blocks.append(f"{block}\n    {first}" + (f" and {len(others)} more" if others else ""))
    return "\n".join(blocks)


def prepare(sets: Sequence[DataSet], output: Path, part: str = "") -> dict[str, str]:
    """Fetches sets that are not complete, makes their tables, and prints the state of each.

    Args:
        sets: The sets.
        output: The folder for the tables. Originals lie in `.downloads` until they are read.
        part: The beginning of the tables' paths that `output` stands for; others are not made.

    Returns:
        By name, why a set could not be prepared.
    """
    output.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    states = []
    with one_at_a_time(output):
        for data_set in sets:
            try:
                state = _prepare(data_set, output, part)
            except UserError as error:
                failures[data_set.name] = f"{data_set.name}: {error}"
                state = "failed"
            states.append((data_set.name, state))
    if (downloads := output / _DOWNLOADS).is_dir() and not any(downloads.iterdir()):
        downloads.rmdir()
    print(tabulate(states, headers=("set", f"in {output}")))
    return failures


def _prepare(data_set: DataSet, output: Path, part: str) -> str:
    """Returns how the set came to be there, or what has to be done for it."""
    tables = {p: mark for p, mark in data_set.tables.items() if p.startswith(part)}
    places = {path: output / path.removeprefix(part) for path in tables}
    lacking = [path for path, mark in tables.items() if not _is_right(places[path], mark)]
    if not lacking:
        return "was there"
    if not data_set.files:
        return f"lacks {len(lacking)} of {len(tables)} tables: {data_set.by_hand}"
    folder = output / _DOWNLOADS / data_set.name
    with progress(f"{data_set.name}: {data_set.about}") as report:
        for name in data_set.files:
            sha256 = data_set.checksums.get(name, "")
            fetch(f"{data_set.address}{name}", folder / name, sha256=sha256, report=report)
        try:
            for name in data_set.files:
                _unpack(folder / name)
            texts = _texts(data_set, tables, folder)
            for path, mark in tables.items():
                _check(path, texts.get(path), mark, data_set.address)
        except UserError:
            shutil.rmtree(folder)  # the next call would read the same faulty files again
            raise
        for path, lines in texts.items():
            write_lines(places[path], lines)
    shutil.rmtree(folder)
    return f"{len(texts)} tables made"


def _unpack(path: Path) -> None:
    """Unpacks an archive beside itself; no links and nothing outside of its folder."""
    damaged = f"{path.name} is not a whole archive ({{error}}); the same command fetches it again"
    with as_user_error(damaged, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                archive.extractall(path.parent)
        elif path.name.endswith((".tgz", ".tar.gz")):
            with tarfile.open(path) as tar:
                for member in filter(tarfile.TarInfo.isfile, tar):
                    name, content = PurePosixPath(member.name), tar.extractfile(member)
                    if content is None or name.is_absolute() or ".." in name.parts:
                        continue
                    target = path.parent / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as file:
                        shutil.copyfileobj(content, file)


def _texts(data_set: DataSet, tables: Collection[str], folder: Path) -> dict[str, list[str]]:
    """Reads the lines of the wanted tables, of those that a set's reader finds."""
    is_copy = data_set.reader in sources.READERS
    read = sources.READERS[data_set.reader] if is_copy else convert.FORMATS[data_set.reader][1]
    wanted = {path.removesuffix(".gz").removesuffix(".tsv"): path for path in tables}
    texts: dict[str, list[str]] = {}
    expected = f"{data_set.address} must have files in the known format"
    message = f"{expected}, but one cannot be read ({{error}}); nothing is written"
    with as_user_error(message, ValueError, LookupError, csv.Error):
        for name, columns, rows in read(folder):
            path = wanted.get(name if is_copy else f"{EVALUATION}{name}")
            if path is not None and path not in texts:
                lines = itertools.chain([columns] if columns else [], rows)
                texts[path] = ["\t".join(map(as_cell, line)) for line in lines]
    return texts


def _check(path: str, lines: Sequence[str] | None, mark: str | int, address: str) -> None:
    if lines is None:
        raise UserError(f"{address} must have the text of {path}, but lacks it; nothing is written")
    actual: str | int = len(lines) - 1
    if isinstance(mark, str):
        actual = hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
    if mark and actual != mark:
        what = "the SHA-256" if isinstance(mark, str) else "a number of rows of"
        raise UserError(
            f"{path} must have {what} {mark}, but made from {address} it has {actual}, because "
            "what is published there was changed; nothing is written"
        )


def _is_right(path: Path, mark: str | int) -> bool:
    """True for a table with the right text, or the right number of rows."""
    if not path.is_file():
        return False
    digest, rows = hashlib.sha256(), -1
    try:
        for piece in decompressed(path):
            digest.update(piece)
            rows += piece.count(b"\n")
    except UserError:  # it is damaged
        return False
    return mark in (0, rows, digest.hexdigest())
