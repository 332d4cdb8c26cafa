import dataclasses
import json

import pytest

from xling_tf.config import ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides, from_json, to_json
from xling_tf.presets import PRESETS


def override(*overrides):
    return apply_overrides(ExperimentConfig(), overrides)


def test_every_type():
    config = override(
        "text.max_tokens=32",
        "optimizer.learning_rate=1e-3",
        "data.targets=fr",
        "encoder.norm_first=true",
        "text.ngram_sizes=2,3,4",
        "data.corpus_weights.tatoeba=2.5",
        "description=a = b",
    )
    assert (config.text.max_tokens, type(config.text.max_tokens)) == (32, int)
    assert (config.optimizer.learning_rate, config.data.targets) == (0.001, ("fr",))
    assert config.encoder.norm_first is True
    assert config.text.ngram_sizes == (2, 3, 4)
    assert config.data.corpus_weights == {"tatoeba": 2.5}
    assert config.description == "a = b"


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("Yes", True), ("false", False), ("0", False), ("NO", False)],
)
def test_booleans(text, value):
    assert override(f"encoder.norm_first={text}").encoder.norm_first is value


def test_only_the_named_field_changes_and_the_given_config_does_not():
    before = ExperimentConfig()
    after = apply_overrides(before, [" text.lowercase = true "])
    assert before == ExperimentConfig()
    changed = dataclasses.replace(before.text, lowercase=True)
    assert after == dataclasses.replace(before, text=changed)


def test_the_last_of_two_counts():
    assert override("training.steps=1", "training.steps=2").training.steps == 2


def test_a_tuple_of_one():
    assert override("text.ngram_sizes=3").text.ngram_sizes == (3,)


def test_a_dictionary_entry_joins_the_others_and_may_hold_dots():
    config = PRESETS["en-es"]
    changed = apply_overrides(config, ["data.corpus_weights.my.corpus=2"])
    assert changed.data.corpus_weights == {**config.data.corpus_weights, "my.corpus": 2.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("text.max_tokens", r"expects name=value, got 'text\.max_tokens'"),
        ("text.max_token=3", r"no 'max_token' here; did you mean max_tokens"),
        ("optimiser.name=sgd", r"no 'optimiser' here; did you mean optimizer"),
        ("text.qqq=3", r"no 'qqq' here; did you mean .*lowercase"),
        ("text.max_tokens=many", r"text\.max_tokens expects int, got 'many'"),
        ("text.max_tokens=3.5", r"expects int, got '3\.5'"),
        ("optimizer.learning_rate=fast", r"expects float, got 'fast'"),
        ("text.lowercase=perhaps", r"expects bool, got 'perhaps'"),
        ("text.ngram_sizes=3,x", r"text\.ngram_sizes expects tuple.*, got '3,x'"),
        ("data.corpus_weights.a=b", r"expects float, got 'b'"),
        ("text=3", r"text expects a field below it \(max_tokens, "),
        ("data.corpus_weights=3", r"expects a field below it \(any name\)"),
        ("text.max_tokens.x=3", r"nothing lies below a plain value; leave out \.x"),
        ("text.max_tokens.x.y=3", r"nothing lies below a plain value; leave out \.x\.y"),
        ("encoder.num_heads=7", r"encoder\.hidden_dim must be a multiple"),
    ],
)
def test_mistakes_are_explained(text, message):
    with pytest.raises(UserError, match=message):
        override(text)


@pytest.mark.parametrize("step", [1, -1])
def test_sizes_that_belong_together_can_be_changed_together_in_any_order(step):
    config = override(*["encoder.hidden_dim=64", "tasks.tower_dims=32,64"][::step])
    assert (config.encoder.hidden_dim, config.tasks.tower_dims) == (64, (32, 64))


def test_sizes_that_do_not_fit_in_the_end_are_refused():
    with pytest.raises(UserError, match=r"\(320, 512\) does not end in 64"):
        override("encoder.hidden_dim=64")


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name):
    text = to_json(PRESETS[name])
    assert from_json(ExperimentConfig, text) == PRESETS[name]
    assert json.loads(text)["encoder"]["num_heads"] == PRESETS[name].encoder.num_heads


def test_json_of_another_version_is_refused():
    values = json.loads(to_json(ExperimentConfig()))
    values["text"]["stemming"] = True
    with pytest.raises(UserError, match="a TextConfig has no field 'stemming'"):
        from_json(ExperimentConfig, json.dumps(values))


def test_json_without_a_field_takes_the_default():
    assert from_json(ExperimentConfig, '{"text": {"max_tokens": 5}}') == override(
        "text.max_tokens=5"
    )
