"""The exported model as files: every kind of text in it, whole or not at all."""

import dataclasses
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from programs import ROOT
from testing import CARD_FILES, SENTENCES, TINY

from xling_tf.errors import UserError
from xling_tf.hub import module as hub
from xling_tf.hub.saved_models import load_saved_model, release_resources
from xling_tf.layers.pooling import unit_length
from xling_tf.model import Model
from xling_tf.text.preprocessor import fit_text

TEXTS = [*SENTENCES, "我爱你 😀", b"\xff\0x", "a" * 2**20]


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer": "sentencepiece", "sentencepiece_size": 60},
        pytest.param({"ngram_sizes": ()}, marks=pytest.mark.slow),
    ],
    ids=["pieces", "words alone"],
)
def test_every_kind_of_input_is_exported(changes: dict[str, Any], tmp_path: Path) -> None:
    request = dataclasses.replace(TINY.text, **changes)
    text, vocabulary = fit_text(request, {"en": [*SENTENCES, "我爱北京", "ABC abc"]})
    model = Model.build(dataclasses.replace(TINY, text=text), vocabulary)
    live = unit_length(model.encoder(model.preprocessor(tf.constant(TEXTS)))).numpy()
    assert len(np.unique(live.round(4), axis=0)) == len(TEXTS)
    hub.export(model.hub_module(), tmp_path / "model", CARD_FILES)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    tf.random.set_seed(1)  # clears TensorFlow's caches, in which nothing must be lost
    np.testing.assert_allclose(loaded(TEXTS), live, atol=1e-5)


def test_it_can_be_moved_and_has_its_card_and_config(
    hub_folder: Path, hub_vectors: np.ndarray, tmp_path: Path
) -> None:
    moved = shutil.copytree(hub_folder, tmp_path / "elsewhere")
    np.testing.assert_array_equal(tf.saved_model.load(str(moved))(SENTENCES), hub_vectors)
    for name, text in CARD_FILES.items():
        assert (hub_folder / name).read_text(encoding="utf-8") == text
    assert [path.name for path in hub_folder.parent.iterdir()] == ["tiny"]


# What export() does around TensorFlow's own writing, which is all that a kill can interrupt.
KILLED = """
import os, signal, sys
from pathlib import Path
from xling_tf import files
with files.replacing_folder(Path(sys.argv[1])) as temporary:
    (temporary / "saved_model.pb").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_export_leaves_the_last_good_model_and_the_next_one_tidies_up(
    hub_module: hub.HubModule, hub_folder: Path, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(hub_folder, tmp_path / "model"))
    before = (path / "saved_model.pb").read_bytes()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (path / "saved_model.pb").read_bytes() == before
    hub.export(hub_module, path, CARD_FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_is_no_model_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UserError, match="--output must be a new folder or an exported model"):
        hub.require_replaceable(tmp_path)
    hub.require_replaceable(tmp_path / "new")


def test_a_released_model_is_gone_and_the_next_one_works(hub_folder: Path) -> None:
    model = load_saved_model(hub_folder)
    release_resources(model)
    with pytest.raises(tf.errors.OpError):
        model(SENTENCES)
    assert load_saved_model(hub_folder)(SENTENCES).shape[0] == len(SENTENCES)


@pytest.mark.parametrize("content", [None, b"half"])
def test_what_cannot_be_loaded_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    if content:
        (tmp_path / "saved_model.pb").write_bytes(content)
    with pytest.raises(UserError, match="the folder of an exported model is expected"):
        load_saved_model(tmp_path)
