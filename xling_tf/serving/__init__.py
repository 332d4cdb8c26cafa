"""A model server that speaks the REST protocol of TensorFlow Serving."""
