"""Importers of models that others published: a file for each format."""
