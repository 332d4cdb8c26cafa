"""Versions of a model: found by polling, loaded, warmed up, replaced, released."""

import gc
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from serving_models import put_export, save
from tensorflow_serving.apis import prediction_log_pb2

from xling_tf.errors import UserError
from xling_tf.serving import models
from xling_tf.serving.models import WARMUP_REQUESTS, Servable, ServedModel, load_models
from xling_tf.serving.monitoring import LOAD_FAILURES
from xling_tf.serving.protocol import ServingError


def serve(folder: Path) -> ServedModel:
    """Serves the folder, polled once."""
    model = ServedModel("m", folder)
    model.poll()
    return model


def states(model: ServedModel) -> dict[int, str]:
    return {version: state for version, (state, _, _) in model.states.items()}


def answering(model: ServedModel) -> float:
    """The version that answers: its answer to an empty text."""
    outputs = model.servable().queues["serving_default"].run({"inputs": np.array([b""], object)})
    return float(outputs["outputs"][0])


def test_the_largest_number_is_served_and_its_successor_replaces_it(tmp_path):
    for version in (2, 10):
        put_export(tmp_path / "m" / str(version), version)
    (tmp_path / "m" / "11.partial").mkdir()
    (tmp_path / "m" / "10" / ".copy.tmp").symlink_to(tmp_path / "gone")  # a file that vanishes
    model = serve(tmp_path / "m")
    assert (answering(model), states(model)) == (10, {10: "AVAILABLE"})
    put_export(tmp_path / "m" / "11", 11)
    model.poll()
    assert (answering(model), states(model)) == (11, {10: "END", 11: "AVAILABLE"})
    # OpenVINO's client asks for version 0.
    assert model.servable("11") is model.servable("0") is model.servable()
    for version in ("10", "12", "011"):
        with pytest.raises(ServingError, match=f"version {version} of model m is not served"):
            model.servable(version)
    (tmp_path / "m" / "11").rename(tmp_path / "m" / "11.bad")  # a rollback
    model.poll()
    assert (answering(model), states(model)) == (10, {10: "AVAILABLE", 11: "END"})


def test_a_version_is_unloaded_after_its_last_request(tmp_path):
    put_export(tmp_path / "m" / "1", 1)
    model = serve(tmp_path / "m")
    used = model.servable()
    run = used.queues["serving_default"].run
    put_export(tmp_path / "m" / "2", 2)
    model.poll()
    assert states(model) == {1: "UNLOADING", 2: "AVAILABLE"}
    assert run({"inputs": np.array([b"ab"], object)})["outputs"].tolist() == [3]
    function = weakref.ref(run.args[0])
    del used, run
    assert states(model) == {1: "END", 2: "AVAILABLE"}
    gc.collect()
    assert function() is None


def test_the_tables_of_a_retired_version_are_freed(tmp_path):
    """TensorFlow would keep them by name, megabytes for each version."""
    model = tf.Module()
    words = tf.lookup.KeyValueTensorInitializer(["none", "one", "two"], [0, 1, 2])
    model.table = tf.lookup.StaticHashTable(words, default_value=-1)
    specs = {"words": tf.TensorSpec([None], tf.string)}
    save(
        model,
        {"serving_default": (lambda words: {"ids": model.table.lookup(words)}, specs)},
        tmp_path,
    )
    servables = [Servable("m", 1, tmp_path), Servable("m", 2, tmp_path)]
    functions = [servable.queues["serving_default"].run.args[0] for servable in servables]
    retired, kept = (function.captured_inputs[0] for function in functions)
    del servables[0]
    sizes = tf.raw_ops.LookupTableSizeV2
    assert sizes(table_handle=kept).numpy() == 3
    with pytest.raises(tf.errors.NotFoundError):
        sizes(table_handle=retired)


