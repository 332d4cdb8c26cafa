"""Devices: the strategy."""

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
