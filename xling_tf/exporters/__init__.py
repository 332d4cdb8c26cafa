"""Exporters: a model in the form that another loader takes, a file each."""
