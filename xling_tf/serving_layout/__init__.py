"""The folder that TensorFlow Serving, and any server of its protocol, reads: `<name>/<version>`."""
