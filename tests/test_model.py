"""Models in folders and exports are read as they were written; weights by name, all or none."""

import json
import resource
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from programs import ONE_TASK
from testing import KINDS, LSTM, TEXTS, TrainedModel, add_noise, make_model, tiny_config, tiny_model

import xling_tf
from xling_tf.errors import UserError
from xling_tf.importers.published import is_published
from xling_tf.model import CONFIG, WEIGHTS, Model
from xling_tf.weights import (
    arrays,
    assign_weights,
    read_saved_model_weights,
    read_weights,
    to_be_replaced,
    write_weights,
)

UNSEEN = [*TEXTS, "a zebra sleeps", "una cebra", "", "😀"]


def translator() -> TrainedModel:
    """An LSTM with the decoder of translations."""
    alone = ("tasks.translation.weight=1", "tasks.translation_ranking.weight=0", *ONE_TASK)
    settings = (*LSTM, "encoder.pooling=attention", *alone)
    return tiny_model(tiny_config(*settings), {"en": TEXTS[::2], "es": TEXTS[1::2]})


def require_equal(found: Model, expected: Model, tolerance: float = 0.0) -> None:
    """Checks that two models have the same weights by name, heads included, and vectors."""
    weights, others = arrays(found.weights), arrays(expected.weights)
    assert [*weights] == [*others]
    for name, array in weights.items():
        np.testing.assert_allclose(array, others[name], rtol=0, atol=tolerance, err_msg=name)
    np.testing.assert_allclose(found(UNSEEN), expected(UNSEEN), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", [*KINDS, "lstm"])
def test_a_model_folder_has_the_model_to_the_bit(kind, tmp_path):
    model = translator() if kind == "lstm" else make_model(kind)
    model.save_pretrained(tmp_path / "model")
    again = Model.from_pretrained(tmp_path / "model")
    require_equal(again, model)
    assert json.dumps(again.config()) == json.dumps(model.config())
    assert again.info == model.info
    # It replaces itself, and nothing else.
    again.save_pretrained(tmp_path / "model")
    try:  # what other models need does not break ours
        keras.config.set_floatx("float64")
        keras.config.set_image_data_format("channels_first")
        require_equal(Model.from_pretrained(tmp_path / "model"), model, tolerance=1e-5)
    finally:
        keras.config.set_floatx("float32")
        keras.config.set_image_data_format("channels_last")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / CONFIG).write_bytes((tmp_path / "model" / CONFIG).read_bytes())
    with pytest.raises(UserError, match="something else"):
        model.save_pretrained(tmp_path / "run")
    loaded = xling_tf.load(tmp_path / "model")
    np.testing.assert_allclose(loaded.encode(TEXTS), model(TEXTS), atol=1e-5)
    with pytest.raises(UserError, match="nor a checkpoint"):  # a training that has just begun
        xling_tf.load(tmp_path / "run")


def test_a_folder_with_settings_of_another_version_is_refused(tmp_path):
    make_model("words and n-grams").save_pretrained(tmp_path)
    config = json.loads((tmp_path / CONFIG).read_text())
    config["encoder"]["dropout"] = 0.0
    (tmp_path / CONFIG).write_text(json.dumps(config))
    with pytest.raises(UserError, match="dropout"):
        Model.from_pretrained(tmp_path)


