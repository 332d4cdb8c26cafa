"""An average of words as an npm package: the vectors of NumPy, in Node and in a browser."""

import json
import shutil
import subprocess
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT
from test_wheel import WORDS, make_source
from testing import SENTENCES, export_package

from xling_tf.client.encoder import SentenceEncoder
from xling_tf.client.runtimes import open_folder
from xling_tf.client.texts import encodable, is_blank
from xling_tf.client.word_averages import read_tensors
from xling_tf.errors import UserError
from xling_tf.exporters import npm
from xling_tf.exporters.conformance import ODD_TEXTS
from xling_tf.weights import write_weights

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="there is no Node")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

# Prints what a test asks for: JSON of the value of an expression over `m`, the module.
EVALUATE = """
import * as m from "tiny-model";
const values = JSON.parse(process.argv[2]);
const plain = (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
const answer = async () => (%s);
try { console.log(JSON.stringify(await answer(), plain)); }
catch (error) { console.log(JSON.stringify({ error: error.message })); }
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    # Before the seed of the first test: with other weights, sums in float32 may be less exact.
    keras.utils.set_random_seed(1)
    # 10 is no multiple of 4, in which sizes JavaScript multiplies.
    sizes = "tokenizer.ngram_sizes=3,4,5", "encoder.embedding_dim=10"
    return make_source(tmp_path_factory.mktemp("npm") / "model", *sizes, "tokenizer.lowercase=true")


@pytest.fixture(scope="module")
def package(source, tmp_path_factory):
    """The folder of the package that npm has installed from the archive in a new folder."""
    folder = tmp_path_factory.mktemp("package")
    export_package(npm, source, folder, version=3, dim=10, bits=8)
    archive = folder / "tiny-model-3.0.0.tgz"
    if program := shutil.which("npm"):
        (folder / "app").mkdir()
        command = [program, "install", "--offline", "--no-audit", "--no-fund", str(archive)]
        subprocess.run(command, cwd=folder / "app", check=True, timeout=120, capture_output=True)
    else:
        (folder / "app" / "node_modules").mkdir(parents=True)
        with tarfile.open(archive) as members:
            members.extractall(folder, filter="data")
        (folder / "package").rename(folder / "app" / "node_modules" / "tiny-model")
    return folder / "app" / "node_modules" / "tiny-model"


def node(package, expression, values=()):
    """Evaluates an expression in Node, in the folder in which the package is installed."""
    assert NODE
    script = package.parents[1] / "test.mjs"
    script.write_text(EVALUATE % expression, encoding="utf-8")
    command = [NODE, script.name, json.dumps(values)]
    done = subprocess.run(
        command, cwd=package.parents[1], timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def odd_texts():
    return [*ODD_TEXTS, " ".join(ODD_TEXTS), "".join(ODD_TEXTS), *SENTENCES, "é " * 3000]


@needs_node
def test_vectors_are_those_of_numpy(package):
    texts = odd_texts()
    expected = SentenceEncoder(open_folder(package)).encode(texts)
    actual = np.array(node(package, "await m.encode(values)", texts))
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert np.abs(actual[~expected.any(axis=1)]).max() == 0
    one = node(package, "await m.encode(values[0])", ["hola"])
    assert one == pytest.approx(SentenceEncoder(open_folder(package)).encode("hola"), abs=1e-6)


CHECKED = """
await (async () => {
  const { readFileSync } = await import("node:fs");
  const file = JSON.parse(readFileSync("node_modules/tiny-model/conformance.json", "utf8"));
  const model = await m.load();
  const vectors = model.encode(file.texts.map(({ text }) => text));
  return {
    words: file.texts.map(({ text }) => model.words(text)),
    rows: file.texts.map(({ words }) => words.map((word) => model.row(word))),
    // By word: numbers come first among the keys of an object.
    ngrams: Object.fromEntries(
      Object.keys(file.ngrams).map((word) => [word, model.ngramRows(word)])),
    vectors: vectors.map((vector) => vector.filter((_, i) => i % file.step === 0)),
    searches: file.searches.map(({ query }) =>
      model.semanticSearch(vectors[query], vectors, { topK: 5 })),
  };
})()
"""


@needs_node
def test_javascript_conforms(package):
    file = json.loads((package / "conformance.json").read_text("utf-8"))
    actual = node(package, CHECKED)
    texts = file["texts"]
    assert actual["words"] == [text["words"] for text in texts]
    assert actual["rows"] == [text["rows"] for text in texts]
    assert actual["ngrams"] == file["ngrams"]
    vectors = np.array([text["vector"] for text in texts])
    np.testing.assert_allclose(np.array(actual["vectors"]), vectors, atol=file["tolerance"])
    for found, search in zip(actual["searches"], file["searches"], strict=True):
        assert [hit["corpusId"] for hit in found] == [row for row, _ in search["hits"]]
        scores = [score for _, score in search["hits"]]
        assert [hit["score"] for hit in found] == pytest.approx(scores, abs=file["tolerance"])


def test_the_graph_conforms(source, package):
    # The vectors of the package are rounded to a 254th of a row's largest number.
    file = json.loads((package / "conformance.json").read_text("utf-8"))
    texts = [text["text"] for text in file["texts"]]
    assert len(texts) == len({*texts}) == 500
    tokens = source.model.tokenizer.tokenize(tf.constant(texts)).to_list()
    words = [[word.decode() for word in row] for row in tokens]
    assert words == [text["words"] for text in file["texts"]]
    vocabulary = source.model.tokenizer.known_words
    known = (package / "vocabulary.txt").read_text("utf-8").split("\n")[:-1]
    ids = [source.model.tokenizer.word_ids(tf.constant(row)).numpy().tolist() for row in words]
    named = [[vocabulary[i] if i < len(vocabulary) else None for i in row] for row in ids]
    rows = [text["rows"] for text in file["texts"]]
    assert named == [[known[row] if row >= 0 else None for row in some] for some in rows]
    vectors = source.model(tf.constant(texts)).numpy()
    for search in file["searches"]:
        for row, score in search["hits"]:
            assert vectors[search["query"]] @ vectors[row] == pytest.approx(score, abs=0.05)


def test_searches_and_vectors_are_in_the_file(package):
    file = json.loads((package / "conformance.json").read_text("utf-8"))
    by_blank = [is_blank(text["text"]) for text in file["texts"]]
    assert [not any(text["vector"]) for text in file["texts"]] == by_blank
    assert len(file["searches"]) > 10
    assert by_blank[file["searches"][0]["query"]]
    assert not file["searches"][0]["hits"]
    unknown = {
        w for t in file["texts"] for w, row in zip(t["words"], t["rows"], strict=True) if row < 0
    }
    assert file["ngrams"].keys() == unknown
    assert (package / "conformance.json").read_bytes().isascii()


@needs_node
def test_four_bits_are_the_numbers_of_eight(package, tmp_path):
    # Numbers from -7 to 7, in bytes and in halves of bytes: 3 and -2 are 3 + 8 = 11 and
    # -2 + 8 = 6, and the byte 6 * 16 + 11 = 107.
    random = np.random.default_rng(1)
    weights = read_tensors(package / "model.safetensors")
    settings = json.loads((package / "runtime.json").read_text("utf-8"))
    eight, four = {**weights}, {**weights}
    for name in ("words", "ngrams"):
        numbers = random.integers(-7, 8, weights[name].shape)
        numbers[0, :2] = 3, -2
        eight[name] = numbers.astype(np.int8)
        four[name] = (numbers[:, ::2] + 8 + 16 * (numbers[:, 1::2] + 8)).astype(np.uint8)
    assert four["words"][0, 0] == 107
    folders = tmp_path / "eight", tmp_path / "four"
    for folder, tensors, bits in zip(folders, (eight, four), (8, 4), strict=True):
        folder.mkdir()
        write_weights(folder / "model.safetensors", tensors)
        shutil.copy(package / "vocabulary.txt", folder)
        # Two more numbers than are stored are zeros.
        changed = settings | {"bits": bits, "dim": settings["dim"] + 2}
        (folder / "runtime.json").write_text(json.dumps(changed))
    expression = "await Promise.all(values.map(async (u) => (await m.load(u)).encode('hola xyz')))"
    urls = [f"{folder.as_uri()}/" for folder in folders]
    first, second = node(package, expression, urls)
    assert second == pytest.approx(first, abs=1e-7)
    assert first[-2:] == [0, 0]
    assert any(first)


@needs_node
def test_one_text_gives_one_result_and_a_list_gives_a_list(package):
    expected = SentenceEncoder(open_folder(package))
    hola, don = expected.encode(["hola", "the don"])
    close = partial(pytest.approx, abs=1e-6)
    expression = """await (async () => {
      const [a, b] = await m.encode(["hola", "the don"]);
      const model = await m.loadInWorker();
      const worker = await model.semanticSearch("hola", ["the don", "", "hola"], { topK: 1 });
      const failed = await model.encode(5).catch((error) => error.message);
      await model.close();
      const closed = await model.encode("hola").catch((error) => error.message);
      const blanks = ["", " ", "hola", "\\u200b"];
      return {
        one: await m.similarity("hola", "the don"),
        row: await m.similarity("hola", ["the don", "hola"]),
        rows: await m.similarity(["hola"], ["the don", b]).catch((error) => error.message),
        vectors: await m.similarity([a, b], Array.from(a)),
        long: await m.similarity(a.map((n) => 3 * n), b),
        hits: await m.semanticSearch("hola", ["the don", "hola", "que"], { topK: 2 }),
        blanks: await m.semanticSearch(["hola", ""], blanks), empty: await m.encode([]),
        nothing: await m.semanticSearch("hola", []), worker, failed, closed,
        dim: model.dim,
      };
    })()"""
    found = node(package, expression)
    assert found["one"] == close(hola @ don)
    assert found["row"] == close([hola @ don, 1])
    assert "strings, but second[1] is an object" in found["rows"]
    assert found["vectors"] == close([1, hola @ don])
    assert found["long"] == close(hola @ don)
    assert found["hits"][0] == {"corpusId": 1, "score": close(1)}
    assert len(found["hits"]) == 2
    assert found["blanks"] == [[{"corpusId": 2, "score": close(1)}], []]
    assert found["empty"] == found["nothing"] == []
    assert found["worker"] == [{"corpusId": 2, "score": close(1)}]
    assert found["failed"] == "texts must be a string or an array of strings, but got number 5"
    assert "it was closed" in found["closed"]
    assert found["dim"] == len(hola)


@pytest.fixture(scope="module")
def calibrated(package, tmp_path_factory):
    """The address of the package's model with slopes and intercepts of both kinds of match."""
    folder = tmp_path_factory.mktemp("calibrated")
    for name in ("vocabulary.txt", "model.safetensors"):
        shutil.copy(package / name, folder)
    settings = json.loads((package / "runtime.json").read_text("utf-8"))
    match = {"same_meaning": [3.0, -1.0], "answer": [2.0, 0.5]}
    (folder / "runtime.json").write_text(json.dumps(settings | {"match": match}))
    return folder


