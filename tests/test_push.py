"""Models as archives, and at Hugging Face, whose library's calls are replaced."""

import shutil
import subprocess
from types import SimpleNamespace

import huggingface_hub
import pytest
import tensorflow_hub
from huggingface_hub.utils import filter_repo_objects
from programs import ROOT, run_python
from push import archive, push
from raw_files import read_files
from serving_servers import app_in_thread
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Route
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.importers.base import read_base_model
from xling_tf.savedmodel.saved_models import find_model


@pytest.fixture
def repository(monkeypatch, tmp_path):
    """The folder of the only repository, a/b."""
    folder = tmp_path / "repository"

    def upload(repo_id, folder_path, commit_message):
        if repo_id != "a/b":
            raise OSError("403")
        shutil.copytree(folder_path, folder)
        return SimpleNamespace(commit_url="https://hf/a/b/commit/1")

    def download(name, revision, ignore_patterns):
        if name != "a/b":
            raise OSError("404")
        names = read_files(folder).keys()
        for name in names - filter_repo_objects(names, ignore_patterns=ignore_patterns):
            (folder / name).unlink()
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "create_repo", lambda name, exist_ok: None)
    monkeypatch.setattr(huggingface_hub, "upload_folder", upload)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return folder


def test_a_pushed_model_is_loaded_by_its_name(repository, hub_folder, hub_vectors):
    assert push(hub_folder, "hf://a/b") == "https://hf/a/b/commit/1"
    assert read_files(repository) == read_files(hub_folder)
    for name in ("pytorch_model.bin", "onnx/model.onnx"):  # formats that nobody reads
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).touch()
    assert xling_tf.load("hf://a/b").encode(SENTENCES) == pytest.approx(hub_vectors, abs=1e-6)
    assert not [*repository.rglob("model.onnx"), *repository.glob("*.bin")]
    assert open_embedder("hf://a/b@main").name == "b"
    assert (read_base_model("hf://a/b@main"), read_base_model(hub_folder)) == ("a/b", "")


def test_a_refusal_by_hugging_face_is_reported(repository, hub_folder):
    for call, message in (
        (lambda: xling_tf.load("hf://a/other"), "hf://a/other cannot be downloaded"),
        (lambda: push(hub_folder, "hf://a/other"), "rejects the model"),
        (lambda: push(hub_folder.parent, "hf://a/b"), "holds exported models"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_an_archive_is_loaded_from_its_file_and_by_tf_hub(hub_folder, hub_vectors, tmp_path, monkeypatch):
    packed = tmp_path / "share" / "model.tar.gz"
    flags = [f"--model={hub_folder}", "--output=share/model.tar.gz"]
    run = run_python(tmp_path, str(ROOT / "export" / "push.py"), *flags)
    assert (run.status, 'xling_tf.load("share/model.tar.gz")' in run.output) == (0, True), run.errors
    subprocess.run(["sha256sum", "--check", f"{packed.name}.sha256"], cwd=packed.parent, check=True)
    assert xling_tf.load(packed).encode(SENTENCES) == pytest.approx(hub_vectors, abs=1e-6)
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    with app_in_thread(Starlette(routes=[Route("/m.tar.gz", lambda _: FileResponse(packed))])) as port:
        loaded = tensorflow_hub.load(f"http://127.0.0.1:{port}/m.tar.gz")
    assert loaded(SENTENCES).numpy() == pytest.approx(hub_vectors, abs=1e-6)

    (tmp_path / "snapshot").mkdir()  # as in Hugging Face's cache
    for path in hub_folder.iterdir():
        (tmp_path / "snapshot" / path.name).symlink_to(path)
    archive(tmp_path / "snapshot", packed)
    assert read_files(find_model(packed)) == read_files(hub_folder)

    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(packed.read_bytes()[:1000])
    with pytest.raises(UserError, match="cannot be unpacked"):
        xling_tf.load(cut)
