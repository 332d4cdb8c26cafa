"""A model as a version for TensorFlow Serving: whole, apart from its source, with warm-up requests."""

import errno
import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.errors import UserError
from xling_tf.serving.versions import find_versions
from xling_tf.serving.warm_up import WARMUP_REQUESTS
from xling_tf.serving_layout import publishing
from xling_tf.serving_layout.publishing import Published, publish
from xling_tf.serving_layout.versions import (
    find_models,
    next_version,
    require_free,
    require_model_name,
)
from xling_tf.serving_layout.warmup import WARMUP_FILE, replay, write_warmup_requests

CONFIGURATION = {"models.config", "batching.config", "monitoring.config", "compose.yaml"}


def files(folder: Path) -> dict[str, bytes]:
    """What lies in a folder, at any depth."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def read_warmup(version: Path) -> list[Any]:
    records = tf.data.TFRecordDataset(str(version / WARMUP_FILE)).as_numpy_iterator()
    return [prediction_log_pb2.PredictionLog.FromString(record) for record in records]


class Small(tf.Module):
    """Loaded in no time: texts, pairs of them, numbers in strings, numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = tf.Variable([2.0] * 100)
        texts, numbers = tf.TensorSpec([None], tf.string), tf.TensorSpec([100], tf.float32)
        self.functions = {
            "lengths": _function(lambda inputs: tf.strings.length(inputs), inputs=texts),
            "pairs": _function(self.pairs, premise=texts, hypothesis=texts),
            "parsed": _function(lambda inputs: tf.strings.to_number(inputs), inputs=texts),
            "doubled": _function(lambda inputs: inputs * self.factor, inputs=numbers),
        }

    def pairs(self, premise: tf.Tensor, hypothesis: tf.Tensor) -> tf.Tensor:
        return tf.strings.length(premise) - tf.strings.length(hypothesis)


def _function(function: Callable[..., tf.Tensor], **inputs: tf.TensorSpec) -> Any:
    return tf.function(lambda **inputs: {"outputs": function(**inputs)}).get_concrete_function(
        **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()}
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, module = tmp_path_factory.mktemp("exported") / "small", Small()
    tf.saved_model.save(module, str(path), signatures=module.functions)
    (path / "README.md").write_text("# A card\n")
    return path


@pytest.fixture(scope="module")
def published(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Published:
    """It, published; no test changes it."""
    return publish(small, tmp_path_factory.mktemp("production") / "serving", "tiny")


def test_a_version_is_a_whole_copy_with_warm_up_requests(published: Published, small: Path) -> None:
    assert published.folder.parts[-3:] == ("serving", "tiny", "1")
    copied = files(published.folder)
    assert copied.pop(WARMUP_FILE.as_posix())
    assert copied == files(small)
    # No file shared with the source: what is written into that is not written into this.
    for path in published.folder.rglob("*"):
        assert path.is_dir() or path.stat().st_nlink == 1, path
    assert {path.name for path in published.folder.parents[1].iterdir()} == {"tiny", *CONFIGURATION}


def test_signatures_of_texts_are_warmed_up_by_requests_that_they_answer(
    published: Published, small: Path
) -> None:
    assert WARMUP_FILE.as_posix() == WARMUP_REQUESTS
    model, sizes = tf.saved_model.load(str(small)), {"lengths": [], "pairs": []}
    for record in read_warmup(published.folder):
        request = record.predict_log.request
        assert request.model_spec.name == "tiny"
        columns = {key: tf.make_ndarray(value) for key, value in request.inputs.items()}
        if request.model_spec.signature_name == "lengths":
            expected = [len(text) for text in columns.pop("inputs")]
        else:
            pairs = zip(columns.pop("premise"), columns.pop("hypothesis"), strict=True)
            expected = [len(premise) - len(hypothesis) for premise, hypothesis in pairs]
            # Different texts, where a request has several.
            assert len(expected) == 1 or np.any(expected)
        assert not columns
        np.testing.assert_array_equal(replay(model, record)["outputs"], expected)
        sizes[request.model_spec.signature_name].append(len(expected))
    assert sizes == {"lengths": [1, 1, 1, 8, 32], "pairs": [1, 1, 1, 8, 32]}
    # Texts are no numbers, and a failing request would keep the model from being served.
    assert published.warmup == {"doubled": 0, "lengths": 5, "pairs": 5, "parsed": 0}


def test_the_texts_of_warm_up_are_of_all_lengths_and_many_scripts(published: Published) -> None:
    texts = {
        text.decode()
        for record in read_warmup(published.folder)
        for value in record.predict_log.request.inputs.values()
        for text in tf.make_ndarray(value)
    }
    assert "" in texts
    assert any(len(text.split()) > 256 for text in texts)
    scripts = {unicodedata.name(letter).split()[0] for letter in "".join(texts) if letter.isalpha()}
    assert {"LATIN", "CYRILLIC", "ARABIC", "CJK", "HIRAGANA", "HANGUL", "THAI"} <= scripts


def test_the_source_s_warm_up_requests_are_replaced_in_the_copy_alone(tmp_path: Path) -> None:
    path = tmp_path / WARMUP_FILE
    path.parent.mkdir()
    path.write_text("of another name")
    write_warmup_requests({"parsed": []}, tmp_path)
    assert not path.exists()


def test_versions_are_numbered_on_and_never_overwritten(small: Path, tmp_path: Path) -> None:
    folders = [publish(small, tmp_path, "m", version).folder.name for version in (None, 7, None)]
    assert folders == ["1", "7", "8"]
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"m/7 is there and is never overwritten.*next free one, 9"):
        publish(small, tmp_path, "m", 7)
    assert files(tmp_path) == before


