"""An export with smaller tables: similar vectors, every signature, and what it no longer supports."""

import shutil

import numpy as np
import pytest
from testing import SENTENCES

from xling_tf.corpora.trained_on import TRAINED_ON, TrainedOn
from xling_tf.errors import UserError
from xling_tf.evaluators.embedders import open_embedder
from xling_tf.exporters.base import export
from xling_tf.model import Model
from xling_tf.savedmodel.encoder import QuantizedTable
from xling_tf.savedmodel.saved_models import load_saved_model


def outputs(folder):
    """What its signatures give for sentences."""
    model = open_embedder(str(folder))
    sides = model.encode_questions(SENTENCES), model.encode_responses(SENTENCES, SENTENCES)
    return model(SENTENCES), *sides, model.infer(SENTENCES, SENTENCES[::-1])


@pytest.mark.slow
def test_every_signature_gives_nearly_what_it_did(hub_folder, tmp_path):
    folder = shutil.copytree(hub_folder, tmp_path / "whole")
    output = tmp_path / "small"
    hashes = TrainedOn.from_hashes([]).to_bytes()
    (folder / TRAINED_ON).write_bytes(hashes)
    export(folder, "savedmodel", output, tables="int8")
    assert (output / TRAINED_ON).read_bytes() == hashes
    whole, small = load_saved_model(folder), load_saved_model(output)
    assert {*small.signatures} == {*whole.signatures}
    for found, expected in zip(outputs(output), outputs(folder), strict=True):
        np.testing.assert_allclose(found, expected, atol=3e-2)
    assert 1 in {variable.dtype.size for variable in small.variables}
    # The tables cannot be trained, everything else can.
    assert len(small.trainable_variables) < len(whole.trainable_variables)
    assert "fewer bytes" in (output / "README.md").read_text()
    # All can be trained again in float32.
    np.testing.assert_allclose(Model.from_pretrained(output)(SENTENCES), small(SENTENCES), atol=1e-5)
    with pytest.raises(UserError, match="another folder"):
        export(folder, "savedmodel", folder, tables="int8")


@pytest.mark.parametrize("size", [1.0, 1e6, 1e-9])
def test_rows_are_as_near_as_half_a_step_of_127_or_three_digits_of_their_largest_number(size):
    rows = size * np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    rows[3] = 0
    largest = np.abs(rows).max(axis=1, keepdims=True)
    for tables, step in (("int8", 1 / 127), ("float16", 2.0**-10)):
        kept = QuantizedTable(rows, tables)(np.arange(20)).numpy()
        assert (np.abs(kept - rows) <= largest * step / 2 * (1 + 1e-5)).all()
