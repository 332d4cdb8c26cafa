"""Two replicas on the halves of a batch compute what one computes on the whole."""

import keras
import numpy as np
import pytest
from testing import (
    DIM,
    LSTM,
    find_task,
    make_batch,
    make_examples,
    tiny_config,
    tiny_model,
    two_replicas,
)

from xling_tf.settings import apply_overrides
from xling_tf.tasks.distillation import Distillation
from xling_tf.trainer.distribution import Workers, make_strategy
from xling_tf.trainer.loop import Trainer

# "hello" twice as a source and "j" twice as a target, each time across the replicas.
COLUMNS = (
    ["a b", "hello", "c d e", "f g", "world", "hello", "a a", "i"],
    ["hola", "mundo a", "j", "i j", "hola mundo", "b b b", "j", "d e"],
    ["d", "e e", "f f f", "a j", "c i", "d d", "h", "g h i"],
)
# The first and the last mean the same, too.
MEANINGS = [0, 1, 2, 3, 4, 1, 5, 0]
# Replicas may hold different numbers of rows, and none.
HALVES = [[0, 1, 2, 3, 4], [5, 6, 7], [*range(8)], []]


def config_of(optimizer, normalize, overrides=()):
    # Adam divides by the gradient's size, so it must not magnify rounding errors of tiny ones.
    rates = (f"optimizer.name={optimizer}", "optimizer.learning_rate=0.01")
    similarity = {"normalize": normalize, "scale": 3.0, "margin": 0.1, "bidirectional": True}
    return tiny_config(*rates, *overrides, **similarity)


# Far below the norm of every task here, so that it changes each step.
CLIPPED = ("optimizer.clip_norm=0.01", "optimizer.learning_rate=1")
GRADED = ("tasks.graded_similarity.weight=1",)
# The second step is pulled back to before the first one.
ANCHORED = (
    "similarity.matryoshka_dims=5",
    "tasks.translation_ranking.hard_negatives=1",
    "tasks.translation_ranking.same_side=true",
)
DISTILLED = ("tasks.distillation.weight=1", "tasks.distillation.teacher=python:a:teacher")
YU = (
    *LSTM,
    *(f"tasks.translation.{x}" for x in ("weight=1", "regularizer=contrastive", "alpha=2")),
)
# Both encode in groups of similar length, of which a replica with few rows leaves some empty.
SIZES = ("encoder.embedding_dim=8", "encoder.intermediate_dim=12", "encoder.num_layers=1")
BERT = ("encoder.kind=bert", *SIZES, "encoder.num_heads=2", "tokenizer.ngram_sizes=")
CNN = (
    "encoder.kind=cnn",
    *SIZES,
    "encoder.hidden_dim=8",
    "encoder.num_filters=4",
    "tokenizer.ngram_sizes=",
)
# Of "hello" the same, wherever it stands.
VECTORS = np.random.default_rng(2).standard_normal((8, DIM)).astype(np.float32)
VECTORS[5] = VECTORS[1]


class Replica:
    """A trainer's compiled step for a task under a strategy, over given batches."""

    def __init__(self, strategy, config, name, batches, folder, *, anchor_weight=0):
        self.strategy = strategy
        keras.utils.set_random_seed(1)  # all replicas have the same anchor
        with strategy.scope():
            model = tiny_model(config)
        task = find_task(model, name)
        columns = COLUMNS[: len(task.columns)]
        vectors = VECTORS if isinstance(task, Distillation) else None
        numbers = {"labels": [0, 1, 2, 0, 1, 2, 2, 1], "meanings": MEANINGS}
        examples = make_examples(*columns, **numbers, vectors=vectors)
        if anchor_weight:
            config = apply_overrides(
                config, ["initial.model=any", f"initial.anchor_weight={anchor_weight}"]
            )
        parts = {"model": model, "tasks": [task], "config": config, "examples": {name: examples}}
        trainer = Trainer(**parts, workers=Workers(strategy), run_dir=folder)
        self.variables = [*model.encoder.trainable_variables, *task.variables()]
        self._batches = iter([make_batch(model, examples, batch) for batch in batches])
        self._step = trainer._compile(trainer._stages[0], task)

    def step(self):
        # As from the trainer's iterator, each replica takes the next batch. (The destructor of such
        # an iterator waits for seconds, so the tests do without.)
        if self.strategy.num_replicas_in_sync == 1:
            batch = next(self._batches)
        else:
            batch = self.strategy.experimental_distribute_values_from_function(
                lambda _: next(self._batches)
            )
        return [float(result) for result in self._step(batch, np.float32(1))]

    def weights(self):
        return [variable.numpy() for variable in self.variables]

    def assign(self, weights):
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)


