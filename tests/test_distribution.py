"""Two replicas on the halves of a batch compute what one computes on the whole."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import (
    DIM,
    TINY,
    find_task,
    make_batches,
    make_examples,
    tiny_model,
    two_replicas,
)

from xling_tf.distribution import gather_candidates, make_strategy
from xling_tf.trainer import Trainer

# Keras warns of one key alone, which is what a sentence of one word has.
pytestmark = pytest.mark.filterwarnings("ignore:You are using a softmax over axis:UserWarning")

# "hello" twice as a source and "j" twice as a target, each time across the replicas.
COLUMNS = (
    ["a b", "hello", "c d e", "f g", "world", "hello", "a a", "i"],
    ["hola", "mundo a", "j", "i j", "hola mundo", "b b b", "j", "d e"],
    ["d", "e e", "f f f", "a j", "c i", "d d", "h", "g h i"],
)
TASKS = {
    "translation_ranking_en-es": 2,
    "response_prediction_en": 2,
    "quick_thought_es": 3,
    "inference": 2,
}
# Replicas may hold different numbers of rows.
HALVES = [[0, 1, 2, 3, 4], [5, 6, 7]]


def test_without_a_strategy_nothing_is_gathered():
    values, offset = gather_candidates(tf.constant([[1.0], [2.0]]))
    assert values.numpy().tolist() == [[1], [2]]
    assert offset.numpy() == 0


def test_candidates_come_in_the_order_of_the_replicas():
    strategy = two_replicas()

    @tf.function
    def gather():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            # Replica 0 holds [0] and [1]; replica 1 holds [10], [11] and [12].
            rows = tf.range(2 + number) + 10 * number
            return gather_candidates(tf.cast(rows, tf.float32)[:, None])

        return strategy.run(replica)

    values, offsets = gather()
    for local in strategy.experimental_local_results(values):
        assert local.numpy().tolist() == [[0], [1], [10], [11], [12]]
    assert [int(o) for o in strategy.experimental_local_results(offsets)] == [0, 2]


def test_gathering_passes_gradients_back_to_where_candidates_came_from():
    strategy = two_replicas()

    @tf.function
    def gradients():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            rows = tf.ones([2, 1])
            with tf.GradientTape() as tape:
                tape.watch(rows)
                values, _ = gather_candidates(rows)
                # Replica 0 weighs rows by 1, 2, 3, 4 and replica 1 by 10, 20, 30, 40.
                weights = tf.constant([[1.0], [2], [3], [4]]) * tf.cast(9 * number + 1, tf.float32)
                loss = tf.reduce_sum(values * weights)
            return tape.gradient(loss, rows)

        return strategy.run(replica)

    first, second = strategy.experimental_local_results(gradients())
    assert first.numpy().tolist() == [[11], [22]]
    assert second.numpy().tolist() == [[33], [44]]


def test_the_strategy_of_a_machine_without_a_gpu_has_one_replica():
    if tf.config.list_logical_devices("GPU"):
        pytest.skip("this machine has a GPU")
    assert make_strategy().num_replicas_in_sync == 1


def config_of(optimizer, normalize):
    similarity = dataclasses.replace(
        TINY.tasks.similarity, normalize=normalize, scale=3.0, margin=0.1, bidirectional=True
    )
    return dataclasses.replace(
        TINY,
        tasks=dataclasses.replace(TINY.tasks, similarity=similarity),
        # Adam divides by the gradient's size, so it must not magnify rounding errors of tiny ones.
        optimizer=dataclasses.replace(TINY.optimizer, name=optimizer, learning_rate=0.01),
    )


class Replica:
    """A trainer's compiled step for a task under a strategy, over given batches."""

    def __init__(self, strategy, config, name, batches, folder):
        self.strategy = strategy
        with strategy.scope():
            model = tiny_model(config)
        task = find_task(model, name)
        columns = COLUMNS[: TASKS[name]]
        examples = make_examples(*columns, labels=[0, 1, 2, 0, 1, 2, 2, 1])
        model = model._replace(tasks=[task])
        trainer = Trainer(model=model, examples={name: examples}, strategy=strategy, run_dir=folder)
        self.variables = [*model.encoder.trainable_variables, *task.variables()]
        dataset = make_batches(model, examples, batches)
        spec = dataset.element_spec
        if strategy.num_replicas_in_sync > 1:
            spec = strategy.distribute_datasets_from_function(lambda _: dataset).element_spec
        self._batches = iter(list(dataset))
        self._step = trainer._compile(task, spec)

    def step(self):
        # As from the trainer's iterator, each replica takes the next batch. (The destructor of such an
        # iterator waits for seconds, so the tests do without.)
        if self.strategy.num_replicas_in_sync == 1:
            batch = next(self._batches)
        else:
            batch = self.strategy.experimental_distribute_values_from_function(
                lambda _: next(self._batches)
            )
        return [float(result) for result in self._step(batch)]

    def weights(self):
        return [variable.numpy() for variable in self.variables]

    def assign(self, weights):
        for variable, weight in zip(self.variables, weights, strict=True):
            variable.assign(weight)


@pytest.mark.parametrize(
    ("name", "optimizer", "normalize"),
    [(name, "sgd", False) for name in TASKS] + [("translation_ranking_en-es", "adam", True)],
)
def test_two_replicas_are_one(name, optimizer, normalize, tmp_path):
    config = config_of(optimizer, normalize)
    whole = [row for half in HALVES for row in half]
    one = Replica(make_strategy(), config, name, [whole, whole], tmp_path / "one")
    two = Replica(two_replicas(), config, name, HALVES * 2, tmp_path / "two")
    two.assign(one.weights())
    before = one.weights()
    for _ in range(2):
        loss, hits, count, _ = one.step()
        loss_of_two, hits_of_two, count_of_two, _ = two.step()
        assert loss_of_two == pytest.approx(loss, rel=1e-4)
        assert (hits_of_two, count_of_two) == (hits, count)
        assert count == 8
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


def test_the_loss_weight_multiplies_the_gradients(tmp_path):
    # A step of SGD with weight 0.25 is a quarter of the step with weight 1.
    def change(weight):
        config = config_of("sgd", False)
        task = dataclasses.replace(config.tasks.inference, loss_weight=weight)
        config = dataclasses.replace(
            config, tasks=dataclasses.replace(config.tasks, inference=task)
        )
        keras.utils.set_random_seed(1)
        replica = Replica(make_strategy(), config, "inference", [range(8)], tmp_path / str(weight))
        before = replica.weights()
        loss = replica.step()[0]
        return loss, [new - old for new, old in zip(replica.weights(), before, strict=True)]

    whole_loss, whole = change(1.0)
    quarter_loss, quarter = change(0.25)
    assert quarter_loss == pytest.approx(whole_loss)
    for one, other in zip(whole, quarter, strict=True):
        assert other == pytest.approx(one / 4, rel=1e-3, abs=1e-6)
