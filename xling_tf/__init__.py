"""Train, evaluate, export and serve cross-lingual sentence encoders in TensorFlow."""

__version__ = "0.1.0.dev0"