@needs_node
def test_probabilities_are_those_of_python(package, calibrated):
    expected = SentenceEncoder(open_folder(calibrated))
    texts = ["the don", "", "hola", "xyz"]
    # Between the best hit, the query itself, and the second one.
    ((best, second, _),) = expected.semantic_search("hola", texts, min_probability=0)
    minimum = (best["probability"] + second["probability"]) / 2
    expression = """await (async () => {
      const [url, texts, minProbability] = values;
      const model = await m.load(url);
      const vectors = model.encode(texts);
      const worker = await m.loadInWorker(url);
      const two = await worker.probability("hola", "que");
      await worker.close();
      return {
        two, kinds: model.kinds,
        one: model.probability("hola", texts),
        other: model.probability(vectors, "hola", { kind: "answer", numCandidates: 9 }),
        pairs: model.probability(texts, ["hola", "hola", "hola", ""]),
        likely: model.semanticSearch("hola", texts, { minProbability }),
        all: model.semanticSearch(["hola", ""], vectors, { minProbability: 0, topK: 2 }),
        nothing: model.semanticSearch("hola", [], { minProbability: 0 }),
      };
    })()"""
    found = node(package, expression, [f"{calibrated.as_uri()}/", texts, minimum])
    close = partial(pytest.approx, abs=1e-5)
    assert found["kinds"] == ["same_meaning", "answer"]
    assert found["two"] == close(expected.probability("hola", "que"))
    assert found["one"] == close(expected.probability("hola", texts))
    # The same text: log odds of 3 - 1 = 2. A blank text matches nothing.
    assert found["one"][1:3] == close([0, 1 / (1 + np.exp(-2))])
    # Among 9 candidates, 2 + 0.5 becomes 2.5 - log(9) / 2.
    assert found["other"][2] == close(1 / (1 + np.exp(-2.5 + np.log(3))))
    others = expected.probability(texts, "hola", kind="answer", num_candidates=9)
    assert found["other"] == close(others)
    assert found["pairs"] == close(expected.probability(texts, ["hola", "hola", "hola", ""]))
    for name, hits, options in (
        ("likely", [found["likely"]], {"min_probability": minimum}),
        ("all", found["all"], {"min_probability": 0.0, "top_k": 2}),
    ):
        queries = ["hola", ""] if name == "all" else ["hola"]
        for row, same in zip(
            hits, expected.semantic_search(queries, texts, **options), strict=True
        ):
            assert [hit["corpusId"] for hit in row] == [hit["corpus_id"] for hit in same]
            likely = [hit["probability"] for hit in same]
            assert [hit["probability"] for hit in row] == close(likely)
    assert [hit["corpusId"] for hit in found["likely"]] == [2]
    assert found["nothing"] == []


