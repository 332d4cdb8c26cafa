"""Exporters of a model to the formats that other programs load: a file for each format."""
