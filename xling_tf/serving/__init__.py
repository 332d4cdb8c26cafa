"""A model server that speaks TensorFlow Serving's REST protocol and OpenAI's embeddings."""
