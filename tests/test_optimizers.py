import keras
import numpy as np
import pytest
import tensorflow as tf
from testing import two_replicas

from xling_tf.config import OptimizerConfig
from xling_tf.trainer.distribution import make_strategy
from xling_tf.trainer.optimizers import TABLES, Optimizers


def make_table(rows=5, dim=2):
    return keras.Variable(np.zeros((rows, dim)), dtype="float32")


def slices(values, indices):
    return tf.IndexedSlices(tf.constant(values, tf.float32), tf.constant(indices))


def make(name, **kwargs):
    table, dense = make_table(), keras.Variable([1.0, 2.0])
    config = OptimizerConfig(name=name, learning_rate=0.1, embedding_learning_rate=1.0, **kwargs)
    return Optimizers(config, [table], {"encoder": [dense]}), table, dense


def apply(optimizers, table, dense, values, indices):
    optimizers.apply([slices(values, indices), tf.zeros(2)], [table, dense])
    return table.numpy()


def test_two_steps_by_hand():
    # square = 0.01 mean(g^2) with the correction 1 / 0.01 makes g / sqrt(mean(g^2)).
    # For g = (3, 4), the mean square is 12.5: (3, 4) / 3.5355 = (0.84853, 1.13137).
    made = optimizers, table, dense = make("adam")
    optimizers.apply([slices([[3, 4], [1, 1]], [2, 0]), tf.constant([10.0, -10.0])], [table, dense])
    values = table.numpy()
    assert values[2] == pytest.approx([-0.84853, -1.13137], rel=1e-4)
    # After g = (1, 1) and g = (2, 2): square 0.99 * 0.01 + 0.01 * 4 = 0.0499, corrected by
    # 1 / (1 - 0.9801). The steps: 1, then 2 / sqrt(0.0499 / 0.0199) = 1.26300.
    assert values[0] == pytest.approx([-1, -1], rel=1e-4)
    # The first step of Keras' Adam is the learning rate times the sign.
    assert dense.numpy() == pytest.approx([0.9, 2.1], rel=1e-4)
    assert apply(*made, [[2, 2]], [0])[0] == pytest.approx([-2.26300] * 2, rel=1e-4)
    # Dense: iterations and two moments; tables: iterations, and two mean squares a row.
    shapes = sorted(tuple(variable.shape) for variable in optimizers.named_variables.values())
    assert shapes == [(), (), (2,), (2,), (5,), (5,)]


def test_two_steps_of_adam_on_a_dense_variable():
    # Gradients 1 and 3. The first step is the rate. The second moments are
    # .9 * .1 + .1 * 3 = .39, corrected by 1 / (1 - .9^2): 2.05263; and
    # .98 * .02 + .02 * 9 = .1996, corrected by 1 / (1 - .98^2): 5.04040.
    # The second step is 2.05263 / sqrt(5.04040) = .914276 times the rate.
    optimizers, table, dense = make("adam")
    for gradient in ([1.0, -1.0], [3.0, -3.0]):
        optimizers.apply([slices([[0, 0]], [0]), tf.constant(gradient)], [table, dense])
    assert dense.numpy() == pytest.approx([1 - 0.1914276, 2 + 0.1914276], rel=1e-5)


def test_a_row_that_is_seen_late_or_rarely_moves_by_the_rate():
    # Gradients of 3, always: their corrected mean square is 9, so each update is 3 / sqrt(9) = 1
    # times the rate. Corrected by the steps, that of step 101 would be
    # sqrt(1 - 0.99^101) / sqrt(0.01) = 8.0 times it.
    made = make("adam")
    for _ in range(100):
        apply(*made, [[3, 3]], [1])
    assert apply(*made, [[3, 3]], [4])[4] == pytest.approx([-1, -1], rel=1e-4)
    # Seen every 25th step: five updates in all.
    for step in range(100):
        values = apply(*made, [[3, 3]], [4 if step % 25 == 24 else 0])
    assert values[4] == pytest.approx([-5, -5], rel=1e-4)