def test_a_model_is_read_in_the_precision_of_the_process(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    trained = make_model("words and n-grams")
    trained.save_pretrained(tmp_path / "model")
    keras.config.set_dtype_policy("float32")
    model = Model.from_pretrained(tmp_path / "model")
    layers = [model.encoder, *(layer for heads in model.heads.values() for layer in heads.values())]
    assert {layer.compute_dtype for layer in layers} == {"float32"}
    np.testing.assert_allclose(model(UNSEEN), trained(UNSEEN), atol=0.05)


def test_a_call_takes_texts_in_every_form():
    model = make_model("words and n-grams")
    expected = model(tf.constant(TEXTS[:2])).numpy()
    np.testing.assert_array_equal(model(iter(TEXTS[:2])), expected)
    # One text has one vector, not one for each letter.
    np.testing.assert_allclose(model(TEXTS[0]), expected[:1], atol=1e-6)
    for wrong in ([1, 2], tf.constant([3]), tf.constant([["a"]])):
        with pytest.raises(UserError, match="texts must be"):
            model(wrong)


def test_a_call_has_gradients():
    model = make_model("words and n-grams")
    variables = model.encoder.trainable_variables
    with tf.GradientTape() as tape:
        loss = -tf.reduce_sum(model(TEXTS[:1]) * model(TEXTS[1:2]))
    assert None not in tape.gradient(loss, [variable.value for variable in variables])
    assert {id(v) for v in variables} < {id(v) for v in model.trainable_variables}


def test_a_fine_tuned_export_has_the_tuned_model(hub_folder, tmp_path):
    loaded = tf.saved_model.load(str(hub_folder))
    add_noise(loaded.trainable_variables, 0.01)
    shutil.copytree(hub_folder, tmp_path / "tuned")
    tf.saved_model.save(loaded, str(tmp_path / "tuned"), signatures=dict(loaded.signatures))
    tuned, before = (
        Model.from_pretrained(folder)(UNSEEN) for folder in (tmp_path / "tuned", hub_folder)
    )
    np.testing.assert_allclose(tuned, loaded(UNSEEN), rtol=0, atol=1e-6)
    assert np.abs(tuned - before).max() > 1e-3


def test_other_folders_and_damaged_ones_are_refused_in_one_line(tmp_path):
    make_model("words and n-grams").save_pretrained(folder := tmp_path / "model")

    def require_refused(message):
        with pytest.raises(UserError, match=message) as caught:
            Model.from_pretrained(folder)
        assert "\n" not in str(caught.value)

    config, weights, vocabulary = (folder / name for name in (CONFIG, WEIGHTS, "vocabulary.txt"))
    contents = {path: path.read_bytes() for path in (config, weights, vocabulary)}
    for path, content, message in (
        # An earlier version's config is the experiment, without a format.
        (
            config,
            b'{"encoder": {"kind": "transformer"}}',
            "was not saved by this version of xling_tf; train",
        ),
        (config, contents[config][:-100], r"config\.json must be JSON, but is damaged"),
        (vocabulary, b"one\n", "the tokenizer has num_words=5, but the encoder expects "),
    ):
        path.write_bytes(content)
        require_refused(message)
        path.write_bytes(contents[path])
    for section, change, message in (
        ("encoder", {"kind": "mystery"}, "mystery"),
        ("encoder", {"hidden_dim": "wide"}, "hidden_dim .* must be int"),
        ("encoder", {"intermediate_dim": 13}, "weights in .* do not fit"),
        ("info", {"colour": "red"}, "has no field"),
    ):
        changed = json.loads(contents[config])
        changed[section] |= change
        config.write_text(json.dumps(changed))
        require_refused(message)
    config.write_bytes(contents[config])
    vocabulary.unlink()
    require_refused(r"vocabulary\.txt")
    vocabulary.write_bytes(contents[vocabulary])
    weights.unlink()
    require_refused(r"neither saved_model\.pb, nor model\.safetensors, nor a checkpoint")
    (folder / "checkpoints/step-000000001").mkdir(parents=True)
    require_refused(r"step-000000001/model\.safetensors must hold weights, but cannot be read")
    config.unlink()
    require_refused("has no config.json, only checkpoints, vocabulary.txt")


@pytest.mark.parametrize(
    ("section", "changes"),
    [
        # 2 million rows of 16,000 numbers would take 128 GB.
        ("encoder", {"embedding_dim": 16_000, "num_ngrams": 2_000_000}),
        ("encoder", {"hidden_dim": 16_000, "intermediate_dim": 16_000, "num_layers": 256}),
        ("encoder", {"hidden_dim": 10**9}),
        ("encoder", {"hidden_dim": -12}),
        ("encoder", {"hidden_dim": 12.0}),
        ("encoder", {"num_layers": 10**9}),
        ("encoder", {"num_heads": 10**30}),
        ("encoder", {"num_heads": 5}),
        ("tokenizer", {"max_tokens": 10**12}),
        ("tokenizer", {"num_ngram_buckets": 10**11}),
        ("tokenizer", {"ngram_sizes": [-3, 4]}),
        ("tokenizer", {"ngram_sizes": "34"}),
        ("heads", {"translation_ranking": 7}),
        ("heads", {"translation_ranking": {"x": None}}),
        ("heads", {"inference": {"x": 7}}),
    ],
)
def test_a_description_of_other_sizes_is_refused_before_it_takes_memory(tmp_path, section, changes):
    make_model("words and n-grams").save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / CONFIG
    content = json.loads(path.read_text())
    content[section] |= changes
    if "num_ngrams" in changes:  # both files are edited
        content["tokenizer"]["num_ngram_buckets"] = changes["num_ngrams"]
    path.write_text(json.dumps(content))
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError) as caught:
        Model.from_pretrained(tmp_path / "model")
    assert "\n" not in str(caught.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - largest < 100 << 10  # KiB


def test_variables_that_weights_replace_may_have_twice_their_size(tmp_path):
    def kernels(*sizes):
        for size in sizes:
            (layer := keras.layers.Dense(size, use_bias=False)).build((None, size))
            yield np.asarray(layer.kernel)

    weights = {"a": np.ones((100, 100), np.float32)}
    with to_be_replaced(weights, "some/folder"):
        assert [kernel.sum() for kernel in kernels(100, 100)] == [0, 0]
    with (
        pytest.raises(UserError, match="some/folder are much smaller"),
        to_be_replaced(weights, "some/folder"),
    ):
        [*kernels(100, 100, 100)]


def test_a_model_for_another_runtime_is_named_as_one(tmp_path):
    (tmp_path / "runtime.json").write_text("{}")
    (tmp_path / "model.onnx").write_bytes(b"")
    assert not is_published(tmp_path)
    with pytest.raises(UserError, match="ONNX Runtime, which cannot be trained"):
        Model.from_pretrained(tmp_path)


def variables() -> dict[str, tf.Variable]:
    return {
        "a": tf.Variable([1.0, 2.0]),
        "b/kernel": tf.Variable([[3.0]]),
        "b/bias": tf.Variable([4.0]),
    }


VALUES = {"a": np.array([5.0, 6.0]), "b/kernel": np.array([[7.0]]), "b/bias": np.array([8.0])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"b/kernel": np.zeros((1, 2))},
            r"of another shape: b/kernel \[1, 2\] instead of \[1, 1\]\)",
        ),
        (
            {"a": None, "c": np.zeros(1), "b/bias": np.zeros(())},
            "missing: a; unexpected: c; of another shape",
        ),
        ({f"c{n}": np.zeros(1) for n in range(5)}, r"unexpected: c0, c1, c2 and 2 more\)"),
    ],
)
def test_of_values_that_do_not_fit_none_is_assigned(change, message):
    unchanged = variables()
    values = {name: value for name, value in {**VALUES, **change}.items() if value is not None}
    with pytest.raises(UserError, match=rf"weights in some/folder .*{message}"):
        assign_weights(unchanged, values, "some/folder")
    for name, variable in variables().items():
        np.testing.assert_array_equal(unchanged[name], variable)


def test_files_keep_types_shapes_and_names(tmp_path):
    path, transposed = tmp_path / "x.safetensors", np.arange(6, dtype=np.float32).reshape(3, 2).T
    write_weights(path, {"transposed/é": transposed})
    ((name, array),) = read_weights(path).items()
    assert (name, array.tolist()) == ("transposed/é", transposed.tolist())
    content = path.read_bytes()
    for damaged in (b"", b"\xff" * 20, content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(
            UserError, match=r"x\.safetensors must be a safetensors file, but is damaged"
        ):
            read_weights(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n")
    with pytest.raises(UserError, match="is a pointer of Git LFS; run git lfs pull"):
        read_weights(path)


def test_saved_models_of_others_have_no_names(tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "other"))
    for folder in (tmp_path / "other", tmp_path / "none"):
        with pytest.raises(
            UserError, match="by this version of xling_tf, but its weights have no names"
        ):
            read_saved_model_weights(folder)
