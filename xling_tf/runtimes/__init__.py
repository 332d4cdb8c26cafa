"""Exported models for other runtimes than TensorFlow: LiteRT and ONNX Runtime."""

from xling_tf.runtimes.encoder import RuntimeEncoder, load

__all__ = ["RuntimeEncoder", "load"]