def test_sgd_by_hand_and_a_rate_for_the_tables():
    table, dense, average = make_table(), keras.Variable([1.0, 2.0]), keras.Variable([1.0])
    config = OptimizerConfig(learning_rate=0.1, embedding_learning_rate=1.0)
    optimizers = Optimizers(config, [table], {"encoder": [dense], "average": [average]})
    gradients = [slices([[1, 2], [1, 0]], [3, 3]), tf.constant([10.0, -10.0])]
    optimizers.apply(gradients, [table, dense])
    assert dense.numpy().tolist() == [0, 3]  # 1 - 0.1 * 10, 2 + 0.1 * 10
    assert table.numpy().tolist() == [[0, 0], [0, 0], [0, 0], [-2, -2], [0, 0]]
    # Half of the rates; tables and average learn at a fifth of that.
    gradients = [slices([[1, 1]], [0]), tf.constant([1.0, 1.0]), tf.constant([1.0])]
    rates = {TABLES: 0.2, "average": 0.2}
    optimizers.apply(gradients, [table, dense, average], 0.5, rates=rates)
    assert dense.numpy() == pytest.approx([-0.05, 2.95])
    assert average.numpy() == pytest.approx([0.99])
    assert table.numpy()[0] == pytest.approx([-0.1, -0.1])


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("rows", [[[3, 1, 3, 0, 0, 3]], [[3, 1, 3], [0, 0, 3]]])
def test_rows_that_come_twice_are_summed_and_sent_once(name, rows, monkeypatch):
    all_reduce, sizes = tf.distribute.ReplicaContext.all_reduce, []

    def watched(context, operation, values):
        sizes.append(len(values[0]))
        return all_reduce(context, operation, values)

    monkeypatch.setattr(tf.distribute.ReplicaContext, "all_reduce", watched)
    strategy = two_replicas() if len(rows) > 1 else make_strategy()
    with strategy.scope():
        optimizers, table, dense = make(name)

    def step():
        own = rows[tf.distribute.get_replica_context().replica_id_in_sync_group]
        return optimizers.apply([slices([[1, 2]] * len(own), own), tf.zeros(2)], [table, dense])

    norms = strategy.experimental_local_results(strategy.run(step))
    # Row 3 comes three times, row 0 twice, row 1 once. Adam's first step is g / sqrt(mean(g^2)).
    moves = {"sgd": [[2, 4], [1, 2], [3, 6]], "adam": [[0.632456, 1.264911]] * 3}[name]
    assert table.numpy()[[0, 1, 3]] == pytest.approx(-np.array(moves), rel=1e-4)
    assert [float(norm) for norm in norms] == pytest.approx([70**0.5] * len(rows))
    assert sizes == [3] * len(rows)


def test_clipping_shortens_the_dense_gradient_and_tells_the_norm_before():
    # Of two dense gradients, (3, 4) and (12,): norm 13, clipped to 6.5, so half of each is left.
    table, first, second = make_table(), keras.Variable([0.0, 0.0]), keras.Variable([0.0])
    config = OptimizerConfig(learning_rate=1.0, embedding_learning_rate=1.0, clip_norm=6.5)
    optimizers = Optimizers(config, [table], {"encoder": [first, second]})
    gradients = [slices([[0, 84]], [3]), tf.constant([3.0, 4.0]), tf.constant([12.0])]
    norm = optimizers.apply(gradients, [table, first, second])
    assert first.numpy() == pytest.approx([-1.5, -2])
    assert second.numpy() == pytest.approx([-6])
    # That of the tables is left alone, and counts in the norm: 85^2 = 84^2 + 13^2.
    assert table.numpy()[3].tolist() == [0, -84]
    assert float(norm) == pytest.approx(85)