@needs_node
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "probability('a', 'b', { kind: 'alike' })",
            'no probability "alike", but same_meaning, answer; add',
        ),
        ("probability('a', 'b', { kind: 'toString' })", 'no probability "toString"'),
        ("probability('a', 'b', { numCandidates: 0.5 })", "at least 1, got number 0.5"),
        ("probability(['a'], ['b', 'c'])", "as many, but are 1 and 2"),
        ("probability([1, 0], [0, 1])", "with all 10 numbers, but have 2 numbers"),
        ("semanticSearch('a', ['b'], { minProbability: 2 })", "from 0 to 1, got number 2"),
        ("semanticSearch('a', ['b'], { minProbability: '0' })", "from 0 to 1, got string 0"),
    ],
)
def test_impossible_probabilities_are_refused(package, calibrated, expression, message):
    expression = f"(await m.load(values)).{expression}"
    assert message in node(package, expression, f"{calibrated.as_uri()}/")["error"]


@needs_node
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "m.probability('a', 'b')",
            'this model has no probability "same_meaning", but none; add it with',
        ),
        ("m.semanticSearch('a', ['b'], { minProbability: 0 })", 'has no probability "answer"'),
        ("m.encode(['a', null])", r"texts[1] is null"),
        ("m.encode({ q: 'a' })", "array of strings, but got an object of the class Object"),
        ("m.encode(undefined)", "but got undefined"),
        ("m.semanticSearch('a', ['b'], { topK: 0 })", "at least 1, got number 0"),
        ("m.similarity('a', [1, 2])", "have 10 and 2 numbers; encode both with one model"),
        ("m.similarity([[1, 2], [1]], 'a')", "vectors of one length"),
        ("m.similarity([NaN], [1])", "finite vector"),
        ("m.load('file:///nowhere/')", "nowhere"),
        ("m.loadInWorker('file:///nowhere/')", "nowhere"),
    ],
)
def test_what_cannot_be_used_is_refused(package, expression, message):
    assert message in node(package, f"await {expression}")["error"]


