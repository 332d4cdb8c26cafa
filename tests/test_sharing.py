"""Models as archives, at Hugging Face and at Kaggle, of whose APIs stand-ins play the parts that are used."""

import base64
import hashlib
import json
import shutil
import subprocess

import huggingface_hub.constants
import kagglesdk.kaggle_env
import pytest
import tensorflow_hub
from serving_servers import app_in_thread
from sharing import archive, push
from starlette.applications import Starlette
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from testing import SENTENCES

import xling_tf
from xling_tf.config import to_json
from xling_tf.errors import UserError
from xling_tf.evaluators.systems import open_system
from xling_tf.trainer.warm_start import StartRecord

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


class StandIn:
    """The repository a/b, whose files are small and sent within a commit."""

    def __init__(self):
        self.files = {}
        self.app = Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST"])])

    async def answer(self, request):
        place, body = request.path_params["path"].removeprefix("api/models/a/b/"), await request.body()
        if place == "api/repos/create":
            return JSONResponse({"url": f"{request.base_url}a/b"})
        if place == "api/validate-yaml":
            assert json.loads(body)["content"].startswith("---")
            return JSONResponse({"errors": [], "warnings": []})
        if place == "preupload/main":
            modes = {"uploadMode": "regular", "shouldIgnore": False}
            return JSONResponse({"files": [{"path": f["path"], **modes} for f in json.loads(body)["files"]]})
        if place == "commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"{request.base_url}a/b/commit/{_COMMIT}"
            return JSONResponse({"commitUrl": url, "commitOid": _COMMIT, "hookOutput": ""})
        if place == "revision/main":
            return JSONResponse({"id": "a/b", "sha": _COMMIT, "siblings": []})
        tags = {name: hashlib.sha1(content).hexdigest() for name, content in self.files.items()}
        if place == f"tree/{_COMMIT}":
            files = self.files.items()
            return JSONResponse(
                [{"type": "file", "path": n, "size": len(content), "oid": tags[n]} for n, content in files]
            )
        name = place.removeprefix(f"a/b/resolve/{_COMMIT}/")
        if name in self.files:
            headers = {"ETag": f'"{tags[name]}"', "X-Repo-Commit": _COMMIT}
            return Response(self.files[name], headers=headers)
        return Response(status_code=404)


@pytest.fixture
def hugging_face(monkeypatch, tmp_path):
    stand_in = StandIn()
    with app_in_thread(stand_in.app) as port:
        address = f"http://127.0.0.1:{port}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        url = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", tmp_path / "cache")
        yield stand_in


def test_a_pushed_model_is_loaded_by_its_name(hugging_face, hub_model, hub_folder, hub_vectors, tmp_path):
    folder = shutil.copytree(hub_folder, tmp_path / "model")
    (folder / "config.json").write_text(to_json(hub_model.config))
    (folder / "results.json").write_text(json.dumps({"scores": {"sts/stsb.en.dev": {"pearson": 0.8}}}))
    assert push(folder, "hf://a/b").endswith(f"/a/b/commit/{_COMMIT}")
    assert {*hugging_face.files} == {
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    }
    card = huggingface_hub.ModelCard(hugging_face.files["README.md"].decode())
    assert "# A card" in card.text
    assert card.data.language == [hub_model.config.data.source, *hub_model.config.data.targets]
    (score,) = card.data.eval_results
    assert (score.dataset_name, score.metric_type, score.metric_value) == ("sts/stsb.en.dev", "pearson", 0.8)

    assert xling_tf.load("hf://a/b").encode(SENTENCES) == pytest.approx(hub_vectors, abs=1e-6)
    assert open_system("hf://a/b@main").name == "b"


def test_what_hugging_face_refuses_is_told(hugging_face, hub_folder):
    with pytest.raises(UserError, match="hf://a/other cannot be had"):
        xling_tf.load("hf://a/other")
    with pytest.raises(UserError, match="cannot be had"):
        xling_tf.load("hf://no name")
    with pytest.raises(UserError, match="must be yours to write"):
        push(hub_folder, "hf://a/other")
    with pytest.raises(UserError, match="expects hf://owner/name"):
        push(hub_folder, "a/b")
    with pytest.raises(UserError, match="has models in it"):
        push(hub_folder.parent, "hf://a/b")


