"""Sentence encoders: strings to vectors."""
