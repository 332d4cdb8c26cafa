"""Corpora: records, one reader per format, the default sources, and the held-out split."""
