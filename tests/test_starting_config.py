"""The settings of a training that starts from another model."""

import pytest
from starting_models import tiny_config

from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides, to_json
from xling_tf.presets import get_preset
from xling_tf.trainer.starting_config import StartRecord, apply_start, require_fit


@pytest.fixture
def cnn(tmp_path):
    """The folder of an exported CNN, as far as settings go."""
    folder = tmp_path / "cnn"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"")
    (folder / "config.json").write_text(to_json(tiny_config("cnn")))
    return folder


def test_without_a_model_only_the_overrides_are_applied(tmp_path):
    preset = get_preset("smoke")
    settings = ["encoder.num_layers=1"]
    assert apply_start(preset, settings, tmp_path) == apply_overrides(preset, settings)


def test_text_encoder_and_heads_are_the_models_and_the_rest_the_presets(cnn, tmp_path):
    start, preset = tiny_config("cnn"), get_preset("multilingual")
    settings = [f"initial.model={cnn}", "training.steps=3", "text.max_tokens=5"]
    config = apply_start(preset, settings, tmp_path / "run")
    assert config.encoder == start.encoder
    assert config.text == apply_overrides(start, ["text.max_tokens=5"]).text
    assert config.tasks.tower_dims == start.tasks.tower_dims
    assert config.tasks.inference_dim == start.tasks.inference_dim
    assert (config.data, config.optimizer) == (preset.data, preset.optimizer)
    assert config.training.steps == 3


@pytest.mark.parametrize(
    ("preset", "settings", "said"),
    [
        (
            "en-es",
            [],
            r"encoder\.kind=transformer, but \S+cnn, .* has cnn: set encoder\.kind=cnn, as",
        ),
        ("multilingual-large", [], r"encoder\.kind=transformer, but \S+cnn, .* has cnn"),
        ("multilingual", ["encoder.hidden_dim=16"], r"encoder\.hidden_dim=16, but .* has 8: set"),
        ("multilingual", ["text.lowercase=true"], r"text\.lowercase=True, but .* has False"),
        # As the preset has it, and so no change to it, but asked for.
        ("multilingual", ["encoder.filter_widths=1,2"], r"filter_widths=1,2, but .* has 1,2,3,5"),
    ],
)
def test_another_family_or_size_is_refused(preset, settings, said, cnn, tmp_path):
    with pytest.raises(UserError, match=said):
        apply_start(get_preset(preset), [f"initial.model={cnn}", *settings], tmp_path / "run")


def test_a_family_may_be_set_to_the_models(cnn, tmp_path):
    settings = ["encoder.kind=cnn", "text.tokenizer=sentencepiece", f"initial.model={cnn}"]
    config = apply_start(get_preset("en-es"), settings, tmp_path / "run")
    assert config.encoder.kind == "cnn"
    assert config.data == get_preset("en-es").data


def test_pieces_that_the_model_was_given_more_are_not_given_again(cnn, tmp_path):
    asked = apply_overrides(tiny_config("cnn"), ["text.extra_pieces=7", "initial.model=x"])
    (cnn / "config.json").write_text(to_json(asked))
    preset = get_preset("multilingual")
    assert apply_start(preset, [f"initial.model={cnn}"], tmp_path).text.extra_pieces == 0
    settings = [f"initial.model={cnn}", "text.extra_pieces=5"]
    assert apply_start(preset, settings, tmp_path).text.extra_pieces == 5


def test_a_run_goes_on_with_what_it_has_kept_of_a_model_that_is_gone(cnn, tmp_path):
    preset, settings = get_preset("multilingual"), [f"initial.model={cnn}"]
    begun = apply_start(preset, settings, tmp_path)
    name, content = StartRecord.of(str(cnn)).file()
    (tmp_path / name).write_text(content)
    (cnn / "config.json").unlink()
    assert apply_start(preset, settings, tmp_path) == begun
    with pytest.raises(UserError, match="--init expects the folder of a run"):
        apply_start(preset, settings, tmp_path / "another")


def test_a_config_that_was_made_otherwise_must_fit_too(cnn):
    start = StartRecord.of(str(cnn))
    require_fit(start, apply_overrides(start.config, ["text.max_tokens=5"]))
    with pytest.raises(UserError, match=r"encoder\.num_layers=2, but .* has 1"):
        require_fit(start, apply_overrides(start.config, ["encoder.num_layers=2"]))


def test_the_record_tells_changed_files_from_others(cnn):
    before = StartRecord.of(str(cnn)).digest
    assert StartRecord.of(str(cnn)).digest == before
    (cnn / "variables").mkdir()
    (cnn / "variables" / "variables.index").write_bytes(b"x")
    assert StartRecord.of(str(cnn)).digest != before


@pytest.mark.parametrize(
    "settings", ["text.extra_pieces=5", "initial.keep_weight=1", "text.extra_pieces=-1"]
)
def test_options_of_a_start_need_one(settings):
    with pytest.raises(UserError, match=r"expects a model|at least 0"):
        apply_overrides(get_preset("multilingual"), [settings])
