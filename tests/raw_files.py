"""Files for tests to read: parts of Reddit's and Wikipedia's dumps as they are, and folders."""

import bz2
import gzip
import json
import lzma
import resource
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polib
import zstandard

_PACKERS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".lzma": lambda content: lzma.compress(content, format=lzma.FORMAT_ALONE),
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
    ".deflate": zlib.compress,
}

HEADER = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" version="0.10" xml:lang="es">
  <siteinfo>
    <namespaces>
      <namespace key="-2" case="first-letter">Medio</namespace>
      <namespace key="0" case="first-letter" />
      <namespace key="6" case="first-letter">Archivo</namespace>
      <namespace key="14" case="first-letter">Categoría</namespace>
    </namespaces>
  </siteinfo>
"""


def page_xml(
    text: str, *, title: str = "Ada", namespace: int = 0, extra: str = "", model: str = "wikitext"
) -> str:
    return f"""<page>
    <title>{title}</title>
    <ns>{namespace}</ns>
    <id>42</id>{extra}
    <revision>
      <id>107</id>
      <contributor><username>Eva</username><id>7</id></contributor>
      <model>{model}</model>
      <text xml:space="preserve">{text}</text>
    </revision>
  </page>"""


def comment_line(**changes: object) -> bytes:
    """A line of a dump of 2016."""
    row: dict[str, object] = {"author": "ann", "body": "Hello there.", "created_utc": 1451606400}
    row |= {"edited": False, "id": "cyhpv3x", "parent_id": "t1_cyhpq1n"}
    return json.dumps(row | changes).encode()


def snli_line(label: str, premise: str = "p", hypothesis: str = "h") -> str:
    """A line of SNLI or MultiNLI as published."""
    return json.dumps({"gold_label": label, "sentence1": premise, "sentence2": hypothesis}) + "\n"


def squad(context: str, *questions: tuple[str, list[int]], **more: Any) -> str:
    """JSON of one paragraph, of questions and the places of their answers."""
    qas = [
        {
            "id": number,
            "question": question,
            "answers": [{"answer_start": s} for s in starts],
            **more,
        }
        for number, (question, starts) in enumerate(questions, 1)
    ]
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]})


def pack(ending: str, content: bytes) -> bytes:
    """Packs the content of a file as the ending of its name says."""
    return _PACKERS[ending](content) if ending in _PACKERS else content


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Writes files by their names in a folder, packed if the names say so; returns the folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = text.encode() if isinstance(text, str) else text
        path.write_bytes(pack(path.suffix.lower(), content))
    return folder


def write_catalogue(path: Path, messages: Mapping[str, str]) -> None:
    """Writes gettext's messages and their translations as packages have them (.mo)."""
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend(polib.POEntry(msgid=m, msgstr=t) for m, t in messages.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    catalogue.save_as_mofile(str(path))


def read_files(folder: Path) -> dict[str, bytes]:
    """The files in a folder, at any depth, by their names there."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def flipped(content: bytes) -> bytes:
    """The content with one byte in its middle changed."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


@contextmanager
def small_disk(max_bytes: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as if the disk had no more room."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_json_files(folder: Path, **files: Any) -> Path:
    """Writes JSON files by their names without the ending; returns the folder."""
    return write_files(
        folder, {f"{name}.json": json.dumps(content) for name, content in files.items()}
    )


def shards(folder: Path) -> dict[str, str]:
    """The texts of the .gz files in a folder by their names alone."""
    return {
        path.name: gzip.decompress(path.read_bytes()).decode()
        for path in sorted(folder.rglob("*.gz"))
    }