def test_a_rollback_is_one_rename(small: Path, tmp_path: Path) -> None:
    for _ in range(2):
        publish(small, tmp_path, "m")
    base = tmp_path / "m"
    (base / "2").rename(base / "2.bad")
    assert list(find_versions(base)) == [1]
    assert publish(small, tmp_path, "m").folder == base / "3"


@pytest.mark.parametrize(
    ("names", "number"),
    [
        ([], 1),
        (["1", "2"], 3),
        (["1", "2.bad"], 3),  # or clients and metrics would meet two versions 2
        (["10", "9"], 11),
        (["007"], 8),
        ([".5.123.tmp", "notes", "v9"], 1),
    ],
)
def test_the_next_version(names: list[str], number: int, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    assert next_version(tmp_path) == number


def test_a_missing_folder_has_no_versions(tmp_path: Path) -> None:
    assert next_version(tmp_path / "none") == 1


@pytest.mark.parametrize("version", [0, -1, 2**63])
def test_numbers_that_no_version_has(version: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"from 1 to 9223372036854775807, but it is {version}"):
        require_free(tmp_path, version)


@pytest.mark.parametrize("name", ["", "a/b", "..", ".a", "-a", "a b", "a:b", "12", "en–es", "a\n"])
def test_names_that_no_model_has(name: str) -> None:
    with pytest.raises(UserError, match="--name"):
        require_model_name(name)


def test_models_are_the_folders_with_a_version(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "b" / "3")
    shutil.copytree(small, tmp_path / "flat")
    (tmp_path / "c" / "1").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert find_models(tmp_path) == ["b"]


def damage(model: Path, file: str, size: int | None) -> None:
    """Cuts a file of a model, or removes it."""
    if size is None:
        (model / file).unlink()
    else:
        os.truncate(model / file, size)


@pytest.mark.parametrize(
    ("file", "size", "said"),
    [
        ("saved_model.pb", None, "has no saved_model.pb"),
        ("saved_model.pb", 1000, "cannot be loaded"),
        ("saved_model.pb", 0, "cannot be loaded"),
        ("variables/variables.index", None, "cannot be loaded"),
        ("variables/variables.index", 40, "cannot be loaded"),
        ("variables/variables.data-00000-of-00001", 40, "cannot be loaded"),
    ],
)
def test_half_a_model_is_refused(
    file: str, size: int | None, said: str, small: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(small, tmp_path / "model")
    damage(model, file, size)
    with pytest.raises(UserError, match=said):
        publish(model, tmp_path / "serving", "m")
    assert not (tmp_path / "serving").exists()


def test_a_model_without_signatures_is_refused(tmp_path: Path) -> None:
    tf.saved_model.save(tf.Module(), str(tmp_path / "model"))
    with pytest.raises(UserError, match=r"signatures is expected.*has none; save it with them"):
        publish(tmp_path / "model", tmp_path / "serving", "m")


def test_a_version_inside_an_exported_model_is_refused(small: Path, tmp_path: Path) -> None:
    exported = shutil.copytree(small, tmp_path / "exported" / "m")
    before = files(tmp_path)
    for name in ("m", "m2"):
        serving = exported.parent if name == "m" else exported
        with pytest.raises(UserError, match=r"folder of versions, but .*exported/m is an exported"):
            publish(small, serving, name)
    assert files(tmp_path) == before


@pytest.mark.parametrize("reason", [errno.ENOSPC, errno.EACCES])
def test_a_copy_that_fails_leaves_nothing(
    reason: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: Path, target: Path) -> None:
        target.write_text("ha")
        raise OSError(reason, os.strerror(reason), str(target))

    monkeypatch.setattr(shutil, "copyfile", fail)
    # The program tells a full disk, as everywhere.
    expected = OSError if reason == errno.ENOSPC else UserError
    with pytest.raises(expected, match=os.strerror(reason)):
        publish(small, tmp_path, "m")
    assert files(tmp_path) == {}


def test_a_model_replaced_while_it_is_copied_is_not_published(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, copy = shutil.copytree(small, tmp_path / "model"), publishing._copy

    def copy_and_replace(source: Path, target: Path) -> None:
        copy(source, target)
        model.rename(tmp_path / "old")
        shutil.copytree(small, model)

    monkeypatch.setattr(publishing, "_copy", copy_and_replace)
    with pytest.raises(UserError, match="was replaced while it was being copied"):
        publish(model, tmp_path / "serving", "m")
    assert files(tmp_path / "serving") == {}


def test_links_in_a_model_are_copied_as_what_they_lead_to(small: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in small.iterdir():
        (model / path.name).symlink_to(path)
    version = publish(model, tmp_path / "serving", "m").folder
    assert not any(path.is_symlink() for path in version.rglob("*"))
    copied = files(version)
    assert copied.pop(WARMUP_FILE.as_posix())
    assert copied == files(small)