@pytest.mark.parametrize(
    ("name", "optimizer", "normalize", "overrides"),
    [
        pytest.param("inference", "sgd", False, CLIPPED, marks=pytest.mark.slow),
        ("translation_ranking_en-es", "sgd", False, ANCHORED),
        pytest.param("distillation_en-es", "sgd", True, DISTILLED, marks=pytest.mark.slow),
        pytest.param("translation_ranking_en-es", "adam", True, BERT, marks=pytest.mark.slow),
        pytest.param("graded_similarity_en", "sgd", True, (*GRADED, *CNN), marks=pytest.mark.slow),
        pytest.param("translation_en-es", "sgd", False, YU, marks=pytest.mark.slow),
    ],
)
def test_two_replicas_are_one(name, optimizer, normalize, overrides, tmp_path, request):
    config = config_of(optimizer, normalize, overrides)
    whole = list(range(8))
    anchor_weight = 3 if overrides is ANCHORED else 0
    folder = tmp_path / "run"
    two = Replica(two_replicas(), config, name, HALVES, folder, anchor_weight=anchor_weight)
    # Two replicas have a graph, as in training; one is faster without.
    request.getfixturevalue("without_graphs")
    one = Replica(
        make_strategy(), config, name, [whole, whole], folder, anchor_weight=anchor_weight
    )
    two.assign(one.weights())
    before = one.weights()
    for _ in range(2):
        loss, hits, *counts, norm = one.step()
        loss_of_two, hits_of_two, *counts_of_two, norm_of_two = two.step()
        assert norm_of_two == pytest.approx(norm, rel=1e-4)
        assert loss_of_two == pytest.approx(loss, rel=1e-4)
        assert hits_of_two == pytest.approx(hits)
        assert counts_of_two == counts
        assert counts[0] == 8  # examples; and tokens
    for variable, variable_of_two, old, new, of_two in zip(
        one.variables, two.variables, before, one.weights(), two.weights(), strict=True
    ):
        first, second = two.strategy.experimental_local_results(variable_of_two.value)
        assert first.numpy().tolist() == second.numpy().tolist(), variable.path
        moved = np.abs(new - old).max()
        assert moved > 0, variable.path
        if optimizer == "adam" and variable.path.endswith("query_key_value/bias"):
            # The bias of the keys shifts all scores of a query alike: its gradient is a rounding
            # error, which Adam magnifies to a step.
            new, of_two = np.delete([new, of_two], np.s_[DIM : 2 * DIM], axis=1)
        assert np.abs(new - of_two).max() < 1e-3 * moved + 1e-6, variable.path


@pytest.mark.usefixtures("without_graphs")
def test_the_loss_weight_multiplies_the_gradients(tmp_path):
    # A step of SGD with weight 0.25 is a quarter of the step with weight 1.
    def change(weight):
        config = config_of("sgd", False, [f"tasks.inference.loss_weight={weight}"])
        replica = Replica(make_strategy(), config, "inference", [range(8)], tmp_path)
        before, (loss, *_) = replica.weights(), replica.step()
        return loss, [new - old for new, old in zip(replica.weights(), before, strict=True)]

    whole_loss, whole = change(1.0)
    quarter_loss, quarter = change(0.25)
    assert quarter_loss == pytest.approx(whole_loss)
    for one, other in zip(whole, quarter, strict=True):
        assert other == pytest.approx(one / 4, rel=1e-3, abs=1e-6)
