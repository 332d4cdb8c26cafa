"""Keras layers, shared by the encoders and the tasks."""
