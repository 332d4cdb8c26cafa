"""Settings: ranges, overrides by dotted names, kinds, JSON, and the paper's constants."""

import json

import pytest

from xling_tf.config import (
    ENCODERS,
    TASKS,
    TOKENIZERS,
    ExperimentConfig,
    SentencePieceConfig,
    StaticConfig,
    TaskConfig,
    TransformerConfig,
)
from xling_tf.errors import UserError
from xling_tf.presets import PRESETS, get_preset
from xling_tf.settings import (
    apply_overrides,
    from_dict,
    setting_lines,
    settings_by_name,
    to_dict,
)


def override(*overrides):
    return apply_overrides(ExperimentConfig(), overrides)


@pytest.mark.parametrize(
    "settings",
    [
        "encoder.num_heads=7",
        "tokenizer.ngram_sizes=0,3",
        "optimizer.clip_norm=nan",
        "tasks.inference.head_rate=-1",
        "data.targets=all,es",
        "data.targets=en",
        "optimizer.name=sdg",
        "encoder.kind=p_mean encoder.p_values=nan",
        "encoder.kind=cnn",
        "similarity.matryoshka_dims=64,512",
        "tasks.distillation.weight=1",
        "stages.average.share=0.5",
        "initial.average=0.5",
        # A setting of another kind, and settings of a model that has its own.
        "encoder.kind=static encoder.bow_residual=true",
        "initial.model=x tokenizer.lowercase=true",
        # What is malformed, names no field, or has a value of another type.
        "tokenizer.max_tokens",
        "tokenizer.max_tokens=3.5",
        "tokenizer=3",
        "tasks.inference=3",
        "training.steps=-5",
        "training.minutes=nan",
        "heads.tower_dims=0",
        "optimizer.warmup=2",
        "tokenizer.ngram_sizes=3,3",
        "data.targets=es,es",
        "data.targets=pt-BR",
        "tokenizer.ngram_sizes= encoder.kind=cnn encoder.filter_widths=1,3,3",
        "tokenizer.ngram_sizes= encoder.kind=p_mean initial.vectors=",
        # A power beyond what float32 numbers can be raised to.
        "tokenizer.ngram_sizes= initial.vectors=x encoder.kind=p_mean encoder.p_values=50",
    ],
)
def test_what_cannot_be_is_refused(settings):
    with pytest.raises(UserError, match=settings.split(" ")[-1].split("=")[0].split(".")[-1]):
        override(*settings.split(" "))


def test_kinds_that_are_found_by_their_settings_need_settings_of_their_own(monkeypatch):
    for registry in (TOKENIZERS, ENCODERS, TASKS):
        monkeypatch.setattr(registry, "data", dict(registry.data))

    class OwnConfig(TransformerConfig):
        pass

    with pytest.raises(UserError, match=r"saved as transformer; register a subclass"):
        ENCODERS.register("mine", TransformerConfig, StaticConfig)
    with pytest.raises(UserError, match="saved as sentencepiece"):
        TOKENIZERS.register("mine", SentencePieceConfig, StaticConfig)
    for _ in range(2):  # as in a notebook's cell that is run again
        ENCODERS.register("mine", OwnConfig, StaticConfig)
        TASKS.register("mine", TaskConfig, StaticConfig)
    assert (ENCODERS.name_of(OwnConfig()), ENCODERS.name_of(TransformerConfig())) == (
        "mine",
        "transformer",
    )


@pytest.mark.parametrize(
    ("setting", "near"),
    [("encoder.kind=transfromer", "transformer"), ("tasks.quick_thougt.weight=1", "quick_thought")],
)
def test_a_misspelt_name_gets_a_suggestion(setting, near):
    with pytest.raises(UserError, match=f"did you mean {near}"):
        override(setting)


@pytest.mark.parametrize(
    "settings",
    [
        {"encoder.num_layers": 1, "tokenizer.lowercase": True, "tokenizer.ngram_sizes": [2, 3]},
        ["encoder.num_layers=1", "tokenizer.lowercase=true", "tokenizer.ngram_sizes=2,3"],
    ],
)
def test_settings_are_a_dictionary_or_strings(settings):
    config = apply_overrides(ExperimentConfig(), settings)
    assert (config.encoder.num_layers, config.tokenizer.lowercase) == (1, True)
    assert config.tokenizer.ngram_sizes == (2, 3)
    assert apply_overrides(config, {"encoder.num_layers": None}).encoder.num_layers is None
    assert apply_overrides(config, "encoder.num_layers=2").encoder.num_layers == 2


def test_every_type():
    config = override(
        "tokenizer.max_tokens=32",
        "optimizer.learning_rate=1e-3",
        "data.targets=fr, de",
        "encoder.norm_first=Yes",
        "encoder.num_layers=auto",
        " tokenizer.lowercase = 1 ",
        "tokenizer.ngram_sizes=2,3,4",
        "data.corpus_weights.my.corpus=2.5",
        "tasks.inference.examples_per_batch=7",
        "description=a = b",
        "training.steps=1",
        "training.steps=2",
        # Sizes that belong together can be changed together.
        "encoder.num_heads=3",
        "encoder.hidden_dim=66",
    )
    assert (config.tokenizer.max_tokens, type(config.tokenizer.max_tokens)) == (32, int)
    assert (config.optimizer.learning_rate, config.data.targets) == (0.001, ("fr", "de"))
    assert (config.encoder.norm_first, config.tokenizer.lowercase) == (True, True)
    assert (config.encoder.num_layers, config.encoder.hidden_dim) == (None, 66)
    assert config.tokenizer.ngram_sizes == (2, 3, 4)
    assert config.data.corpus_weights == {"my.corpus": 2.5}
    assert (config.description, config.training.steps) == ("a = b", 2)
    # Without a weight, a task is not trained.
    assert config.task("inference").examples_per_batch == 7
    assert not config.active_tasks


def test_a_kind_brings_its_defaults_whatever_the_order():
    config = override(
        "tokenizer.num_pieces=99",
        "tokenizer.kind=sentencepiece",
        "encoder.hidden_dim=64",
        "encoder.kind=static",
    )
    assert config.tokenizer == SentencePieceConfig(num_pieces=99)
    assert config.encoder == StaticConfig(hidden_dim=64)
    again = apply_overrides(config, ["encoder.kind=transformer"])
    assert again.encoder == TransformerConfig()


def test_a_model_to_start_from_takes_tokenizer_and_encoder_away():
    config = override("initial.average=0.5", "initial.model=exported/x")
    assert config.tokenizer is config.encoder is None
    assert (config.initial.model, config.initial.average) == ("exported/x", 0.5)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config
    with pytest.raises(UserError, match="starts from a model"):
        apply_overrides(get_preset("best"), ["initial.average=0", "initial.model="])


def test_json_round_trip():
    for preset in PRESETS.values():
        assert from_dict(json.loads(json.dumps(to_dict(preset)))) == preset
        assert override(*setting_lines(settings_by_name(to_dict(preset)))) == preset
    config = from_dict({"tokenizer": {"kind": "words", "max_tokens": 5}})
    assert config == override("tokenizer.max_tokens=5")
    values = to_dict(ExperimentConfig())
    values["tokenizer"]["stemming"] = True
    with pytest.raises(UserError, match="a WordsConfig has no field 'stemming'"):
        from_dict(values)