@needs_node
def test_the_package_can_be_required(package):
    script = 'require("tiny-model").similarity("hola", "Hola").then(console.log)'
    done = subprocess.run(
        [str(NODE), "-e", script],
        cwd=package.parents[1],
        timeout=60,
        check=True,
        capture_output=True,
        text=True,
    )
    assert float(done.stdout) == pytest.approx(1, abs=1e-6)


def test_the_archive_has_the_same_bytes_each_time_and_the_licences(source, package, tmp_path):
    export_package(npm, source, tmp_path, version=3, dim=10, bits=8)
    first, second = (
        next(path.glob("*.tgz")).read_bytes() for path in (package.parents[2], tmp_path)
    )
    assert first == second
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "not stated" in (package / "NOTICE").read_text()
    manifest = json.loads((package / "package.json").read_text("utf-8"))
    assert (manifest["name"], manifest["version"]) == ("tiny-model", "3.0.0")
    assert "dependencies" not in manifest
    card = (tmp_path / "tiny-model.md").read_text("utf-8")
    assert card == (package / "README.md").read_text("utf-8")
    assert "tiny-model-3.0.0.tgz" in card
    assert "mean cosine" in card


def test_models_that_javascript_cannot_compute_are_refused(tmp_path):
    long = make_source(tmp_path / "model", "tokenizer.ngram_sizes=17")
    with pytest.raises(UserError, match="up to 16 characters"):
        export_package(npm, long, tmp_path)


