"""Corpora: types of records, readers, the data folder, the store on disk, and the held-out
split.
"""
