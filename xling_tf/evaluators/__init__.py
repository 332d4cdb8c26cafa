"""Evaluators: one per table of the papers; each needs only a function that encodes sentences."""
