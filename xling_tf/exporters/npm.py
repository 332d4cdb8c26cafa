"""An average of words as an npm package: JavaScript without dependencies, and a page of search."""

import gzip
import io
import re
import tarfile
from pathlib import Path
from string import Template

from xling_tf.client.backends import read_settings
from xling_tf.errors import UserError

_SOURCES = Path(__file__).parent / "npm_package"
# The function of the JavaScript client that hashes n-grams takes 64 bytes; a character has 4.
_MAX_NGRAM = 16
# In index.html, in place of encoder.js: a page that was opened from disk cannot import it.
_ENCODER = b"/* encoder.js */"
# npm's own number in its archives: 1985-10-26T08:15:00Z.
_TIME = 499_162_500


def pack(model: Path, folder: Path, *, name: str, version: int = 1) -> Path:
    """Writes an archive for `npm install` of a folder that `wheel.export_numpy` wrote.

    Args:
        model: The folder, with licences and a card.
        folder: Folder for the archive, and a card beside it.
        name: Name of the package, such as "multilingual-static".
        version: Version of the package, the first of three numbers.

    Returns:
        The archive.

    Raises:
        UserError: The folder has another model than an average of words.
    """
    settings = read_settings(model)
    ngrams = settings["text"].get("ngrams") or {"sizes": []}
    if settings["runtime"] != "numpy" or max(ngrams["sizes"], default=0) > _MAX_NGRAM:
        raise UserError(
            f"an npm package needs an average of words, with n-grams of up to {_MAX_NGRAM} "
            f"characters; {model} has another model"
        )
    files = {path.name: path.read_bytes() for path in _SOURCES.iterdir() if path.is_file()}
    files["index.html"] = files["index.html"].replace(_ENCODER, files["encoder.js"])
    files["index.d.cts"] = files["index.d.ts"]
    card = (model / "README.md").read_text("utf-8")
    closeness = re.search(r"^The mean cosine .*", card, re.M | re.S)
    about = {
        "name": name,
        "version": f"{version}.0.0",
        "dim": settings["dim"],
        "closeness": closeness[0].strip() if closeness else "",
    }
    for file in ("package.json", "README.md"):
        files[file] = Template(files[file].decode()).substitute(about).encode()
    files |= {path.name: path.read_bytes() for path in model.iterdir() if path.name not in files}
    (folder / f"{name}.md").write_bytes(files["README.md"])
    archive = folder / f"{name}-{about['version']}.tgz"
    archive.write_bytes(_archive(files))
    return archive


def _archive(files: dict[str, bytes]) -> bytes:
    """Returns a .tgz with the same bytes each time."""
    content = io.BytesIO()
    # The header of gzip would have the time.
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mtime, member.mode = len(data), _TIME, 0o644
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()
