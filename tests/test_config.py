"""Settings: their ranges, overrides by dotted names, JSON, and the constants of the paper."""

import dataclasses
import json
import re

import pytest

from xling_tf.config import ExperimentConfig, apply_overrides, from_json, to_json
from xling_tf.errors import UserError
from xling_tf.presets import PRESETS


def override(*overrides):
    return apply_overrides(ExperimentConfig(), overrides)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("encoder.num_heads=7", "encoder.num_heads, 7, got 512"),
        ("encoder.hidden_dim=64", "tasks.tower_dims must equal encoder.hidden_dim"),
        ("text.ngram_sizes=0,3", "text.ngram_sizes must be at least 1"),
        ("optimizer.clip_norm=nan", "optimizer.clip_norm must be a number of at least 0, got nan"),
        ("tasks.inference.head_rate=-1", "inference.head_rate must be a number of at least 0"),
        ("data.targets=all,es", "or all alone for those that the data have, got ['all', 'es']"),
        ("optimizer.name=sdg", "optimizer.name expects sgd or adam, got 'sdg'"),
        ("encoder.p_values=nan", "encoder.p_values expects powers"),
        ("encoder.kind=cnn", "encoder.kind=cnn expects text.tokenizer=sentencepiece"),
        ("data.targets=en", "data.targets expects at least one language besides data.source"),
        ("tasks.similarity.matryoshka_dims=64,512", "different numbers below encoder.hidden_dim"),
        ("tasks.distillation.weight=1", "expects a teacher, got none"),
        ("training.static_share=0.5", "expects encoder.add_average=true"),
        (("encoder.kind=static", "encoder.add_average=true"), "expects encoder.kind=transformer"),
        # What is malformed, names no field, or has a value of another type.
        ("text.max_tokens", "expects name=value, got 'text.max_tokens'"),
        ("text.max_token=3", "no 'max_token' here; did you mean max_tokens"),
        ("text.max_tokens=3.5", "text.max_tokens expects int, got '3.5'"),
        ("text=3", "text expects a field below it (max_tokens, "),
        ("text.max_tokens.x.y=3", "nothing lies below a plain value; leave out .x.y"),
    ],
)
def test_what_cannot_be_is_refused(setting, message):
    with pytest.raises(UserError, match=re.escape(message)):
        override(*([setting] if isinstance(setting, str) else setting))


def test_every_type():
    default = ExperimentConfig()
    assert override("text.lowercase=true").text == dataclasses.replace(default.text, lowercase=True)
    assert default == ExperimentConfig()
    config = override(
        "text.max_tokens=32",
        "optimizer.learning_rate=1e-3",
        "data.targets=fr",
        "encoder.norm_first=Yes",
        " text.lowercase = 1 ",
        "text.ngram_sizes=2,3,4",
        "data.corpus_weights.my.corpus=2.5",
        "description=a = b",
        "training.steps=1",
        "training.steps=2",
    )
    assert (config.text.max_tokens, type(config.text.max_tokens)) == (32, int)
    assert (config.optimizer.learning_rate, config.data.targets) == (0.001, ("fr",))
    assert (config.encoder.norm_first, config.text.lowercase) == (True, True)
    assert config.text.ngram_sizes == (2, 3, 4)
    assert config.data.corpus_weights == {"my.corpus": 2.5}
    assert (config.description, config.training.steps) == ("a = b", 2)
    # Sizes that belong together can be changed together.
    assert override("encoder.hidden_dim=64", "tasks.tower_dims=32,64").tasks.tower_dims == (32, 64)


def test_json_round_trip():
    for preset in PRESETS.values():
        assert from_json(ExperimentConfig, to_json(preset)) == preset
    config = from_json(ExperimentConfig, '{"text": {"max_tokens": 5}}')
    assert config == override("text.max_tokens=5")
    values = json.loads(to_json(ExperimentConfig()))
    values["text"]["stemming"] = True
    with pytest.raises(UserError, match="a TextConfig has no field 'stemming'"):
        from_json(ExperimentConfig, json.dumps(values))


def test_the_constants_of_the_paper():
    # Chidambaram et al. 2019, sec. 3.2: "a batch size of 100 using stochastic gradient descent with a
    # learning rate of 0.008"; "a vocab containing 200 thousand unigram tokens with 10 thousand hash
    # buckets"; "200 thousand hash buckets used for 3 and 4 grams"; "embedding sizes are 320";
    # "multiply the gradient updates to the word and character embeddings by a factor of 100".
    config = ExperimentConfig()
    assert config.tasks.translation_ranking.examples_per_batch == 100
    assert (config.optimizer.name, config.optimizer.learning_rate) == ("sgd", 0.008)
    rates = config.optimizer.embedding_learning_rate / config.optimizer.learning_rate
    assert rates == pytest.approx(100)
    assert (config.text.max_words, config.text.num_oov_buckets) == (200_000, 10_000)
    assert (config.text.ngram_sizes, config.text.num_ngram_buckets) == ((3, 4), 200_000)
    assert config.encoder.embedding_dim == 320
    # Sec. 2.1: "three stacked transformer sub-networks", "8 attentions heads, a hidden size of 512, and
    # a filter size of 2048", post-norm as in Vaswani et al. 2017.
    encoder = config.encoder
    assert (encoder.num_layers, encoder.num_heads, encoder.norm_first) == (3, 8, False)
    assert (encoder.hidden_dim, encoder.intermediate_dim) == (512, 2048)
    # Sec. 2.2: "fully-connected feedforward layers of size 320 and 512", NLI: "of size 512"; eq. 1: the
    # plain dot product.
    assert (config.tasks.tower_dims, config.tasks.inference_dim) == ((320, 512), 512)
    similarity = config.tasks.similarity
    assert (similarity.normalize, similarity.scale, similarity.margin) == (False, 1.0, 0.0)
    assert not similarity.bidirectional
    # All tasks from the first step on, and none weighs more than another.
    assert config.tasks.inference.loss_weight == config.tasks.quick_thought.loss_weight == 1
