r"""Runs a model in every runtime, and says how far its vectors are from the SavedModel's.

    make .peers/.installed
    python evaluation/benchmarks/every_runtime.py --model exported/use-multilingual --texts FILE

The texts are those of the file and the odd ones of `conformance.json`, except blank ones. If a
runtime's program or package is absent, its row gives the reason.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from itertools import pairwise, starmap
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Works in a checkout without installation.
sys.path.insert(0, str(ROOT))

import numpy as np
from absl import flags
from numpy.typing import NDArray

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import open_folder
from xling_tf.client.texts import encodable, is_blank
from xling_tf.errors import UserError
from xling_tf.exporters.conformance import ODD_TEXTS
from xling_tf.files import folder_bytes, read_json

Array = NDArray[np.floating]
Figures = dict[str, dict[str, float]]

# A text whose vector differs by more counts as split into other words or pieces.
_OTHER_TOKENS = 1e-4
_SECONDS = 600
_PEERS = ROOT / ".peers"
_LOADERS = _PEERS / "loaders" / "bin" / "python"
_MODULES = _PEERS / "node_modules"

# Programs get a folder with texts.json and write vectors.npy or vectors.json into it.
_WITHOUT_TENSORFLOW = """
import json, sys
sys.modules["tensorflow"] = None
sys.path.insert(0, sys.argv[1])
import {module}
import numpy as np
np.save("vectors.npy", {module}.encode(json.load(open("texts.json"))))
"""
_SENTENCE_TRANSFORMERS = """
import json, sys, numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], backend="onnx", device="cpu")
np.save("vectors.npy", model.encode(json.load(open("texts.json")), prompt=""))
"""
_FASTEMBED = """
import json, sys, numpy as np
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
TextEmbedding.add_custom_model(
    "mine", pooling=PoolingType.DISABLED, normalization=False, sources=ModelSource(hf="mine"),
    dim=int(sys.argv[2]), model_file="onnx/model.onnx", output_name="sentence_embedding")
