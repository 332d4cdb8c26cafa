"""Sentence encoders, which turn token features into vectors."""
