"""Evaluators, one for each table of the papers; each needs only a function that encodes."""