def test_the_first_step_of_a_head_is_that_of_step_1_however_late_it_starts():
    # Kingma and Ba 2015, sec. 3: after one step the corrected moments are g and g^2, so that Adam
    # moves by the rate, here twice the encoder's. Corrected by the encoder's 101 steps, it would be
    # 0.1 / sqrt(0.02 / 0.87) = 0.66 of it.
    encoder, head, other = (keras.Variable([0.0]) for _ in range(3))
    config = OptimizerConfig(name="adam", learning_rate=0.1)
    heads = {"other": (1, [other]), "head": (2, [head])}
    optimizers = Optimizers(config, [], {"encoder": [encoder]}, heads)
    for _ in range(100):
        optimizers.apply([tf.constant([1.0]), tf.constant([1.0])], [encoder, other])
    assert head.numpy() == 0
    optimizers.apply([tf.constant([1.0]), tf.constant([5.0])], [encoder, head])
    assert head.numpy() == pytest.approx([-0.2], rel=1e-4)
    assert encoder.numpy() == pytest.approx([-0.1 * 101], rel=1e-3)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_the_weight_of_a_loss_reaches_words_and_heads_that_only_its_task_trains(name):
    def moves(loss_weight, gradient=1.0):
        """How far a step of a task moves rows 3 and 0, the encoder and the head."""
        table, encoder, head = make_table(), keras.Variable([0.0]), keras.Variable([0.0])
        config = OptimizerConfig(name=name, learning_rate=0.1, embedding_learning_rate=1.0)
        optimizers = Optimizers(config, [table], {"encoder": [encoder]}, {"head": (2, [head])})
        # Another task, of weight 1, reads row 0 and the encoder at every step.
        for _ in range(20):
            optimizers.apply([slices([[4, 4]], [0]), tf.constant([4.0])], [table, encoder])
        before, encoder_before, scale = table.numpy(), encoder.numpy(), loss_weight * gradient
        rows = slices([[scale, 2 * scale], [scale * 4] * 2], [3, 0])
        gradients = [rows, tf.constant([4.0]), tf.constant([5.0 * scale])]
        optimizers.apply(gradients, [table, encoder, head], loss_weight=loss_weight)
        moved = encoder_before - encoder.numpy()
        return before[3] - table.numpy()[3], before[0] - table.numpy()[0], -head.numpy(), moved

    row, shared_row, head, encoder = moves(1.0)
    small_row, small_shared_row, small_head, small_encoder = moves(0.01)
    # With a weight of 1, row 3 moves by the gradient, or by (1, 2) / sqrt(mean of 1 and 4), and the
    # head by twice the rate of .1 times 5, or times its sign.
    assert row == pytest.approx({"sgd": [1, 2], "adam": [0.632456, 1.264911]}[name], rel=1e-4)
    assert head == pytest.approx({"sgd": [1.0], "adam": [0.2]}[name], rel=1e-4)
    assert small_row == pytest.approx(0.01 * row, rel=1e-4)
    assert small_head == pytest.approx(0.01 * head, rel=1e-4)
    assert not any(np.any(moved) for moved in moves(0.0)[:3])
    # The encoder's gradient of 4, as at every step before, is that of a weighted loss already:
    # whatever the weight, it moves by .1 times 4, or by the rate of .1.
    assert encoder == pytest.approx({"sgd": [0.4], "adam": [0.1]}[name], rel=1e-4)
    assert small_encoder == pytest.approx(encoder, rel=1e-4)
    # Row 0 has the other task's mean square. A 20th of 21 look-ups hardly changes it:
    # 1 - .99^20 = .18209, so of mean squares and weights .18027 is left, to which .01 * .01^2 is
    # added: still a quotient of 16.
    assert small_shared_row == pytest.approx(0.01 * shared_row, rel=1e-3)
    # A task with large gradients takes nothing from the others' steps on the same row.
    if name == "adam":
        moved = moves(0.01, gradient=100.0)[1]
        assert moved == pytest.approx(shared_row * (0.18027 / 0.19027) ** 0.5, rel=1e-3)
