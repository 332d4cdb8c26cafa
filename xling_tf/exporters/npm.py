"""An average of words as an npm package: JavaScript without dependencies, and a page of search."""

import gzip
import io
import json
import re
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from xling_tf.client.backends import read_settings
from xling_tf.client.settings import RUNTIME_SETTINGS
from xling_tf.client.word_averages import VOCABULARY, WEIGHTS
from xling_tf.errors import UserError
from xling_tf.exporters import wheel
from xling_tf.exporters.base import OriginalModel, reject
from xling_tf.exporters.conformance import CONFORMANCE
from xling_tf.files import replacing

_SOURCES = Path(__file__).parent / "npm_package"
_MODEL_FILES = (RUNTIME_SETTINGS, VOCABULARY, WEIGHTS, CONFORMANCE)
# The function of the JavaScript client that hashes n-grams takes 64 bytes; a character has 4.
_MAX_NGRAM = 16
# In index.html, in place of encoder.js: a page that was opened from disk cannot import it.
_ENCODER = "/* encoder.js */"
# npm's own number in its archives: 1985-10-26T08:15:00Z.
_TIME = 499_162_500
_CARD = """# {name}

Sentence vectors in JavaScript, without dependencies: in Node 18 or later, and in browsers.

    npm install ./{name}-{version}.tgz

    import {{ encode, similarity, probability, semanticSearch }} from "{name}";

    await encode(["Hola", "Hello"]); // two Float32Array of {dim} numbers, of unit length
    await similarity("Where is the station?", "¿Dónde está la estación?"); // a cosine
    await probability("Where is the station?", "¿Dónde está la estación?"); // of one meaning
    await semanticSearch("station", ["Der Bahnhof ist dort.", "J'aime le chocolat."]);

One text gives one result, a list gives a list; in place of texts, `similarity` and `semanticSearch`
take vectors, which a large corpus should be encoded to once. A blank text has zeros, and matches
nothing. `semanticSearch(query, corpus, {{ minProbability: 0.5 }})` leaves out what does not answer
the query; a model without the numbers for this says so.

`require` has the same functions. The first call loads the model; `await load()` returns it with
functions that need no `await`, and `await loadInWorker()` runs it in a worker until `close()`.
`load("https://host/folder/")` reads the model's three files elsewhere.

`index.html` searches your own lines and files in the browser, without a connection. Start
`python3 -m http.server` or any other server in this folder; or open it from disk and give it
`runtime.json`, `vocabulary.txt` and `model.safetensors`.

`conformance.json` has 500 texts with their words, rows and vectors, to test a client in another
language. {closeness}
"""


def export(
    source: OriginalModel, folder: Path, *, name: str, version: int = 1, **sizes: Any
) -> None:
    """Writes an archive for `npm install`, with licences and a card, and the card beside it.

    Args:
        source: An average of words, as `wheel.export_numpy` takes it.
        folder: Folder for the archive.
        name: Name of the package, such as "multilingual-static".
        version: Version of the package, the first of three numbers.
        **sizes: Those of `wheel.export_numpy`.

    Raises:
        UserError: The model is of another kind, or the name is not one of a package.
    """
    sizes_of_ngrams = source.model.tokenizer.config.ngram_sizes
    if max(sizes_of_ngrams, default=0) > _MAX_NGRAM:
        reject(source, "npm", f"an average of words, with n-grams of up to {_MAX_NGRAM} characters")
    with tempfile.TemporaryDirectory() as model:
        wheel.export_numpy(source, Path(model), **sizes)
        pack(Path(model), folder, name=name, version=version)


def pack(model: Path, folder: Path, *, name: str, version: int = 1) -> None:
    """Writes the archive of a folder that `wheel.export_numpy` wrote, and a card beside it.

    Args:
        model: The folder, with licences and a card.
        folder: Folder for the archive and the card.
        name: Name of the package, such as "multilingual-static".
        version: Version of the package, the first of three numbers.

    Raises:
        UserError: The folder has no average of words, or the name is not one of a package.
    """
    settings = read_settings(model)
    if settings["runtime"] != "numpy":
        raise UserError(f"an npm package needs an average of words; {model} has another model")
    closeness = re.search(
        r"^The mean cosine .*", (model / "README.md").read_text("utf-8"), re.M | re.S
    )
    about = {
        "name": wheel.distribution_name(name),
        "version": f"{version}.0.0",
        "dim": settings["dim"],
        "closeness": closeness[0].strip() if closeness else "",
    }
    text = _CARD.format(**about)
    licences = [path for path in model.iterdir() if path.name.startswith(("LICENSE", "NOTICE"))]
    files = {path.name: path.read_bytes() for path in licences}
    files |= {file: (model / file).read_bytes() for file in _MODEL_FILES}
    files |= _code() | {"package.json": _manifest(about), "README.md": text.encode()}
    with replacing(folder / f"{about['name']}-{about['version']}.tgz") as path:
        path.write_bytes(_archive(files))
    (folder / f"{about['name']}.md").write_text(text, encoding="utf-8")


def _code() -> dict[str, bytes]:
    """Returns the files of JavaScript, and the page."""
    code = {path.name: path.read_bytes() for path in sorted(_SOURCES.iterdir()) if path.is_file()}
    code["index.html"] = code["index.html"].replace(_ENCODER.encode(), code["encoder.js"])
    return code | {"index.d.cts": code["index.d.ts"]}


def _manifest(about: dict[str, Any]) -> bytes:
    """Returns package.json."""
    manifest = {
        "name": about["name"],
        "version": about["version"],
        "description": "Sentence vectors without dependencies, in Node and browsers",
        "license": "SEE LICENSE IN NOTICE",
        "type": "module",
        "sideEffects": False,
        "main": "./index.cjs",
        "module": "./index.js",
        "types": "./index.d.ts",
        "exports": {
            ".": {
                "import": {"types": "./index.d.ts", "default": "./index.js"},
                "require": {"types": "./index.d.cts", "default": "./index.cjs"},
            },
            "./*": "./*",
        },
        "engines": {"node": ">=18"},
    }
    return json.dumps(manifest, indent=2).encode() + b"\n"


def _archive(files: dict[str, bytes]) -> bytes:
    """Returns a .tgz with the same bytes each time."""
    content = io.BytesIO()
    # The header of gzip would have the time.
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for member, data in _members(files):
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def _members(files: dict[str, bytes]) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for name, data in sorted(files.items()):
        member = tarfile.TarInfo(f"package/{name}")
        member.size, member.mtime, member.mode = len(data), _TIME, 0o644
        yield member, data