model = TextEmbedding("mine", specific_model_path=sys.argv[1])
np.save("vectors.npy", np.array([*model.embed(json.load(open("texts.json")))]))
"""
_OPENVINO = """
import json, sys, numpy as np, openvino
from tokenizers import Tokenizer
model = openvino.Core().compile_model(
    sys.argv[1] + "/onnx/model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
tokenizer = Tokenizer.from_file(sys.argv[1] + "/tokenizer.json")
tokenizer.no_padding()
vectors = []
for text in json.load(open("texts.json")):
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    outputs = model({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    vectors.append(outputs["sentence_embedding"][0])
np.save("vectors.npy", vectors)
"""
_MODEL2VEC = """
import json, sys, numpy as np
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer
texts = json.load(open("texts.json"))
first = StaticModel.from_pretrained(sys.argv[1]).encode(texts, max_length=None)
second = SentenceTransformer(sys.argv[1], device="cpu").encode(texts)
np.save("vectors.npy", [first, second])
"""
_TRANSFORMERS_JS = """
import { readFileSync, writeFileSync } from "node:fs";
import { env, pipeline } from "@huggingface/transformers";
const [folder, here] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = folder.replace(/[^/]*$/, "");
const encode = await pipeline("feature-extraction", folder.replace(/.*\\//, ""), { dtype: "fp32" });
const vectors = [];
for (const text of JSON.parse(readFileSync(here + "/texts.json", "utf8"))) {
  const inputs = encode.tokenizer(text, { truncation: true });
  const { sentence_embedding: vector } = await encode.model(inputs);
  vectors.push(Array.from(vector.data));
}
writeFileSync(here + "/vectors.json", JSON.stringify(vectors));
"""
_NPM = """
import { readFileSync, writeFileSync } from "node:fs";
const [folder, here] = process.argv.slice(2);
const { encode } = await import(folder + "/index.js");
const vectors = await encode(JSON.parse(readFileSync(here + "/texts.json", "utf8")));
writeFileSync(here + "/vectors.json", JSON.stringify(vectors.map((vector) => Array.from(vector))));
"""
# Runs in a page; Python has split the texts.
_LITERT_JS = """async (rows) => {
  const lite = await import("/modules/@litertjs/core/dist/index.js");
  await lite.loadLiteRt("/modules/@litertjs/core/wasm/");
  const model = await lite.loadAndCompile("/model.tflite", { accelerator: "wasm" });
  const [, width] = model.getInputDetails()[0].shape;
  const tensor = (ids) => {
    const padded = new Int32Array(width);
    padded.set(ids.slice(0, width));
    return new lite.Tensor(padded, [1, width]);
  };
  const vectors = [];
  for (const { input_ids, attention_mask } of rows) {
    const inputs = { input_ids: tensor(input_ids), attention_mask: tensor(attention_mask) };
    const { sentence_embedding: vector } = await model.run(inputs);
    vectors.push([...(await vector.data())]);
    for (const used of [...Object.values(inputs), vector]) used.delete();
  }
  return vectors;
}"""
_IMPORTS = {"imports": {"@litertjs/wasm-utils": "/modules/@litertjs/wasm-utils/dist/index.js"}}


class AbsentError(Exception):
    """A runtime that is not on this machine."""


class Trial:
    """A model, texts, the SavedModel's vectors of them, and the model's exports.

    Args:
        model: Folder of a SavedModel.
        texts: By name, lists of texts with something to read.
        folder: For exports.
    """

    def __init__(self, model: Path, texts: Mapping[str, Sequence[str]], folder: Path) -> None:
        import tensorflow as tf

        from xling_tf.savedmodel.saved_models import load_saved_model

        self.model, self.folder = model, folder
        self.kind: str = read_json(model / "config.json")["encoder"]["kind"]
        self.texts = [encodable(text) for part in texts.values() for text in part]
        ends = np.cumsum([len(part) for part in texts.values()]).tolist()
        self._parts = dict(zip(texts, starmap(slice, pairwise([0, *ends])), strict=True))
        self.expected: Array = load_saved_model(model)(tf.constant(self.texts)).numpy()

    @cache  # noqa: B019
    def exported(self, form: str) -> Path:
        """Returns the folder of an export; a `UserError` says why there can be none."""
        from xling_tf.exporters.base import export

        name = "tiny-model" if form in ("wheel", "npm") else None
        return export(self.model, form, self.folder / form, name=name)

    def run(self, command: Sequence[str | Path], result: str = "vectors.npy") -> Array:
        """Runs a program in a folder with texts.json, and returns the vectors that it has written.

        A part "HERE" of the command stands for the folder.
        """
        with tempfile.TemporaryDirectory(dir=self.folder) as here:
            Path(here, "texts.json").write_text(json.dumps(self.texts), "utf-8")
            command = [part if part != "HERE" else here for part in command]
            done = subprocess.run(
                command, cwd=here, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            path = Path(here, result)
            is_json = path.suffix == ".json"
            return np.array(json.loads(path.read_text("utf-8"))) if is_json else np.load(path)

    def run_python(self, code: str, *arguments: str | Path) -> Array:
        """Runs code with the libraries of `make .peers/.installed`."""
        if not _LOADERS.exists():
            raise AbsentError("needs make .peers/.installed")
        return self.run([_LOADERS, "-c", code, *arguments])

    def run_node(self, code: str, *arguments: str | Path) -> Array:
        """Runs a module of JavaScript, which may import the packages of `.peers`."""
        folder = _MODULES.parent if _MODULES.exists() else self.folder
        with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=folder, encoding="utf-8") as file:
            file.write(code)
            file.flush()
            return self.run([_program("node"), file.name, *arguments, "HERE"], "vectors.json")

    def difference(self, vectors: Array, expected: Array | None = None) -> Figures:
        """Compares vectors with the SavedModel's, or with others."""
        differences = np.abs(vectors - (self.expected if expected is None else expected))
        return self.figures(
            differences.max(axis=1),
            largest_difference=np.max,
            median_difference=np.median,
            texts_with_other_tokens=lambda part: np.sum(part > _OTHER_TOKENS),
        )

    def figures(self, numbers: Array, **summaries: Callable[[Array], Any]) -> Figures:
        """Summarises one number for each text, by list of texts."""
        return {
            part: {name: float(summary(numbers[rows])) for name, summary in summaries.items()}
            for part, rows in self._parts.items()
        }


def _program(name: str) -> str:
    if path := shutil.which(name):
        return path
    raise AbsentError(f"there is no {name}")


def _tensorflow(trial: Trial) -> Figures:
    import tensorflow as tf
    import tensorflow_hub as hub

    return trial.difference(hub.load(str(trial.model))(tf.constant(trial.texts)).numpy())


def _keras(trial: Trial) -> Figures:
    import keras
    import tensorflow as tf

    from xling_tf.savedmodel.keras_layer import KerasEncoder

    inputs = keras.Input((), dtype="string")
    model = keras.Model(inputs, KerasEncoder(trial.model)(inputs))
    return trial.difference(model(tf.constant(trial.texts)).numpy())


def _serving(trial: Trial) -> Figures:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = str(ROOT / "export" / "serve.py")
    command = [sys.executable, program, "--model", f"m={trial.model}", "--port", str(port)]
    url = f"http://127.0.0.1:{port}/v1/models/m"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait(url, server)
            body = json.dumps({"instances": trial.texts}).encode()
            with urllib.request.urlopen(f"{url}:predict", body, timeout=_SECONDS) as reply:
                vectors = json.load(reply)["predictions"]
        finally:
            server.terminate()
    return trial.difference(np.array(vectors))


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(_SECONDS):
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            if server.poll() is not None:
                raise RuntimeError("the server ended") from None
            time.sleep(1)
    raise RuntimeError("the server did not answer")


def _runtime(form: str, trial: Trial) -> Figures:
    return trial.difference(_opened(trial.exported(form)).encode(trial.texts))


def _litert_js(trial: Trial) -> Figures:
    if not (_MODULES / "@litertjs").exists() or find_spec("playwright") is None:
        raise AbsentError("needs make .peers/.installed, npm, and playwright")
    from playwright.sync_api import sync_playwright

    folder = trial.exported("litert")
    text: Any = open_folder(folder)._text  # type: ignore[attr-defined]
    rows = [
        {name: ids[0].tolist() for name, ids in text.inputs([tokens]).items()}
        for tokens in text.tokenize(trial.texts)
    ]
    site = trial.folder / "site"
    site.mkdir()
    (site / "index.html").write_text(f'<script type="importmap">{json.dumps(_IMPORTS)}</script>')
    (site / "model.tflite").symlink_to(folder / "model.tflite")
    (site / "modules").symlink_to(_MODULES)
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(
            executable_path=_program("chromium"), args=["--no-sandbox"]
        )
        tab = browser.new_page()
        tab.goto(f"http://127.0.0.1:{server.server_port}")
        vectors = tab.evaluate(_LITERT_JS, rows)
        server.shutdown()
    return trial.difference(np.array(vectors))


def _opened(folder: Path) -> SentenceEncoder:
    return SentenceEncoder(open_folder(folder))


def _wheel(trial: Trial) -> Figures:
    wheel = trial.exported("wheel")
    folder = trial.folder / "unpacked wheel"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    code = _WITHOUT_TENSORFLOW.format(module="tiny_model")
    vectors = trial.run([sys.executable, "-I", "-c", code, folder])
    # A wheel has 8-bit weights and, for an average of words, only principal components: its vectors
    # differ, but their cosines should not.
    cosines = [
        np.sum(rows * np.roll(rows, 1, axis=0), axis=1) for rows in (vectors, trial.expected)
    ]
    return trial.figures(
        np.abs(cosines[0] - cosines[1]),
        largest_difference_of_cosines=np.max,
        mean_difference_of_cosines=np.mean,
    )


def _averages(trial: Trial) -> Array:
    vectors: Array = _opened(trial.exported("numpy")).encode(trial.texts)
    return vectors


def _npm(trial: Trial) -> Figures:
    package = trial.exported("npm")
    folder = trial.folder / "unpacked npm"
    shutil.unpack_archive(package, folder, "gztar", filter="data")
    return trial.difference(trial.run_node(_NPM, folder / "package"), _averages(trial))


def _java(trial: Trial) -> Figures:
    program = ROOT / "examples" / "WordAverages.java"
    command = [_program("java"), str(program), str(trial.exported("numpy"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    match = re.fullmatch(r"(\d+) texts: (\d+) differ; largest .* (\S+)\n", done.stdout)
    if not match:
        raise RuntimeError(done.stderr[-2000:])
    figures = {"largest_difference": float(match[3]), "texts_with_other_tokens": float(match[2])}
    return {"conformance.json": figures}


def _sentence_transformers(trial: Trial) -> Figures:
    folder = trial.exported("sentence-transformers")
    return trial.difference(trial.run_python(_SENTENCE_TRANSFORMERS, folder))


def _fastembed(trial: Trial) -> Figures:
    folder, dim = trial.exported("sentence-transformers"), trial.expected.shape[1]
    return trial.difference(trial.run_python(_FASTEMBED, folder, str(dim)))


def _openvino(trial: Trial) -> Figures:
    return trial.difference(trial.run_python(_OPENVINO, trial.exported("sentence-transformers")))


def _transformers_js(trial: Trial) -> Figures:
    if not (_MODULES / "@huggingface" / "transformers").exists():
        raise AbsentError("needs make .peers/.installed, and npm")
    vectors = trial.run_node(_TRANSFORMERS_JS, trial.exported("sentence-transformers"))
    return trial.difference(vectors)


def _model2vec(trial: Trial) -> Figures:
    both = trial.run_python(_MODEL2VEC, trial.exported("model2vec"))
    return max((trial.difference(rows) for rows in both), key=largest)


def largest(figures: Figures) -> float:
    """The largest difference of all lists of texts."""
    return max(next(iter(part.values())) for part in figures.values())


def _keras_hub(trial: Trial) -> Figures:
    if find_spec("keras_hub") is None:
        raise AbsentError("there is no keras_hub")
    import keras_hub

    if trial.kind != "bert":
        raise UserError("KerasHub loads BERTs alone")
    folder = trial.exported("sentence-transformers")
    embedder = keras_hub.models.TextEmbedder.from_preset(str(folder))
    return trial.difference(embedder.predict(trial.texts, verbose=0))


# The rows of docs/runtimes.md.
RUNTIMES: dict[str, Callable[[Trial], Figures]] = {
    "TensorFlow 2.21": _tensorflow,
    "Keras 3": _keras,
    "TensorFlow Serving's protocol": _serving,
    "ONNX Runtime": partial(_runtime, "onnx"),
    "LiteRT": partial(_runtime, "litert"),
    "LiteRT.js": _litert_js,
    "Python without TensorFlow": _wheel,
    "JavaScript: Node, browsers": _npm,
    "Java": _java,
    "Transformers.js": _transformers_js,
    "sentence-transformers": _sentence_transformers,
    "fastembed": _fastembed,
    "OpenVINO": _openvino,
    "KerasHub": _keras_hub,
    "model2vec, StaticEmbedding": _model2vec,
}


def measure() -> dict[str, Any]:
    """Returns what is found for the texts of the file, and for odd ones."""
    from evaluation.benchmarks.workloads import read_texts

    model = Path(flags.FLAGS.model)
    texts = {"texts": read_texts(flags.FLAGS.texts), "odd texts": ODD_TEXTS}
    texts = {name: [t for t in part if not is_blank(t)] for name, part in texts.items()}
    numbers = {name: len(part) for name, part in texts.items()}
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(model, texts, Path(folder))
        for name, run in RUNTIMES.items():
            try:
                rows[name] = run(trial)
            except (AbsentError, UserError) as error:
                rows[name] = {"none": str(error)}
            except Exception as error:  # one failure must not stop the other runtimes
                rows[name] = {"failed": str(error)}
            print(f"{name}: {rows[name]}", flush=True)
    return {"model": model.name, "megabytes": folder_bytes(model) / 1e6, **numbers, "rows": rows}


if __name__ == "__main__":
    from evaluation.benchmarks.workloads import run_benchmark

    flags.DEFINE_string("model", None, "The exported model.", required=True)
    flags.DEFINE_string("texts", None, "File of sentences, a line each.", required=True)
    flags.DEFINE_string("output", "evaluation/results/runtimes.json", "Results file.")
    run_benchmark(measure, extra="evaluation")
