"""Turns strings into vectors, and searches among them, with NumPy alone.

Wheels of `export --to wheel` contain these files beside `errors.py`, so they import nothing else of
this package, and that by relative names.
"""
