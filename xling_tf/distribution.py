"""Devices: the strategy, and candidates gathered across its replicas."""

import tensorflow as tf


def make_strategy() -> tf.distribute.Strategy:
    """Mirrors the variables over the GPUs found; without any, one replica on the CPU."""
    gpus = tf.config.list_logical_devices("GPU")
    return tf.distribute.MirroredStrategy([gpu.name for gpu in gpus] or ["/cpu:0"])


def gather_candidates(values: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the rows of all replicas, and says where this replica's own begin.

    Ranking against the candidates of every replica makes two replicas compute what one computes on
    their joined batch.

    Args:
        values: `[rows, ...]`; replicas may hold different numbers of rows.

    Returns:
        `[all rows, ...]` in the order of the replicas, and the int32 offset of this replica's.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return values, tf.constant(0)
    counts = context.all_gather(tf.shape(values)[:1], axis=0)
    offset = tf.reduce_sum(counts[: context.replica_id_in_sync_group])
    return context.all_gather(values, axis=0), offset
