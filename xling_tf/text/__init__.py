"""Text to token features inside the TensorFlow graph, with core operations only."""
