"""Faults around a server, each a scenario with what it expects and what it saw."""
