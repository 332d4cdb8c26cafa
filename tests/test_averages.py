"""Weight averages against the sum over all steps that defines them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import two_replicas

from xling_tf.config import OptimizerConfig
from xling_tf.trainer.checkpoints import Checkpoints
from xling_tf.trainer.optimizers import Optimizers

DECAY = 0.75
# Rows of the table that each step changes: one twice, one at every step, one late, one never.
ROWS = [[0, 1, 1], [1], [1, 2], [1], [1, 0], [1]]


class Training:
    """An optimizer with averages, over a table, a dense variable and one of another task."""

    def __init__(self, name="sgd", decay=DECAY):
        random = np.random.default_rng(0)
        self.table = keras.Variable(random.normal(size=(4, 2)), dtype="float32")
        self.dense = keras.Variable(random.normal(size=3), dtype="float32")
        self.idle = keras.Variable([5.0])
        config = OptimizerConfig(
            name=name, learning_rate=0.1, embedding_learning_rate=0.2, average_decay=decay
        )
        self.optimizers = Optimizers(config, [self.table], [self.dense, self.idle])
        self.weights = [self.table, self.dense, self.idle]
        self.history = []

    @tf.function
    def _step(self, rows, values, dense):
        gradients = [tf.IndexedSlices(values, rows), dense]
        return self.optimizers.apply(gradients, self.weights[:2])

    def train(self, first, last):
        for step in range(first, last):
            random = np.random.default_rng(step + 1)
            rows = tf.constant(ROWS[step])
            values = tf.constant(random.normal(size=(len(ROWS[step]), 2)), tf.float32)
            self._step(rows, values, tf.constant(random.normal(size=3), tf.float32))
            self.history.append(self.numpy())
        return self

    def numpy(self):
        return [weight.numpy() for weight in self.weights]

    def averages(self):
        with self.optimizers.averaged():
            return self.numpy()


def expected_averages(history):
    """Sum of decay^(n - i) v_i over the steps i = 1 to n, divided by the sum of the factors."""
    factors = DECAY ** np.arange(len(history))[::-1]
    return [
        sum(factor * value for factor, value in zip(factors, values, strict=True)) / factors.sum()
        for values in zip(*history, strict=True)
    ]


@pytest.mark.parametrize("steps", range(1, 7))
@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_averages_are_those_over_all_steps(name, steps):
    training = Training(name).train(0, steps)
    for average, expected in zip(
        training.averages(), expected_averages(training.history), strict=True
    ):
        np.testing.assert_allclose(average, expected, rtol=1e-5, atol=1e-6)


def test_by_hand():
    # A dense weight of 1, 3 and 0 after its steps: (1/4 * 1 + 1/2 * 3 + 1 * 0) / (1/4 + 1/2 + 1) = 1.
    table, dense = keras.Variable([[0.0]]), keras.Variable([0.0])
    config = OptimizerConfig(learning_rate=1.0, average_decay=0.5)
    optimizers = Optimizers(config, [table], [dense])
    for gradient in (-1.0, -2.0, 3.0):
        rows = tf.IndexedSlices(tf.zeros([1, 1]), tf.constant([0]))
        optimizers.apply([rows, tf.constant([gradient])], [table, dense])
    assert dense.numpy() == [0]
    optimizers.use_averages()
    assert dense.numpy() == pytest.approx([1])


def test_a_decay_close_to_one_keeps_its_digits():
    # Nearly the mean of the first two steps: 1 - decay^n must not drown in rounding.
    training = Training(decay=0.99999).train(0, 2)
    first, second = training.history
    for average, before, after in zip(training.averages(), first, second, strict=True):
        np.testing.assert_allclose(average, (before + after) / 2, rtol=1e-4, atol=1e-5)


def test_the_weights_come_back_and_training_goes_on_as_if_nothing_had_been():
    training, undisturbed = Training().train(0, 3), Training().train(0, 6)
    before = training.numpy()
    training.averages()
    with pytest.raises(RuntimeError), training.optimizers.averaged():
        raise RuntimeError
    for value, other in zip(training.numpy(), before, strict=True):
        assert value.tolist() == other.tolist()
    training.train(3, 6)
    for value, other in zip(training.averages(), undisturbed.averages(), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6)


def test_before_the_first_step_the_weights_stay():
    training = Training()
    before = training.numpy()
    training.optimizers.use_averages()
    for value, other in zip(training.numpy(), before, strict=True):
        assert value.tolist() == other.tolist()


def test_without_a_decay_nothing_is_kept_and_nothing_is_swapped():
    training = Training(decay=0.0).train(0, 2)
    assert len(training.optimizers.variables) < len(Training().optimizers.variables)
    for value, other in zip(training.averages(), training.history[-1], strict=True):
        assert value.tolist() == other.tolist()


def test_a_restart_continues_the_averages(tmp_path):
    def make():
        training = Training("adam")
        variables = [weight.value for weight in training.weights] + training.optimizers.variables
        return training, Checkpoints(tmp_path, variables)

    training, checkpoints = make()
    training.train(0, 4)
    checkpoints.save(4, {})
    restarted, checkpoints = make()
    checkpoints.restore()
    restarted.train(4, 6)
    for value, other in zip(
        restarted.averages(), Training("adam").train(0, 6).averages(), strict=True
    ):
        assert value.tolist() == other.tolist()


def test_two_replicas_keep_the_averages_of_their_joint_steps():
    strategy = two_replicas()
    with strategy.scope():
        two = Training("adam")
    # Each replica gives half of the dense gradient, and one of two rows.
    one, dense = Training("adam"), tf.constant([1.0, -2.0, 4.0])
    values = tf.constant([[1.0, 2.0], [-3.0, 1.0]])

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            rows = tf.IndexedSlices(values[number : number + 1], tf.range(number, number + 1))
            return two.optimizers.apply([rows, dense / 2], two.weights[:2])

        return strategy.run(replica)

    for _ in range(3):
        norms = strategy.experimental_local_results(step())
        norm = one.optimizers.apply([tf.IndexedSlices(values, tf.range(2)), dense], one.weights[:2])
        assert [float(each) for each in norms] == pytest.approx([float(norm)] * 2)
    for value, other in zip(two.averages(), one.averages(), strict=True):
        np.testing.assert_allclose(value, other, rtol=1e-6)
