"""Devices: the strategy, and candidates gathered across its replicas."""

import tensorflow as tf

from xling_tf.trainer.cluster import ALONE, Cluster


def make_strategy(cluster: Cluster = ALONE) -> tf.distribute.Strategy:
    """Mirrors the variables over the GPUs found, else on the CPU, of this machine or of several.

    Args:
        cluster: Who trains together. Where that is more than one process, no TensorFlow operation
            may have run before, and this returns once all have come here.
    """
    if len(cluster.names) > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
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
    # The copy is this replica's: what comes from outside has no device, and gathering needs one.
    values = tf.identity(values)
    counts = context.all_gather(tf.shape(values)[:1], axis=0)
    offset = tf.reduce_sum(counts[: context.replica_id_in_sync_group])
    return context.all_gather(values, axis=0), offset
