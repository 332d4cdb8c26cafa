"""The demo page's files, as the server hands them out."""

import re
from collections.abc import Iterator
from importlib import resources

import httpx
import pytest
from demo_server import Stub, serving

from xling_tf.serving.demo.routes import ASSETS, describe_models

LANGUAGES = ["en", "es", "fr", "de", "zh"]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(Stub()) as origin, httpx.Client(base_url=origin) as client:
        yield client


def test_the_page_and_its_headers(client):
    answer = client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_the_page_is_of_files_in_the_table_and_of_nothing_inline(client):
    page = client.get("/").text
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert sorted(links) == ["demo/demo.css", "demo/demo.js", "demo/icon.svg"]
    assert not re.search(r"<style| style=| on\w+=|<script(?! type=\"module\" src)", page)


def test_scripts_import_files_of_the_table(client):
    for name in ASSETS:
        imported = re.findall(r'from "\./([^"]*)"', client.get(f"/demo/{name}").text)
        assert set(imported) <= ASSETS.keys(), name


@pytest.mark.parametrize(("name", "kind"), ASSETS.items())
def test_files_have_their_types(client, name, kind):
    answer = client.get(f"/demo/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == kind
    assert "content-security-policy" in answer.headers
    assert answer.content == (resources.files("xling_tf.serving.demo") / name).read_bytes()


def test_every_file_of_the_folder_is_handed_out_or_python():
    there = {path.name for path in resources.files("xling_tf.serving.demo").iterdir()}
    others = {"__init__.py", "routes.py", "index.html", "__pycache__"}
    assert there - others == ASSETS.keys()


@pytest.mark.parametrize(
    "path",
    [
        *("", "none.js", "routes.py", "index.html", "DEMO.JS", "demo.js/", "a/demo.js"),
        *("..%2froutes.py", "%2e%2e/errors.py", "demo.js%00", "%3Cscript%3E", "%ff"),
    ],
)
def test_other_files_are_not_found(client, path):
    answer = client.get(f"/demo/{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/json"
    assert list(answer.json()) == ["error"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["/", "/demo/models", "/demo/demo.js", "/demo/none"])
def test_head_is_get_without_a_body(client, path):
    got, headed = client.get(path), client.head(path)
    assert headed.status_code == got.status_code
    assert headed.content == b""
    for answer in (headed, got):
        del answer.headers["date"]
    assert headed.headers == got.headers


@pytest.mark.parametrize("path", ["/", "/demo/models", "/demo/demo.js"])
def test_nothing_can_be_written(client, path):
    assert client.post(path).status_code == 405


def test_models_are_listed_with_their_signatures_of_strings(client):
    answer = client.get("/demo/models")
    assert answer.headers["content-type"] == "application/json"
    plane, answers, numbers, broken = answer.json()["models"]
    one = {"inputs": ["inputs"], "outputs": ["outputs"]}
    assert plane == {"name": "plane", "signatures": {"serving_default": one, "default": one}}
    assert answers["signatures"]["response_encoder"]["inputs"] == ["input", "context"]
    assert numbers == {"name": "numbers", "signatures": {}}
    assert broken == {
        "name": "broken",
        "signatures": {},
        "error": "Servable not found for request: Latest(broken)",
    }


def test_a_server_without_models_is_described():
    stub = Stub()
    stub.served.clear()
    assert describe_models(stub) == []


def test_the_built_in_list_has_each_sentence_in_every_language():
    text = (resources.files("xling_tf.serving.demo") / "sentences.tsv").read_text(encoding="utf-8")
    header, *rows = [line.split("\t") for line in text.splitlines()]
    assert header == LANGUAGES
    sentences = [sentence for row in rows for sentence in row]
    assert {len(row) for row in rows} == {len(LANGUAGES)}
    # The page says how many there are.
    page = (resources.files("xling_tf.serving.demo") / "index.html").read_text(encoding="utf-8")
    assert f"{len(sentences)} everyday sentences in five languages" in page
    assert len(set(sentences)) == len(sentences)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert all(re.search(r"[\u4e00-\u9fff]", row[-1]) for row in rows)
