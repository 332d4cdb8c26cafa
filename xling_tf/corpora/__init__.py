"""Corpora: types of records, readers, data folder, store on disk, and held-out split."""