def test_a_damaged_version_is_reported_and_tried_again_when_it_changes(tmp_path):
    put_export(tmp_path / "m" / "1", 1)
    wreck = put_export(tmp_path / "m" / "2", 2, wrecked=True)
    failures = LOAD_FAILURES.labels("m")._value.get()
    model = serve(tmp_path / "m")
    model.poll()
    assert LOAD_FAILURES.labels("m")._value.get() == failures + 1
    assert (answering(model), states(model)) == (1, {1: "AVAILABLE", 2: "END"})
    _, code, message = model.states[2]
    assert code != "OK"
    assert "cannot be loaded" in message
    assert str(tmp_path) not in message
    put_export(wreck, 2)
    model.poll()
    assert (answering(model), states(model)) == (2, {1: "END", 2: "AVAILABLE"})


def test_an_export_that_is_replaced_is_loaded_anew(tmp_path):
    put_export(tmp_path / "m", 5)
    model = serve(tmp_path / "m")
    assert (answering(model), states(model)) == (5, {1: "AVAILABLE"})
    shutil.rmtree(tmp_path / "m")
    model.poll()
    assert answering(model) == 5  # A missing folder may be in the middle of a replacement.
    put_export(tmp_path / "m", 6)
    model.poll()
    assert (answering(model), states(model)) == (6, {1: "AVAILABLE"})
    saved = tmp_path / "m" / "saved_model.pb"
    saved.write_bytes(b"\xff" * saved.stat().st_size)  # files of the same sizes are others, too
    model.poll()
    assert answering(model) == 6
    assert model.states[1][:2] == ("AVAILABLE", "UNKNOWN")


# As TensorFlow Serving's ToHTTPStatusCode has them.
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (tf.errors.InvalidArgumentError, 400),
        (tf.errors.FailedPreconditionError, 400),
        (tf.errors.OutOfRangeError, 400),
        (tf.errors.NotFoundError, 404),
        (tf.errors.ResourceExhaustedError, 429),
        (tf.errors.UnimplementedError, 501),
        (tf.errors.UnavailableError, 503),
        (tf.errors.DeadlineExceededError, 504),
        (tf.errors.InternalError, 500),
    ],
)
def test_errors_of_a_model_have_the_statuses_of_tensorflow_serving(
    error, status, tmp_path, monkeypatch
):
    def fails(**inputs):
        raise error(None, None, "it failed\nhere")

    loaded = tf.Module()
    loaded.signatures = {"serving_default": fails}
    monkeypatch.setattr(models, "load_saved_model", lambda folder: loaded)
    servable = Servable("m", 1, put_export(tmp_path / "m", 1))
    with pytest.raises(ServingError, match=r"^it failed$") as raised:
        servable.queues["serving_default"].run({"inputs": np.array([b""], object)})
    assert raised.value.status == status


def put_warm_up(folder: Path, text: bytes) -> None:
    log = prediction_log_pb2.PredictionLog()
    request = log.predict_log.request
    request.model_spec.signature_name = "serving_default"
    request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([text]))
    (folder / WARMUP_REQUESTS).parent.mkdir()
    with tf.io.TFRecordWriter(str(folder / WARMUP_REQUESTS)) as writer:
        writer.write(log.SerializeToString())


def test_warm_up_requests_are_made_and_one_that_fails_fails_the_version(tmp_path):
    put_warm_up(put_export(tmp_path / "m" / "1", 1), b"good")
    model = serve(tmp_path / "m")
    put_warm_up(put_export(tmp_path / "m" / "2", 2), b"bad")
    model.poll()
    assert states(model) == {1: "AVAILABLE", 2: "END"}
    assert "the text is bad" in model.states[2][2]


def test_a_start_without_a_model_is_an_error(tmp_path):
    (tmp_path / "empty").mkdir()
    put_export(tmp_path / "wreck", 1, wrecked=True)
    complex_only = {
        "serving_default": (lambda x: {"y": x}, {"x": tf.TensorSpec([None], tf.complex64)})
    }
    save(tf.Module(), complex_only, tmp_path / "uncallable")
    for folder, message in (
        ("empty", "m=.*empty must be an exported model, .* but has none"),
        ("wreck", "has 1: .*cannot be loaded: Read less bytes"),
        ("uncallable", "1: version 1 has no signature whose inputs are all texts"),
    ):
        with pytest.raises(UserError, match=message):
            load_models({"m": tmp_path / folder})
