"""A model as a version for TensorFlow Serving: whole, without its source, with warm-up requests."""

import os
import shutil
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from raw_files import read_files
from serving_folder import next_version, publish
from serving_models import save
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from xling_tf.errors import UserError
from xling_tf.serving.models import WARMUP_REQUESTS, find_versions

_TEXTS, _NUMBERS = tf.TensorSpec([None], tf.string), tf.TensorSpec([100], tf.float32)
_LENGTH = tf.strings.length


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model with signatures for texts, pairs of texts, numbers in strings, and numbers."""
    path, module = tmp_path_factory.mktemp("exported") / "small", tf.Module()
    module.factor = tf.Variable([2.0] * 100)
    signatures = {
        "lengths": (lambda inputs: {"y": _LENGTH(inputs)}, {"inputs": _TEXTS}),
        "pairs": (lambda a, b: {"y": _LENGTH(a) - _LENGTH(b)}, {"a": _TEXTS, "b": _TEXTS}),
        "parsed": (lambda inputs: {"y": tf.strings.to_number(inputs)}, {"inputs": _TEXTS}),
        "doubled": (lambda inputs: {"y": inputs * module.factor}, {"inputs": _NUMBERS}),
    }
    save(module, signatures, path)
    (path / "README.md").write_text("# A card\n")
    path.chmod(0o700)  # as archives are unpacked
    return path


def test_a_version_is_a_whole_copy_with_requests_for_the_signatures_of_texts(small, tmp_path):
    folder, warmup = publish(small, tmp_path / "serving", "tiny")
    assert folder.parts[-3:] == ("serving", "tiny", "1")
    copied = read_files(folder)
    assert copied.pop(str(WARMUP_REQUESTS))
    assert copied == read_files(small)
    assert folder.stat().st_mode == folder.parent.stat().st_mode  # others can read it, too
    # No file is shared with the source.
    assert all(path.is_dir() or path.stat().st_nlink == 1 for path in folder.rglob("*"))
    # "parsed" refuses texts, and a failing request would stop the model from being served.
    assert warmup == {"doubled": 0, "lengths": 4, "pairs": 4, "parsed": 0}
    sizes = defaultdict(list)
    for record in tf.data.TFRecordDataset(str(folder / WARMUP_REQUESTS)).as_numpy_iterator():
        request = PredictionLog.FromString(record).predict_log.request
        columns = [tf.make_ndarray(value) for value in request.inputs.values()]
        sizes[request.model_spec.name, request.model_spec.signature_name].append(len(columns[0]))
        # Inputs get different texts.
        assert len(columns) == 1 or len(columns[0]) == 1 or np.any(columns[0] != columns[1])
    assert sizes == {("tiny", "lengths"): [1, 1, 8, 32], ("tiny", "pairs"): [1, 1, 8, 32]}


def test_versions_are_numbered_on_and_never_overwritten(small, tmp_path):
    folders = [publish(small, tmp_path, "m", version)[0].name for version in (None, 7, None)]
    assert folders == ["1", "7", "8"]
    before = read_files(tmp_path)
    with pytest.raises(UserError, match=r"m/7 exists .* 9 is free"):
        publish(small, tmp_path, "m", 7)
    assert read_files(tmp_path) == before
    (tmp_path / "m" / "8").rename(tmp_path / "m" / "8.bad")  # a rollback
    assert list(find_versions(tmp_path / "m")) == [1, 7]
    assert next_version(tmp_path / "m") == 9


def test_models_names_and_places_that_cannot_be_published_are_refused(small, tmp_path):
    serving = tmp_path / "serving"
    bare = tmp_path / "bare"
    tf.saved_model.save(tf.Module(), str(bare))
    half = shutil.copytree(small, tmp_path / "exported" / "half")
    os.truncate(half / "variables/variables.data-00000-of-00001", 40)
    for model, place, name, version, message in (
        *((small, serving, name, 1, "--name") for name in ("", "..", "a/b", "12", "a\n")),
        *((small, serving, "m", version, f"from 1 to .* {version}") for version in (0, 2**63)),
        (half, serving, "m", None, "cannot be loaded"),
        (bare, serving, "m", None, "has no signatures"),
        # A version inside of an exported model.
        (small, half.parent, "half", None, "exported/half is an exported"),
        (small, half, "m", None, "exported/half is an exported"),
    ):
        with pytest.raises(UserError, match=message):
            publish(model, place, name, version)
    assert not serving.exists()


def test_versions_that_are_published_at_once_wait_for_each_other(small, tmp_path):
    with ThreadPoolExecutor(4) as threads:
        folders = [*threads.map(lambda _: publish(small, tmp_path, "m")[0].name, range(4))]
    assert sorted(folders) == ["1", "2", "3", "4"]
