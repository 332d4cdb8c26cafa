import dataclasses
import re

import pytest

from xling_tf import config as config_module
from xling_tf.config import EncoderConfig, ExperimentConfig
from xling_tf.errors import UserError
from xling_tf.overrides import apply_overrides
from xling_tf.task_config import TasksConfig

KINDS = [kind for kind in vars(config_module).values() if dataclasses.is_dataclass(kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_configs_are_frozen_and_keyword_only(kind):
    config = kind()
    field = dataclasses.fields(kind)[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field.name, None)
    with pytest.raises(TypeError, match="positional"):
        kind(getattr(config, field.name))


def test_configs_do_not_share_their_dictionaries():
    assert ExperimentConfig().data == ExperimentConfig().data
    first, second = config_module.DataConfig(), config_module.DataConfig()
    assert first.corpus_weights is not second.corpus_weights


def test_heads_must_divide_the_width():
    with pytest.raises(UserError, match=r"encoder\.num_heads, but 512 is none of 7"):
        ExperimentConfig(encoder=EncoderConfig(num_heads=7))


@pytest.mark.parametrize("dims", [(320, 256), (512, 320), ()])
def test_towers_must_end_as_wide_as_the_encoder(dims):
    with pytest.raises(UserError, match=r"tasks\.tower_dims must equal encoder\.hidden_dim"):
        ExperimentConfig(tasks=TasksConfig(tower_dims=dims))


@pytest.mark.parametrize(
    "name",
    [
        *("encoder.num_heads", "text.max_tokens", "text.num_oov_buckets", "text.num_ngram_buckets"),
        *("data.pool_batches", "training.dev_batches", "tasks.inference.examples_per_batch"),
    ],
)
@pytest.mark.parametrize("size", [0, -1])
def test_sizes_are_at_least_one(name, size):
    with pytest.raises(UserError, match=rf"^{re.escape(name)} must be at least 1, got {size}$"):
        apply_overrides(ExperimentConfig(), [f"{name}={size}"])


@pytest.mark.parametrize(
    "name",
    [
        *("tasks.hard_negatives", "optimizer.clip_norm", "optimizer.average_decay"),
        *("training.dev_steps", "training.patience", "data.sampling_temperature"),
    ],
)
def test_options_are_off_or_on(name):
    message = rf"^{re.escape(name)} must be a number of at least 0, got -1(\.0)?$"
    with pytest.raises(UserError, match=message):
        apply_overrides(ExperimentConfig(), [f"{name}=-1"])


def test_what_is_no_number_is_refused():
    with pytest.raises(UserError, match=r"^optimizer\.clip_norm must be a number .* got nan$"):
        apply_overrides(ExperimentConfig(), ["optimizer.clip_norm=nan"])


def test_averages_that_never_move_are_refused():
    with pytest.raises(UserError, match=r"^optimizer\.average_decay must be below 1, .* got 1\.0$"):
        apply_overrides(ExperimentConfig(), ["optimizer.average_decay=1"])


def test_patience_without_scores_is_refused():
    with pytest.raises(UserError, match=r"set training\.dev_steps too$"):
        apply_overrides(ExperimentConfig(), ["training.patience=3"])


@pytest.mark.parametrize(("candidates", "fits"), [(0, True), (99, False), (100, True), (101, True)])
def test_candidates_are_those_of_a_batch_or_more(candidates, fits):
    override = [f"tasks.inference.candidates={candidates}"]
    if fits:
        assert (
            apply_overrides(ExperimentConfig(), override).tasks.inference.candidates == candidates
        )
    else:
        with pytest.raises(UserError, match=r"examples_per_batch, 100, or 0 .*, got 99$"):
            apply_overrides(ExperimentConfig(), override)


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
    assert config.tasks.alignment_steps == 0
    assert config.tasks.inference.loss_weight == config.tasks.quick_thought.loss_weight == 1
