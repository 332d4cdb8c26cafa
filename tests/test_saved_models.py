"""Models at Hugging Face, whose library's download is replaced."""

import shutil

import huggingface_hub
import pytest
from huggingface_hub.utils import filter_repo_objects
from raw_files import read_files
from testing import SENTENCES

import xling_tf
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.importers.base import read_base_model


def test_a_model_at_hugging_face_is_loaded_by_its_name(hub_folder, hub_vectors, tmp_path, monkeypatch):
    repository = shutil.copytree(hub_folder, tmp_path / "repository")
    for name in ("pytorch_model.bin", "onnx/model.onnx"):  # formats that nobody reads
        (repository / name).parent.mkdir(exist_ok=True)
        (repository / name).touch()

    def download(name, revision, ignore_patterns):
        if name != "a/b":
            raise OSError("404")
        names = read_files(repository).keys()
        for name in names - filter_repo_objects(names, ignore_patterns=ignore_patterns):
            (repository / name).unlink()
        return str(repository)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert xling_tf.load("hf://a/b").encode(SENTENCES) == pytest.approx(hub_vectors, abs=1e-6)
    assert read_files(repository) == read_files(hub_folder)
    assert open_embedder("hf://a/b@main").name == "b"
    assert (read_base_model("hf://a/b@main"), read_base_model(hub_folder)) == ("a/b", "")
    with pytest.raises(UserError, match="hf://a/other cannot be downloaded"):
        xling_tf.load("hf://a/other")
