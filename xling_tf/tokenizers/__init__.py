"""Tokenizers, which turn text into token features inside a TensorFlow graph."""
