"""Bricks: Keras layers that work on any backend, except for the table lookup."""