def test_a_model_without_ngrams_conforms(tmp_path):
    source = make_source(tmp_path / "model", "tokenizer.ngram_sizes=")
    export_package(npm, source, tmp_path)
    with tarfile.open(tmp_path / "tiny-model-1.0.0.tgz") as members:
        members.extractall(tmp_path, filter="data")
    file = json.loads((tmp_path / "package" / "conformance.json").read_text("utf-8"))
    assert file["ngrams"] == {}
    assert {row for text in file["texts"] for row in text["rows"]} == {-1, *range(len(WORDS))}
    if NODE:
        app = tmp_path / "node_modules" / "tiny-model"
        shutil.copytree(tmp_path / "package", app)
        expected = SentenceEncoder(open_folder(app)).encode("xyz hola")
        assert node(app, "await m.encode('xyz hola')") == pytest.approx(expected, abs=1e-6)


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
def test_java_conforms_by_the_same_file(package):
    command = ["java", str(ROOT / "examples" / "WordAverages.java"), str(package)]
    done = subprocess.run(command, timeout=300, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("500 texts: 0 differ")
    lines = b"the don\n\nhola\n"
    found = subprocess.run([*command, "hola"], timeout=300, input=lines, capture_output=True)
    assert found.stdout.decode().splitlines()[0] == "1.00 hola"
    assert len(found.stdout.splitlines()) == 2


@pytest.fixture(scope="module")
def address(package):
    """The address of a server of the package's files."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=package)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.mark.slow
def test_a_browser_has_the_vectors_of_numpy(package, address, browser):
    texts = odd_texts()
    tab = browser.new_page()
    tab.goto(f"{address}/package.json")
    script = """async (texts) => {
      const { encode, loadInWorker } = await import("/index.js");
      const model = await loadInWorker();
      const both = [await encode(texts), await model.encode(texts)];
      await model.close();
      return both.map((vectors) => vectors.map((vector) => [...vector]));
    }"""
    expected = SentenceEncoder(open_folder(package)).encode(texts)
    for actual in tab.evaluate(script, [encodable(text) for text in texts]):
        np.testing.assert_allclose(np.array(actual), expected, atol=1e-6)


@pytest.mark.slow
def test_the_page_searches_lines_and_files_by_keyboard(package, address, browser, tmp_path):
    tab = browser.new_page(viewport={"width": 360, "height": 740})
    complaints = []
    tab.on("console", lambda message: complaints.append(message.text))
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.goto(f"{address}/index.html")
    tab.get_by_text("The 10 nearest of 16 lines.").wait_for()
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    hostile = "<img src=x onerror=alert(1)>"
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+A")
    tab.keyboard.type("hola")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Control+A")
    tab.keyboard.type(f"the don\n\n{hostile}")
    tab.get_by_text("The 2 nearest of 2 lines.").wait_for()
    (tmp_path / "notes.txt").write_text("que\r\n\r\nhola\r\n")
    tab.set_input_files("#files", tmp_path / "notes.txt")
    tab.get_by_text("The 4 nearest of 4 lines.").wait_for()
    hits = tab.locator("#hits li").all_inner_texts()
    assert hits[0].split("\n") == ["1.00", "hola", "notes.txt, line 3"]
    assert any(hostile in hit for hit in hits)
    tab.get_by_role("button", name="Remove notes.txt").press("Enter")
    tab.get_by_text("The 2 nearest of 2 lines.").wait_for()
    tab.locator("#query").fill(" ")
    tab.get_by_text("2 lines to search.").wait_for()
    assert tab.locator("#hits li").count() == 0
    assert complaints == []


@pytest.mark.slow
def test_the_page_shows_probabilities_if_the_model_has_them(package, calibrated, browser):
    tab = browser.new_page()
    tab.goto((package / "index.html").as_uri())
    names = ("runtime.json", "vocabulary.txt", "model.safetensors")
    tab.locator("#lines").fill("hola")
    tab.locator("#query").fill("hola")
    tab.set_input_files("#files", [calibrated / name for name in names])
    tab.get_by_text("The 1 nearest of 1 line. Percent").wait_for()
    # The log odds of the same text alone are 2 + 0.5: 92.4%.
    assert tab.locator("#hits li b").inner_text() == "92%"


@pytest.mark.slow
def test_the_page_from_disk_says_what_to_do_and_takes_the_model(package, browser):
    tab = browser.new_page(color_scheme="dark")
    tab.goto((package / "index.html").as_uri())
    tab.get_by_text("does not let this page read the model").wait_for()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 28)"
    tab.set_input_files("#files", [package / "runtime.json", package / "vocabulary.txt"])
    tab.get_by_text("model.safetensors together").wait_for()
    names = ("runtime.json", "vocabulary.txt", "model.safetensors")
    tab.set_input_files("#files", [package / name for name in names])
    tab.get_by_text("The 10 nearest of 16 lines.").wait_for()