class KaggleStandIn:
    """Models of the account `a`: files come first, and then what is to be made of them."""

    def __init__(self):
        self.requests, self.sent, self.exists = [], {}, False
        routes = [
            Route("/v1/{service}/{name}", self.answer, methods=["POST"]),
            Route("/blobs/{name}", self.receive, methods=["PUT"]),
        ]
        self.app = Starlette(routes=routes)

    async def answer(self, request):
        name, body = request.path_params["name"], await request.json()
        self.requests.append((name, body))
        if name == "GetModel" and not self.exists:
            return JSONResponse({"code": 404, "message": "not found"}, 404)
        if name == "CreateModel" and body["ownerSlug"] != "a":
            return JSONResponse({"code": 403, "message": "not yours"}, 403)
        if name == "StartBlobUpload":
            token = f"{len(self.requests)}-{body['name']}"
            return JSONResponse({"token": token, "createUrl": f"{request.base_url}blobs/{token}"})
        if name == "CreateModelInstance" and self.exists:
            return JSONResponse({"error": "it exists", "errorCode": 409})
        self.exists |= name == "CreateModelInstance"
        return JSONResponse({"id": 1})

    async def receive(self, request):
        self.sent[request.path_params["name"]] = await request.body()
        return Response()


@pytest.fixture
def kaggle(monkeypatch):
    stand_in = KaggleStandIn()
    with app_in_thread(stand_in.app) as port:
        endpoints = {kagglesdk.kaggle_env.KaggleEnv.PROD: f"http://127.0.0.1:{port}"}
        monkeypatch.setattr(kagglesdk.kaggle_env, "_env_to_endpoint", endpoints)
        monkeypatch.setenv("KAGGLE_API_TOKEN", "token")
        yield stand_in


def test_a_model_pushed_to_kaggle_is_there_with_all_its_files(kaggle, hub_folder):
    handle = "a/xling/tensorFlow2/en-es"
    assert push(hub_folder, f"kaggle:{handle}").endswith(f"/models/{handle}")
    created = dict(kaggle.requests)["CreateModelInstance"]
    assert (created["ownerSlug"], created["modelSlug"]) == ("a", "xling")
    assert created["body"]["instanceSlug"] == "en-es"

    def received(directory):
        for file in directory.get("files", []):
            yield kaggle.sent[file["token"]]
        for part in directory.get("directories", []):
            yield from received(part)

    files = [path.read_bytes() for path in hub_folder.rglob("*") if path.is_file()]
    assert sorted(received(created["body"])) == sorted(files)

    push(hub_folder, f"kaggle:{handle}")
    assert kaggle.requests[-1][0] == "CreateModelInstanceVersion"


def test_what_kaggle_refuses_is_told(kaggle, hub_folder):
    with pytest.raises(UserError, match="yours to write, but cannot be"):
        push(hub_folder, "kaggle:b/xling/tensorFlow2/en-es")
    with pytest.raises(UserError, match="must be owner/model/tensorFlow2/variation"):
        push(hub_folder, "kaggle:a/xling")


def test_an_archive_is_loaded_from_its_file_and_by_tf_hub(hub_folder, hub_vectors, tmp_path, monkeypatch):
    packed = tmp_path / "share" / "model.tar.gz"
    checksum = archive(hub_folder, packed)
    subprocess.run(["sha256sum", "--check", checksum.name], cwd=packed.parent, check=True)
    assert xling_tf.load(packed).encode(SENTENCES) == pytest.approx(hub_vectors, abs=1e-6)
    assert StartRecord.of(str(packed)).model == str(packed)  # a training can start from it
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    with app_in_thread(Starlette(routes=[Route("/m.tar.gz", lambda _: FileResponse(packed))])) as port:
        loaded = tensorflow_hub.load(f"http://127.0.0.1:{port}/m.tar.gz")
    assert loaded(SENTENCES).numpy() == pytest.approx(hub_vectors, abs=1e-6)

    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(packed.read_bytes()[:1000])
    with pytest.raises(UserError, match="cannot be unpacked"):
        xling_tf.load(cut)
    with pytest.raises(UserError, match="must end in"):
        archive(hub_folder, tmp_path / "model.zip")
